"""Tile sizes tried out on the GPU that is here; prints the rows to paste into `kernels/host/tiles.py`.

Nothing is tuned unless this is asked for, and no result is used by itself. Forward and fused are timed alone,
each half of the split backward pass together with the other half at its shipped tile. Warp specialisation is
left out: on Hopper Triton can do so for one loop only, and our kernels have two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from iocourse.bench import Row, circumstances
from iocourse.console import steps, table
from iocourse.data.recorded import provenance
from iocourse.gpu.timing import Stopwatch, Timing, Work, side_by_side

from ..gpu.contenders import reason_of, with_warnings
from ..gpu.judging import geometric_mean
from ..gpu.place import Place, cuda_place
from ..gpu.text import cut_off
from ..gpu.trial import Keep
from .fitting import BYTES, candidates
from .problem import KERNELS, Problem
from .warming import wanted, warm

if TYPE_CHECKING:
    from iocourse.kernels import Tile, Tiles

NAME = "tune"
HELP = "time tiles for our kernels on a GPU and print the row to paste (needs CUDA, takes long)"
HEADS = (64, 128)
N, TOKENS, WIDTH = 4096, 16384, 2048
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
    dtype = torch.float16 if arch < 80 else torch.bfloat16

    def runner(d: int, causal: bool) -> Problem:
        return Problem(N, d, causal, dtype, TOKENS // N, WIDTH // d, place.device)

    heads = heads or (HEADS[1:] if quick else HEADS)
    warm(arch, wanted(arch, heads, quick), (N, TOKENS, WIDTH), str(dtype).removeprefix("torch."))
    return tuned(arch, heads, quick, runner, place, keep)


class Runner(Protocol):
    """One problem on which tiles are tried."""

    def work(self, kernel: str, tile: Tile) -> Work:
        """What is to be timed; raises where the tile cannot run or gives other values than the shipped."""


def tuned(
    arch: int, heads: Sequence[int], quick: bool, problem: Callable[[int, bool], Runner], place: Place,
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


def _tried(kernel: str, tiles: Sequence[Tile], problems: Sequence[Runner], stopwatch: Stopwatch) -> list[Row]:
    """Each tile with its milliseconds (full, causal), or why it has none."""
    found: list[Row] = [{"tile": tile, "ms": []} for tile in tiles]
    for one in problems:
        works: dict[str, Work] = {}
        for at, entry in enumerate(found):
            if "failed" not in entry:
                made, reason = with_warnings(lambda tile=entry["tile"]: one.work(kernel, tile))  # type: ignore[misc]  # noqa: B023
                if reason:
                    entry["failed"] = reason
                else:
                    works[str(at)] = made
        _enter(found, side_by_side(works, stopwatch=stopwatch))
    return found


def _enter(found: list[Row], times: Mapping[str, Timing | Exception]) -> None:
    for at, took in times.items():
        if isinstance(took, Timing):
            found[int(at)]["ms"].append(took.ms)
        else:
            found[int(at)]["failed"] = reason_of(took)


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
