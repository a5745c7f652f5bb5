"""Words a token against the length: exact attention grows with it, low rank does not; where they cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import schedules
from ...console import table
from ...monomials import rank_of
from ...sizes import positive_int
from ..draw.line_chart import Axis, Frame, Line, end_labels, every_line, frame_around, label_room, marker
from ..draw.palette import BLACK, BLUE, FLOOR, GREEN, INK, VERMILION, Stroke
from ..draw.picture import SMALL, Element, Picture, Point, Poly, Text, figure, titled
from ..draw.text import big, figures
from ..models.schedule_selection import range_of

WIDTH, HEIGHT = 900.0, 490.0
MOST = 3  # values of M
COLOURS = (VERMILION, BLUE, GREEN)
MARKERS = ("circle", "square", "triangle")
PER_OCTAVE = 24  # lengths between n and 2n: exact attention's words rise in steps
MARKERS_A_LINE = 6
HEAD = ["M", "n*", "n*/r", "low rank, words a token", "tiles of the state"]


@figure
def traffic_vs_length(
    d: int, degree: int, Ms: Sequence[int], *, Ns: tuple[int, int] | None = None, title: str | None = None
) -> Picture:
    """Words a token of `flash_optimal` and `low_rank` against n, both logarithmic, with n* marked for each M.

    Both schedules have the tiles they pick for M; the pair of one M has one colour, low rank is dashed. Up
    to three Ms. `Ns` is the first and last n, by default about a sixteenth of the smallest n* to sixteen
    times the largest. Raises ValueError for sizes below 1, no or more Ms, an M in which nothing fits, an
    empty range.
    """
    d, degree = positive_int("d", d), positive_int("degree", degree)
    if not 1 <= len(Ms) <= MOST:
        raise ValueError(f"Ms has {len(Ms)} entries; allowed are 1 to {MOST}")
    found = {M: schedules.break_even_length(d, degree, M) for M in sorted(Ms)}
    crossings = [one.N for one in found.values()]
    low, high = range_of("Ns", "n", Ns or (max(1, min(crossings) // 16), max(crossings) * 16))
    lines = [
        line
        for k, (M, one) in enumerate(found.items())
        for line in _pair(d, degree, M, one, _spaced(low, high), k)
    ]
    marks = [_below(d, degree, one) for one in found.values()]
    least = Line("4d: once each", ((float(low), 4.0 * d), (float(high), 4.0 * d)), FLOOR, marker_every=0)
    heading = title or f"Words a token, d = {d:,}, degree {degree} (rank {big(rank_of(d, degree))})"
    rows = [_row(M, d, one, mark) for (M, one), mark in zip(found.items(), marks, strict=True)]
    alt = f"{heading}, for n from {low:,} to {high:,}, both axes logarithmic. " + " ".join(map(_said, rows))
    shown = [mark for mark in marks if low <= mark[0] <= high]
    return titled(heading, (WIDTH, HEIGHT), alt, table([HEAD, *rows], left=0), _chart(lines, least, shown))


def _below(d: int, g: int, one: schedules.BreakEven) -> Point:
    """n*, and the words a token of low rank there."""
    return float(one.N), schedules.get("low_rank").cost(one.N, d, g=g, **one.tiles).total / one.N


def _row(M: int, d: int, one: schedules.BreakEven, mark: Point) -> list[str]:
    return [f"{M:,}", big(one.N), figures(one.ranks), figures(mark[1], 4), _tiles(d, one)]


def _said(row: Sequence[str]) -> str:
    M, n, ranks, moved, _ = row
    return (
        f"M = {M}: low rank moves {moved} words a token and is below exact attention from n = {n} on, "
        f"{ranks} times the rank."
    )


def _chart(lines: Sequence[Line], least: Line, marks: Sequence[Point]) -> Iterator[Element]:
    x = Axis(84.0, WIDTH - label_room([*lines, least]), 10)
    frame = frame_around([*lines, least], x, Axis(HEIGHT - 84.0, 74.0, 10, 1.4))
    yield from frame.elements("n (tokens)", "words moved a token")
    yield from every_line(frame, [least, *lines])
    for mark in marks:
        yield from _mark(frame, mark)
    yield from end_labels(frame, [*lines, least])
    yield Text(18, HEIGHT - 12, "Black diamonds: n*, from which on low rank moves fewer words.", SMALL)


def _spaced(low: int, high: int) -> list[int]:
    found, k = {low, high}, 0
    while low * 2 ** (k / PER_OCTAVE) < high:
        found.add(round(low * 2 ** (k / PER_OCTAVE)))
        k += 1
    return sorted(found)


def _pair(d: int, g: int, M: int, one: schedules.BreakEven, lengths: Sequence[int], k: int) -> list[Line]:
    flash, low = schedules.get("flash_optimal"), schedules.get("low_rank")
    every = -(-len(lengths) // MARKERS_A_LINE)
    exact = tuple((float(n), flash.cost(n, d, **flash.tiles(n, d, M)).total / n) for n in lengths)
    approximate = tuple((float(n), low.cost(n, d, g=g, **one.tiles).total / n) for n in lengths)
    return [
        Line(f"flash_optimal, M = {M:,}", exact, Stroke(COLOURS[k], (), MARKERS[k]), marker_every=every),
        Line(f"low_rank, M = {M:,}", approximate, Stroke(COLOURS[k], (9, 4), MARKERS[k]), marker_every=every),
    ]


def _tiles(d: int, one: schedules.BreakEven) -> str:
    rows, across = -(-one.rank // one.tiles["rc"]), -(-(d + 1) // one.tiles["Bd"])
    return big(rows * across)


def _mark(frame: Frame, at: tuple[float, float]) -> list[Element]:
    x, y = frame.at(at)
    drop: list[Element] = [Poly(((x, y), (x, frame.y.start)), INK, 1, (2, 3))]
    return drop + marker((x, y), Stroke(BLACK, (), "diamond"), 6.5)
