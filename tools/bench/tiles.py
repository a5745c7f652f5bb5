"""Tile tuning on the current GPU: time candidate tiles, and record in `tiles` those faster than the shipped.

`tools.bench gpu --install` writes them into `iocourse/data/choices.json` (see `measured_tiles.py`). The
shipped tile of a search is the compiled one, which packed sequences use, so that every run compares with the
same. Forward and fused are timed alone; each half of the two-pass backward pass is timed together with the
other half at its chosen tile. Candidates are compiled before anything is timed. Triton caches compiled
kernels on disk, for all processes of a user, by source, types and alignment of the arguments, and options.
Therefore the launches are recorded on tensors without memory, and several processes compile them with
Triton's JIT without running them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from iocourse.console import table, times_joined
from iocourse.gpu.timing import Work
from tools.bench import Row
from tools.bench.contest import Shape, Tensor, normal, outcomes, relative_error, with_warnings
from tools.bench.measured_tiles import KERNELS, WIDTHS, Place, may_run
from tools.bench.warming import compile_all, in_processes

if TYPE_CHECKING:
    from iocourse.kernels import TileConfig

MASKS = (False, True)  # causal
BYTES = 2  # 16-bit types; float32 runs on the ordinary cores, and its tiles are those that do not spill
SIZES = {"BM": (32, 64, 128), "BN": (32, 64, 128), "warps": (4, 8), "stages": (1, 2, 3, 4)}
# Tried first: tiles (BM, BN, warps, stages) that look good in compiled code. With 64 rows and four warps
# several programs fit on an SM, so that one's softmax can overlap another's products.
CURATED: dict[tuple[int, int, str], tuple[tuple[int, int, int, int], ...]] = {
    (90, 64, "forward"): (
        (128, 64, 4, 4), (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 8, 4),
        (64, 64, 4, 3), (64, 64, 4, 4), (64, 128, 4, 3),
    ),
    (90, 64, "fused"): ((64, 128, 8, 1),),
    (90, 128, "forward"): (
        (128, 128, 8, 3), (128, 64, 8, 3), (64, 128, 4, 2),
        (64, 64, 4, 3), (64, 64, 4, 2), (128, 32, 8, 3),
    ),
    (90, 128, "fused"): ((64, 128, 8, 2), (64, 128, 8, 1), (64, 64, 8, 2)),
}  # fmt: skip
WORTH_IT = 1.02  # minimum speedup of a tile that replaces the shipped one
SEED = 0
# A head size, a kernel, and the tiles to try; the shipped one is the first.
Search = tuple[int, str, list["TileConfig"]]
# One thing to compile: a problem, a kernel, and its tile.
Wanted = tuple[Shape, str, tuple[int, ...]]


def searches(arch: int, heads: Sequence[int], few: bool) -> list[Search]:
    """Return the searches of an architecture, one per head size and kernel; few: with few tiles each."""
    from iocourse.kernels.host.choices import Case, tile

    return [
        (d, kernel, candidates(kernel, tile(kernel, Case(arch, BYTES, d, "packed")), arch, d, few))
        for d, kernel in product(heads, KERNELS)
    ]


def candidates(kernel: str, shipped: TileConfig, arch: int, d: int, few: bool) -> list[TileConfig]:
    """Return the tiles to try: the shipped one, the curated ones or its neighbours, and, unless `few`,
    all that fit.
    """
    curated = CURATED.get((arch, d, kernel), ())
    sizes = () if few else product(*SIZES.values())
    every = (shipped._replace(**dict(zip(SIZES, some, strict=True))) for some in (*curated, *sizes))
    near = () if curated and few else _neighbours(shipped)
    others = dict.fromkeys((*every, *near))
    return [
        shipped,
        *(tile for tile in others if tile != shipped and may_run(kernel, tile, arch, d)),
    ]


def _neighbours(tile: TileConfig) -> Iterator[TileConfig]:
    """Yield tiles with one number changed: a side or the warps halved or doubled, one stage more or less."""
    for part, least in (("BM", 16), ("BN", 16), ("warps", 4)):
        size = getattr(tile, part)
        yield from (tile._replace(**{part: to}) for to in (size // 2, size * 2) if to >= least)
    yield from (tile._replace(stages=to) for to in (tile.stages - 1, tile.stages + 1) if to >= 1)


class Problem:
    """Inputs q, k, v and dO of one shape, and the results of the shipped tiles."""

    def __init__(self, shape: Shape, device: str) -> None:
        """Draw q, k, v and dO (B, H, N, d), and run the forward pass. On the device "meta" tensors have no
        memory, and launches can only be recorded.
        """
        import torch

        from iocourse.kernels.host.ranges import Band, VisiblePairs

        sizes = (shape.B, shape.H, shape.N, shape.d)
        nowhere = torch.empty(4, *sizes, dtype=getattr(torch, shape.dtype), device="meta").unbind()
        given = nowhere if device == "meta" else normal(sizes, 4, shape.dtype, device, SEED)
        self._q, self._k, self._v, self._do = given
        self._seen, self._scale = VisiblePairs(Band(None, 0 if shape.causal else None)), shape.d**-0.5
        self._o, self._lse = self.run("forward")
        self._expected: dict[str, tuple[Tensor, ...]] = {}

    def run(self, kernel: str) -> tuple[Tensor, ...]:
        """Run a kernel and return O and LSE, or the three gradients."""
        from iocourse.kernels.host.passes import launch_backward, launch_forward

        q, k, v, seen, scale = self._q, self._k, self._v, self._seen, self._scale
        if kernel == "forward":
            return tuple(launch_forward(q, k, v, seen, scale, "complete rows"))
        results, fixed = (self._o, self._lse), kernel != "fused"
        return tuple(launch_backward(self._do, None, q, k, v, *results, seen, scale, fixed, "complete rows"))

    def work(self, kernel: str, tile: TileConfig) -> Work:
        """Return the kernel with this tile as work. Raises ValueError if its values differ from
        the shipped tile's.
        """
        from iocourse.kernels import using

        def work() -> tuple[Tensor, ...]:
            with using(**{kernel: tile}):
                return self.run(kernel)

        if kernel not in self._expected:
            self._expected[kernel] = self.run(kernel)
        for found, expected in zip(work(), self._expected[kernel], strict=True):
            off = relative_error(found, expected.double())
            if not off < 0.01:
                raise ValueError(f"its values differ from the shipped tile's by a relative {off:.2g}")
        return work


def wanted(asked: Sequence[Search], shapes: Sequence[Shape]) -> list[Wanted]:
    """Return all candidates to compile, the first ones of every kernel first."""
    longest = max(len(tiles) for *_, tiles in asked)
    return [
        (shape, kernel, tuple(tiles[at]))
        for at, (d, kernel, tiles), shape in product(range(longest), asked, shapes)
        if at < len(tiles) and shape.d == d
    ]


def warm(arch: int, every: Sequence[Wanted], seconds: float) -> None:
    """Compile the candidates for at most `seconds`. The others are compiled when they are timed."""
    ends = time.monotonic() + seconds
    for _ in in_processes(partial(compile_one, arch), every):
        if time.monotonic() > ends:
            break


def compile_one(arch: int, shape: Shape, kernel: str, tile: tuple[int, ...]) -> None:
    """Compile the launches of one candidate. A failure is ignored here, because timing it fails again."""
    from iocourse.kernels import using
    from iocourse.kernels.host.launches import record_launches

    with record_launches(arch) as written:
        problem = Problem(shape, "meta")
        written.clear()  # those of the shipped tiles
        with using(**{kernel: tile}):
            problem.run(kernel)
        compile_all(written)


def tuned(
    arch: int,
    asked: Sequence[Search],
    problem: Callable[[int, bool], Any],
    stopwatch: Any,
    before: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str, Row]]:
    """Time the candidates of each search, and yield a line and the record after each.

    The record has the times of all candidates, the best tile for each kernel and mask, and a list of those
    that are faster than the shipped ones. arch: of the choices. problem: creates one from (d, causal).
    before: the record of an earlier run, whose searches are not made again.
    """
    record: Row = {"arch": arch, "asked": len(asked)}
    record |= {key: list((before or {}).get(key, ())) for key in ("kernels", "tiles")}  # both lists grow
    of_d, problems = 0, list[Any]()
    for d, kernel, tiles in asked:
        if is_done(record, d, kernel):
            continue
        if d != of_d:
            problems.clear()  # free their tensors before new ones are drawn
            of_d, problems = d, [problem(d, causal) for causal in MASKS]
        tried = _tried(kernel, tiles, problems, stopwatch)
        best = [chosen(tried, tiles[0], at) for at in range(len(MASKS))]
        about = {"d": d, "kernel": kernel, "shipped": tiles[0]}
        record["kernels"].append(about | {"chosen": best, "tried": tried})
        for causal, tile in zip(MASKS, best, strict=True):
            if tile != tiles[0]:
                at = Place(arch, kernel, min(w for w in WIDTHS if w >= d), BYTES, causal)
                record["tiles"].append({**at._asdict(), "tile": tile})
        yield f"{kernel}, d = {d}: {len(tiles)} tiles; to take {', '.join(map(times_joined, best))}", record


def is_done(record: Mapping[str, Any], d: int, kernel: str) -> bool:
    """Return True if a record has the times of this search."""
    return any((one["d"], one["kernel"]) == (d, kernel) for one in record.get("kernels", ()))


def _tried(kernel: str, tiles: list[TileConfig], problems: Sequence[Any], stopwatch: Any) -> list[Row]:
    """Return each tile with its milliseconds (full, causal), or the reason of its failure."""
    found: list[Row] = [{"tile": tile, "ms": []} for tile in tiles]
    for one in problems:
        left = {str(entry["tile"]): entry for entry in found if "failed" not in entry}
        made = {name: with_warnings(partial(one.work, kernel, entry["tile"])) for name, entry in left.items()}
        times = outcomes({name: work for name, (work, reason) in made.items() if not reason}, stopwatch)
        for name, entry in left.items():
            outcome = times.get(name) or {"refused": made[name][1]}
            if "refused" in outcome:
                entry["failed"] = outcome["refused"]
            else:
                entry["ms"].append(outcome["ms"])
    return found


def chosen(tried: Sequence[Mapping[str, Any]], shipped: TileConfig, mask: int) -> TileConfig:
    """Return the fastest tile under a mask (index in MASKS) if it reaches WORTH_IT, otherwise the shipped."""
    times = {one["tile"]: one["ms"][mask] for one in tried if "failed" not in one}
    best = min(times, key=times.__getitem__, default=shipped)
    return best if shipped not in times or times[shipped] >= WORTH_IT * times[best] else shipped


def shown(record: Row) -> str:
    """Format the record: the shipped and the best tiles of each kernel, with their milliseconds."""
    cells = [["", "shipped", "ms full, causal", "to take, full", "ms", "to take, causal", "ms", "tried"]]
    for one in record["kernels"]:
        times = {tuple(entry["tile"]): entry["ms"] for entry in one["tried"] if "failed" not in entry}
        full, causal = one["chosen"]
        some = [f"{one['kernel']}, d = {one['d']}"]
        for tile, masks in ((one["shipped"], slice(2)), (full, slice(1)), (causal, slice(1, 2))):
            ms = ", ".join(f"{ms:.3f}" for ms in times.get(tuple(tile), ())[masks])
            some += [times_joined(tile), ms or "failed"]
        cells.append([*some, str(len(one["tried"]))])
    return f"{table(cells)}\n\n{len(record['tiles'])} faster than the shipped"
