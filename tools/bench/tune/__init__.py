"""Tile sizes tried out on the GPU that is here; the record's `tiles` are those worth taking.

Nothing is tuned unless this is asked for. The record takes effect where the package has it, as
`iocourse/data/bench/tune.json` (see `iocourse.gpu.measured`). Forward and fused are timed alone,
each half of the split backward pass together with the other half at its shipped tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from iocourse.console import crossed, paragraphs, steps, table
from iocourse.data.recorded import kernels_code, provenance
from iocourse.doctor.circumstances import circumstances
from iocourse.gpu import measured
from iocourse.gpu.timing import CudaStopwatch
from tools.bench import Row
from tools.bench.gpu.contenders import with_warnings
from tools.bench.gpu.place import Place, cuda_place
from tools.bench.gpu.problem import MASKS, filled
from tools.bench.gpu.runner import Keep
from tools.bench.gpu.text import cut_off
from tools.bench.tune.fitting import BYTES, Search, searches

if TYPE_CHECKING:
    from iocourse.kernels import Tile
    from tools.bench.tune.problem import Problem

NAME = "tune"
HELP = "time tiles for our kernels on a GPU, and record the faster ones (needs CUDA, takes long)"
HEADS = (64, 128)
N = 4096
WORTH_IT = 1.02  # a tile replaces the shipped one where it is at least so many times as fast


def run(quick: bool, heads: Sequence[int] | None = None, keep: Keep | None = None) -> Row:
    """Time the candidates of each kernel, full and causal, at d = 64 and 128, or the head sizes asked for.

    With `quick` at d = 128 only, and few tiles: those that compiled code speaks for, or else those that
    differ from the shipped one in one number. `keep` takes the record after each kernel, so that a run that
    is cut off leaves what it tried. Raises Refused where there is no GPU, or kernels are interpreted.
    """
    place = cuda_place("attention")  # what tuned tiles are for
    from iocourse.kernels.host.tiles import row_of
    from tools.bench.tune.problem import Problem, wanted, warm

    arch = row_of(place.facts()["arch"])
    shape = partial(filled, "float16" if arch < 80 else "bfloat16", N=N)
    heads = heads or (HEADS[1:] if quick else HEADS)
    asked = searches(arch, heads, quick)
    warm(arch, wanted(asked, [shape(d=d, causal=causal) for d in heads for causal in MASKS]))
    return tuned(arch, asked, lambda d, causal: Problem(shape(d=d, causal=causal), place), place, keep)


def tuned(
    arch: int, asked: Sequence[Search], problem: Callable[[int, bool], Problem], place: Place,
    keep: Keep | None = None,
) -> Row:  # fmt: skip
    """The record: every candidate's times, the tile to take for each kernel and mask, and the faster ones.

    `arch` is a row of the tile table; `problem` makes that of (d, causal); `keep` is as of `run`.
    """
    record = {"subject": NAME, **circumstances("torch", "triton"), "device": place.facts(), "arch": arch}
    record |= {"kernels_code": kernels_code()}
    record |= {"asked": len(asked), "kernels": [], "tiles": []}  # which grow

    @lru_cache(maxsize=1)
    def problems(d: int) -> list[Problem]:
        return [problem(d, causal) for causal in MASKS]

    for d, kernel, tiles in steps(asked, "kernels and head sizes"):
        tried = _tried(kernel, tiles, problems(d), place.stopwatch)
        best = [chosen(tried, tiles[0], at) for at in range(len(MASKS))]
        about = {"d": d, "kernel": kernel, "shipped": tiles[0]}
        record["kernels"].append(about | {"chosen": best, "tried": tried})
        for causal, tile in zip(MASKS, best, strict=True):
            if tile != tiles[0]:
                at = measured.Place(arch, kernel, min(w for w in measured.WIDTHS if w >= d), BYTES, causal)
                record["tiles"].append({**at._asdict(), "tile": tile})
        if keep:
            keep(record)
    return record


def _tried(kernel: str, tiles: list[Tile], problems: list[Problem], watch: CudaStopwatch) -> list[Row]:
    """Each tile with its milliseconds (full, causal), or why it has none."""
    from tools.bench.gpu.trial import outcomes

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


def chosen(tried: Sequence[Mapping[str, Any]], shipped: Tile, mask: int) -> Tile:
    """The fastest tile under one of MASKS, by its number, where that is worth the change."""
    times = {one["tile"]: one["ms"][mask] for one in tried if "failed" not in one}
    best = min(times, key=times.__getitem__, default=shipped)
    return best if shipped not in times or times[shipped] >= WORTH_IT * times[best] else shipped


def show(result: Row) -> str:
    """The shipped tile of each kernel and those to take, with their milliseconds."""
    lines = [["", "shipped", "ms full, causal", "to take, full", "ms", "to take, causal", "ms", "tried"]]
    for one in result["kernels"]:
        times = {tuple(entry["tile"]): entry["ms"] for entry in one["tried"] if "failed" not in entry}
        full, causal = one["chosen"]
        shown = ((one["shipped"], slice(2)), (full, slice(1)), (causal, slice(1, 2)))
        cells = [f"{one['kernel']}, d = {one['d']}"]
        for tile, masks in shown:
            ms = ", ".join(f"{ms:.3f}" for ms in times.get(tuple(tile), ())[masks])
            cells += [crossed(tile), ms or "failed"]
        lines.append([*cells, str(len(one["tried"]))])
    found = f"{len(result['tiles'])} faster than the shipped; `bench visit --install` ships a visit's"
    return paragraphs(table(lines), found, cut_off(result), provenance(result))
