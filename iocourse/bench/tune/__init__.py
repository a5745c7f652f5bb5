"""Tile sizes tried out on the GPU that is here; prints the rows to paste into `kernels/host/tiles.py`.

Nothing is tuned unless this is asked for, and no result is used by itself. Forward and fused are timed alone,
each half of the split backward pass together with the other half at its shipped tile. The kernel with
specialised warps is left out: Triton takes four warps and no other number for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from iocourse.bench import Row, circumstances
from iocourse.console import steps, table
from iocourse.data.recorded import provenance
from iocourse.gpu.timing import CudaStopwatch

from ..gpu.contenders import with_warnings
from ..gpu.judging import geometric_mean
from ..gpu.place import Place, cuda_place
from ..gpu.problem import filled
from ..gpu.runner import Keep
from ..gpu.text import cut_off
from ..gpu.trial import outcomes
from .fitting import BYTES, candidates
from .problem import KERNELS, Problem
from .warming import wanted, warm

if TYPE_CHECKING:
    from iocourse.kernels import Tile, Tiles

NAME = "tune"
HELP = "time tiles for our kernels on a GPU and print the row to paste (needs CUDA, takes long)"
HEADS = (64, 128)
N = 4096
MASKS = (False, True)  # causal
WORTH_IT = 1.02  # a tile replaces the shipped one where it is at least so many times as fast


def run(quick: bool, heads: Sequence[int] | None = None, keep: Keep | None = None) -> Row:
    """Time the candidates of each kernel at d = 64 and 128, full and causal.

    Args:
        quick: d = 128 only, and few tiles: those that compiled code speaks for, or else those that differ
            from the shipped one in one number.
        heads: the head sizes d, where others are asked for.
        keep: takes the record after each kernel.

    Raises:
        Refused: there is no GPU, or kernels are interpreted.
    """
    place = cuda_place("attention")  # what tuned tiles are for
    import torch

    from iocourse.kernels.host.tiles import architecture

    arch = architecture(torch.device("cuda", torch.cuda.current_device()))
    assert arch is not None, "kernels are compiled here, or cuda_place had refused"
    dtype = "float16" if arch < 80 else "bfloat16"

    def problem(d: int, causal: bool) -> Problem:
        return Problem(filled(dtype, d, N, causal), place)

    heads = heads or (HEADS[1:] if quick else HEADS)
    warm(arch, wanted(arch, heads, quick), N, dtype)
    return tuned(arch, heads, quick, problem, place, keep)


def tuned(
    arch: int, heads: Sequence[int], quick: bool, problem: Callable[[int, bool], Problem], place: Place,
    keep: Keep | None = None,
) -> Row:  # fmt: skip
    """The record: every candidate's times, the tile to take for each kernel, and the rows to paste.

    Args:
        arch: a row of the tile table.
        heads: head sizes d.
        quick: few candidates.
        problem: the problem for (d, causal).
        place: where this runs.
        keep: takes the record after each kernel, so that a run that is cut off leaves what it tried.
    """
    from iocourse.kernels.host.tiles import tiles_for

    kernels: list[Row] = []
    rows: list[str] = []
    facts = circumstances("torch", "triton") | {"device": place.facts()}
    record = {"subject": NAME, **facts, "arch": arch, "asked": len(heads) * len(KERNELS)}
    record |= {"kernels": kernels, "rows": rows}  # which grow

    for d in steps(heads, "head sizes"):
        tiles = tiles_for(arch, d, BYTES)
        problems = [problem(d, causal) for causal in MASKS]
        for kernel in steps(KERNELS, f"kernels, d = {d}"):
            shipped = getattr(tiles, kernel)
            tiles_to_try = candidates(kernel, shipped, arch, d, quick)
            tried = _tried(kernel, tiles_to_try, problems, place.stopwatch)
            best = chosen(tried, shipped)
            kernels.append({"d": d, "kernel": kernel, "shipped": shipped, "chosen": best, "tried": tried})
            tiles = tiles._replace(**{kernel: best})
            if keep:
                keep(record)
        rows.append(row_text(arch, d, BYTES, tiles))
    return record


def _tried(kernel: str, tiles: list[Tile], problems: list[Problem], watch: CudaStopwatch) -> list[Row]:
    """Each tile with its milliseconds (full, causal), or why it has none."""
    found: list[Row] = [{"tile": tile, "ms": []} for tile in tiles]
    for one in problems:
        left = {str(entry["tile"]): entry for entry in found if "failed" not in entry}
        made = {name: with_warnings(partial(one.work, kernel, entry["tile"])) for name, entry in left.items()}
        times = outcomes({name: work for name, (work, reason) in made.items() if not reason}, watch)
        for name, entry in left.items():
            outcome = times.get(name) or {"refused": made[name][1]}
            if "refused" in outcome:
                entry["failed"] = outcome["refused"]
            else:
                entry["ms"].append(outcome["ms"])
    return found


def chosen(tried: Sequence[Mapping[str, Any]], shipped: Tile) -> Tile:
    """The fastest tile in the geometric mean of its times, where that is worth the change."""
    means = {one["tile"]: geometric_mean(one["ms"]) for one in tried if "failed" not in one}
    if not means:
        return shipped
    best = min(means, key=lambda tile: means[tile])
    return best if shipped not in means or means[shipped] >= WORTH_IT * means[best] else shipped


def row_text(arch: int, d: int, itemsize: int, tiles: Tiles) -> str:
    """The line of TABLE in `kernels/host/tiles.py`."""
    four = ", ".join(str(tuple(tile)) for tile in tiles)
    return f"    ({arch}, {d}, {itemsize}): _row({four}),"


def show(result: Row) -> str:
    """The best and the shipped tile of each kernel, and the rows to paste."""
    lines = [["", "shipped", "ms full, causal", "to take", "ms full, causal", "tried"]]
    for one in result["kernels"]:
        shipped, best = (_tile(one[name], one["tried"]) for name in ("shipped", "chosen"))
        lines.append([f"{one['kernel']}, d = {one['d']}", *shipped, *best, str(len(one["tried"]))])
    paste = ["rows for TABLE in iocourse/kernels/host/tiles.py:", *result["rows"]]
    parts = [table(lines), "\n".join(paste), cut_off("kernels", result["asked"], len(result["kernels"]))]
    return "\n\n".join(part for part in (*parts, provenance(result)) if part)


def _tile(tile: Sequence[int], tried: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The tile, and '1.234, 0.700' or that it failed."""
    entry = next(one for one in tried if tuple(one["tile"]) == tuple(tile))
    times = "failed" if "failed" in entry else ", ".join(f"{ms:.3f}" for ms in entry["ms"])
    return "×".join(map(str, tile)), times
