"""Data of the course's GPUs and of links between them, from data sheets: one row per architecture or link.

Sources: CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications (shared memory
per block and per SM, registers, resident warps and blocks); CUDA toolkit, `cuda_occupancy.h` (units of
allocation); the data sheets and standards named in each row (peak rates without sparsity, bandwidth of memory
and links).
Data sheets do not state latencies; these are from NCCL's tuning model, for one step of a ring with its
protocol Simple, within a node or across the network.
"""

from __future__ import annotations

from dataclasses import dataclass

# The same on every architecture here:
REGISTERS_A_THREAD = 255  # others are spilled to local memory
REGISTER_UNIT = 256  # registers are allocated to a warp in multiples of this number
SCHEDULERS = 4  # per SM; each has a quarter of the registers, and a warp belongs to one of them


@dataclass(frozen=True)
class Chip:
    """Data of one architecture, and of the chip that represents it in figures.

    shared_bytes: maximum shared memory per block. registers: 32-bit registers per SM.
    tensor_tflops: dense float16 rate of the tensor cores. gbytes_per_s: memory bandwidth.
    tensor_cores_in_triton: False if Triton computes products on the ordinary cores.
    warps, blocks: maximum number of resident warps and blocks per SM. reserved_bytes: shared memory per block
    that the system keeps for itself.
    """

    arch: int
    name: str
    shared_bytes: int
    registers: int
    tensor_tflops: float
    gbytes_per_s: float
    source: str
    tensor_cores_in_triton: bool = True
    warps: int = 64
    blocks: int = 32
    reserved_bytes: int = 1024

    @property
    def shared_bytes_per_sm(self) -> int:
        """Shared memory per SM in bytes: one block of maximum size fills it."""
        return self.shared_bytes + self.reserved_bytes


CHIPS: dict[int, Chip] = {
    chip.arch: chip
    for chip in (
        Chip(
            75,
            "T4",
            64 * 1024,
            65536,
            65,
            320,
            "NVIDIA T4 data sheet",
            tensor_cores_in_triton=False,
            warps=32,
            blocks=16,
            reserved_bytes=0,
        ),
        Chip(80, "A100 SXM 80 GB", 163 * 1024, 65536, 312, 2039, "NVIDIA A100 data sheet"),
        Chip(
            89,
            "L4",
            99 * 1024,
            65536,
            121,
            300,
            "NVIDIA L4 data sheet, rate halved: no sparsity",
            warps=48,
            blocks=24,
        ),
        Chip(
            90, "H200 SXM", 227 * 1024, 65536, 989, 4800, "NVIDIA H200 data sheet, rate halved: no sparsity"
        ),
        Chip(100, "B200", 227 * 1024, 65536, 2250, 8000, "NVIDIA B200 data sheet, rate halved: no sparsity"),
    )
}


def chip_of(arch: object) -> Chip:
    """Return the chip of an architecture. Raises ValueError for one that is not in the table."""
    if isinstance(arch, bool) or not isinstance(arch, int) or arch not in CHIPS:
        raise ValueError(f"arch must be one of {', '.join(map(str, CHIPS))}; got {arch!r}")
    return CHIPS[arch]


@dataclass(frozen=True)
class Link:
    """A link between ranks: bandwidth in GB/s per direction, and latency of a message in µs."""

    name: str
    gbytes_per_s: float
    latency_us: float
    source: str


NCCL = "latency: what NCCL counts on for a step of a ring (src/graph/tuning.cc, hwLat, Simple)"
LINKS = {
    "nvlink5": Link("NVLink 5", 900, 3.4, f"NVIDIA B200 data sheet, 1.8 TB/s both ways; {NCCL}"),
    "nvlink4": Link("NVLink 4", 450, 3.4, f"NVIDIA H200 data sheet, 900 GB/s both ways; {NCCL}"),
    "nvlink3": Link("NVLink 3", 300, 3.4, f"NVIDIA A100 data sheet, 600 GB/s both ways; {NCCL}"),
    "pcie5": Link("PCIe 5 x16", 64, 5.7, f"NVIDIA H200 NVL data sheet, 128 GB/s both ways; {NCCL}"),
    "ndr": Link("InfiniBand NDR", 50, 9.6, f"NVIDIA ConnectX-7 user manual, 400 Gb/s; {NCCL}"),
    "ethernet": Link("100 Gb Ethernet", 12.5, 9.6, f"IEEE 802.3ba, 100 Gb/s; {NCCL}"),
}
