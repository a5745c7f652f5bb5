"""The map of words against memory: the schedules of a pass, its lower bounds, and its regimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log10
from typing import NamedTuple

from ...console import table
from ...machine import positive_int
from ...schedules import Schedule, of_pass
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
    Move,
    Regime,
    best_bound,
    best_schedule_ranges,
    borders,
    bound_at,
    bound_label,
    bounds_of,
    memories,
    move,
    moves,
    regimes,
    usual_bounds,
)
from ..models.schedule_selection import among, chosen, range_of

WIDTH, HEIGHT = 930.0, 560.0
LEFT, TOP, BOTTOM = 86.0, 130.0, 502.0
NAMES = 84.0  # where the names of the regimes begin, above the chart
REACH = 12.0  # to either side of the line at M
HEAD, FOOT = 24.0, 30.0  # of the chart: for the names of borders, and for who moves the fewest words


class View(NamedTuple):
    """What is drawn: sizes in words or rows, schedules by name, bounds by id."""

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
        """The schedules that are drawn."""
        return chosen(self.pass_, self.schedules)


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
    """Words moved against fast memory for a pass, with its regimes shaded and its lower bounds.

    `pass_` is "forward", "backward" or "gradient". `schedules` names dense ones of that pass, `bounds` the
    ids of its bounds; None draws all schedules, and the bounds of `bounds.lower_bound`. At M, where it is
    given, the schedule with the fewest words is marked, with its distance from the lower bound. `M_range` is
    the first and last M in words, else 4 and 8Nd. Raises ValueError for sizes below 1, an empty range, an
    unknown pass, schedule or bound, and where nothing is left to draw.
    """
    return map_of(view_of(N, d, M, pass_, schedules, bounds, M_range))


def map_of(view: View) -> Picture:
    """The map of a view. Raises ValueError where nothing is left to draw."""
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
) -> View:
    """The arguments of `traffic_map`, checked and with their defaults."""
    N, d = positive_int("N", N), positive_int("d", d)
    names = tuple(schedule.name for schedule in chosen(pass_, schedules))
    if pass_ not in COMPULSORY_WORDS:
        raise ValueError(f"pass_ = {pass_!r} has no map; there are {', '.join(COMPULSORY_WORDS)}")
    known = bounds_of(pass_)
    ids = tuple(
        among(f"{pass_} bound with constants", known, usual_bounds(pass_) if bounds is None else bounds)
    )
    low, high = range_of("M_range", "M", M_range or (4, 8 * N * d))
    if M is not None:
        low, high = min(low, positive_int("M", M)), max(high, M)
    return View(N, d, M, pass_, names, ids, low, high)


# ---------------------------------------------------------------------- lines
def _schedule_lines(v: View) -> list[Line]:
    """A line for each schedule, in the stroke of its place in the pass, whichever others are drawn."""
    lines = []
    for schedule in v.drawn:
        at = [(M, move(schedule.name, v.N, v.d, M)) for M in memories(v.low, v.high)]
        points = tuple((float(M), float(m.words)) for M, m in at if m is not None)
        lines.append(Line(schedule.title, points, _stroke(v.pass_, schedule.name), True, 6))
    return [line for line in lines if line.points]


def _stroke(pass_: str, name: str) -> Stroke:
    return stroke_of([schedule.name for schedule in of_pass(pass_)].index(name))


def _bound_lines(v: View) -> list[Line]:
    """A line for each bound, as long as it says about as much as the compulsory traffic."""
    lines, floor = [], best_bound(v.pass_, v.N, v.d, v.high)[0]
    for name in v.bounds:
        at = ((M, bound_at(name, v.N, v.d, M)) for M in memories(v.low, v.high))
        points = tuple((float(M), float(least)) for M, least in at if 2 * least >= floor)
        place = bounds_of(v.pass_).index(name)
        lines.append(Line(bound_label(name), points, BOUNDS[place % len(BOUNDS)], marker_every=0))
    return [line for line in lines if line.points]


def _frame(v: View, lines: Sequence[Line]) -> Frame:
    """The axes around all points, with room above and below them for the names in the chart."""
    if not lines:
        raise ValueError("nothing to draw: name at least one schedule that fits, or a bound")
    ys = [y for line in lines for _, y in line.points]
    ys += [] if v.M is None else [best_bound(v.pass_, v.N, v.d, v.M)[0]]
    low, high = min(ys) / 1.25, max(ys) * 1.25
    decades = log10(high / low) / (BOTTOM - TOP - HEAD - FOOT)  # in a pixel
    right = WIDTH - label_room(lines)
    y = Scale(low / 10 ** (FOOT * decades), high * 10 ** (HEAD * decades), BOTTOM, TOP, 10)
    return Frame(Scale(v.low, v.high, LEFT, right, 2), y)


# ---------------------------------------------------------------------- the line at M
def line_of(v: View) -> tuple[float, float, float, float]:
    """Where the line at M can be taken hold of: x, y, width and height in pixels of the picture."""
    x = _frame(v, [*_schedule_lines(v), *_bound_lines(v)]).x(v.M or v.low)
    return x - REACH, TOP, 2 * REACH, BOTTOM - TOP


def M_at(v: View, x: float) -> int:
    """The M whose line is at x, to three figures."""
    M = _frame(v, [*_schedule_lines(v), *_bound_lines(v)]).x.at(x)
    return round(float(f"{M:.3g}"))


# ---------------------------------------------------------------------- behind the lines
def _bands(frame: Frame, found: Sequence[Regime]) -> Iterator[Element]:
    """The regimes: a shade behind the chart, and above it the name with its leading terms, where they fit."""
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
    """Two lines that a strip of this width has room for: name and terms, the name alone, or that in two."""
    last = regime.name.rpartition(" ")
    choices = ([regime.name, regime.words], [regime.name], [last[0], last[2]])
    kept = ([line for line in lines if line] for lines in choices)
    return next((lines for lines in kept if all(text_width(line, SMALL) < width for line in lines)), [])


def _areas(found: Sequence[Regime]) -> Iterator[Regime]:
    """Neighbours of one name as one area, whose words are those of the first only where it stands alone."""
    for name, together in groupby(found, key=lambda regime: regime.name):
        first, *more = together
        yield Regime(name, "" if more else first.words, first.start, [first, *more][-1].stop)


def _borders(frame: Frame, v: View) -> Iterator[Element]:
    """The values of M at which regimes end: each a thin line, with its name beside it where there is room."""
    named = [(share * v.d**2, f"{share:.3g} d²".removeprefix("1 ")) for share in borders(v.pass_)]
    first, *between, last = named
    taken: list[tuple[float, float]] = []
    for M, name in (first, last, (v.N * v.d, "Nd"), *between):  # those that matter most have their names
        if not frame.x.low < M < frame.x.high:
            continue
        x, width = frame.x(M), text_width(name, SMALL)
        yield Poly(((x, TOP), (x, BOTTOM)), QUIET, 1, (2, 2))
        left = x + 4 if first[0] < M else x - 4 - width
        if left >= frame.x.start and all(left > end or left + width < start for start, end in taken):
            yield Text(left, TOP + 17, name, SMALL)
            taken.append((left, left + width))


# ---------------------------------------------------------------------- in front of the lines
def _reigns(frame: Frame, v: View, found: Sequence[BestScheduleRange]) -> Iterator[Element]:
    """Along the foot of the chart: the schedule that moves the fewest words, with its marker."""
    for k, reign in enumerate(found):
        stop = found[k + 1].start if k + 1 < len(found) else reign.stop
        left, right = frame.x(reign.start), frame.x(stop)
        yield Rect(left, BOTTOM - 23, right - left, 18, PAPER, "", INK, 1)
        if right - left <= 14:
            continue
        title = reign.schedule.title  # or the letter alone, where that fits
        labels = (f"fewest words: {title}", title, reign.schedule.label, "")
        label = next(t for t in labels if text_width(t, SMALL) + 26 < right - left or not t)
        start = (left + right - text_width(label, SMALL)) / 2
        at = start - 3 if label else start, BOTTOM - 14
        yield from marker(at, _stroke(v.pass_, reign.schedule.name))
        if label:
            yield Text(start + 7, centred(BOTTOM - 14, SMALL), label, SMALL)


def _at_M(frame: Frame, v: View) -> Iterator[Element]:
    """The marker at M: from the fewest words that are drawn down to the lower bound."""
    if v.M is None:
        return
    x = frame.x(v.M)
    yield Poly(((x, TOP), (x, BOTTOM - 23)), INK, 1.6, (7, 3))
    told = headline(v)
    if max(text_width(line, NORMAL) for line in told) > WIDTH - 36:
        told = headline(v, sizes=False)  # the table has them
    for k, line in enumerate(told):
        yield Text(18, 52 + 20 * k, line, NORMAL)
    ranked = moves(v.drawn, v.N, v.d, v.M)
    if not ranked:
        return
    least, _ = best_bound(v.pass_, v.N, v.d, v.M)
    y, bound = frame.y(ranked[0].words), frame.y(least)
    yield Poly(((x, y), (x, bound)), INK, 3.5)
    yield Poly(((x - 8, bound), (x + 8, bound)), INK, 3)
    yield circle((x, y), 7.0, "", 2.5, corners=16)
    yield from _flag(frame, x, y, times(ranked[0].words / least))


def times(ratio: float) -> str:
    """How many times the bound: 1.06 ×, 425 ×."""
    return f"{ratio:.2f} ×" if ratio < 100 else f"{ratio:,.0f} ×"


def _flag(frame: Frame, x: float, y: float, label: str) -> list[Element]:
    """A label on paper above a point, or below the names of the borders; to its right where there is room."""
    width = 1.08 * text_width(label, NORMAL) + 8
    left = x + 11 if x + 11 + width < frame.x.stop else x - 11 - width
    top = max(y - 30, TOP + 24)
    box = Rect(left, top, width, 19, PAPER, "", INK, 1)
    return [box, Text(left + 4, centred(top + 9.5, NORMAL), label, NORMAL, bold=True)]


# ---------------------------------------------------------------------- in words
def headline(v: View, *, sizes: bool = True) -> tuple[str, str]:
    """What holds at M in two lines: the schedule with the fewest words and its tiles, and the lower bound."""
    if v.M is None:
        return "", ""
    least, title = best_bound(v.pass_, v.N, v.d, v.M)
    bound = f"lower bound {least:,} ({title})"
    ranked = moves(v.drawn, v.N, v.d, v.M)
    if not ranked:
        return f"M = {v.M:,}: no schedule that is drawn fits.", f"{bound[0].upper()}{bound[1:]}."
    best = ranked[0]
    rivals = (m.schedule for m in ranked[1:] if m.words == best.words)
    equal = [schedule.title for schedule in rivals if not schedule.given_weights]
    also = f", as many as {equal[0]}" if equal else ""
    also += f" and {len(equal) - 1} more" if len(equal) > 1 else ""
    tiles = f" ({_sizes(best)})" if sizes else ""
    first = f"M = {v.M:,}: {best.schedule.title}{tiles} moves the fewest words, {best.words:,}{also}."
    return first, f"That is {times(best.words / least)} the {bound}."


def _sizes(found: Move) -> str:
    return ", ".join(f"{name} = {size:,}" for name, size in found.tiles)


def _in_words(v: View, found: Sequence[Regime], reigning: Sequence[BestScheduleRange]) -> tuple[str, str]:
    names = ", ".join(v.schedules) or "no schedule"
    drawn = ", ".join(bound_label(name) for name in v.bounds) or "no bound"
    areas = "; ".join(
        f"{r.name} from {words(round(r.start))} to {words(round(r.stop))}"
        + (f", {r.words}" if r.words else "")
        for r in found
    )
    alt = f"Words moved against M from {v.low:,} to {v.high:,} words on logarithmic axes, at N = {v.N:,} and "
    alt += f"d = {v.d:,}, for {names}, above {drawn}. Shaded regimes: {areas}. "
    named = [f"{reign.schedule.title} from M = {reign.start:,} to {reign.stop:,}" for reign in reigning]
    alt += f"Fewest words at the points drawn: {'; '.join(named) or 'none fits'}. "
    parts = [table([["M", "fewest words", "schedule", "lower bound", "ratio"], *_rows(v)], left=0)]
    if v.M is not None:
        least, title = best_bound(v.pass_, v.N, v.d, v.M)
        parts += [f"lower bound at M = {v.M:,}: {least:,} ({title})", table(rows_at_M(v), left=0)]
    return (alt + " ".join(headline(v))).strip(), "\n".join(parts)


def rows_at_M(v: View) -> list[list[str]]:
    """What each schedule moves at M, the fewest words first, and the bounds that are drawn."""
    if v.M is None:
        return []
    least, _ = best_bound(v.pass_, v.N, v.d, v.M)
    rows = [[f"at M = {v.M:,}", "words", "× bound", "tiles"]]
    for m in moves(v.drawn, v.N, v.d, v.M):
        rows.append([m.schedule.title, f"{m.words:,}", f"{m.words / least:.2f}", _sizes(m)])
    short = [s for s in v.drawn if s.smallest_M(v.N, v.d) > v.M]
    rows += [[s.title, "does not fit", "", f"needs M = {s.smallest_M(v.N, v.d):,}"] for s in short]
    return rows + [[bound_label(b), f"{bound_at(b, v.N, v.d, v.M):,}", "", ""] for b in v.bounds]


def _rows(v: View) -> list[list[str]]:
    """Eight values of M or fewer, evenly over the octaves."""
    powers = [M for M in memories(v.low, v.high) if M & (M - 1) == 0] or [v.low]
    rows = []
    for M in powers[:: -(-len(powers) // 8)]:
        least, _ = best_bound(v.pass_, v.N, v.d, M)
        ranked = moves(v.drawn, v.N, v.d, M)
        best = [f"{ranked[0].words:,}", ranked[0].schedule.title] if ranked else ["nothing fits", ""]
        ratio = f"{ranked[0].words / least:.2f}" if ranked else ""
        rows.append([f"{M:,}", *best, f"{least:,}", ratio])
    return rows
