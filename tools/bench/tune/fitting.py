"""Which tiles are worth trying: those that could run, the shipped one and its neighbours first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from iocourse.gpu.measured import fits

if TYPE_CHECKING:
    from iocourse.kernels import Tile

BYTES = 2  # 16-bit types; float32 runs on the ordinary cores, and its tiles are those that do not spill
SIZES = {"BM": (32, 64, 128), "BN": (32, 64, 128), "warps": (4, 8), "stages": (1, 2, 3, 4)}
# Tried first where they are known: tiles that compiled code speaks for, (BM, BN, warps, stages). With 64 rows
# and four warps several programs fit a multiprocessor, and one's softmax can overlap another's products.
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
# A head size, a kernel, and the tiles to try; the shipped one is the first.
Search = tuple[int, str, list["Tile"]]


def searches(arch: int, heads: Sequence[int], quick: bool) -> list[Search]:
    """Every kernel at every head size of an architecture; `quick`: with few tiles."""
    from iocourse.kernels.host.tiles import tiles_for

    return [
        (d, kernel, candidates(kernel, shipped, arch, d, quick))
        for d in heads
        for kernel, shipped in tiles_for(arch, d, BYTES)._asdict().items()
    ]


def candidates(kernel: str, shipped: Tile, arch: int, d: int, quick: bool) -> list[Tile]:
    """The shipped tile, then those curated or else its neighbours, then, unless `quick`, all that fit."""
    curated = CURATED.get((arch, d, kernel), ())
    sizes = () if quick else product(*SIZES.values())
    every = (shipped._replace(**dict(zip(SIZES, some, strict=True))) for some in (*curated, *sizes))
    near = () if curated and quick else _neighbours(shipped)
    others = dict.fromkeys((*every, *near))
    return [shipped, *(tile for tile in others if tile != shipped and fits(kernel, tile, arch, d))]


def _neighbours(tile: Tile) -> Iterator[Tile]:
    """Tiles with one number changed: a side or the warps halved or doubled, one stage more or less."""
    for part, least in (("BM", 16), ("BN", 16), ("warps", 4)):
        size = getattr(tile, part)
        yield from (tile._replace(**{part: to}) for to in (size // 2, size * 2) if to >= least)
    yield from (tile._replace(stages=to) for to in (tile.stages - 1, tile.stages + 1) if to >= 1)
