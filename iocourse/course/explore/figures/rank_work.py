"""Figures of query-key pairs by rank: 1D or 2D partitions with the rows that one rank needs, and causal load.

The second figure shows the rows of a causal triangle in three layouts.
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import distributed
from ....console import table
from ....distributed import load_balance
from ....sizes import check_sizes, positive_int
from ..draw.palette import ARRAY_FILLS, FILLS, INK, PAPER, QUIET, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, example, figure, titled
from ..draw.shapes import Square, swatch

# ---------------------------------------------------------------------- partitions of all pairs
SIDE, GAP, LEFT, TOP, BAND = 256.0, 76.0, 60.0, 104.0, 12.0
MOST, MOST_GRIDS = 64, 3
NUMBERED = 16  # most ranks that are labelled
MADE, QUERIES, KEYS = ARRAY_FILLS["scores"], ARRAY_FILLS["Q"], ARRAY_FILLS["K"]
LEGEND = ((MADE, "its pairs"), (QUERIES, "queries it needs"), (KEYS, "keys it needs"))


@example(16, 16, 4)
@example(6, 2)
@example(64, 1, 8, 64)
@figure
def rank_work(P: int, *grids: int, title: str | None = None) -> Picture:
    """The N × N pairs partitioned among P ranks in grids of a × P/a, side by side.

    One rank is marked, with the queries and keys that it needs.

    Args:
        P: ranks, at most 64.
        grids: one to three values of a, the number of grid rows; each divides P. a = P is ring attention.
        title: of the figure.

    Raises:
        ValueError: an argument is outside its range, or an a does not divide P.
    """
    (P,) = check_sizes(P=P)
    if P > MOST:
        raise ValueError(f"P must be at most {MOST} to be drawn, got {P}")
    if not 1 <= len(grids) <= MOST_GRIDS:
        raise ValueError(f"grids must contain 1 to {MOST_GRIDS} values, got {len(grids)}")
    for a in grids:
        if P % positive_int("a", a):
            raise ValueError(f"a must divide P = {P}, got {a}")
    heading = title or f"Partition of the pairs among {P} ranks, and the rows that rank {P // 3} needs"
    drawn = list[Element]()
    for k, a in enumerate(grids):
        drawn += _square(LEFT + k * (SIDE + GAP), a, P // a)
    for k, (fill, label) in enumerate(LEGEND):
        drawn += swatch(LEFT + 160.0 * k, TOP + SIDE + 66, fill, label)
    width = max(560.0, LEFT + len(grids) * (SIDE + GAP))
    return titled(heading, (width, TOP + SIDE + 98), *_in_words(heading, P, grids), drawn)


def _square(x: float, a: int, b: int) -> Iterator[Element]:
    """Yield the square at x in a × b boxes, the bands of needed rows, and their sizes."""
    height, width, marked = SIDE / a, SIDE / b, a * b // 3
    i, j = divmod(marked, b)
    yield Text(x, TOP - BAND - 14, f"{a} × {b}", NORMAL, bold=True)
    for rank in range(a * b):
        left, top = x + rank % b * width, TOP + rank // b * height
        yield Rect(left, top, width, height, *(MADE if rank == marked else Fill(PAPER, "")), INK, 0.75)
        if a * b <= NUMBERED:
            yield Text(left + width / 2 - 4 * len(str(rank)), top + height / 2 + 4, str(rank), SMALL)
    yield Rect(x - BAND - 4, TOP + i * height, BAND, height, *QUERIES, INK)
    yield Rect(x + j * width, TOP - BAND - 4, width, BAND, *KEYS, INK)
    yield Text(x, TOP + SIDE + 22, _needs(a, b), SMALL)


def _needs(a: int, b: int) -> str:
    rows, columns = (f"N/{n}" if n > 1 else "N" for n in (a, b))
    return f"{rows} queries + {columns} keys = {1 / a + 1 / b:.3g} N"


def _in_words(heading: str, P: int, grids: tuple[int, ...]) -> tuple[str, str]:
    names = [(f"{a} × {P // a}", _needs(a, P // a)) for a in grids]
    alt = f"{heading}: squares of all pairs in {P} equal boxes, one per rank. "
    alt += " ".join(f"In a grid of {name}, a rank needs {needs}." for name, needs in names)
    return alt, table([["grid", "rows per rank"], *map(list, names)], left=2)


# ---------------------------------------------------------------------- a causal triangle
TRIANGLE, BETWEEN, MARGIN, HEAD = 232.0, 44.0, 48.0, 96.0
MOST_ROWS = 64


@example(16, 4)
@figure
def causal_load(N: int, P: int, *, title: str | None = None) -> Picture:
    """N × N causal scores by rank in the contiguous, zigzag and striped layouts, with the pairs per rank.

    Raises:
        ValueError: a size below 1, more than 64 rows, or more than 7 ranks.
    """
    N, P = check_sizes(N=N, P=P)
    for name, size, most in (("N", N, MOST_ROWS), ("P", P, len(FILLS))):
        if size > most:
            raise ValueError(f"{name} must be at most {most} to be drawn, got {size}")
    heading = title or f"Causal rows on {P} ranks, N = {N}"
    drawn = list[Element]()
    for k, layout in enumerate(distributed.LAYOUTS):
        drawn += _triangle(Square(MARGIN + k * (TRIANGLE + BETWEEN), HEAD, TRIANGLE, N), layout, P)
    for rank in range(P):
        drawn += swatch(MARGIN + 110.0 * rank, HEAD + TRIANGLE + 62, FILLS[rank], f"rank {rank}")
    width = 2 * MARGIN + 3 * TRIANGLE + 2 * BETWEEN
    return titled(heading, (width, HEAD + TRIANGLE + 96), *_loads_in_words(heading, N, P), drawn)


def _triangle(square: Square, layout: str, P: int) -> Iterator[Element]:
    yield Text(square.x, square.y - 12, layout, NORMAL, bold=True)
    yield square.paper(PAPER)
    for rank in range(P):
        for row in distributed.rows_of(layout, square.N, P, rank):
            box = square.box((int(row), int(row) + 1), (0, int(row) + 1))
            yield Rect(box.x, box.y, box.width, box.height, *FILLS[rank], INK, 0.5)
    pairs = load_balance.pairs_of_ranks(layout, square.N, P)
    said = ", ".join(map(str, pairs)) if P <= 4 else f"{min(pairs)} to {max(pairs)}"
    yield Text(square.x, square.y + TRIANGLE + 20, f"pairs {said}", SMALL)
    busiest = f"busiest rank: {load_balance.imbalance(pairs):.2f} times the mean"
    yield Text(square.x, square.y + TRIANGLE + 40, busiest, SMALL, colour=QUIET)


def _loads_in_words(heading: str, N: int, P: int) -> tuple[str, str]:
    rows = [["layout", *(f"rank {rank}" for rank in range(P))]]
    rows += [[layout, *map(str, load_balance.pairs_of_ranks(layout, N, P))] for layout in distributed.LAYOUTS]
    told = "; ".join(f"{row[0]} {', '.join(row[1:])}" for row in rows[1:])
    alt = (
        f"{heading}: three lower triangles, each row in the fill of its rank. Contiguous: one band per rank. "
    )
    alt += "Zigzag: an early and a late band per rank. Striped: rows are assigned to the ranks in turn. "
    alt += f"Pairs per rank, from the first to the last: {told}."
    return alt, table(rows, left=1)
