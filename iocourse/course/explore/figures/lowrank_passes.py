"""Figures of low-rank attention: arrays and states to scale with the N x N weights, and causal tiles.

Under a causal mask, tiles on the diagonal are exact and those below it use a polynomial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....console import table
from ....costs import ceil_div
from ....monomials import rank_of
from ....sizes import check_sizes, positive_int
from ..draw.palette import BLUE, GRID, INK, ORANGE, PAPER, PURPLE, SKY, VERMILION, Fill
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    check_choice,
    example,
    figure,
    titled,
)
from ..draw.shapes import WRITTEN, Square, swatch

# ---------------------------------------------------------------------- arrays and states to scale
LEFT, TOP, THINNEST = 30.0, 64.0, 3.0
LONGEST, WIDEST, TALLEST = 250.0, 26.0, 90.0  # N rows, d + 1 columns, r rows of a state
KEYS, STATES, QUERIES, STEP = 356.0, 500.0, 610.0, 34.0  # left edges of the parts, and from strip to strip
READ, MADE, WEIGHTS, STATE = Fill(SKY, ""), Fill(ORANGE, WRITTEN), Fill(PURPLE, "."), Fill(BLUE, "")

ARROW = (
    (0.0, 0.0),
    (16.0, 0.0),
    (16.0, -4.0),
    (24.0, 0.0),
    (16.0, 4.0),
    (16.0, 0.0),
)  # along and across the arrow
WAYS = {True: "keys to the queries", False: "queries to the keys"}


class Pass(NamedTuple):
    """Arrays of a pass, read and computed, on the key and on the query side, and the states between."""

    keys: tuple[str, ...]
    made_of_keys: tuple[str, ...]
    queries: tuple[str, ...]
    made_of_queries: tuple[str, ...]
    states: tuple[tuple[str, bool], ...]  # name, and True if computed from the keys for the queries


PASSES = {
    "forward": Pass(("K", "V"), (), ("Q",), ("O",), (("T", True),)),
    "backward": Pass(("K", "V"), ("dK", "dV"), ("Q", "dO"), ("dQ",), (("T", True), ("U", False))),
}


@example(512, 8, 2)
@example(64, 8, 3, pass_="backward")
@figure
def lowrank_passes(N: int, d: int, g: int, *, pass_: str = "forward") -> Picture:
    """The N x N weights, the arrays of keys and queries, and the states between them, in one scale.

    Args:
        N: sequence length.
        d: head dimension.
        g: degree.
        pass_: "forward" or "backward".

    Raises:
        ValueError: unknown `pass_`, or a size below 1.
    """
    N, d, g = check_sizes(N=N, d=d, g=g)
    check_choice("pass_", pass_, tuple(PASSES))
    p, r = PASSES[pass_], rank_of(d, g)
    scale = min(LONGEST / N, TALLEST / r, WIDEST / (d + 1))
    names = " and ".join(name for name, _ in p.states)
    each = "each of " if len(p.states) > 1 else ""
    heading = (
        f"N = {N:,}, d = {d:,}, degree {g}: {N * N:,} weights, or {r * (d + 1):,} words in {each}{names}"
    )
    drawn = [*_weights(N, scale), *_side(KEYS, p.keys, p.made_of_keys, "keys", N, d, scale)]
    drawn += [*_side(QUERIES, p.queries, p.made_of_queries, "queries", N, d, scale)]
    for x, fill, said in ((356.0, READ, "read"), (450.0, MADE, "made"), (544.0, STATE, "state, r x (d + 1)")):
        drawn += swatch(x, TOP + LONGEST + 66, fill, said)
    for k, (name, onwards) in enumerate(p.states):
        drawn += _state(name, onwards, TOP + 40 + 120 * k, r, d, scale)
    return titled(heading, (760.0, 430.0), *_in_words(heading, p, N, d, r), drawn)


def _weights(N: int, scale: float) -> Iterator[Element]:
    side = N * scale
    yield Rect(LEFT, TOP, side, side, *WEIGHTS, INK, 0.7)
    yield Text(LEFT, TOP + LONGEST + 22, f"N x N weights: {N * N:,} words", NORMAL)
    yield Text(LEFT, TOP + LONGEST + 42, "not materialised by low rank", SMALL)


def _side(
    left: float, read: tuple[str, ...], made: tuple[str, ...], of: str, N: int, d: int, scale: float
) -> Iterator[Element]:
    """Yield the arrays of the keys or of the queries, N x d each."""
    width = max(THINNEST, d * scale)
    for k, name in enumerate((*read, *made)):
        fill = READ if name in read else MADE
        yield Rect(left + STEP * k, TOP, width, N * scale, *fill, INK, 0.7)
        yield Text(left + STEP * k, TOP - 8, name, NORMAL)
    yield Text(left, TOP + LONGEST + 22, f"{of}, {N * d:,} each", NORMAL)


def _state(name: str, onwards: bool, y: float, r: int, d: int, scale: float) -> Iterator[Element]:
    """Yield a state, r x (d + 1), with arrows from the side that computes it to the side that reads it."""
    height, width = max(THINNEST, r * scale), max(THINNEST, (d + 1) * scale)
    yield Rect(STATES + 34, y, width, height, *STATE, INK, 0.7)
    yield Text(STATES + 34, y - 8, name, NORMAL, bold=True)
    for start in (STATES, STATES + 34 + width + 10):
        yield Poly(tuple((start + (far if onwards else 24 - far), y + 12 + aside) for far, aside in ARROW))


def _in_words(heading: str, p: Pass, N: int, d: int, r: int) -> tuple[str, str]:
    alt = f"{heading}. In one scale: a square of N x N weights, which low rank does not materialise; "
    alt += f"strips of {N:,} x {d:,} words for the keys, {_done(p.keys, p.made_of_keys)}, "
    alt += f"and for the queries, {_done(p.queries, p.made_of_queries)}. "
    ways = (f"{name} from the {WAYS[onwards]}" for name, onwards in p.states)
    alt += f"Between them: {', and '.join(ways)}, {r:,} x {d + 1:,} words."
    rows = [["array", "words"], ["weights", f"{N * N:,}"]]
    rows += [[name, f"{N * d:,}"] for side in p[:4] for name in side]
    rows += [[name, f"{r * (d + 1):,}"] for name, _ in p.states]
    return alt, table(rows, left=0)


def _done(read: tuple[str, ...], made: tuple[str, ...]) -> str:
    """Format the arrays of one side: "K and V read, dK and dV computed"."""
    parts = [f"{' and '.join(read)} read"] + ([f"{' and '.join(made)} computed"] if made else [])
    return ", ".join(parts)


# ---------------------------------------------------------------------- causal tiles
WIDTH, HEIGHT = 860.0, 500.0
X, Y, SIDE = 84.0, 84.0, 376.0
RIGHT = 500.0
MOST_TILES = 64
EXACT, FAR, IN_STATE, NOTHING = Fill(ORANGE, "/"), Fill("#CFE8F8", ""), Fill(SKY, "."), Fill(PAPER, "")


@figure
def causal_tiles(
    n: int, C: int, *, at: int | None = None, pass_: str = "forward", title: str | None = None
) -> Picture:
    """n x n scores in tiles of C tokens: exact on the diagonal, polynomial below, masked above.

    Args:
        n: tokens.
        C: tokens per tile.
        at: index of a tile of tokens whose inputs are outlined: the diagonal tile, and all earlier keys in
            the prefix state T (forward) or all later queries in the suffix state U (backward).
        pass_: "forward" or "backward".
        title: of the figure.

    Raises:
        ValueError: a size below 1, more than 64 tiles per side, `at` out of range, or unknown `pass_`.
    """
    n, C = positive_int("n", n), positive_int("C", C)
    count = ceil_div(n, C)
    if count > MOST_TILES:
        raise ValueError(f"n = {n:,} with C = {C:,} has {count:,} tiles per side; use at most {MOST_TILES}")
    if at is not None and not 0 <= at < count:
        raise ValueError(f"at must be from 0 to {count - 1}, got {at}")
    check_choice("pass_", pass_, tuple(PASSES))
    heading = title or f"Causal low rank, n = {n:,}, tiles of C = {C:,}"
    forward = pass_ == "forward"
    names = Square(X, Y, SIDE, n).names("keys", "queries")
    drawn = [*_tiles(n, C, at, forward), *names, *_causal_key(n, C, at, forward)]
    return titled(heading, (WIDTH, HEIGHT), *_causal_in_words(heading, n, C, at, forward), drawn)


def _tiles(n: int, C: int, at: int | None, forward: bool) -> Iterator[Element]:
    count = ceil_div(n, C)
    edges = [min(k * C, n) * SIDE / n for k in range(count + 1)]  # in pixels from the first tile
    yield Square(X, Y, SIDE, n).paper(NOTHING.colour)
    for row in range(count):
        top, height = Y + edges[row], edges[row + 1] - edges[row]
        for column in range(row):
            left, width = X + edges[column], edges[column + 1] - edges[column]
            used = at == (row if forward else column)
            fill = IN_STATE if used else FAR
            yield Rect(left, top, width, height, *fill, GRID, 0.6, BLUE)
        left, right, bottom = X + edges[row], X + edges[row + 1], Y + edges[row + 1]
        yield Rect(left, top, height, height, PAPER, "", GRID, 0.6)
        yield Poly(
            ((left, top), (left, bottom), (right, bottom)), INK, 0.8, (), EXACT.colour
        )  # visible pairs
    if at is not None:
        yield from _outlines(edges, at, forward)


def _outlines(edges: list[float], at: int, forward: bool) -> Iterator[Element]:
    start, stop = edges[at], edges[at + 1]
    yield Rect(X + start, Y + start, stop - start, stop - start, "", "", VERMILION, 3)
    if forward and at:
        yield Rect(X, Y + start, start, stop - start, "", "", BLUE, 3)
    if not forward and stop < SIDE:
        yield Rect(X + start, Y + stop, stop - start, SIDE - stop, "", "", BLUE, 3)


def _causal_key(n: int, C: int, at: int | None, forward: bool) -> Iterator[Element]:
    triangle = ((RIGHT, Y), (RIGHT, Y + 18), (RIGHT + 18, Y + 18))
    yield Poly(triangle, INK, 0.8, (), EXACT.colour)
    yield Text(RIGHT + 24, Y + 13, "exact: exp of each score", NORMAL)
    entries = [(NOTHING, "masked: later keys")]
    if n > C:
        entries.insert(0, (FAR, "polynomial, through a state of r(d + 1) words"))
    if at is not None and (at > 0 if forward else (at + 1) * C < n):
        entries.append((IN_STATE, f"in the state {'T' if forward else 'U'} of tile {at}"))
    for k, (fill, said) in enumerate(entries, 1):
        yield from swatch(RIGHT, Y + 32 * k, fill, said)
    for k, line in enumerate(_steps(n, C, at, forward)):
        yield Text(RIGHT, Y + 128 + 22 * k, line, NORMAL, bold=not k and at is not None)


def _span(first: int, stop: int) -> str:
    return f"{first:,}" if stop == first + 1 else f"{first:,} to {stop - 1:,}"


def _steps(n: int, C: int, at: int | None, forward: bool) -> list[str]:
    """Return the steps at one tile as lines of text."""
    if at is None:
        order = (
            "first to last, T holds the earlier keys"
            if forward
            else "last to first, U holds the later queries"
        )
        return [f"Order of tiles: {order}."]
    first, stop = at * C, min(n, at * C + C)
    if forward:
        before = f"T = Σ ψ(k)[v, 1] of keys {_span(0, first)}" if first else "T is 0 without earlier keys"
        return [
            f"Tile {at}: queries {_span(first, stop)}",
            before,
            "O: exact part + φ(q)T, over both row sums",
            f"then add keys {_span(first, stop)} to T",
        ]
    after = (
        f"U = Σ φ(q)[dO, -δ]/l of queries {_span(stop, n)}" if stop < n else "U is 0 without later queries"
    )
    return [
        f"Tile {at}: keys {_span(first, stop)}",
        after,
        "dV, dK: exact part + terms of ψ(k) and U",
        f"then add queries {_span(first, stop)} to U",
    ]


def _causal_in_words(heading: str, n: int, C: int, at: int | None, forward: bool) -> tuple[str, str]:
    sizes = [min(C, n - k * C) for k in range(ceil_div(n, C))]
    seen, exact = n * (n + 1) // 2, sum(size * (size + 1) // 2 for size in sizes)
    rows = [["", "pairs", "share of visible pairs"]]
    rows += [
        [name, f"{pairs:,}", f"{pairs / seen:.2%}"]
        for name, pairs in (("exact", exact), ("polynomial", seen - exact), ("seen", seen))
    ]
    alt = f"{heading}: a square of scores, {len(sizes)} tiles per side. On the diagonal the lower triangles "
    alt += (
        f"are exact, {exact:,} pairs; below them the polynomial replaces exp for {seen - exact:,} pairs; all "
    )
    alt += f"pairs above are masked. {'; '.join(_steps(n, C, at, forward)).removesuffix('.')}."
    steps = _steps(n, C, at, forward)
    return alt, "\n".join([table(rows, left=0), *steps])
