"""Figure of traffic against fast memory: the schedules of a pass, its lower bounds and memory regimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log10
from typing import NamedTuple

from ....console import table
from ....machine import positive_int
from ....schedules import Schedule, of_pass
from ..draw.line_chart import Frame, Line, Scale, area_below, end_labels, every_line, label_room, marker
from ..draw.palette import BOUNDS, GRID, INK, PAPER, QUIET, REGIMES, Stroke, stroke_of
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    text_width,
    titled,
)
from ..draw.shapes import circle
from ..draw.text import words
from ..models.memory_regimes import (
    COMPULSORY_WORDS,
    BestScheduleRange,
    Regime,
    ScheduleTraffic,
    best_bound,
    best_schedule_ranges,
    bound_at,
    bound_label,
    bounds_of,
    memories,
    move,
    regime_borders,
    regimes,
    schedules_by_traffic,
    usual_bounds,
)
from ..models.schedule_selection import among, range_of, select_schedules

WIDTH, HEIGHT = 930.0, 560.0
LEFT, TOP, BOTTOM = 86.0, 130.0, 502.0
NAMES = 84.0  # top of the regime names, above the chart
REACH = 12.0  # pixels on each side of the line at M
HEAD, FOOT = 24.0, 30.0  # pixels in the chart for the names of borders, and for the best schedules


class TrafficMapView(NamedTuple):
    """Checked arguments of the figure: sizes in words or rows, schedules by name, bounds by id."""

    N: int
    d: int
    M: int | None
    pass_: str
    schedules: tuple[str, ...]
    bounds: tuple[str, ...]
    low: int
    high: int

    @property
    def drawn(self) -> list[Schedule]:
        """The schedules to draw."""
        return select_schedules(self.pass_, self.schedules)


@figure
def traffic_map(
    N: int,
    d: int,
    M: int | None = None,
    pass_: str = "forward",
    schedules: Sequence[str] | None = None,
    bounds: Sequence[str] | None = None,
    M_range: tuple[int, int] | None = None,
) -> Picture:
    """Traffic against fast memory for a pass, with lower bounds and shaded memory regimes.

    Args:
        N: sequence length.
        d: head dimension.
        M: if given, the schedule with the least traffic at M is marked, with its ratio to the lower bound.
        pass_: "forward", "backward" or "gradient".
        schedules: names of dense schedules of the pass; None draws all.
        bounds: ids of bounds of the pass; None draws those of `bounds.lower_bound`.
        M_range: first and last M in words. None: 4 and 8Nd.

    Raises:
        ValueError: a size below 1, an empty range, an unknown pass, schedule or bound, or nothing to draw.
    """
    return draw_traffic_map(view_of(N, d, M, pass_, schedules, bounds, M_range))


def draw_traffic_map(view: TrafficMapView) -> Picture:
    """Return the figure of a view. Raises ValueError if there is nothing to draw."""
    lines, bound_lines = _schedule_lines(view), _bound_lines(view)
    frame = _frame(view, [*lines, *bound_lines])
    least = min((s.smallest_M(view.N, view.d) for s in view.drawn), default=view.low)
    found = regimes(view.pass_, view.N, view.d, least, view.low, view.high)
    reigning = best_schedule_ranges(view.drawn, view.N, view.d, memories(view.low, view.high))
    title = f"Words moved by a {view.pass_} pass, N = {view.N:,}, d = {view.d:,}"
    drawn = [
        *_bands(frame, found),
        *area_below(frame, bound_lines),
        *frame.elements("fast memory M (words)", ""),
        Text(24, (TOP + BOTTOM) / 2, "words moved", anchor="middle", turned=True),
        *_borders(frame, view),
        *every_line(frame, [*bound_lines, *lines]),
        *_reigns(frame, view, reigning),
        *end_labels(frame, [*lines, *bound_lines]),
        *_at_M(frame, view),
    ]
    alt, numbers = _in_words(view, found, reigning)
    return titled(title, (WIDTH, HEIGHT), alt, numbers, drawn)


def view_of(
    N: int,
    d: int,
    M: int | None,
    pass_: str,
    schedules: Sequence[str] | None = None,
    bounds: Sequence[str] | None = None,
    M_range: tuple[int, int] | None = None,
) -> TrafficMapView:
    """Return the checked arguments of `traffic_map` with their defaults."""
    N, d = positive_int("N", N), positive_int("d", d)
    names = tuple(schedule.name for schedule in select_schedules(pass_, schedules))
    if pass_ not in COMPULSORY_WORDS:
        raise ValueError(f"pass_ must be one of {', '.join(COMPULSORY_WORDS)}, got {pass_!r}")
    known = bounds_of(pass_)
    ids = tuple(
        among(f"{pass_} bound with constants", known, usual_bounds(pass_) if bounds is None else bounds)
    )
    low, high = range_of("M_range", "M", M_range or (4, 8 * N * d))
    if M is not None:
        low, high = min(low, positive_int("M", M)), max(high, M)
    return TrafficMapView(N, d, M, pass_, names, ids, low, high)


# ---------------------------------------------------------------------- lines
def _schedule_lines(v: TrafficMapView) -> list[Line]:
    """Return a line for each schedule. Its stroke is fixed by its position in the pass."""
    lines = []
    for schedule in v.drawn:
        at = [(M, move(schedule.name, v.N, v.d, M)) for M in memories(v.low, v.high)]
        points = tuple((float(M), float(m.words)) for M, m in at if m is not None)
        lines.append(Line(schedule.title, points, _stroke(v.pass_, schedule.name), True, 6))
    return [line for line in lines if line.points]


def _stroke(pass_: str, name: str) -> Stroke:
    return stroke_of([schedule.name for schedule in of_pass(pass_)].index(name))


def _bound_lines(v: TrafficMapView) -> list[Line]:
    """Return a line for each bound, where it is at least half of the bound at the largest M."""
    lines, floor = [], best_bound(v.pass_, v.N, v.d, v.high)[0]
    for name in v.bounds:
        at = ((M, bound_at(name, v.N, v.d, M)) for M in memories(v.low, v.high))
        points = tuple((float(M), float(least)) for M, least in at if 2 * least >= floor)
        place = bounds_of(v.pass_).index(name)
        lines.append(Line(bound_label(name), points, BOUNDS[place % len(BOUNDS)], marker_every=0))
    return [line for line in lines if line.points]


def _frame(v: TrafficMapView, lines: Sequence[Line]) -> Frame:
    """Return the axes around all points, with space above and below for the names in the chart."""
    if not lines:
        raise ValueError("nothing to draw: select at least one schedule that fits, or a bound")
    ys = [y for line in lines for _, y in line.points]
    ys += [] if v.M is None else [best_bound(v.pass_, v.N, v.d, v.M)[0]]
    low, high = min(ys) / 1.25, max(ys) * 1.25
    decades = log10(high / low) / (BOTTOM - TOP - HEAD - FOOT)  # per pixel
    right = WIDTH - label_room(lines)
    y = Scale(low / 10 ** (FOOT * decades), high * 10 ** (HEAD * decades), BOTTOM, TOP, 10)
    return Frame(Scale(v.low, v.high, LEFT, right, 2), y)


# ---------------------------------------------------------------------- the line at M
def line_at_M(v: TrafficMapView) -> tuple[float, float, float, float]:
    """Return the draggable region of the line at M: x, y, width and height in pixels."""
    x = _frame(v, [*_schedule_lines(v), *_bound_lines(v)]).x(v.M or v.low)
    return x - REACH, TOP, 2 * REACH, BOTTOM - TOP


def M_at(v: TrafficMapView, x: float) -> int:
    """Return the M at pixel x, with three significant digits."""
    M = _frame(v, [*_schedule_lines(v), *_bound_lines(v)]).x.at(x)
    return round(float(f"{M:.3g}"))


# ---------------------------------------------------------------------- behind the lines
def _bands(frame: Frame, found: Sequence[Regime]) -> Iterator[Element]:
    """Yield the regimes: shades behind the chart, and above it name and leading terms if they fit."""
    for regime in _areas(found):
        left, right = frame.x(regime.start), frame.x(regime.stop)
        colour, hatch = REGIMES[regime.name], "/" if regime.name == "nothing fits" else ""
        yield Rect(left, TOP, right - left, BOTTOM - TOP, colour, hatch, "", ink=GRID)
        yield Rect(left + 1, NAMES, right - left - 2, TOP - NAMES - 4, colour, "", "")
        lines = _fitting(regime, right - left)
        heights = (NAMES + 17, NAMES + 34) if len(lines) == 2 else (NAMES + 26,)
        for y, line in zip(heights, lines, strict=False):
            yield Text((left + right) / 2, y, line, SMALL, "middle", bold=line in regime.name)


def _fitting(regime: Regime, width: float) -> list[str]:
    """Return up to two lines that fit in `width`: name and terms, only the name, or the name in two lines."""
    last = regime.name.rpartition(" ")
    choices = ([regime.name, regime.words], [regime.name], [last[0], last[2]])
    kept = ([line for line in lines if line] for lines in choices)
    return next((lines for lines in kept if all(text_width(line, SMALL) < width for line in lines)), [])


def _areas(found: Sequence[Regime]) -> Iterator[Regime]:
    """Merge adjacent regimes of the same name; merged regimes have no leading terms."""
    for name, together in groupby(found, key=lambda regime: regime.name):
        first, *more = together
        yield Regime(name, "" if more else first.words, first.start, [first, *more][-1].stop)


def _borders(frame: Frame, v: TrafficMapView) -> Iterator[Element]:
    """Yield a thin line at each border of the regimes, with its name if there is space."""
    named = [(share * v.d**2, f"{share:.3g} d²".removeprefix("1 ")) for share in regime_borders(v.pass_)]
    first, *between, last = named
    taken: list[tuple[float, float]] = []
    for M, name in (first, last, (v.N * v.d, "Nd"), *between):  # the most important are named first
        if not frame.x.low < M < frame.x.high:
            continue
        x, width = frame.x(M), text_width(name, SMALL)
        yield Poly(((x, TOP), (x, BOTTOM)), QUIET, 1, (2, 2))
        left = x + 4 if first[0] < M else x - 4 - width
        if left >= frame.x.start and all(left > end or left + width < start for start, end in taken):
            yield Text(left, TOP + 17, name, SMALL)
            taken.append((left, left + width))


# ---------------------------------------------------------------------- in front of the lines
def _reigns(frame: Frame, v: TrafficMapView, found: Sequence[BestScheduleRange]) -> Iterator[Element]:
    """Yield the strip at the bottom of the chart with the best schedule for each range of M."""
    for k, reign in enumerate(found):
        stop = found[k + 1].start if k + 1 < len(found) else reign.stop
        left, right = frame.x(reign.start), frame.x(stop)
        yield Rect(left, BOTTOM - 23, right - left, 18, PAPER, "", INK, 1)
        if right - left <= 14:
            continue
        title = reign.schedule.title  # or only the label, if that fits
        labels = (f"least traffic: {title}", title, reign.schedule.label, "")
        label = next(t for t in labels if text_width(t, SMALL) + 26 < right - left or not t)
        start = (left + right - text_width(label, SMALL)) / 2
        at = start - 3 if label else start, BOTTOM - 14
        yield from marker(at, _stroke(v.pass_, reign.schedule.name))
        if label:
            yield Text(start + 7, centred(BOTTOM - 14, SMALL), label, SMALL)


def _at_M(frame: Frame, v: TrafficMapView) -> Iterator[Element]:
    """Yield the line at M with the headline, and a bar from the best schedule down to the lower bound."""
    if v.M is None:
        return
    x = frame.x(v.M)
    yield Poly(((x, TOP), (x, BOTTOM - 23)), INK, 1.6, (7, 3))
    told = traffic_map_headline(v)
    if max(text_width(line, NORMAL) for line in told) > WIDTH - 36:
        told = traffic_map_headline(v, sizes=False)  # the table contains them
    for k, line in enumerate(told):
        yield Text(18, 52 + 20 * k, line, NORMAL)
    ranked = schedules_by_traffic(v.drawn, v.N, v.d, v.M)
    if not ranked:
        return
    least, _ = best_bound(v.pass_, v.N, v.d, v.M)
    y, bound = frame.y(ranked[0].words), frame.y(least)
    yield Poly(((x, y), (x, bound)), INK, 3.5)
    yield Poly(((x - 8, bound), (x + 8, bound)), INK, 3)
    yield circle((x, y), 7.0, "", 2.5, corners=16)
    yield from _flag(frame, x, y, times(ranked[0].words / least))


def times(ratio: float) -> str:
    """Format a ratio to the lower bound: "1.06 times" or "425 times"."""
    # <!-- 1.06, 425 as input -->
    return f"{ratio:.2f} times" if ratio < 100 else f"{ratio:,.0f} times"


def _flag(frame: Frame, x: float, y: float, label: str) -> list[Element]:
    """Return a label above a point, to its right if there is space."""
    width = 1.08 * text_width(label, NORMAL) + 8
    left = x + 11 if x + 11 + width < frame.x.stop else x - 11 - width
    top = max(y - 30, TOP + 24)
    box = Rect(left, top, width, 19, PAPER, "", INK, 1)
    return [box, Text(left + 4, centred(top + 9.5, NORMAL), label, NORMAL, bold=True)]


# ---------------------------------------------------------------------- in words
def traffic_map_headline(v: TrafficMapView, *, sizes: bool = True) -> tuple[str, str]:
    """Return two sentences for M: the schedule with the least traffic and its tiles, and the lower bound."""
    if v.M is None:
        return "", ""
    least, title = best_bound(v.pass_, v.N, v.d, v.M)
    bound = f"lower bound {least:,} ({title})"
    ranked = schedules_by_traffic(v.drawn, v.N, v.d, v.M)
    if not ranked:
        return f"M = {v.M:,}: none of the selected schedules fits.", f"{bound[0].upper()}{bound[1:]}."
    best = ranked[0]
    rivals = (m.schedule for m in ranked[1:] if m.words == best.words)
    equal = [schedule.title for schedule in rivals if not schedule.given_weights]
    also = f", tied with {equal[0]}" if equal else ""
    also += f" and {len(equal) - 1} more" if len(equal) > 1 else ""
    tiles = f" ({_sizes(best)})" if sizes else ""
    first = f"M = {v.M:,}: {best.schedule.title}{tiles} has the least traffic, {best.words:,} words{also}."
    return first, f"That is {times(best.words / least)} the {bound}."


def _sizes(found: ScheduleTraffic) -> str:
    return ", ".join(f"{name} = {size:,}" for name, size in found.tiles)


def _in_words(
    v: TrafficMapView, found: Sequence[Regime], reigning: Sequence[BestScheduleRange]
) -> tuple[str, str]:
    names = ", ".join(v.schedules) or "no schedule"
    drawn = ", ".join(bound_label(name) for name in v.bounds) or "no bound"
    areas = "; ".join(
        f"{r.name} from {words(round(r.start))} to {words(round(r.stop))}"
        + (f", {r.words}" if r.words else "")
        for r in found
    )
    alt = f"Traffic against M from {v.low:,} to {v.high:,} words on logarithmic axes, for N = {v.N:,} and "
    alt += f"d = {v.d:,}. Schedules: {names}. Lower bounds: {drawn}. Shaded regimes: {areas}. "
    named = [f"{reign.schedule.title} from M = {reign.start:,} to {reign.stop:,}" for reign in reigning]
    alt += f"Least traffic: {'; '.join(named) or 'none fits'}. "
    parts = [table([["M", "least traffic", "schedule", "lower bound", "ratio"], *_rows(v)], left=0)]
    if v.M is not None:
        least, title = best_bound(v.pass_, v.N, v.d, v.M)
        parts += [f"lower bound at M = {v.M:,}: {least:,} ({title})", table(rows_at_M(v), left=0)]
    return (alt + " ".join(traffic_map_headline(v))).strip(), "\n".join(parts)


def rows_at_M(v: TrafficMapView) -> list[list[str]]:
    """Return the table at M: traffic of each schedule, the least first, and the selected bounds."""
    if v.M is None:
        return []
    least, _ = best_bound(v.pass_, v.N, v.d, v.M)
    rows = [[f"at M = {v.M:,}", "words", "ratio to bound", "tiles"]]
    for m in schedules_by_traffic(v.drawn, v.N, v.d, v.M):
        rows.append([m.schedule.title, f"{m.words:,}", f"{m.words / least:.2f}", _sizes(m)])
    short = [s for s in v.drawn if s.smallest_M(v.N, v.d) > v.M]
    rows += [[s.title, "does not fit", "", f"needs M = {s.smallest_M(v.N, v.d):,}"] for s in short]
    return rows + [[bound_label(b), f"{bound_at(b, v.N, v.d, v.M):,}", "", ""] for b in v.bounds]


def _rows(v: TrafficMapView) -> list[list[str]]:
    """Return table rows for at most eight powers of two as M: least traffic, schedule, bound and ratio."""
    powers = [M for M in memories(v.low, v.high) if M & (M - 1) == 0] or [v.low]
    rows = []
    for M in powers[:: -(-len(powers) // 8)]:
        least, _ = best_bound(v.pass_, v.N, v.d, M)
        ranked = schedules_by_traffic(v.drawn, v.N, v.d, M)
        best = [f"{ranked[0].words:,}", ranked[0].schedule.title] if ranked else ["nothing fits", ""]
        ratio = f"{ranked[0].words / least:.2f}" if ranked else ""
        rows.append([f"{M:,}", *best, f"{least:,}", ratio])
    return rows
