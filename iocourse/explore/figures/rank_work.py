"""Which pairs of a query and a key each rank makes: strips or a grid, and the rows that one of them needs."""

from __future__ import annotations

from collections.abc import Iterator

from ...console import table
from ...sizes import check_sizes, positive_int
from ..draw.palette import FILLS, INK, PAPER
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, example, figure, titled
from ..draw.shapes import swatch

SIDE, GAP, LEFT, TOP, BAND = 256.0, 76.0, 60.0, 104.0, 12.0
MOST, MOST_GRIDS = 64, 3
NUMBERED = 16  # ranks at most whose numbers are written
MADE, QUERIES, KEYS = FILLS[0], FILLS[1], FILLS[2]
LEGEND = ((MADE, "pairs it makes"), (QUERIES, "queries it needs"), (KEYS, "keys it needs"))


@example(16, 16, 4)
@example(6, 2)
@example(64, 1, 8, 64)
@figure
def rank_work(P: int, *grids: int, title: str | None = None) -> Picture:
    """The N × N pairs shared among P ranks, for each number of rows a in `grids` as a × P/a, side by side.

    One rank is marked, with the queries and the keys that its pairs need. a = P is a ring. Keys are drawn in
    the order of the columns. Raises ValueError where an a does not divide P, for more than 64 ranks, and for
    none or more than 3 grids.
    """
    P = _checked(P, grids)
    heading = title or f"The pairs of {P} ranks, and what rank {P // 3} needs for its own"
    drawn = list[Element]()
    for k, a in enumerate(grids):
        drawn += _square(LEFT + k * (SIDE + GAP), a, P // a)
    for k, (fill, label) in enumerate(LEGEND):
        drawn += swatch(LEFT + 160.0 * k, TOP + SIDE + 66, fill, label)
    width = max(560.0, LEFT + len(grids) * (SIDE + GAP))
    return titled(heading, (width, TOP + SIDE + 98), *_in_words(heading, P, grids), drawn)


def _checked(P: int, grids: tuple[int, ...]) -> int:
    (P,) = check_sizes(P=P)
    if P > MOST:
        raise ValueError(f"P = {P} is too many to draw; at most {MOST}")
    if not 1 <= len(grids) <= MOST_GRIDS:
        raise ValueError(f"got {len(grids)} grids; draw 1 to {MOST_GRIDS}")
    for a in grids:
        if P % positive_int("a", a):
            raise ValueError(f"a = {a} does not divide the P = {P} ranks into rows")
    return P


def _square(x: float, a: int, b: int) -> Iterator[Element]:
    """The square at x in a × b boxes, the bands beside it, and its shape in words."""
    height, width, marked = SIDE / a, SIDE / b, a * b // 3
    i, j = divmod(marked, b)
    yield Text(x, TOP - BAND - 14, _name(a, b), NORMAL, bold=True)
    for rank in range(a * b):
        box = (x + rank % b * width, TOP + rank // b * height, width, height)
        fill = MADE if rank == marked else None
        yield Rect(*box, fill.colour if fill else PAPER, fill.hatch if fill else "", INK, 0.75)
        if a * b <= NUMBERED:
            yield Text(box[0] + width / 2 - 4 * len(str(rank)), box[1] + height / 2 + 4, str(rank), SMALL)
    left, top = (x - BAND - 4, TOP + i * height, BAND, height), (x + j * width, TOP - BAND - 4, width, BAND)
    yield Rect(*left, QUERIES.colour, QUERIES.hatch, INK)
    yield Rect(*top, KEYS.colour, KEYS.hatch, INK)
    yield Text(x, TOP + SIDE + 22, _needs(a, b), SMALL)


def _name(a: int, b: int) -> str:
    return f"{a} × {b}"


def _needs(a: int, b: int) -> str:
    rows, columns = (f"N/{n}" if n > 1 else "N" for n in (a, b))
    return f"{rows} queries + {columns} keys = {1 / a + 1 / b:.3g} N"


def _in_words(heading: str, P: int, grids: tuple[int, ...]) -> tuple[str, str]:
    names = [(_name(a, P // a), _needs(a, P // a)) for a in grids]
    alt = f"{heading}: squares of all pairs cut into {P} equal boxes, a box for each rank. "
    alt += " ".join(f"Cut into {name}, a rank needs {needs}." for name, needs in names)
    return alt, table([["grid", "a rank needs"], *map(list, names)], left=2)
