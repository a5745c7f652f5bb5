"""What every shipped kernel takes of every chip, and how that changes with the tile: compiled, with no GPU
needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from iocourse.bench import circumstances
from iocourse.course.checkout import Refused
from iocourse.gpu import CHIPS, CompilationFailed, Resources
from iocourse.gpu.jobs import job
from iocourse.gpu.resources import reports
from iocourse.progress_bar import steps

NAME = "resources"
HELP = "registers, spills and shared memory of every kernel on every chip (compiled, no GPU needed)"
HEADS = (64, 128, 256)
BYTES = (2, 4)
PROCESSES = 2
# The forward pass once for each of these, for the picture of lesson 11: BM, BN, warps.
SWEEP = [(BM, BN, warps) for BM in (64, 128) for BN in (16, 32, 64, 128) for warps in (4, 8)]


class Asked(NamedTuple):
    """One kernel to compile."""

    arch: int
    d: int
    bytes: int
    kernel: str
    causal: bool
    BM: int
    BN: int
    warps: int
    stages: int


def run(quick: bool) -> dict[str, Any]:
    """Compile every row of the tile table, and the forward pass over a range of tiles.

    Args:
        quick: sm_80 and sm_90 at d = 128 in 16 bits only.

    Raises:
        Refused: torch or triton is missing.
    """
    try:
        from iocourse.kernels.plans import KERNELS
    except ImportError as error:
        raise Refused(str(error)) from None
    arches, heads, widths = ((80, 90), (128,), (2,)) if quick else (tuple(CHIPS), HEADS, BYTES)
    sizes = [(arch, d, width) for arch in arches for d in heads for width in widths]
    table = [asked for size in sizes for name in KERNELS for asked in _shipped(*size, name)]
    sweep = [] if quick else [asked for arch in arches for d in (64, 128) for asked in _swept(arch, d)]
    rows = _compiled([*table, *sweep])
    return {
        "subject": NAME,
        **circumstances("triton"),
        "shipped": rows[: len(table)],
        "forward_by_tile": rows[len(table) :],
    }


def _shipped(arch: int, d: int, width: int, kernel: str) -> Iterator[Asked]:
    from iocourse.kernels.tiles import ROW_PRODUCTS, tiles_for

    tile = ROW_PRODUCTS if kernel == "row_products" else getattr(tiles_for(arch, d, width), kernel)
    for causal in (False, True):
        yield Asked(arch, d, width, kernel, causal, *tile)


def _swept(arch: int, d: int) -> Iterator[Asked]:
    for BM, BN, warps in SWEEP:
        yield Asked(arch, d, 2, "forward", True, BM, BN, warps, 1 if arch == 75 else 2)


def _compiled(asked: list[Asked]) -> list[dict[str, Any]]:
    """Each row with its report, compiled by a few processes side by side."""
    shares = [asked[first::PROCESSES] for first in range(PROCESSES)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PROCESSES) as pool:
        queues = [reports(list(_jobs(share, Path(folder)))) for share in shares]
        done: dict[Asked, dict[str, Any]] = {}
        for first in steps(range(0, len(asked), PROCESSES), "kernels compiled, a few at a time"):
            round_ = asked[first : first + PROCESSES]
            answers = pool.map(next, queues[: len(round_)])
            done |= {one: one._asdict() | _facts(answer) for one, answer in zip(round_, answers, strict=True)}
    return [done[one] for one in asked]


def _jobs(share: list[Asked], folder: Path) -> Iterator[dict[str, Any]]:
    import torch

    from iocourse.kernels.plans import launches
    from iocourse.kernels.tiles import Tile

    for one in share:
        # A T4 has no bfloat16 units; elsewhere bfloat16 is what people train with.
        half = torch.float16 if one.arch == 75 else torch.bfloat16
        dtype = half if one.bytes == 2 else torch.float32
        tiles: dict[str, Any] = (
            {} if one.kernel == "row_products" else {one.kernel: Tile(one.BM, one.BN, one.warps, one.stages)}
        )
        made = launches(one.arch, one.d, dtype, causal=one.causal, **tiles)[one.kernel]
        yield job(made.kernel, one.arch, made.arguments, {"enable_fp_fusion": True} | made.constants, folder)


def _facts(answer: Resources | CompilationFailed) -> dict[str, Any]:
    if isinstance(answer, CompilationFailed):
        return {"error": str(answer)}
    facts = asdict(answer)
    del facts["arch"], facts["seconds"]  # the first is in the row already; the second would change every time
    return facts


def show(result: dict[str, Any]) -> str:
    """The shipped rows as plain text: one line a kernel, the worse of plain and causal."""
    lines = [
        f"{'':<32}{'BM×BN×warps×stages':>20}{'registers':>11}{'spilled':>9}{'KB shared':>11}{'tensor':>8}"
    ]
    for row in result["shipped"]:
        name = (
            f"sm_{row['arch']} d={row['d']} {8 * row['bytes']} bit {row['kernel']}{' causal' * row['causal']}"
        )
        tile = "×".join(str(row[part]) for part in ("BM", "BN", "warps", "stages"))
        if "error" in row:
            lines.append(f"{name:<36}{tile:>16}  {row['error']}")
            continue
        lines.append(
            f"{name:<36}{tile:>16}{row['registers']:>11}{row['spill_bytes']:>9}"
            f"{row['shared_bytes'] / 1024:>11.1f}{row['tensor_core']:>8}"
        )
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return "\n".join([*lines, f"{len(result['shipped'])} kernels compiled with {versions}, {result['date']}"])
