"""A causal triangle whose rows belong to ranks: three ways to deal them out, and what each rank has to do."""

from __future__ import annotations

from collections.abc import Iterator

from ... import distributed
from ...console import table
from ...distributed import load_balance
from ...sizes import check_sizes
from ..draw.palette import FILLS, INK, PAPER, QUIET
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, example, figure, titled
from ..draw.shapes import Square, swatch

SIDE, GAP, LEFT, TOP = 232.0, 44.0, 48.0, 96.0
MOST_ROWS = 64


@example(16, 4)
@figure
def causal_load(N: int, P: int, *, title: str | None = None) -> Picture:
    """N × N causal scores, each row in the fill of the rank that has it: contiguous, zigzag, striped.

    Below each triangle stand the pairs of every rank. Raises ValueError for sizes below 1, more than 64 rows
    or 7 ranks.
    """
    N, P = check_sizes(N=N, P=P)
    for name, size, most in (("N", N, MOST_ROWS), ("P", P, len(FILLS))):
        if size > most:
            raise ValueError(f"{name} = {size} is too many to draw; at most {most}")
    heading = title or f"Causal rows on {P} ranks, N = {N}"
    drawn = list[Element]()
    for k, layout in enumerate(distributed.LAYOUTS):
        drawn += _triangle(Square(LEFT + k * (SIDE + GAP), TOP, SIDE, N), layout, P)
    for rank in range(P):
        drawn += swatch(LEFT + 110.0 * rank, TOP + SIDE + 62, FILLS[rank], f"rank {rank}")
    width = 2 * LEFT + 3 * SIDE + 2 * GAP
    return titled(heading, (width, TOP + SIDE + 96), *_in_words(heading, N, P), drawn)


def _triangle(square: Square, layout: str, P: int) -> Iterator[Element]:
    yield Text(square.x, square.y - 12, layout, NORMAL, bold=True)
    yield square.paper(PAPER)
    for rank in range(P):
        fill = FILLS[rank]
        for row in distributed.rows_of(layout, square.N, P, rank):
            box = square.box((int(row), int(row) + 1), (0, int(row) + 1))
            yield Rect(box.x, box.y, box.width, box.height, fill.colour, fill.hatch, INK, 0.5)
    pairs = load_balance.pairs_of_ranks(layout, square.N, P)
    said = ", ".join(map(str, pairs)) if P <= 4 else f"{min(pairs)} to {max(pairs)}"
    yield Text(square.x, square.y + SIDE + 20, f"pairs {said}", SMALL)
    most = load_balance.imbalance(pairs)
    yield Text(square.x, square.y + SIDE + 40, f"busiest rank: {most:.2f} × the mean", SMALL, colour=QUIET)


def _in_words(heading: str, N: int, P: int) -> tuple[str, str]:
    rows = [["layout", *(f"rank {rank}" for rank in range(P))]]
    rows += [[layout, *map(str, load_balance.pairs_of_ranks(layout, N, P))] for layout in distributed.LAYOUTS]
    told = "; ".join(f"{row[0]} {', '.join(row[1:])}" for row in rows[1:])
    alt = f"{heading}: three lower triangles, each row in the fill of its rank. Contiguous gives each rank a "
    alt += "band, zigzag an early and a late band, striped every row in turn. "
    alt += f"Pairs of the ranks from the first to the last: {told}."
    return alt, table(rows, left=1)
