"""A mask cut into tiles: whole ones, cut ones, and those that are never loaded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ... import masks
from ...console import table, with_unit
from ...costs import ceil_div
from ...masks import Mask
from ...sizes import check_sizes
from ..draw.palette import INK, ORANGE, PAPER, QUIET, SKY, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, example, figure, titled
from ..draw.shapes import Square, colour_cells, swatch

WIDTH, HEIGHT = 800.0, 456.0
X, Y, SIDE = 64.0, 84.0, 340.0
RIGHT = 440.0
MOST_TOKENS, MOST_TILES = 1024, 64  # of N, and of tiles a side

NEVER, CUT, WHOLE = 0, 1, 2
KINDS = ("never loaded", "cut", "whole")
FILLS = (Fill(PAPER, ""), Fill(ORANGE, ""), Fill(SKY, ""))
HIDDEN_IN_CUT = "#FBE7C2"  # computed and thrown away
SAID = (
    "no pair seen: passed over",
    "some pairs seen: computed whole, the rest hidden",
    "every pair seen: no mask to ask",
)


@example(masks.Window(200, 60), 32)
@figure
def mask_tiles(mask: Mask, Br: int, Bc: int | None = None, *, title: str | None = None) -> Picture:
    """The N x N pairs of a mask under tiles of Br queries and Bc keys (by default Br): what each tile is.

    Whole: every pair is seen. Cut: some are, and the tile is computed whole. Never loaded: none is.
    Raises TypeError where `mask` is no mask, ValueError for sizes below 1, N above 1024, over 64 tiles.
    """
    if not isinstance(mask, Mask):
        raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
    N, Br, Bc = check_sizes(N=mask.N, Br=Br, Bc=Br if Bc is None else Bc)
    if N > MOST_TOKENS:
        raise ValueError(f"mask is for N = {N:,} tokens; at most {MOST_TOKENS:,} can be drawn pair by pair")
    if MOST_TILES * min(Br, Bc) < N:
        sides = f"{ceil_div(N, Br):,} x {ceil_div(N, Bc):,}"
        raise ValueError(f"Br = {Br}, Bc = {Bc} make {sides} tiles; at most {MOST_TILES} a side")
    pairs = mask.pairs()
    kinds = kinds_of(pairs, Br, Bc)
    heading = title or f"{type(mask).__name__}, N = {N:,}, in tiles of {Br:,} × {Bc:,}"
    square = Square(X, Y, SIDE, N)
    lies_in = _of_pairs(kinds, Br, Bc, N)
    shade = np.where((lies_in == CUT) & ~pairs, len(FILLS), lies_in)  # pale where hidden inside a cut one
    drawn = [
        colour_cells(square.paper(), [*(fill.colour for fill in FILLS), HIDDEN_IN_CUT], shade),
        *_outlines(square, kinds, Br, Bc, N),
        Text(X + SIDE / 2, Y - 10, f"{N:,} keys", SMALL, "middle", QUIET),
        Text(X - 10, Y + SIDE / 2, f"{N:,} queries", SMALL, "middle", QUIET, turned=True),
        *_key(pairs, kinds, Br, Bc),
    ]
    return titled(heading, (WIDTH, HEIGHT), *_in_words(heading, pairs, kinds, Br, Bc), drawn)


def kinds_of(pairs: NDArray[np.bool_], Br: int, Bc: int) -> NDArray[np.intp]:
    """What each tile is: NEVER, CUT or WHOLE, (⌈N/Br⌉, ⌈N/Bc⌉)."""
    rows, columns = (range(0, len(pairs), step) for step in (Br, Bc))
    tiles = [[pairs[i : i + Br, j : j + Bc] for j in columns] for i in rows]
    return np.array([[WHOLE if t.all() else CUT if t.any() else NEVER for t in row] for row in tiles])


def _of_pairs(kinds: NDArray[np.intp], Br: int, Bc: int, N: int) -> NDArray[np.intp]:
    """The kind of the tile in which each pair lies, (N, N)."""
    return kinds.repeat(Br, axis=0)[:N].repeat(Bc, axis=1)[:, :N]


def _outlines(square: Square, kinds: NDArray[np.intp], Br: int, Bc: int, N: int) -> Iterator[Element]:
    """A frame around each tile that is loaded, and one around all."""
    for row, column in np.argwhere(kinds != NEVER).tolist():
        rows, columns = (row * Br, min(row * Br + Br, N)), (column * Bc, min(column * Bc + Bc, N))
        box = square.box(rows, columns)
        yield Rect(box.x, box.y, box.width, box.height, "", "", INK, 0.7)
    yield Rect(X, Y, SIDE, SIDE, "", "", QUIET, 1)


def _key(pairs: NDArray[np.bool_], kinds: NDArray[np.intp], Br: int, Bc: int) -> Iterator[Element]:
    for at, kind in enumerate((WHOLE, CUT, NEVER)):
        y = Y + 8 + 62 * at
        number = with_unit(int((kinds == kind).sum()), "tile")
        yield from swatch(RIGHT, y, FILLS[kind], f"{KINDS[kind]}: {number}")
        yield Text(RIGHT + 24, y + 34, SAID[kind], SMALL, colour=QUIET)
    computed, seen = _computed(kinds, Br, Bc, len(pairs)), int(pairs.sum())
    yield Text(RIGHT, Y + 218, f"pairs computed: {computed:,} of {pairs.size:,}", NORMAL)
    yield Text(RIGHT, Y + 242, f"pairs seen: {seen:,}", NORMAL)
    yield from swatch(RIGHT, Y + 258, Fill(HIDDEN_IN_CUT, ""), f"computed and hidden: {computed - seen:,}")


def _computed(kinds: NDArray[np.intp], Br: int, Bc: int, N: int) -> int:
    """Pairs in tiles that are loaded."""
    return int((_of_pairs(kinds, Br, Bc, N) != NEVER).sum())


def _in_words(
    heading: str, pairs: NDArray[np.bool_], kinds: NDArray[np.intp], Br: int, Bc: int
) -> tuple[str, str]:
    N = len(pairs)
    lies_in = _of_pairs(kinds, Br, Bc, N)
    rows = [["tiles", "number", "pairs", "seen"]]
    for kind in (WHOLE, CUT, NEVER):
        inside = lies_in == kind
        counts = ((kinds == kind).sum(), inside.sum(), (inside & pairs).sum())
        rows.append([KINDS[kind], *(f"{int(n):,}" for n in counts)])
    computed, seen = _computed(kinds, Br, Bc, N), int(pairs.sum())
    whole, cut, never = (with_unit(int((kinds == kind).sum()), "tile") for kind in (WHOLE, CUT, NEVER))
    down, across = kinds.shape
    alt = f"{heading}: a square of {N:,} queries by {N:,} keys under {down:,} by {across:,} tiles. "
    alt += f"{whole} whole, every pair seen; {cut} cut, with some pairs seen; {never} never loaded. "
    alt += f"{computed:,} pairs are computed, {seen:,} of them seen."
    return alt, "\n".join([table(rows, left=1), f"computed and hidden: {computed - seen:,} pairs"])
