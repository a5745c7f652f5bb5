"""Figure of a mask in tiles: full, partial and empty tiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .... import masks
from ....console import table, with_unit
from ....costs import ceil_div
from ....masks import Mask
from ....sizes import check_sizes
from ..draw.palette import INK, ORANGE, PAPER, QUIET, SKY, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, example, figure, titled
from ..draw.shapes import Square, colour_cells, swatch

WIDTH, HEIGHT = 800.0, 456.0
X, Y, SIDE = 64.0, 84.0, 340.0
RIGHT = 440.0
MOST_TOKENS, MOST_TILES = 1024, 64  # limit of N, and of tiles per side

NEVER, CUT, WHOLE = 0, 1, 2
KINDS = ("empty", "partial", "full")
FILLS = (Fill(PAPER, ""), Fill(ORANGE, ""), Fill(SKY, ""))
HIDDEN_IN_CUT = "#FBE7C2"  # computed and masked
SAID = (
    "no visible pair: skipped",
    "some visible pairs: computed fully, the others masked",
    "all pairs visible: computed without the mask",
)


@example(masks.Window(200, 60), 32)
@figure
def mask_tiles(mask: Mask, Br: int, Bc: int | None = None, *, title: str | None = None) -> Picture:
    """The N x N pairs of a mask in full, partial and empty tiles of Br queries and Bc keys (default Br).

    A full tile has only visible pairs, an empty one has none. A partial tile has some; it is computed fully,
    and the other pairs are masked.

    Raises:
        TypeError: `mask` is not a mask of `iocourse.masks`.
        ValueError: a size below 1, N above 1024, or more than 64 tiles per side.
    """
    if not isinstance(mask, Mask):
        raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
    N, Br, Bc = check_sizes(N=mask.N, Br=Br, Bc=Br if Bc is None else Bc)
    if N > MOST_TOKENS:
        raise ValueError(f"mask must have at most {MOST_TOKENS:,} tokens to be drawn, got N = {N:,}")
    if MOST_TILES * min(Br, Bc) < N:
        sides = f"{ceil_div(N, Br):,} x {ceil_div(N, Bc):,}"
        raise ValueError(f"Br = {Br}, Bc = {Bc} give {sides} tiles; use at most {MOST_TILES} per side")
    pairs = mask.pairs()
    kinds = kinds_of(pairs, Br, Bc)
    heading = title or f"{type(mask).__name__}, N = {N:,}, in tiles of {Br:,} × {Bc:,}"
    square = Square(X, Y, SIDE, N)
    lies_in = _of_pairs(kinds, Br, Bc, N)
    shade = np.where((lies_in == CUT) & ~pairs, len(FILLS), lies_in)  # pale where masked in a partial tile
    drawn = [
        colour_cells(square.paper(), [*(fill.colour for fill in FILLS), HIDDEN_IN_CUT], shade),
        *_outlines(square, kinds, Br, Bc, N),
        Text(X + SIDE / 2, Y - 10, f"{N:,} keys", SMALL, "middle", QUIET),
        Text(X - 10, Y + SIDE / 2, f"{N:,} queries", SMALL, "middle", QUIET, turned=True),
        *_key(pairs, kinds, Br, Bc),
    ]
    return titled(heading, (WIDTH, HEIGHT), *_in_words(heading, pairs, kinds, Br, Bc), drawn)


def kinds_of(pairs: NDArray[np.bool_], Br: int, Bc: int) -> NDArray[np.intp]:
    """Return the kind of each tile, NEVER (empty), CUT (partial) or WHOLE (full), (⌈N/Br⌉, ⌈N/Bc⌉)."""
    rows, columns = (range(0, len(pairs), step) for step in (Br, Bc))
    tiles = [[pairs[i : i + Br, j : j + Bc] for j in columns] for i in rows]
    return np.array([[WHOLE if t.all() else CUT if t.any() else NEVER for t in row] for row in tiles])


def _of_pairs(kinds: NDArray[np.intp], Br: int, Bc: int, N: int) -> NDArray[np.intp]:
    """Return for each pair the kind of its tile, (N, N)."""
    return kinds.repeat(Br, axis=0)[:N].repeat(Bc, axis=1)[:, :N]


def _outlines(square: Square, kinds: NDArray[np.intp], Br: int, Bc: int, N: int) -> Iterator[Element]:
    """Yield a frame around each tile that is computed, and one around all."""
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
    yield Text(RIGHT, Y + 242, f"visible pairs: {seen:,}", NORMAL)
    yield from swatch(RIGHT, Y + 258, Fill(HIDDEN_IN_CUT, ""), f"computed and masked: {computed - seen:,}")


def _computed(kinds: NDArray[np.intp], Br: int, Bc: int, N: int) -> int:
    """Return the number of pairs in full and partial tiles."""
    return int((_of_pairs(kinds, Br, Bc, N) != NEVER).sum())


def _in_words(
    heading: str, pairs: NDArray[np.bool_], kinds: NDArray[np.intp], Br: int, Bc: int
) -> tuple[str, str]:
    N = len(pairs)
    lies_in = _of_pairs(kinds, Br, Bc, N)
    rows = [["tiles", "number", "pairs", "visible"]]
    for kind in (WHOLE, CUT, NEVER):
        inside = lies_in == kind
        counts = ((kinds == kind).sum(), inside.sum(), (inside & pairs).sum())
        rows.append([KINDS[kind], *(f"{int(n):,}" for n in counts)])
    computed, seen = _computed(kinds, Br, Bc, N), int(pairs.sum())
    whole, cut, never = (with_unit(int((kinds == kind).sum()), "tile") for kind in (WHOLE, CUT, NEVER))
    down, across = kinds.shape
    alt = f"{heading}: a square of {N:,} queries by {N:,} keys in {down:,} by {across:,} tiles. "
    alt += f"{whole} full, with all pairs visible; {cut} partial, with some pairs visible; {never} empty. "
    alt += f"{computed:,} pairs are computed, {seen:,} of them are visible."
    return alt, "\n".join([table(rows, left=1), f"computed and masked: {computed - seen:,} pairs"])
