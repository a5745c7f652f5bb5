"""Words a token against the length: exact attention grows with it, low rank does not; where they cross."""

from __future__ import annotations

from collections.abc import Sequence

from ... import schedules
from ...console import table
from ...monomials import rank_of
from ...sizes import positive_int
from ..draw.figure import figure
from ..draw.frame import Frame, marker, words
from ..draw.lines import Line, end_labels, line_elements, scale_over
from ..draw.palette import BLACK, BLUE, FLOOR, GREEN, INK, VERMILION, Stroke
from ..draw.picture import LARGE, NORMAL, SMALL, Element, Picture, Poly, Text, text_width
from ..facts.lowrank_explorer import big

WIDTH, HEIGHT = 900.0, 490.0
MOST = 3  # values of M
COLOURS = (VERMILION, BLUE, GREEN)
MARKERS = ("circle", "square", "triangle")
PER_OCTAVE = 24  # lengths between n and 2n: exact attention's words rise in steps
MARKERS_A_LINE = 6


@figure
def words_against_length(
    d: int,
    degree: int,
    Ms: Sequence[int],
    *,
    Ns: tuple[int, int] | None = None,
    title: str | None = None,
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
    found = {M: schedules.crossing(d, degree, M) for M in sorted(Ms)}
    low, high = _range([one.N for one in found.values()], Ns)
    lines, marks = list[Line](), list[tuple[float, float]]()
    for k, (M, one) in enumerate(found.items()):
        lines += _pair(d, degree, M, one, _spaced(low, high), k)
        marks.append((float(one.N), schedules.low_rank.cost(one.N, d, g=degree, **one.tiles).total / one.N))
    least = Line("4d: once each", ((float(low), 4.0 * d), (float(high), 4.0 * d)), FLOOR, marker_every=0)
    heading = title or f"Words a token, d = {d:,}, degree {degree} (rank {big(rank_of(d, degree))})"
    frame = _frame([*lines, least])
    drawn: list[Element] = [Text(18, 28, heading, LARGE, bold=True)]
    drawn += frame.elements("n (tokens)", "words moved a token")
    for line in [least, *lines]:
        drawn += line_elements(frame, line)
    drawn += [element for mark in marks if low <= mark[0] <= high for element in _mark(frame, mark)]
    drawn += end_labels(frame, [*lines, least])
    drawn.append(
        Text(18, HEIGHT - 12, "Black diamonds: n*, from which on low rank moves fewer words.", SMALL)
    )
    rows = [["M", "n*", "n*/r", "low rank, words a token", "tiles of the state"]]
    rows += [
        [
            f"{M:,}",
            big(one.N),
            words(float(f"{one.ranks:.3g}")),
            words(float(f"{mark[1]:.4g}")),
            _tiles(d, one),
        ]
        for (M, one), mark in zip(found.items(), marks, strict=True)
    ]
    alt = f"{heading}, for n from {low:,} to {high:,}, both axes logarithmic. " + " ".join(
        f"M = {row[0]}: low rank moves {row[3]} words a token and is below exact attention from "
        f"n = {row[1]} on, {row[2]} times the rank."
        for row in rows[1:]
    )
    width = max(WIDTH, 36 + 1.08 * text_width(heading, LARGE))
    return Picture(width, HEIGHT, heading, alt, table(rows, left=0), tuple(drawn))


def _range(crossings: Sequence[int], given: tuple[int, int] | None) -> tuple[int, int]:
    if given is None:
        return max(1, min(crossings) // 16), max(crossings) * 16
    low, high = (positive_int("Ns", n) for n in given)
    if low >= high:
        raise ValueError(f"Ns = ({low}, {high}): the first n must be smaller than the last")
    return low, high


def _spaced(low: int, high: int) -> list[int]:
    found, k = {low, high}, 0
    while low * 2 ** (k / PER_OCTAVE) < high:
        found.add(round(low * 2 ** (k / PER_OCTAVE)))
        k += 1
    return sorted(found)


def _pair(d: int, g: int, M: int, one: schedules.Crossing, lengths: Sequence[int], k: int) -> list[Line]:
    flash, low = schedules.flash_optimal, schedules.low_rank
    every = -(-len(lengths) // MARKERS_A_LINE)
    exact = tuple((float(n), flash.cost(n, d, **flash.tiles(n, d, M)).total / n) for n in lengths)
    approximate = tuple((float(n), low.cost(n, d, g=g, **one.tiles).total / n) for n in lengths)
    return [
        Line(f"flash_optimal, M = {M:,}", exact, Stroke(COLOURS[k], (), MARKERS[k]), marker_every=every),
        Line(f"low_rank, M = {M:,}", approximate, Stroke(COLOURS[k], (9, 4), MARKERS[k]), marker_every=every),
    ]


def _tiles(d: int, one: schedules.Crossing) -> str:
    rows, across = -(-one.rank // one.tiles["rc"]), -(-(d + 1) // one.tiles["Bd"])
    return big(rows * across)


def _frame(lines: Sequence[Line]) -> Frame:
    room = max(text_width(line.label, NORMAL) for line in lines) + 74
    points = [point for line in lines for point in line.points]
    x = scale_over([p[0] for p in points], 84.0, WIDTH - room, 10, 1.0)
    return Frame(x, scale_over([p[1] for p in points], HEIGHT - 84.0, 74.0, 10, 1.4))


def _mark(frame: Frame, at: tuple[float, float]) -> list[Element]:
    x, y = frame.at(at)
    drop: list[Element] = [Poly(((x, y), (x, frame.y.start)), INK, 1, (2, 3))]
    return drop + marker((x, y), Stroke(BLACK, (), "diamond"), 6.5)
