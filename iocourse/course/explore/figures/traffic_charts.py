"""Charts of traffic: against fast memory, against length, measured and predicted curves, and bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, log2

from .... import bounds, schedules
from ....console import table
from ....costs import ceil_div
from ....machine import positive_int
from ....monomials import rank_of
from ..draw.line_chart import (
    Axis,
    Frame,
    Line,
    Scale,
    chart,
    end_labels,
    every_line,
    frame_around,
    label_room,
    marker,
)
from ..draw.palette import (
    BLACK,
    BLUE,
    BOUND,
    FLOOR,
    GREEN,
    GRID,
    INK,
    PAPER,
    QUIET,
    SKY,
    VERMILION,
    Stroke,
    stroke_of,
)
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Point,
    Poly,
    Rect,
    Text,
    centred,
    check_count,
    figure,
    text_width,
    titled,
)
from ..draw.shapes import circle
from ..draw.text import big, figures, tick_label, words
from ..models.memory_regimes import memories
from ..models.schedule_selection import ROW_TILED, range_of, select_schedules

WIDTH, HEIGHT = 860.0, 470.0
MOST_ROWS = 12  # rows of the table below a curve
PER_OCTAVE = 4  # values of M between M and 2M


# ---------------------------------------------------------------------- traffic against memory
@figure
def traffic_vs_memory(
    N: int, d: int, schedules: Sequence[str] = ROW_TILED, M_range: tuple[int, int] | None = None
) -> Picture:
    """Traffic against fast memory for forward schedules, on logarithmic axes, with the lower bound.

    Args:
        N: sequence length.
        d: head dimension.
        schedules: names of dense forward schedules, each drawn with the tiles it selects for each M.
        M_range: first and last M in words.

    Raises:
        ValueError: a size below 1, an empty range, or an unknown schedule.
    """
    N, d = positive_int("N", N), positive_int("d", d)
    low, high = range_of("M_range", "M", M_range or (4 * d, max(8 * d, 4 * N * d)))
    at = memories(low, high, PER_OCTAVE)
    lines, remarks = list[Line](), dict[str, list[str]](drawn=[], left_out=[])
    for k, one in enumerate(select_schedules("forward", schedules)):
        first = one.smallest_M(N, d)
        fitting = [(M, one.cost(N, d, **one.tiles(N, d, M)).total) for M in at if first <= M]
        lines.append(Line(one.title, tuple((float(M), float(moved)) for M, moved in fitting), stroke_of(k)))
        if low < first <= high:
            remarks["drawn"].append(f"{one.title} needs {first:,} words and is drawn from there")
        elif high < first:
            remarks["left_out"].append(f"{one.title} needs {first:,} words and is left out")
    bound = tuple((float(M), float(bounds.lower_bound("forward", N, d, M)[0])) for M in at)
    least = bounds.compulsory(N, d)
    drawn = [line for line in lines if line.points]
    drawn.append(Line("lower bound", bound, BOUND, marker_every=0))
    flat = ((float(low), float(least)), (float(high), float(least)))
    drawn.append(Line("compulsory 4Nd", flat, FLOOR, marker_every=0))
    title = f"Words moved by a forward pass, N = {N:,}, d = {d:,}"
    shown = _chart(drawn, "fast memory M (words)", "words moved", (2, 10))
    alt = _memory_alt(N, d, low, high, lines, [*remarks["drawn"], *remarks["left_out"]])
    return titled(title, (WIDTH, HEIGHT), alt, _memory_table(lines, bound, least), shown)


def _memory_alt(N: int, d: int, low: int, high: int, lines: Sequence[Line], remarks: Sequence[str]) -> str:
    names = ", ".join(line.label for line in lines if line.points) or "no schedule"
    falls = [
        f"{line.label} falls from {words(line.points[0][1])} to {words(line.points[-1][1])}"
        for line in lines
        if line.points
    ]
    told = f"Traffic against M from {low:,} to {high:,} words for {names}, with N = {N:,} and d = {d:,}, "
    told += "on logarithmic axes, above the lower bound and the compulsory traffic 4Nd. "
    return told + " ".join(f"{sentence}." for sentence in [*falls, *remarks])


def _memory_table(lines: Sequence[Line], bound: Sequence[Point], least: int) -> str:
    shown = [line for line in lines if line.points]
    powers = [point for point in bound if log2(point[0]).is_integer()]
    picked = powers[:: -(-len(powers) // 8)] if len(powers) > 1 else bound
    rows = [["M", *[line.label for line in shown], "lower bound"]]
    for M, value in picked:
        values = [dict(line.points).get(M) for line in shown]
        rows.append([words(M), *["no tile fits" if v is None else words(v) for v in values], words(value)])
    return f"{table(rows, left=0)}\ncompulsory 4Nd: {least:,} words"


# ---------------------------------------------------------------------- measured and predicted
@figure
def curve(
    measured: Mapping[str, Sequence[tuple[float, float]]],
    predicted: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log: tuple[bool, bool] = (True, True),
    notes: Mapping[str, str] | None = None,
) -> Picture:
    """Chart of measured points and predicted lines.

    Args:
        measured: label → [(x, y), ...], drawn as points.
        predicted: label → [(x, y), ...], drawn as lines.
        title: of the figure.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        log: True for a logarithmic axis, (x, y).
        notes: label → short text written below the line of this label.

    Raises:
        ValueError: no points, a value that is not finite (or not positive on a logarithmic axis), or a note
            for an unknown label.
    """
    dots, lines = _points(measured, log), _points(predicted or {}, log)
    if not dots and not lines:
        raise ValueError("curve needs at least one point in measured or predicted")
    drawn = [Line(label, at, stroke_of(k), False, 1) for k, (label, at) in enumerate(dots)]
    colours = list(measured)  # a predicted line has the colour of the points under the same label
    for k, (label, at) in enumerate(lines, len(colours)):
        name, place = (f"{label}, predicted", colours.index(label)) if label in colours else (label, k)
        drawn.append(Line(name, at, stroke_of(place), marker_every=0))
    noted = _noted(drawn, notes or {})
    shown = _chart(drawn, xlabel, ylabel, (2 if log[0] else None, 10 if log[1] else None), noted)
    ways = [
        f"{line.label}: from {words(y)} at {words(x)} to {words(last_y)} at {words(last_x)}."
        for line in drawn
        for (x, y), (last_x, last_y) in [(line.points[0], line.points[-1])]
    ]
    alt = f"{title}: {ylabel} against {xlabel}. {' '.join(ways)}"
    alt += "".join(f" Note on {line.label}: {said}." for line, said in noted)
    return titled(title, (WIDTH, HEIGHT), alt, _curve_table(drawn, xlabel, ylabel), shown)


def _curve_table(lines: Sequence[Line], xlabel: str, ylabel: str) -> str:
    """Return a table with a row per x and a column per line; at most about MOST_ROWS rows."""
    places = sorted({x for line in lines for x, _ in line.points})
    step = -(-len(places) // MOST_ROWS)
    shown = [*places[:-1:step], places[-1]]
    values = [{x: words(y) for x, y in line.points} for line in lines]
    rows = [[xlabel, *[line.label for line in lines]]]
    rows += [[words(x), *[column.get(x, "") for column in values]] for x in shown]
    left_out = f"\n{len(shown)} of {len(places)} values of {xlabel}" if step > 1 else ""
    return f"{ylabel}\n{table(rows, left=0)}{left_out}"


def _points(
    given: Mapping[str, Sequence[tuple[float, float]]], log: tuple[bool, bool]
) -> list[tuple[str, tuple[Point, ...]]]:
    found = []
    for label, points in given.items():
        for point in points:
            for value, logarithmic, axis in zip(point, log, "xy", strict=True):
                if not isfinite(value) or (logarithmic and value <= 0):
                    need = "positive and finite" if logarithmic else "finite"
                    raise ValueError(f"{label}: {axis} must be {need} to be drawn, got {axis} = {value}")
        if points:
            found.append((label, tuple((float(x), float(y)) for x, y in sorted(points))))
    return found


def _noted(lines: Sequence[Line], notes: Mapping[str, str]) -> list[tuple[Line, str]]:
    labelled = {line.label: line for line in lines}
    for label in notes:
        if label not in labelled:
            raise ValueError(f"notes must have labels among {', '.join(labelled)}, got {label!r}")
    return [(labelled[label], said) for label, said in notes.items()]


def _chart(
    lines: Sequence[Line],
    xlabel: str,
    ylabel: str,
    bases: tuple[int | None, int | None],
    noted: Sequence[tuple[Line, str]] = (),
) -> Iterator[Element]:
    dotted = any(not line.joined for line in lines)
    x = Axis(78.0, WIDTH - label_room(lines), bases[0], 1.08 if dotted else 1.0)
    frame = frame_around(lines, x, Axis(HEIGHT - 58.0, 74.0, bases[1], 1.25))
    yield from chart(frame, lines, xlabel, ylabel)
    for line, said in noted:
        yield from _note(frame, line, said)


def _note(frame: Frame, line: Line, said: str) -> Iterator[Element]:
    """Yield a note to the lower left of the middle of a line, connected to it."""
    x, y = frame.at(line.points[len(line.points) // 2])
    width = text_width(said, NORMAL)
    yield Poly(((x - 3, y + 3), (x - 17, y + 17)), line.stroke.colour, 1)
    yield Rect(x - 20 - width, y + 18, width, 16, PAPER)  # hides grid lines behind the note
    yield Text(x - 20, y + 30, said, NORMAL, "end")


# ---------------------------------------------------------------------- bars
@figure
def bars(
    measured: Mapping[str, float],
    predicted: Mapping[str, float] | None = None,
    *,
    title: str,
    unit: str = "words",
    mark: str = "predicted",
    log: bool = False,
) -> Picture:
    """Horizontal bars with their numbers, and black marks for the values in `predicted`.

    On a logarithmic axis a length does not show a value, so points are drawn instead of bars.

    Args:
        measured: label → value, drawn as a bar.
        predicted: label → value, drawn as a black mark.
        title: of the figure.
        unit: unit of the values.
        mark: name of the black marks, such as "predicted" or "by formula".
        log: True for points on a logarithmic axis.

    Raises:
        ValueError: nothing to draw, or a value that is negative, not finite, or 0 on a logarithmic axis.
    """
    expected = dict(predicted or {})
    if not measured and not expected:
        raise ValueError("measured and predicted must contain at least one value, got none")
    for label, value in [*measured.items(), *expected.items()]:
        if not isfinite(value) or value < 0 or (log and value == 0):
            raise ValueError(
                f"{label} must be finite and positive to be drawn as a bar, got {label} = {value}"
            )
    labels = list(dict.fromkeys([*measured, *expected]))
    left = 28 + max(text_width(label, NORMAL) for label in labels)
    numbers_of = set(expected.values())
    same = len(labels) > 1 and len(expected) == len(labels) and len(numbers_of) == 1
    once = words(numbers_of.pop()) if same else ""  # a value shared by all marks is written once
    shown_at = {} if once else expected
    notes = {label: _bar_note(label, measured, shown_at, unit, mark) for label in labels}
    marks = f"{mark} {once}".strip()
    right = max(WIDTH - 24 - max(text_width(note, NORMAL) for note in notes.values()), left + 120)
    values = [*measured.values(), *expected.values()]
    scale = Scale(0.0, max(values) or 1.0, left, right)
    if log:
        scale = Scale(2.0 ** (log2(min(values)) - 1), max(max(values), min(values) * 1.01), left, right, 10)
    bottom = 50 + 34.0 * len(labels)
    drawn = list[Element](_logarithmic(scale, bottom, unit) if log else ())
    for row, label in enumerate(labels):
        drawn += _bar(scale, 50 + 34.0 * row, label, notes[label], measured.get(label), expected.get(label))
    if expected:
        drawn.append(Text(WIDTH - 18, 28, f"black mark: {marks}", SMALL, "end", QUIET))
    kind = "Points on a logarithmic axis" if log else "Bars"
    alt = f"{title}. {kind} in {unit}: " + "; ".join(f"{k}: {notes[k]}" for k in labels) + "."
    alt += f" Black marks: {marks}." if expected else ""
    numbers = table([*notes.items(), *([("black mark", marks)] if once else [])], left=0)
    return titled(title, (WIDTH, bottom + (46 if log else 16)), alt, numbers, drawn)


def _logarithmic(scale: Scale, bottom: float, unit: str) -> Iterator[Element]:
    """Yield the grid lines and the labels of a logarithmic axis below the bars."""
    for tick in scale.ticks():
        yield Poly(((scale(tick), 44.0), (scale(tick), bottom)), GRID, 1)
        yield Text(scale(tick), bottom + 16, tick_label(tick, 10), SMALL, "middle", QUIET)
    middle = (scale.start + scale.stop) / 2
    yield Text(middle, bottom + 34, f"{unit}, logarithmic axis".lstrip(", "), SMALL, "middle", QUIET)


def _bar_note(
    label: str, measured: Mapping[str, float], expected: Mapping[str, float], unit: str, mark: str
) -> str:
    said = f"{words(measured[label])} {unit}".strip() if label in measured else "not measured"
    if label not in expected:
        return said
    return f"{said}, {mark} {words(expected[label])}"


def _bar(
    scale: Scale, top: float, label: str, note: str, value: float | None, expected: float | None
) -> Iterator[Element]:
    middle, left = top + 13, scale.start
    yield Text(left - 8, centred(middle, NORMAL), label, NORMAL, "end")
    ends = [left]
    if value is not None:
        ends.append(scale(value) if value else left)
        if scale.base:
            yield circle((ends[-1], middle), 5, SKY, 1)
        else:
            yield Rect(left, top + 2, ends[-1] - left, 22, SKY, "", BLUE)
    if expected is not None:
        ends.append(scale(expected) if expected else left)
        yield Rect(ends[-1] - 2, top - 2, 4, 30, INK, "", PAPER)
    yield Text(max(ends) + (10 if scale.base else 8), centred(middle, NORMAL), note, NORMAL)


# ---------------------------------------------------------------------- traffic per token against length
LENGTH_WIDTH, LENGTH_HEIGHT = 900.0, 490.0
MOST = 3  # values of M
COLOURS = (VERMILION, BLUE, GREEN)
MARKERS = ("circle", "square", "triangle")
LENGTHS_PER_OCTAVE = 24  # lengths between n and 2n, because exact traffic rises in steps
MARKERS_A_LINE = 6
HEAD = ["M", "n*", "n*/r", "low rank, words per token", "tiles of the state"]


@figure
def traffic_vs_length(
    d: int, degree: int, Ms: Sequence[int], *, Ns: tuple[int, int] | None = None, title: str | None = None
) -> Picture:
    """Traffic per token of `flash_optimal` and `low_rank` against n, on logarithmic axes, with n* for each M.

    Both schedules use the tiles they select for M. The two lines of one M have the same colour; low rank is
    dashed.

    Args:
        d: head dimension.
        degree: degree of the polynomial.
        Ms: one to three values of M in words.
        Ns: first and last n. None: about a sixteenth of the smallest n* and sixteen times the largest.
        title: of the figure.

    Raises:
        ValueError: a size below 1, no M or more than three, an M in which nothing fits, or an empty range.
    """
    d, degree = positive_int("d", d), positive_int("degree", degree)
    check_count("Ms", Ms, MOST)
    found = {M: schedules.break_even_length(d, degree, M) for M in sorted(Ms)}
    crossings = [one.N for one in found.values()]
    low, high = range_of("Ns", "n", Ns or (max(1, min(crossings) // 16), max(crossings) * 16))
    lines, rows, marks, said = list[Line](), [HEAD], list[Point](), list[str]()
    for k, (M, one) in enumerate(found.items()):
        lines += _pair(d, degree, M, one, _spaced(low, high), k)
        moved = schedules.get("low_rank").cost(one.N, d, g=degree, **one.tiles).total / one.N
        tiles = ceil_div(one.rank, one.tiles["rc"]) * ceil_div(d + 1, one.tiles["Bd"])
        rows.append([f"{M:,}", big(one.N), figures(one.ranks), figures(moved, 4), big(tiles)])
        said.append(
            f"M = {M:,}: low rank moves {figures(moved, 4)} words per token. It is below exact attention "
            f"from n = {big(one.N)} on, {figures(one.ranks)} times the rank."
        )
        if low <= one.N <= high:
            marks.append((float(one.N), moved))
    least = Line("4d (compulsory)", ((float(low), 4.0 * d), (float(high), 4.0 * d)), FLOOR, marker_every=0)
    heading = title or f"Traffic per token, d = {d:,}, degree {degree} (rank {big(rank_of(d, degree))})"
    alt = f"{heading}, for n from {low:,} to {high:,}, both axes logarithmic. " + " ".join(said)
    drawn = _length_chart(lines, least, marks)
    return titled(heading, (LENGTH_WIDTH, LENGTH_HEIGHT), alt, table(rows, left=0), drawn)


def _length_chart(lines: Sequence[Line], least: Line, marks: Sequence[Point]) -> Iterator[Element]:
    across = Axis(84.0, LENGTH_WIDTH - label_room([*lines, least]), 10)
    frame = frame_around([*lines, least], across, Axis(LENGTH_HEIGHT - 84.0, 74.0, 10, 1.4))
    yield from frame.elements("n (tokens)", "words moved per token")
    yield from every_line(frame, [least, *lines])
    for x, y in map(frame.at, marks):
        yield Poly(((x, y), (x, frame.y.start)), INK, 1, (2, 3))
        yield from marker((x, y), Stroke(BLACK, (), "diamond"), 6.5)
    yield from end_labels(frame, [*lines, least])
    yield Text(18, LENGTH_HEIGHT - 12, "Black diamonds: n*, from which on low rank has less traffic.", SMALL)


def _spaced(low: int, high: int) -> list[int]:
    found, k = {low, high}, 0
    while low * 2 ** (k / LENGTHS_PER_OCTAVE) < high:
        found.add(round(low * 2 ** (k / LENGTHS_PER_OCTAVE)))
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
