"""Low rank to scale: the N x N weights beside the arrays of the tokens and the states between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...console import table
from ...monomials import rank_of
from ...sizes import check_sizes
from ..draw.palette import BLUE, INK, ORANGE, PURPLE, SKY, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Rect, Text, example, figure, titled
from ..draw.shapes import WRITTEN, swatch

LEFT, TOP, THINNEST = 30.0, 64.0, 3.0
LONGEST, WIDEST, TALLEST = 250.0, 26.0, 90.0  # N rows, d + 1 columns, r rows of a state
KEYS, STATES, QUERIES, STEP = 356.0, 500.0, 610.0, 34.0  # where the parts begin, and from strip to strip
READ, MADE, WEIGHTS, STATE = Fill(SKY, ""), Fill(ORANGE, WRITTEN), Fill(PURPLE, "."), Fill(BLUE, "")

WAYS = {True: "keys to the queries", False: "queries to the keys"}


class Pass(NamedTuple):
    """What is read and what is made of the keys and of the queries, and the states, with their way."""

    keys: tuple[str, ...]
    made_of_keys: tuple[str, ...]
    queries: tuple[str, ...]
    made_of_queries: tuple[str, ...]
    states: tuple[tuple[str, bool], ...]  # name, and whether it goes from the keys to the queries


PASSES = {
    "forward": Pass(("K", "V"), (), ("Q",), ("O",), (("T", True),)),
    "backward": Pass(("K", "V"), ("dK", "dV"), ("Q", "dO"), ("dQ",), (("T", True), ("U", False))),
}


@example(512, 8, 2)
@example(64, 8, 3, pass_="backward")
@figure
def lowrank_passes(N: int, d: int, g: int, *, pass_: str = "forward") -> Picture:
    """The N x N weights, the arrays of keys and queries, and what passes between them: all in one scale.

    `pass_` is "forward" or "backward". Raises ValueError for another, and for sizes below 1.
    """
    N, d, g = check_sizes(N=N, d=d, g=g)
    if pass_ not in PASSES:
        raise ValueError(f"pass_ is {pass_!r}; it must be 'forward' or 'backward'")
    p, r = PASSES[pass_], rank_of(d, g)
    scale = min(LONGEST / N, TALLEST / r, WIDEST / (d + 1))
    names = " and ".join(name for name, _ in p.states)
    each = "each of " if len(p.states) > 1 else ""
    heading = (
        f"N = {N:,}, d = {d:,}, degree {g}: {N * N:,} weights, or {r * (d + 1):,} words in {each}{names}"
    )
    drawn = [*_weights(N, scale), *_side(KEYS, p.keys, p.made_of_keys, "keys", N, d, scale)]
    drawn += [*_side(QUERIES, p.queries, p.made_of_queries, "queries", N, d, scale), *_key()]
    for k, (name, onwards) in enumerate(p.states):
        drawn += _state(name, onwards, TOP + 40 + 120 * k, r, d, scale)
    return titled(heading, (760.0, 430.0), *_in_words(heading, p, N, d, r), drawn)


def _weights(N: int, scale: float) -> Iterator[Element]:
    side = N * scale
    yield Rect(LEFT, TOP, side, side, WEIGHTS.colour, WEIGHTS.hatch, INK, 0.7)
    yield Text(LEFT, TOP + LONGEST + 22, f"N x N weights: {N * N:,} words", NORMAL)
    yield Text(LEFT, TOP + LONGEST + 42, "low rank never forms them", SMALL)


def _side(
    left: float, read: tuple[str, ...], made: tuple[str, ...], of: str, N: int, d: int, scale: float
) -> Iterator[Element]:
    """The arrays of the keys or of the queries, N x d each."""
    width = max(THINNEST, d * scale)
    for k, name in enumerate((*read, *made)):
        fill = READ if name in read else MADE
        yield Rect(left + STEP * k, TOP, width, N * scale, fill.colour, fill.hatch, INK, 0.7)
        yield Text(left + STEP * k, TOP - 8, name, NORMAL)
    yield Text(left, TOP + LONGEST + 22, f"{of}, {N * d:,} each", NORMAL)


def _state(name: str, onwards: bool, y: float, r: int, d: int, scale: float) -> Iterator[Element]:
    """A state, r x (d + 1), and arrows from the side that makes it to the side that asks it."""
    height, width = max(THINNEST, r * scale), max(THINNEST, (d + 1) * scale)
    yield Rect(STATES + 34, y, width, height, STATE.colour, STATE.hatch, INK, 0.7)
    yield Text(STATES + 34, y - 8, name, NORMAL, bold=True)
    for start in (STATES, STATES + 34 + width + 10):
        yield _arrow(start, y + 12, onwards)


def _arrow(x: float, y: float, onwards: bool) -> Poly:
    along = ((0.0, 0.0), (16.0, 0.0), (16.0, -4.0), (24.0, 0.0), (16.0, 4.0), (16.0, 0.0))
    return Poly(tuple((x + (far if onwards else 24 - far), y + aside) for far, aside in along))


def _key() -> Iterator[Element]:
    for x, fill, said in ((356.0, READ, "read"), (450.0, MADE, "made"), (544.0, STATE, "state, r x (d + 1)")):
        yield from swatch(x, TOP + LONGEST + 66, fill, said)


def _in_words(heading: str, p: Pass, N: int, d: int, r: int) -> tuple[str, str]:
    alt = f"{heading}. In one scale: a square of N x N weights, which low rank never forms; "
    alt += f"strips of {N:,} x {d:,} words for the keys, {_done(p.keys, p.made_of_keys)}, "
    alt += f"and for the queries, {_done(p.queries, p.made_of_queries)}. "
    ways = (f"{name} goes from the {WAYS[onwards]}" for name, onwards in p.states)
    alt += f"Between them {', and '.join(ways)}, {r:,} x {d + 1:,} words."
    rows = [["array", "words"], ["weights", f"{N * N:,}"]]
    rows += [[name, f"{N * d:,}"] for side in p[:4] for name in side]
    rows += [[name, f"{r * (d + 1):,}"] for name, _ in p.states]
    return alt, table(rows, left=0)


def _done(read: tuple[str, ...], made: tuple[str, ...]) -> str:
    """K and V read, dK and dV made."""
    parts = [f"{' and '.join(read)} read"] + ([f"{' and '.join(made)} made"] if made else [])
    return ", ".join(parts)
