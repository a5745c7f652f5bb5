"""Which program of a grid owns which tile of a matrix, and which of its lanes are masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...console import table, with_unit
from ...costs import ceil_div
from ...machine import positive_int
from ..draw.palette import FORBIDDEN, INK, PAPER, QUIET, ink_on, ramp
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, centred, figure, text_width, titled
from ..draw.shapes import framed, outline, place, span

X, Y, SIDE, FOOT = 134.0, 96.0, 420.0, 66.0  # the matrix's corner, the longer edge of the grid, what is below
THIN, FEW = 24.0, 16  # pixels of a tile at least, where there are so few of them
MOST = 1024  # tiles drawn
SMALLEST = 9.0  # size of a name

Tile = tuple[int, int]


class _Grid(NamedTuple):
    """A matrix in tiles of BM × BN lanes, one a program; `order` says which program takes which tile."""

    rows: int
    columns: int
    BM: int
    BN: int
    order: tuple[Tile, ...] | None

    @property
    def shape(self) -> tuple[int, int]:
        """Tiles down and across."""
        return ceil_div(self.rows, self.BM), ceil_div(self.columns, self.BN)

    @property
    def programs(self) -> int:
        """One a tile."""
        return self.shape[0] * self.shape[1]

    @property
    def lanes(self) -> int:
        """Of all programs together."""
        return self.programs * self.BM * self.BN

    @property
    def masked(self) -> int:
        """Lanes that lie outside the matrix."""
        return self.lanes - self.rows * self.columns

    def lane_sizes(self) -> tuple[float, float]:
        """Pixels of one lane across and down: square ones, unless that leaves no room for a tile's name."""
        (down, across), widest = self.shape, max(self.shape[0] * self.BM, self.shape[1] * self.BN)
        least = THIN / max(1, down / FEW) / self.BM, 2 * THIN / max(1, across / FEW * 2) / self.BN
        return max(SIDE / widest, least[1]), max(SIDE / widest, least[0])

    @property
    def named(self) -> bool:
        """Whether every tile has room for its name."""
        last = f"{self.shape[0] - 1}, {self.shape[1] - 1}" if self.order is None else str(self.programs - 1)
        across, down = self.lane_sizes()
        return _letters(last, self.BN * across, self.BM * down) >= SMALLEST

    def part(self, tile: Tile) -> tuple[tuple[int, int], tuple[int, int]]:
        """The rows and columns of the matrix that a tile holds."""
        i, j = tile
        rows = i * self.BM, min((i + 1) * self.BM, self.rows)
        return rows, (j * self.BN, min((j + 1) * self.BN, self.columns))


@figure
def program_grid(
    rows: int,
    columns: int,
    BM: int,
    BN: int,
    *,
    order: Sequence[Tile] | None = None,
    outlined: Tile | None = None,
    title: str | None = None,
) -> Picture:
    """A matrix (rows, columns) cut into tiles of BM × BN lanes, one for each program; masked lanes hatched.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        BM: lanes of a program down; 1 is one program a row.
        BN: lanes of a program across.
        order: the tiles (row of tiles, column of tiles) that programs 0, 1, 2, … take. With it each tile has
            its program's number and is shaded light to dark; without it, its place "row, column".
        outlined: a tile to outline; the words say which rows and columns it holds.
        title: of the picture.

    Raises:
        ValueError: a size below 1, more than 1,024 tiles, an order that does not hold each tile once, a tile
            outside the grid.
    """
    taken = None if order is None else tuple((i, j) for i, j in order)
    rows, columns = positive_int("rows", rows), positive_int("columns", columns)
    grid = _Grid(rows, columns, positive_int("BM", BM), positive_int("BN", BN), taken)
    _check(grid, outlined)
    name = title or f"{with_unit(grid.programs, 'program')}, {BM:,} × {BN:,} lanes each"
    across, down = grid.lane_sizes()
    width, height = X + grid.shape[1] * BN * across + 24, Y + grid.shape[0] * BM * down + FOOT
    drawn = [
        Rect(X, Y, grid.shape[1] * BN * across, grid.shape[0] * BM * down, FORBIDDEN, "\\", "", 1.0, QUIET),
        *_programs(grid),
        *([] if outlined is None else outline(_box(grid, outlined))),
        *_labels(grid, height),
    ]
    rows_of = [
        ("programs", f"{grid.shape[0]:,} × {grid.shape[1]:,} = {grid.programs:,}"),
        ("lanes", f"{grid.lanes:,}"),
        ("elements", f"{rows * columns:,}"),
        ("masked lanes", f"{grid.masked:,} ({grid.masked / grid.lanes:.1%})"),
    ]
    alt = _alt(name, grid, outlined)
    return titled(name, (max(width, 560.0), height), alt, table(rows_of, left=0), drawn)


