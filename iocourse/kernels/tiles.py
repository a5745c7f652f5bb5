"""Tile sizes, warps and stages: one small table for each architecture, head size and width of a number.

Nothing is tuned when this is imported and nothing is compiled to decide. Each row was compiled for its
architecture (`iocourse bench resources`); `iocourse bench tune` measures candidates on a GPU and prints the
row to paste here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..sizes import positive_int


class Tile(NamedTuple):
    """BM queries by BN keys, by so many warps of 32 threads, with loads running `stages` tiles ahead."""

    BM: int
    BN: int
    warps: int = 4
    stages: int = 1


class Tiles(NamedTuple):
    """One tile for each kernel: forward, fused backward, and the two passes of the split backward."""

    forward: Tile
    fused: Tile
    queries: Tile
    keys: Tile


def _row(*tiles: tuple[int, int, int, int]) -> Tiles:
    return Tiles(*(Tile(*tile) for tile in tiles))


# In the interpreter a tile costs the same whatever its size, up to about 128 × 128.
INTERPRETED = Tiles(*[Tile(128, 128)] * 4)
ROW_PRODUCTS = Tile(32, 0, 4, 1)  # the kernel that computes D streams rows, and needs no tuning

# One line: forward, fused, queries, keys, each as BM, BN, warps, stages.
# fmt: off
TABLE: dict[tuple[int, int, int], Tiles] = {
    # architecture, head size, bytes a number
    (75, 64, 2): _row((64, 32, 8, 1), (16, 32, 8, 1), (32, 32, 8, 1), (16, 32, 8, 1)),
    (75, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (75, 128, 2): _row((32, 32, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (75, 128, 4): _row((32, 32, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
    (75, 256, 2): _row((16, 16, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (75, 256, 4): _row((32, 16, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (80, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 3), (128, 64, 8, 2), (64, 128, 8, 2)),
    (80, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (80, 128, 2): _row((128, 64, 8, 3), (64, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2)),
    (80, 128, 4): _row((32, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (80, 256, 2): _row((64, 64, 8, 2), (32, 32, 8, 1), (64, 64, 8, 1), (32, 64, 8, 2)),
    (80, 256, 4): _row((16, 16, 4, 1), (16, 32, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
    (89, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 3), (128, 64, 8, 2), (64, 128, 8, 2)),
    (89, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (89, 128, 2): _row((128, 64, 8, 2), (64, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2)),
    (89, 128, 4): _row((32, 32, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (89, 256, 2): _row((64, 32, 8, 1), (32, 32, 8, 1), (64, 32, 8, 1), (32, 32, 8, 1)),
    (89, 256, 4): _row((32, 16, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1), (16, 32, 16, 1)),
    (90, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 2), (128, 64, 8, 3), (64, 128, 8, 3)),
    (90, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (90, 128, 2): _row((128, 128, 8, 2), (32, 128, 8, 2), (128, 64, 8, 2), (32, 128, 8, 2)),
    (90, 128, 4): _row((32, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (90, 256, 2): _row((128, 64, 8, 2), (32, 32, 8, 1), (64, 32, 8, 2), (32, 32, 8, 1)),
    (90, 256, 4): _row((32, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (100, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 2), (128, 64, 8, 2), (64, 128, 8, 2)),
    (100, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (100, 128, 2): _row((128, 128, 8, 2), (32, 128, 8, 2), (128, 64, 8, 2), (64, 128, 8, 2)),
    (100, 128, 4): _row((32, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (100, 256, 2): _row((128, 64, 8, 2), (32, 64, 8, 2), (64, 64, 8, 1), (32, 64, 8, 2)),
    (100, 256, 4): _row((32, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
}
# fmt: on

# What spills with every tile tried, and why; everything else in the table keeps its words in registers.
_ORDINARY = "products on the ordinary cores keep whole operands in registers"
SPILLS: dict[tuple[int, int, int, str], str] = {
    (75, 128, 2, "queries"): _ORDINARY,
    **{(75, 256, 2, kernel): _ORDINARY for kernel in ("fused", "queries", "keys")},
    **{(arch, 256, 4, "queries"): _ORDINARY for arch in (75, 80, 89, 90, 100)},
}
# What does not fit a chip's shared memory with the smallest tile there is.
TOO_LARGE: dict[tuple[int, int, int, str], str] = {
    (
        75,
        256,
        4,
        kernel,
    ): "four tiles of 16 × 256 float32 are the 64 KB of a T4, and leave no room beside them"
    for kernel in ("fused", "keys")
}

# Chosen by `using`, for the whole process: autograd runs backward passes in threads of its own.
_chosen: dict[str, Tile] = {}


def row_of(capability: int) -> int:
    """The architecture of the table whose rows a chip of this compute capability takes (86 -> 89, say)."""
    if capability in (86, 89, 120, 121):  # the same 99 KB of shared memory
        return 89
    return max((known for known in (75, 80, 90, 100) if known <= capability), default=0)


def padded(d: int) -> int:
    """The width of a tile's rows: the power of two at or above d, 16 at least, as tl.dot asks for."""
    return max(16, 1 << (d - 1).bit_length())


def tiles_for(arch: int | None, d: int, itemsize: int) -> Tiles:
    """The tiles for an architecture of the table (None: the interpreter), head size d and bytes a number."""
    row = INTERPRETED if arch is None else TABLE[arch, max(64, padded(d)), itemsize]
    return row._replace(**_chosen)


@contextmanager
def using(**tiles: Tile | tuple[int, ...]) -> Iterator[None]:
    """Choose tiles by hand: within `using(forward=(64, 32))` the kernels named take these.

    Args:
        tiles: (BM, BN), (BM, BN, warps) or (BM, BN, warps, stages) for forward, fused, queries or keys.

    Raises:
        ValueError: an unknown kernel, or a size that is no power of two of at least 16.
    """
    checked = {name: _checked(name, tile) for name, tile in tiles.items()}
    before = dict(_chosen)
    _chosen.update(checked)
    try:
        yield
    finally:
        _chosen.clear()
        _chosen.update(before)


def _checked(name: str, tile: Tile | tuple[int, ...]) -> Tile:
    if name not in Tiles._fields:
        raise ValueError(f"{name} is no kernel; allowed: {', '.join(Tiles._fields)}")
    if not isinstance(tile, (tuple, list)) or not 2 <= len(tile) <= 4:
        raise ValueError(f"{name} is {tile!r}; allowed: (BM, BN), then warps, then stages")
    whole = Tile(*(positive_int(part, size) for part, size in zip(Tile._fields, tile, strict=False)))
    for part, size in (("BM", whole.BM), ("BN", whole.BN)):
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name}: {part} is {size}; allowed: 16, 32, 64, 128, … as tl.dot asks for")
    return whole
