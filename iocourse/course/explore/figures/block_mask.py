"""Figure of a block mask: visible tiles, traffic of block-sparse attention, and lower bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import floor
from typing import NamedTuple

import numpy as np

from .... import bounds, costs, schedules
from ....console import table
from ....ledger import Ledger
from ....machine import positive_int
from ....masks import BlockMask
from ..draw.palette import BLACK, BLUE, GRID, INK, PAPER, QUIET, SKY, SUM
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Point,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    text_width,
    titled,
)
from ..draw.shapes import Square, colour_cells, outline

WIDTH, HEIGHT = 900.0, 440.0
X, Y, SIDE = 78.0, 84.0, 320.0
GRID_AT = X, Y, SIDE, SIDE  # left, top, width and height of the grid
RIGHT, BAR = 470.0, 210.0
DRAWN = 32  # tiles per side drawn as shapes; larger masks are drawn as an image
SEEN, HALF, HIDDEN = SKY, "#BBDFF6", PAPER


class Sparse(NamedTuple):
    """Cost of a block mask with blocks of Br queries: ledgers with and without the mask, M, lower bound."""

    mask: BlockMask
    d: int
    M: int
    Br: int
    ledger: Ledger
    dense: Ledger
    least: int
    bound: str

    @property
    def seen(self) -> int:
        """Number of visible tiles, full or partial."""
        return int(self.mask.tiles.sum())


def sparse(mask: BlockMask, d: int, M: int | None = None) -> Sparse:
    """Return the cost of a block mask with the blocks that `block_sparse` selects for M.

    Without M, a block is one row of tiles, and M is the footprint.

    Raises:
        TypeError: `mask` is not a BlockMask.
        ValueError: a size below 1, or an M in which nothing fits.
    """
    if not isinstance(mask, BlockMask):
        raise TypeError(f"mask must be a BlockMask of iocourse.masks, got {type(mask).__name__}")
    N, d = mask.N, positive_int("d", d)
    Br = mask.Br if M is None else schedules.get("block_sparse").tiles(N, d, M, mask=mask)["Br"]
    ledger = costs.block_sparse(N, d, mask=mask, Br=Br, Bc=1)
    memory = ledger.peak if M is None else M
    least, name = bounds.lower_bound("forward", N, d, memory, mask=mask)
    dense = costs.flash_optimal(N, d, Br=Br, Bc=1)
    return Sparse(mask, d, memory, Br, ledger, dense, least, bounds.BOUNDS[name].title)


@figure
def block_mask(
    mask: BlockMask,
    d: int,
    M: int | None = None,
    *,
    title: str | None = None,
    cursor: tuple[int, int] | None = None,
) -> Picture:
    """Tiles of a block mask, with the traffic of block-sparse attention, of all tiles, and the lower bound.

    Args:
        mask: a BlockMask.
        d: head dimension.
        M: words of fast memory, for which the block of queries is selected (Bc = 1). With None, blocks have
            mask.Br queries, and M is their footprint.
        title: of the figure.
        cursor: (row, column) of a tile to outline.

    Raises:
        TypeError: `mask` is not a BlockMask.
        ValueError: a size below 1, an M in which nothing fits, or a cursor outside the grid.
    """
    s = sparse(mask, d, M)
    rows, columns = mask.tiles.shape
    if cursor is not None and not (0 <= cursor[0] < rows and 0 <= cursor[1] < columns):
        raise ValueError(f"cursor must be from (0, 0) to ({rows - 1}, {columns - 1}), got {cursor}")
    name = title or f"{s.seen:,} of {mask.tiles.size:,} tiles visible"
    heading = f"{name}: N = {mask.N:,}, d = {s.d:,}, tiles of {mask.Br:,} × {mask.Bc:,}"
    drawn = [
        *_tiles(mask),
        *_edges(mask),
        *([] if cursor is None else outline(_box(mask, *cursor))),
        *_words(s),
        *(Text(RIGHT, Y + 140 + 21 * k, line, NORMAL) for k, line in enumerate(facts(s)[title is None :])),
        *_key(mask),
    ]
    return titled(heading, (WIDTH, HEIGHT), *_in_words(s, cursor), drawn)


# ---------------------------------------------------------------------- the tiles
def _box(mask: BlockMask, row: int, column: int) -> Rect:
    """Return the rectangle of a tile; the last in a row or column may be smaller."""
    top, left = row * mask.Br, column * mask.Bc
    rows, columns = (top, min(top + mask.Br, mask.N)), (left, min(left + mask.Bc, mask.N))
    return Square(X, Y, SIDE, mask.N).box(rows, columns)


def tile_at(mask: BlockMask, x: float, y: float) -> tuple[int, int]:
    """Return (row, column) of the tile at a point of the figure, also outside the grid."""
    scale = mask.N / SIDE
    return floor((y - Y) * scale / mask.Br), floor((x - X) * scale / mask.Bc)


def _tiles(mask: BlockMask) -> Iterator[Element]:
    yield Rect(X, Y, SIDE, SIDE, HIDDEN, "", QUIET)
    if max(mask.tiles.shape) > DRAWN:
        rows, columns = mask.tiles.shape
        width, height = columns * mask.Bc * SIDE / mask.N, rows * mask.Br * SIDE / mask.N
        grid = Rect(X, Y, min(width, SIDE), min(height, SIDE))
        yield colour_cells(grid, (HIDDEN, SEEN), mask.tiles.astype(np.intp))
        yield Rect(X, Y, SIDE, SIDE, "", "", QUIET)
        return
    for y in (_box(mask, row, 0).y for row in range(1, len(mask.tiles))):
        yield Poly(((X, y), (X + SIDE, y)), GRID, 0.8)
    for x in (_box(mask, 0, column).x for column in range(1, mask.tiles.shape[1])):
        yield Poly(((x, Y), (x, Y + SIDE)), GRID, 0.8)
    for row, column in np.argwhere(mask.tiles).tolist():
        if is_half(mask, row, column):
            yield Poly(_lower_half(mask, row, column), BLUE, 0.8, (), HALF)
        else:
            yield replace(_box(mask, row, column), fill=SEEN, stroke=BLUE, line=0.8)


def is_half(mask: BlockMask, row: int, column: int) -> bool:
    """Return True if a causal mask hides some pairs of a tile: its last key is later than its first query."""
    last_key = min((column + 1) * mask.Bc, mask.N) - 1
    return mask.causal and last_key > row * mask.Br


def _lower_half(mask: BlockMask, row: int, column: int) -> tuple[Point, ...]:
    """Return the part of a tile on and below the diagonal, where key ≤ query."""
    box = _box(mask, row, column)
    left, right, top, bottom = box.x - X, box.x + box.width - X, box.y - Y, box.y + box.height - Y
    upper = [(left, top), (top, top)] if left < top else [(left, left)]
    lower = [(right, right), (right, bottom)] if right < bottom else [(bottom, bottom)]
    return tuple((X + x, Y + y) for x, y in (*upper, *lower, (left, bottom)))


def _edges(mask: BlockMask) -> Iterator[Element]:
    rows, columns = mask.tiles.shape
    yield Text(X + SIDE / 2, Y - 28, f"keys, {columns:,} tiles of {mask.Bc:,}", SMALL, "middle", QUIET)
    yield Text(
        28, Y + SIDE / 2, f"queries, {rows:,} tiles of {mask.Br:,}", SMALL, "middle", QUIET, turned=True
    )
    for row in _numbered(rows, mask.Br, mask.N):
        box = _box(mask, row, 0)
        yield Text(X - 7, centred(box.y + box.height / 2, SMALL), str(row), SMALL, "end", QUIET)
    for column in _numbered(columns, mask.Bc, mask.N):
        box = _box(mask, 0, column)
        yield Text(box.x + box.width / 2, Y - 8, str(column), SMALL, "middle", QUIET)


def _numbered(count: int, b: int, N: int) -> range:
    """Return the tiles that are labelled with a number: all, or every second, fourth, … to avoid overlap."""
    step = 1
    while step * b * SIDE / N < 20 and step < count:
        step *= 2
    last = count - 1 if N % b and (N % b) * SIDE / N < 20 else count  # no label in a thin last tile
    return range(0, max(last, 1), step)


# ---------------------------------------------------------------------- the words
def _words(s: Sparse) -> Iterator[Element]:
    """Yield three bars: traffic with this mask, traffic of all tiles, and the lower bound."""
    largest = max(s.ledger.total, s.dense.total, s.least)
    head = f"Traffic (words), blocks of {s.Br:,} queries"
    yield Text(RIGHT, Y - 10, head, NORMAL, bold=True)
    bars = ("this mask", s.ledger.total, SEEN), ("all tiles", s.dense.total, SUM), ("bound", s.least, BLACK)
    for k, (name, value, colour) in enumerate(bars):
        y, length = Y + 8 + 34 * k, BAR * value / largest
        yield Text(RIGHT + 72, centred(y + 11, NORMAL), name, NORMAL, "end")
        yield Rect(RIGHT + 80, y, length, 22, colour, "", INK, 0.8)
        yield Text(RIGHT + 88 + length, centred(y + 11, NORMAL), f"{value:,}", NORMAL)


def facts(s: Sparse) -> list[str]:
    """Return the numbers of a mask, one line each."""
    mask = s.mask
    return [
        f"{s.seen:,} of {mask.tiles.size:,} tiles visible",
        f"{mask.nnz:,} of {mask.N**2:,} pairs visible, density {mask.nnz / mask.N**2:.3f}",
        f"{s.ledger.total / s.dense.total:.3f} of the traffic of all tiles",
        _against_bound(s),
        f"footprint {s.ledger.peak:,} of M = {s.M:,} words",
    ]


def _key(mask: BlockMask) -> Iterator[Element]:
    y, x = Y + SIDE - 18, RIGHT
    for name, colour, edge in (("visible", SEEN, BLUE), ("empty", HIDDEN, QUIET)):
        yield Rect(x, y, 18, 18, colour, "", edge, 1)
        yield Text(x + 26, centred(y + 9, NORMAL), name, NORMAL)
        x += 50 + text_width(name, NORMAL)
    if max(mask.tiles.shape) <= DRAWN and any(
        is_half(mask, *tile) for tile in np.argwhere(mask.tiles).tolist()
    ):
        half = ((x, y), (x, y + 18), (x + 18, y + 18))
        yield Rect(x, y, 18, 18, HIDDEN, "", BLUE, 1)
        yield Poly(half, BLUE, 0.8, (), HALF)
        yield Text(x + 26, centred(y + 9, NORMAL), "visible up to the query", NORMAL)


# ---------------------------------------------------------------------- in words
def _in_words(s: Sparse, cursor: tuple[int, int] | None) -> tuple[str, str]:
    mask, (rows, columns) = s.mask, s.mask.tiles.shape
    alt = f"A grid of {rows:,} by {columns:,} tiles of scores, {mask.Br:,} queries by {mask.Bc:,} keys each, "
    alt += f"{s.seen:,} of them visible" + (", on the diagonal up to the query" if mask.causal else "")
    alt += f", and bars for {s.ledger.total:,} words moved, {s.dense.total:,} with all tiles, and the lower "
    alt += f"bound of {s.least:,}. "
    if cursor is not None:
        alt += f"Tile {cursor[0]}, {cursor[1]} is outlined: {state_of(mask, *cursor)}. "
    seen = (f"row {row}: {_runs(np.flatnonzero(tiles).tolist())}" for row, tiles in enumerate(mask.tiles))
    named = f"Visible tiles in {'; '.join(seen)}."
    alt += named if max(rows, columns) <= DRAWN else "There are too many tiles to list."
    lines = [["", "words"], ["this mask", f"{s.ledger.total:,}"], ["all tiles", f"{s.dense.total:,}"]]
    lines.append([f"lower bound ({s.bound})", f"{s.least:,}"])
    return alt, "\n".join([table(lines, left=0), *facts(s)])


def _runs(found: list[int]) -> str:
    """Format sorted integers with consecutive ones joined: "0 to 3, 7"."""
    runs = [[k for _, k in run] for _, run in groupby(enumerate(found), lambda at: at[1] - at[0])]
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs) or "none"


def state_of(mask: BlockMask, row: int, column: int) -> str:
    """Return "empty", "visible" or "visible up to the query" for a tile."""
    if not mask.tiles[row, column]:
        return "empty"
    return "visible up to the query" if is_half(mask, row, column) else "visible"


def block_mask_headline(s: Sparse) -> tuple[str, str]:
    """Return two sentences: traffic compared with all tiles, and compared with the lower bound."""
    share = f"{s.ledger.total / s.dense.total:.3f} of the {s.dense.total:,} of all tiles"
    return (
        f"Traffic {s.ledger.total:,} words, {share}.",
        f"{_against_bound(s)}, {s.least:,} words for M = {s.M:,}.",
    )


def _against_bound(s: Sparse) -> str:
    ratio = f"{s.ledger.total / s.least:.2f} times" if s.least else "Above"
    return f"{ratio} the lower bound ({s.bound})"
