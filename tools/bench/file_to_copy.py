"""Resources of the kernels of lessons/flash_attention.py with the tiles of its tuner, at d = 64 and 128.

Tiles for larger heads, which the tuner tries as well, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iocourse.console import table, times_joined
from iocourse.data.records import record_source, run_metadata
from tools.bench import Row
from tools.bench.problems import file_to_copy
from tools.bench.resources import a_score
from tools.bench.resources.compiling import Compilation, compiled, need_compiler

if TYPE_CHECKING:
    from iocourse.kernels.host.launches import Launch

NAME = "flash-attention-file"
HELP = "registers, spills and hot loop of lessons/flash_attention.py by tile (compiled, no GPU needed)"
ARCHES, HEADS = (80, 90, 100), (64, 128)
KERNELS = {"forward": "FORWARD_TILES", "queries": "QUERIES_TILES", "keys": "KEYS_TILES"}
COUNTED = ("wgmma", "mma", "tcgen05", "waits", "spills")  # of the hot loop
N = 1024


def run(quick: bool) -> Row:
    """Compile the kernels in bfloat16, full and causal, and return the record; quick: sm_90 at d = 128 only.

    Raises UsageError if torch or triton is missing.
    """
    need_compiler()
    asked = [*asked_for((90,), (128,))] if quick else [*asked_for(ARCHES, HEADS)]
    return {"subject": NAME, **run_metadata("torch", "triton"), "rows": compiled(asked, launch_of)}


def asked_for(arches: Sequence[int], heads: Sequence[int]) -> Iterator[Compilation]:
    """Yield the compilations, by chip, head size, kernel, tile and mask."""
    for arch in arches:
        for d in heads:
            for kernel, tiles in KERNELS.items():
                for sizes, largest in getattr(file_to_copy(), tiles).items():
                    if d <= largest[arch >= 90] <= max(HEADS):
                        yield from (
                            Compilation(arch, d, 2, kernel, causal, *sizes) for causal in (False, True)
                        )


def launch_of(one: Compilation) -> Launch:
    """Return the launch of a kernel, without its tuner, that `attention` makes for N = 1024 and no shared
    heads of keys.
    """
    import torch

    from iocourse.kernels.host.launches import Launch

    file = file_to_copy()
    q, k, v = (torch.empty(1, 2, N, one.d, dtype=torch.bfloat16) for _ in range(3))
    written: dict[str, Any] = {}
    kernels = {name: getattr(file, f"{name}_kernel") for name in KERNELS}
    checked = file.check_device
    try:
        file.check_device = lambda device, dtype: None
        for name in kernels:
            setattr(file, f"{name}_kernel", _Recorded(name, written))
        o, lse = file.forward(q, k, v, one.causal, 1.0)
        file.backward(o, lse, q, k, v, o, lse, one.causal, 1.0)
    finally:
        file.check_device = checked
        for name, kernel in kernels.items():
            setattr(file, f"{name}_kernel", kernel)
    arguments, constants = written[one.kernel]
    sizes = {"BM": one.BM, "BN": one.BN, "num_warps": one.warps, "num_stages": one.stages}
    return Launch(one.kernel, kernels[one.kernel].fn, arguments, constants | sizes)


class _Recorded:
    """Stands in for a kernel: stores the arguments of a launch instead of making it."""

    def __init__(self, name: str, written: dict[str, Any]) -> None:
        self.name, self.written = name, written

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **constants: self.written.update({self.name: (arguments, constants)})


def show(result: dict[str, Any]) -> str:
    """Format the rows as plain text. Columns after the registers are for the hot loop."""
    lines = [["", "BM×BN×warps×stages", "registers", "instructions per score", *COUNTED]]
    for row in result["rows"]:
        name = f"sm_{row['arch']} d={row['d']} {row['kernel']}" + " causal" * row["causal"]
        tile = times_joined(row[part] for part in ("BM", "BN", "warps", "stages"))
        if "error" in row:
            lines.append([name, tile, row["error"], "", *[""] * len(COUNTED)])
        else:
            loop = row["hot_loop"]
            counts = [str(loop[kind]) for kind in COUNTED]
            lines.append([name, tile, str(row["registers"]), f"{a_score(row):.2f}", *counts])
    return "\n".join([table(lines), f"{len(lines) - 1} kernels compiled with {record_source(result)}"])
