"""Tile sizes tried out on the GPU that is here; prints the rows to paste into `kernels/host/tiles.py`.

Nothing is tuned unless this is asked for, and no result is used by itself. Forward and fused are timed alone,
each half of the split backward pass together with the other half at its shipped tile. Warp specialisation is
left out: on Hopper Triton can do so for one loop only, and our kernels have two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from iocourse.bench import circumstances
from iocourse.console import steps
from iocourse.data.recorded import provenance
from iocourse.gpu.chips import REGISTERS_A_THREAD, chip_of
from iocourse.gpu.timing import Stopwatch, Timing, Work, side_by_side

from ..gpu.judging import geometric_mean
from ..gpu.place import Place, cuda_place

if TYPE_CHECKING:
    from torch import Tensor

    from iocourse.kernels import Tile, Tiles

NAME = "tune"
HELP = "time tiles for our kernels on a GPU and print the row to paste (needs CUDA, takes long)"
KERNELS = ("forward", "fused", "queries", "keys")
HEADS = (64, 128)
BYTES = 2  # 16-bit types; float32 runs on the ordinary cores, and its tiles are those that do not spill
SIZES = {"BM": (32, 64, 128), "BN": (32, 64, 128), "warps": (4, 8), "stages": (1, 2, 3, 4)}
ADDRESSES = 32  # registers a thread that sums and scores must leave for everything else, at the very least
N, TOKENS, WIDTH = 4096, 16384, 2048
MASKS = (False, True)  # causal
WORTH_IT = 1.02  # a tile replaces the shipped one where it is at least so many times as fast


def fits(kernel: str, tile: Tile, arch: int, d: int) -> bool:
    """Whether a 16-bit tile could run at all: a lower bound of what it needs, so few that run are left out.

    In registers: the float32 sums and tiles of scores. In shared memory: the two arrays that stream past,
    `stages` tiles deep.
    """
    BM, BN, warps, stages = tile
    stays, streams = (BM, BN) if kernel in ("forward", "queries") else (BN, BM)
    sums = {"forward": stays, "queries": stays, "keys": 2 * stays, "fused": 2 * stays + streams}[kernel]
    scores = BM * BN * (1 if kernel == "forward" else 2)
    registers = (sums * d + scores) / (32 * warps)
    shared = 2 * streams * d * BYTES * stages
    return registers + ADDRESSES <= REGISTERS_A_THREAD and shared <= chip_of(arch).shared_bytes


def candidates(kernel: str, shipped: Tile, arch: int, d: int, quick: bool) -> list[Tile]:
    """The shipped tile, its neighbours, then, unless `quick`, every other that could run."""
    sizes = () if quick else product(*SIZES.values())
    every = (shipped._replace(**dict(zip(SIZES, some, strict=True))) for some in sizes)
    others = dict.fromkeys((*_neighbours(shipped), *every))
    return [shipped, *(tile for tile in others if tile != shipped and fits(kernel, tile, arch, d))]


def _neighbours(tile: Tile) -> Iterator[Tile]:
    """Tiles with one number changed: a side or the warps halved or doubled, one stage more or less."""
    for part, least in (("BM", 16), ("BN", 16), ("warps", 4)):
        size = getattr(tile, part)
        yield from (tile._replace(**{part: to}) for to in (size // 2, size * 2) if to >= least)
    yield from (tile._replace(stages=to) for to in (tile.stages - 1, tile.stages + 1) if to >= 1)


def run(quick: bool) -> dict[str, Any]:
    """Time the candidates of each kernel at d = 64 and 128, full and causal.

    Args:
        quick: d = 128 only, and tiles that differ from the shipped one in one number.

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

    return tuned(arch, HEADS[1:] if quick else HEADS, quick, runner, place)


class Runner(Protocol):
    """One problem on which tiles are tried."""

    def work(self, kernel: str, tile: Tile) -> Work:
        """What is to be timed; raises where the tile cannot run or gives other values than the shipped."""


