"""What the chips of the course offer: facts from NVIDIA's tables, one row an architecture.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (shared memory a block may use, registers); the
data sheets named in each row (peak rates without sparsity, memory bandwidth).
"""

from __future__ import annotations

from dataclasses import dataclass

REGISTERS_A_THREAD = 255  # every architecture here; what does not fit goes to local memory


@dataclass(frozen=True)
class Chip:
    """One architecture, and the chip that stands for it in pictures.

    shared_bytes: shared memory one block may use. registers: 32-bit registers of one multiprocessor.
    tensor_tflops: dense float16 rate of the tensor cores. gbytes_per_s: memory bandwidth.
    tensor_cores_in_triton: False where Triton computes a product on the ordinary cores.
    """

    arch: int
    name: str
    shared_bytes: int
    registers: int
    tensor_tflops: float
    gbytes_per_s: float
    source: str
    tensor_cores_in_triton: bool = True


CHIPS: dict[int, Chip] = {
    chip.arch: chip
    for chip in (
        Chip(75, "T4", 64 * 1024, 65536, 65, 320, "NVIDIA T4 data sheet", tensor_cores_in_triton=False),
        Chip(80, "A100 SXM 80 GB", 163 * 1024, 65536, 312, 2039, "NVIDIA A100 data sheet"),
        Chip(89, "L4", 99 * 1024, 65536, 121, 300, "NVIDIA L4 data sheet, rate halved: no sparsity"),
        Chip(
            90, "H200 SXM", 227 * 1024, 65536, 989, 4800, "NVIDIA H200 data sheet, rate halved: no sparsity"
        ),
        Chip(100, "B200", 227 * 1024, 65536, 2250, 8000, "NVIDIA B200 data sheet, rate halved: no sparsity"),
    )
}


def chip_of(arch: object) -> Chip:
    """The chip of an architecture. Raises ValueError for one that is not in the table."""
    if isinstance(arch, bool) or not isinstance(arch, int) or arch not in CHIPS:
        raise ValueError(f"arch is {arch!r}; allowed: {', '.join(map(str, CHIPS))}")
    return CHIPS[arch]
