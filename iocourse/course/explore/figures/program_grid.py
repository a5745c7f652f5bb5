"""Figure of a launch grid: the tile of a matrix that each program computes, and masked lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ....console import table, with_unit
from ....costs import ceil_div
from ....machine import positive_int
from ..draw.palette import FORBIDDEN, INK, PAPER, QUIET, ink_on, ramp
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, centred, figure, text_width, titled
from ..draw.shapes import framed, outline, place, span

X, Y, SIDE, FOOT = 134.0, 96.0, 420.0, 66.0  # corner of the matrix, longer edge of the grid, space below
THIN, FEW = 24.0, 16  # minimum pixels per tile, for grids of few tiles
MOST = 1024  # tiles
SMALLEST = 9.0  # text size of a label

Tile = tuple[int, int]


class _Grid(NamedTuple):
    """A matrix in tiles of BM × BN lanes, one program per tile; `order` lists the tiles by program."""

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
        """Number of programs, one per tile."""
        return self.shape[0] * self.shape[1]

    @property
    def lanes(self) -> int:
        """Number of lanes of all programs."""
        return self.programs * self.BM * self.BN

    @property
    def masked(self) -> int:
        """Number of masked lanes (out of bounds)."""
        return self.lanes - self.rows * self.columns

    def lane_sizes(self) -> tuple[float, float]:
        """Return the pixels per lane across and down; lanes are square unless tile labels need more space."""
        (down, across), widest = self.shape, max(self.shape[0] * self.BM, self.shape[1] * self.BN)
        least = THIN / max(1, down / FEW) / self.BM, 2 * THIN / max(1, across / FEW * 2) / self.BN
        return max(SIDE / widest, least[1]), max(SIDE / widest, least[0])

    @property
    def named(self) -> bool:
        """True if all tiles are large enough for their label."""
        last = f"{self.shape[0] - 1}, {self.shape[1] - 1}" if self.order is None else str(self.programs - 1)
        across, down = self.lane_sizes()
        return _letters(last, self.BN * across, self.BM * down) >= SMALLEST

    def part(self, tile: Tile) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the rows and columns of the matrix in a tile."""
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
    """A matrix (rows, columns) in tiles of BM × BN lanes, one program per tile; masked lanes are hatched.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        BM: lanes per program down; 1 means one program per row.
        BN: lanes per program across.
        order: tiles (row of tiles, column of tiles) of programs 0, 1, 2, …. With it, each tile is labelled
            with its program and shaded light to dark; without it, with its position "row, column".
        outlined: a tile to outline; the alternative text lists its rows and columns.
        title: of the figure.

    Raises:
        ValueError: a size below 1, more than 1,024 tiles, an order that does not contain each tile once, or a
            tile outside the grid.
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
        raise ValueError(f"BM = {grid.BM}, BN = {grid.BN} give {grid.programs:,} tiles; use at most {MOST:,}")
    everything = [(i, j) for i in range(down) for j in range(across)]
    if grid.order is not None and sorted(grid.order) != everything:
        raise ValueError(
            f"order must contain each tile from (0, 0) to ({down - 1}, {across - 1}) once, {grid.programs} "
            f"tiles, got {len(grid.order)} with others or repeated ones"
        )
    if outlined is not None and tuple(outlined) not in everything:
        raise ValueError(f"outlined must be from (0, 0) to ({down - 1}, {across - 1}), got {outlined}")


# ---------------------------------------------------------------------- the drawing
def _programs(grid: _Grid) -> list[Element]:
    """Return the matrix on top of all lanes; each tile with its label, shaded inside the matrix."""
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
    """Return a tile in pixels: all lanes, or with `cut` only those inside the matrix."""
    across, down = grid.lane_sizes()
    (top, bottom), (left, right) = grid.part(tile)
    if not cut:
        bottom, right = top + grid.BM, left + grid.BN
    return Rect(X + left * across, Y + top * down, (right - left) * across, (bottom - top) * down)


def _name(inside: Rect, whole: Rect, label: str, shade: str) -> list[Element]:
    """Return the label of a tile, inside the matrix if it fits, otherwise across all lanes of the tile."""
    for box, colour in ((inside, ink_on(shade)), (whole, INK)):
        size = _letters(label, box.width, box.height)
        if size < SMALLEST:
            continue
        x, y, half = box.x + box.width / 2, box.y + box.height / 2, text_width(label, size) / 2
        paper = [] if box is inside else [Rect(x - half, y - size / 2 - 1, 2 * half, size + 2, PAPER)]
        return [*paper, Text(x, centred(y, size), label, size, "middle", colour)]
    return []


def _letters(label: str, width: float, height: float) -> float:
    """Return the largest text size at which a label fits into a box."""
    return min(NORMAL, height - 4, 0.85 * width / text_width(label, 1.0))


def _labels(grid: _Grid, height: float) -> Iterator[Element]:
    told = [f"matrix of {grid.rows:,} × {grid.columns:,}"]
    if grid.named:
        told.append("label: " + ("program of the tile" if grid.order else "row of tiles, column of tiles"))
    elif grid.order:
        told.append("light to dark: order of programs")
    yield Text(18, 54, "; ".join(told), SMALL)
    yield Text(X, Y - 10, span("column", (0, grid.columns)), SMALL, colour=QUIET)
    yield Text(X - 12, Y + 14, span("row", (0, grid.rows)), SMALL, "end", QUIET)
    if grid.masked:
        yield Rect(X, height - 42, 18, 18, FORBIDDEN, "\\", "", 1.0, QUIET)
        yield Text(X + 28, height - 28, f"{grid.masked:,} masked lanes (no memory traffic)", SMALL)


# ---------------------------------------------------------------------- in words
def _alt(name: str, grid: _Grid, outlined: Tile | None) -> str:
    down, across = grid.shape
    told = [
        f"{name}: a matrix of {grid.rows:,} × {grid.columns:,} in {down:,} × {across:,} tiles of "
        f"{grid.BM:,} × {grid.BN:,} lanes, one program for each tile"
    ]
    if grid.order:
        first = ", ".join(f"({i}, {j})" for i, j in grid.order[:4])
        told.append(
            f"The programs compute the tiles in the order {first}{', …' if grid.programs > 4 else ''}"
        )
    edge = f"{grid.masked:,} of {grid.lanes:,} lanes are out of bounds, hence masked, and hatched"
    told.append(edge if grid.masked else "No lane is masked")
    if outlined is not None:
        told.append(f"Tile ({outlined[0]}, {outlined[1]}) is outlined: {place(grid.part(outlined))}")
    return ". ".join(told) + "."