def tuned(
    arch: int, heads: Sequence[int], quick: bool, problem: Callable[[int, bool], Runner], place: Place
) -> dict[str, Any]:
    """The record: every candidate's times, the tile to take for each kernel, and the rows to paste.

    Args:
        arch: a row of the tile table.
        heads: head sizes d.
        quick: few candidates.
        problem: the problem for (d, causal).
        place: where this runs.
    """
    from iocourse.kernels.host.tiles import tiles_for

    kernels: list[dict[str, Any]] = []
    rows: list[str] = []
    for d in steps(heads, "head sizes"):
        tiles = tiles_for(arch, d, BYTES)
        problems = [problem(d, causal) for causal in MASKS]
        for kernel in steps(KERNELS, f"kernels, d = {d}"):
            shipped = getattr(tiles, kernel)
            asked = candidates(kernel, shipped, arch, d, quick)
            tried = _tried(kernel, asked, problems, place.stopwatch)
            best = chosen(tried, shipped)
            kernels.append({"d": d, "kernel": kernel, "shipped": shipped, "chosen": best, "tried": tried})
            tiles = tiles._replace(**{kernel: best})
        rows.append(row_text(arch, d, BYTES, tiles))
    facts = circumstances("torch", "triton") | {"device": place.facts()}
    return {"subject": NAME, **facts, "arch": arch, "kernels": kernels, "rows": rows}


def _tried(
    kernel: str, tiles: Sequence[Tile], problems: Sequence[Runner], stopwatch: Stopwatch
) -> list[dict[str, Any]]:
    """Each tile with its milliseconds (full, causal), or why it has none."""
    from ..gpu.contenders import with_warnings

    found: list[dict[str, Any]] = [{"tile": tile, "ms": []} for tile in tiles]
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


def _enter(found: list[dict[str, Any]], times: Mapping[str, Timing | Exception]) -> None:
    from ..gpu.contenders import reason_of

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


class Problem:
    """Attention of one size on random input, run with any tile."""

    def __init__(self, N: int, d: int, causal: bool, dtype: Any, B: int, H: int, device: str) -> None:
        """Draw q, k, v and dO (B, H, N, d), and compute what the shipped tiles give."""
        import torch

        from iocourse.kernels.host.visibility import Band, Seen

        self._seen = Seen(Band(None, 0 if causal else None))
        self._q, self._k, self._v, self._do = (
            torch.randn(B, H, N, d, device=device, dtype=torch.float32).to(dtype) for _ in range(4)
        )
        self._o, self._lse = self._forward()
        self._expected = {kernel: self._run(kernel) for kernel in KERNELS}

    def _forward(self) -> tuple[Tensor, Tensor]:
        from iocourse.kernels.host import operators

        o, lse = operators.forward(self._q, self._k, self._v, self._seen, self._q.shape[-1] ** -0.5, "whole")
        return o, lse

    def _run(self, kernel: str) -> tuple[Tensor, ...]:
        """What a kernel gives: O and LSE, or the three gradients."""
        from iocourse.kernels.host import operators

        if kernel == "forward":
            return self._forward()
        given = (self._do, None, self._q, self._k, self._v, self._o, self._lse)
        scale = self._q.shape[-1] ** -0.5
        fixed = kernel != "fused"
        gradients: tuple[Tensor, ...] = operators.backward(*given, self._seen, scale, fixed, "whole")
        return gradients

    def work(self, kernel: str, tile: Tile) -> Work:
        """The kernel with this tile. Raises ValueError where its values are not those of the shipped tile."""
        from iocourse.kernels import using

        def work() -> tuple[Tensor, ...]:
            with using(**{kernel: tile}):
                return self._run(kernel)

        for found, expected in zip(work(), self._expected[kernel], strict=True):
            off = float((found.float() - expected.float()).norm() / expected.float().norm())
            if not off < 0.01:
                raise ValueError(f"its values differ from the shipped tile's by a relative {off:.2g}")
        return work


def show(result: dict[str, Any]) -> str:
    """The best and the shipped tile of each kernel, and the rows to paste."""
    lines = [
        f"{'':<20}{'shipped':>20}{'ms full, causal':>18}{'to take':>20}{'ms full, causal':>18}{'tried':>7}"
    ]
    for one in result["kernels"]:
        cells = "".join(
            f"{'×'.join(map(str, tile)):>20}{_times(one['tried'], tile):>18}"
            for tile in (one["shipped"], one["chosen"])
        )
        lines.append(f"{one['kernel'] + ', d = ' + str(one['d']):<20}{cells}{len(one['tried']):>7}")
    paste = ["rows for TABLE in iocourse/kernels/host/tiles.py:", *result["rows"]]
    return "\n".join([*lines, "", *paste, "", provenance(result)])


def _times(tried: Sequence[Mapping[str, Any]], tile: Sequence[int]) -> str:
    """'1.234, 0.700', or that it failed."""
    entry = next(one for one in tried if tuple(one["tile"]) == tuple(tile))
    return "failed" if "failed" in entry else ", ".join(f"{ms:.3f}" for ms in entry["ms"])
