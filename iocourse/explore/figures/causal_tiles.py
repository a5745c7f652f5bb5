"""Causal low rank by tiles: exact on the diagonal, a polynomial below it, nothing above."""

from __future__ import annotations

from collections.abc import Iterator

from ...console import table
from ...costs import ceil_div
from ...sizes import positive_int
from ..draw.palette import BLUE, GRID, INK, ORANGE, PAPER, SKY, VERMILION, Fill
from ..draw.picture import NORMAL, Element, Picture, Poly, Rect, Text, figure, titled
from ..draw.shapes import Square, swatch

WIDTH, HEIGHT = 860.0, 500.0
X, Y, SIDE = 84.0, 84.0, 376.0
RIGHT = 500.0
MOST_TILES = 64
EXACT, FAR, IN_STATE, NOTHING = Fill(ORANGE, "/"), Fill("#CFE8F8", ""), Fill(SKY, "."), Fill(PAPER, "")


@figure
def causal_tiles(
    n: int, C: int, *, at: int | None = None, pass_: str = "forward", title: str | None = None
) -> Picture:
    """n x n scores in tiles of C tokens: exact on the diagonal, by the polynomial below, none above.

    `at` outlines what one tile of tokens needs. Forward: its queries take their diagonal tile exactly, and
    all keys before from the prefix state T. Backward: its keys take their diagonal tile, and all queries
    after from the suffix state U. Raises ValueError for sizes below 1, more than 64 tiles a side, an `at`
    that is not there, another pass.
    """
    n, C = positive_int("n", n), positive_int("C", C)
    count = ceil_div(n, C)
    if count > MOST_TILES:
        raise ValueError(f"n = {n:,} in tiles of C = {C:,} has {count:,} tiles a side; at most {MOST_TILES}")
    if at is not None and not 0 <= at < count:
        raise ValueError(f"at = {at}: the tiles are 0 to {count - 1}")
    if pass_ not in ("forward", "backward"):
        raise ValueError(f"pass_ is {pass_!r}; it must be 'forward' or 'backward'")
    heading = title or f"Causal low rank, n = {n:,}, tiles of C = {C:,}"
    forward = pass_ == "forward"
    names = Square(X, Y, SIDE, n).names("keys", "queries")
    drawn = [*_tiles(n, C, at, forward), *names, *_key(n, C, at, forward)]
    return titled(heading, (WIDTH, HEIGHT), *_in_words(heading, n, C, at, forward), drawn)


def _edges(n: int, C: int) -> list[float]:
    """Where the tiles begin and end, in pixels from the first."""
    return [min(k * C, n) * SIDE / n for k in range(ceil_div(n, C) + 1)]


def _tiles(n: int, C: int, at: int | None, forward: bool) -> Iterator[Element]:
    edges = _edges(n, C)
    count = len(edges) - 1
    yield Square(X, Y, SIDE, n).paper(NOTHING.colour)
    for row in range(count):
        top, height = Y + edges[row], edges[row + 1] - edges[row]
        for column in range(row):
            left, width = X + edges[column], edges[column + 1] - edges[column]
            used = at == (row if forward else column)
            fill = IN_STATE if used else FAR
            yield Rect(left, top, width, height, fill.colour, fill.hatch, GRID, 0.6, BLUE)
        yield from _diagonal(edges[row], edges[row + 1])
    if at is not None:
        yield from _outlines(edges, at, forward)


def _diagonal(start: float, stop: float) -> list[Element]:
    """A tile on the diagonal: the triangle of the pairs that are seen."""
    box = Rect(X + start, Y + start, stop - start, stop - start, PAPER, "", GRID, 0.6)
    corners = ((X + start, Y + start), (X + start, Y + stop), (X + stop, Y + stop))
    return [box, Poly(corners, INK, 0.8, (), EXACT.colour)]


def _outlines(edges: list[float], at: int, forward: bool) -> Iterator[Element]:
    start, stop = edges[at], edges[at + 1]
    yield Rect(X + start, Y + start, stop - start, stop - start, "", "", VERMILION, 3)
    if forward and at:
        yield Rect(X, Y + start, start, stop - start, "", "", BLUE, 3)
    if not forward and stop < SIDE:
        yield Rect(X + start, Y + stop, stop - start, SIDE - stop, "", "", BLUE, 3)


def _key(n: int, C: int, at: int | None, forward: bool) -> Iterator[Element]:
    triangle = ((RIGHT, Y), (RIGHT, Y + 18), (RIGHT + 18, Y + 18))
    yield Poly(triangle, INK, 0.8, (), EXACT.colour)
    yield Text(RIGHT + 24, Y + 13, "exact: exp of each score", NORMAL)
    yield from swatch(RIGHT, Y + 32, FAR, "polynomial, through a state of r(d + 1) words")
    yield from swatch(RIGHT, Y + 64, NOTHING, "not seen: keys that come later")
    for k, line in enumerate(_steps(n, C, at, forward)):
        yield Text(RIGHT, Y + 128 + 22 * k, line, NORMAL, bold=not k and at is not None)


def _span(first: int, stop: int) -> str:
    return f"{first:,}" if stop == first + 1 else f"{first:,} to {stop - 1:,}"


def _steps(n: int, C: int, at: int | None, forward: bool) -> list[str]:
    """What happens at one tile, line by line."""
    if at is None:
        order = "forwards: T holds the keys before" if forward else "backwards: U holds the queries after"
        return [f"Tiles are passed {order}."]
    first, stop = at * C, min(n, at * C + C)
    if forward:
        before = f"T = Σ ψ(k)[v, 1] of keys {_span(0, first)}" if first else "T is 0: no key comes before"
        return [
            f"Tile {at}: queries {_span(first, stop)}",
            before,
            "O: exact part + φ(q)T, over both row sums",
            f"then T takes in keys {_span(first, stop)}",
        ]
    after = (
        f"U = Σ φ(q)[dO, -δ]/l of queries {_span(stop, n)}" if stop < n else "U is 0: no query comes after"
    )
    return [
        f"Tile {at}: keys {_span(first, stop)}",
        after,
        "dV, dK: exact part + what ψ(k) and U give",
        f"then U takes in queries {_span(first, stop)}",
    ]


def _in_words(heading: str, n: int, C: int, at: int | None, forward: bool) -> tuple[str, str]:
    sizes = [min(C, n - k * C) for k in range(ceil_div(n, C))]
    seen, exact = n * (n + 1) // 2, sum(size * (size + 1) // 2 for size in sizes)
    rows = [["", "pairs", "share of those seen"]]
    rows += [
        [name, f"{pairs:,}", f"{pairs / seen:.2%}"]
        for name, pairs in (("exact", exact), ("polynomial", seen - exact), ("seen", seen))
    ]
    alt = f"{heading}: a square of scores, {len(sizes)} tiles a side. On the diagonal the lower triangles "
    alt += f"are exact, {exact:,} pairs; below them the polynomial stands for {seen - exact:,} pairs; above "
    alt += f"nothing is seen. {'; '.join(_steps(n, C, at, forward)).removesuffix('.')}."
    steps = _steps(n, C, at, forward)
    return alt, "\n".join([table(rows, left=0), *steps])