def _check(grid: _Grid, outlined: Tile | None) -> None:
    down, across = grid.shape
    if grid.programs > MOST:
        raise ValueError(f"BM = {grid.BM}, BN = {grid.BN} make {grid.programs:,} tiles; {MOST:,} at most")
    everything = [(i, j) for i in range(down) for j in range(across)]
    if grid.order is not None and sorted(grid.order) != everything:
        raise ValueError(
            f"order must hold each of the tiles (0, 0) to ({down - 1}, {across - 1}) once; "
            f"it holds {len(grid.order)} of {grid.programs} or others"
        )
    if outlined is not None and tuple(outlined) not in everything:
        raise ValueError(f"outlined = {outlined}: the tiles are (0, 0) to ({down - 1}, {across - 1})")


# ---------------------------------------------------------------------- the drawing
def _programs(grid: _Grid) -> list[Element]:
    """The matrix over all lanes; each tile with its label, its part of the matrix shaded in an order."""
    tiles = grid.order or [(i, j) for i in range(grid.shape[0]) for j in range(grid.shape[1])]
    across, down = grid.lane_sizes()
    matrix = Rect(X, Y, grid.columns * across, grid.rows * down, "", "", INK, 2.5)
    drawn, names = list[Element]([Rect(X, Y, matrix.width, matrix.height, PAPER)]), list[Element]()
    for k, tile in enumerate(tiles):
        shade = ramp(0.08 + 0.66 * k / max(len(tiles) - 1, 1)) if grid.order else ramp(0.12)
        inside, whole = _box(grid, tile, cut=True), _box(grid, tile)
        drawn.append(replace(inside, fill=shade))
        edge = INK if min(whole.width, whole.height) >= 8 else ""
        drawn.append(replace(whole, stroke=edge))
        if grid.named:
            names += _name(inside, whole, str(k) if grid.order else f"{tile[0]}, {tile[1]}", shade)
    return [*drawn, *framed(matrix), *names]


def _box(grid: _Grid, tile: Tile, *, cut: bool = False) -> Rect:
    """A tile in pixels, all its lanes or (`cut`) those inside the matrix."""
    across, down = grid.lane_sizes()
    (top, bottom), (left, right) = grid.part(tile)
    if not cut:
        bottom, right = top + grid.BM, left + grid.BN
    return Rect(X + left * across, Y + top * down, (right - left) * across, (bottom - top) * down)


def _name(inside: Rect, whole: Rect, label: str, shade: str) -> list[Element]:
    """A tile's name in its part of the matrix, or where that is too small, on paper across the whole tile."""
    for box, colour in ((inside, ink_on(shade)), (whole, INK)):
        size = _letters(label, box.width, box.height)
        if size < SMALLEST:
            continue
        x, y, half = box.x + box.width / 2, box.y + box.height / 2, text_width(label, size) / 2
        paper = [] if box is inside else [Rect(x - half, y - size / 2 - 1, 2 * half, size + 2, PAPER)]
        return [*paper, Text(x, centred(y, size), label, size, "middle", colour)]
    return []


def _letters(label: str, width: float, height: float) -> float:
    """The size at which a label fits into a box."""
    return min(NORMAL, height - 4, 0.85 * width / text_width(label, 1.0))


def _labels(grid: _Grid, height: float) -> Iterator[Element]:
    told = [f"a matrix of {grid.rows:,} × {grid.columns:,}"]
    if grid.named:
        told.append("in each tile " + ("its program" if grid.order else "row of tiles, column of tiles"))
    elif grid.order:
        told.append("light to dark in the order of programs")
    yield Text(18, 54, "; ".join(told), SMALL)
    yield Text(X, Y - 10, span("column", (0, grid.columns)), SMALL, colour=QUIET)
    yield Text(X - 12, Y + 14, span("row", (0, grid.rows)), SMALL, "end", QUIET)
    if grid.masked:
        yield Rect(X, height - 42, 18, 18, FORBIDDEN, "\\", "", 1.0, QUIET)
        yield Text(X + 28, height - 28, f"{grid.masked:,} masked lanes: they move nothing", SMALL)


# ---------------------------------------------------------------------- in words
def _alt(name: str, grid: _Grid, outlined: Tile | None) -> str:
    down, across = grid.shape
    told = [
        f"{name}: a matrix of {grid.rows:,} × {grid.columns:,} in {down:,} × {across:,} tiles of "
        f"{grid.BM:,} × {grid.BN:,} lanes, one program for each tile"
    ]
    if grid.order:
        first = ", ".join(f"({i}, {j})" for i, j in grid.order[:4])
        told.append(f"Programs take the tiles in the order {first}{', …' if grid.programs > 4 else ''}")
    edge = f"{grid.masked:,} of {grid.lanes:,} lanes lie outside the matrix and are hatched: they are masked"
    told.append(edge if grid.masked else "No lane lies outside the matrix")
    if outlined is not None:
        told.append(f"Tile ({outlined[0]}, {outlined[1]}) is outlined: {place(grid.part(outlined))}")
    return ". ".join(told) + "."
