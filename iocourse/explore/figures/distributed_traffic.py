"""Words a rank moves against the number of ranks, above the lower bound, with a table at one P."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...console import table, with_unit
from ...distributed.time_model import (
    Cluster,
    ScheduleEstimate,
    claimed_words,
    cluster,
    compare_schedules,
    least_words,
    schedules_of,
)
from ...sizes import check_sizes
from ..draw.line_chart import Axis, Frame, Line, area_below, end_labels, every_line, frame_around, label_room
from ..draw.palette import BLACK, BOUND, INK, Stroke, stroke_of
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Text, example, figure, titled
from ..draw.shapes import circle
from ..draw.text import figures

WIDTH = 960.0
LEFT, TOP, BOTTOM = 92.0, 106.0, 400.0  # of the chart
TABLE, LINE = 484.0, 22.0  # where the table begins, and its lines
REACH = 12.0  # to either side of the line at P
MOST = 256  # ranks that are always in view
MANY = 1024  # the most ranks that are counted, one by one
ENDS = (18.0, 365.0, 455.0, 610.0, 772.0, 942.0)  # of the table's columns: the first begins there
HEAD = ("schedule", "words W", "× bound", "memory (words)", "time, words first", "time, words hidden")
CLAIMED = Stroke(BLACK, (5, 3), "")
REMARK = (
    "The times order schedules and measure nothing: every rank has a link alone, and no kernel starts late."
)


class View(NamedTuple):
    """What is drawn: sizes, ranks, rows of the grids (None: those with the fewest words), and the link."""

    pass_: str
    P: int
    a: int | None
    N: int
    d: int
    H: int
    link: str

    @property
    def on(self) -> Cluster:
        """The chips and their link."""
        return cluster(self.link)

    def checked(self) -> View:
        """This view, or the ValueError or TypeError that says what in it cannot be."""
        schedules_of(self.pass_)
        P, N, d, H = check_sizes(P=self.P, N=self.N, d=self.d, H=self.H)
        cluster(self.link)
        if P > MANY:
            raise ValueError(f"P must be at most {MANY:,}, got {P:,}")
        view = self._replace(P=P, N=N, d=d, H=H)
        view.entries()
        return view

    def entries(self) -> list[ScheduleEstimate]:
        """The schedules at P, with the grids asked for."""
        return compare_schedules(self.pass_, self.N, self.d, self.P, self.on, H=self.H, a=self.a)

    @property
    def bound(self) -> tuple[int, str]:
        """The lower bound at P, and its id."""
        return least_words(self.pass_, self.N, self.d, self.P, self.H)


@example("forward", 16, N=131072, d=128)
@example("forward", 6, N=8192, d=64, H=12, a=2)
@example("backward", 12, N=65536, d=64)
@example("causal", 16, N=4096, d=64, link="ethernet")
@example("forward", 1, N=1, d=1)
@example("backward", 512, N=300, d=2, H=7)
@figure
def distributed_traffic(
    pass_: str = "forward",
    P: int = 16,
    *,
    N: int = 131072,
    d: int = 128,
    H: int = 1,
    a: int | None = None,
    link: str = "nvlink4",
) -> Picture:
    """Words of the busiest rank against P, for the schedules of a pass, and what each needs at one P.

    Lines have the grid with the fewest words at each P; circles mark the grids of the table. Below the black
    line no schedule has its busiest rank.

    Args:
        pass_: "forward", "backward" or "causal".
        P: ranks of the table.
        N: rows of a head.
        d: its columns.
        H: heads.
        a: rows of the grids in the table; None takes those with the fewest words.
        link: one of `iocourse.gpu.chips.LINKS`, for the times.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    return map_of(View(pass_, P, a, N, d, H, link).checked())


def map_of(v: View) -> Picture:
    """The map of a checked view."""
    lines, bound = _lines(v), _bound_line(v)
    frame, rows, above = _frame(lines, bound), rows_of(v), lines
    claimed = ((P, claimed_words(v.pass_, v.N, v.d, P, v.H)) for P in _ranks(v))
    if at := tuple((float(P), float(words)) for P, words in claimed if words):
        above = [*lines, Line("bound, claimed", at, CLAIMED, marker_every=0)]  # without an area below it
    drawn: list[Element] = [
        *area_below(frame, [bound]),
        *frame.elements("ranks P", "words W of the busiest rank"),
        *every_line(frame, [bound, *above]),
        *_at_P(frame, v),
        *end_labels(frame, [*above, *([bound] if bound.points else [])]),
    ]
    for line, row in enumerate(rows):
        for k, (at_x, cell) in enumerate(zip(ENDS, row, strict=True)):
            if cell:
                bold, anchor = line == 0 or k == 0, "end" if k else "start"
                drawn.append(Text(at_x, TABLE + LINE * line, cell, SMALL, anchor, bold=bold))
    end = TABLE + LINE * len(rows)
    drawn.append(Text(18, end + 6, REMARK, SMALL))
    shown = [Text(18, 52 + 20 * k, line, NORMAL) for k, line in enumerate(headline(v))]
    numbers = "\n".join([table(rows), *headline(v), REMARK])
    return titled(title_of(v), (WIDTH, end + 22), _alt(v, [*above, bound]), numbers, [*shown, *drawn])


def title_of(v: View) -> str:
    """The setting in a line."""
    passed = "causal forward" if v.pass_ == "causal" else v.pass_
    heads = f", H = {v.H:,}" if v.H > 1 else ""
    return f"Words between ranks in a {passed} pass, N = {v.N:,}, d = {v.d:,}{heads}"


# ---------------------------------------------------------------------- the chart
def _ranks(v: View) -> list[int]:
    """The numbers of ranks that lines have points at."""
    powers = {2**k for k in range(1, 11) if 2**k <= max(MOST, v.P)}
    return sorted(powers | ({v.P} if v.P > 1 else set()))


def _lines(v: View) -> list[Line]:
    """A line for each schedule, in the stroke of its place; those that need more heads end where these do."""
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in schedules_of(v.pass_)}
    for P in _ranks(v):
        for entry in compare_schedules(v.pass_, v.N, v.d, P, v.on, H=v.H):
            if entry.words:
                points[entry.name].append((float(P), float(entry.words)))
    return [
        Line(name.replace("_", " "), tuple(at), stroke_of(k), marker_every=1)
        for k, (name, at) in enumerate(points.items())
        if at
    ]


def _bound_line(v: View) -> Line:
    """The bound, where it says something: at least a word."""
    at = ((P, least_words(v.pass_, v.N, v.d, P, v.H)[0]) for P in _ranks(v))
    points = tuple((float(P), float(words)) for P, words in at if words)
    return Line("lower bound", points, BOUND, marker_every=0)


def _frame(lines: Sequence[Line], bound: Line) -> Frame:
    drawn = [*lines, *([bound] if bound.points else [])]
    x = Axis(LEFT, WIDTH - label_room([*lines, bound]), 2, 1.1)
    return frame_around(drawn, x, Axis(BOTTOM, TOP, 10, 1.3))


def _at_P(frame: Frame, v: View) -> Iterator[Element]:
    """The line at P, and a circle around what each schedule moves there."""
    if not frame.x.low <= v.P <= frame.x.high:
        return
    x = frame.x(v.P)
    yield Poly(((x, TOP), (x, BOTTOM)), INK, 1.6, (7, 3))
    for entry in v.entries():
        if frame.y.low <= entry.words <= frame.y.high:
            yield circle((x, frame.y(entry.words)), 7.0, "", 2, corners=16)


def line_of(v: View) -> tuple[float, float, float, float]:
    """Where the line at P can be taken hold of: x, y, width and height in pixels of the picture."""
    frame = _frame(_lines(v), _bound_line(v))
    x = frame.x(min(max(v.P, frame.x.low), frame.x.high))
    return x - REACH, TOP, 2 * REACH, BOTTOM - TOP


def P_at(v: View, x: float) -> int:
    """The number of ranks whose line is at x."""
    return max(1, round(_frame(_lines(v), _bound_line(v)).x.at(x)))


# ---------------------------------------------------------------------- the table
def rows_of(v: View) -> list[list[str]]:
    """The table as text: a heading, a line for each schedule, and the bound."""
    least, id = v.bound
    rows = [[*HEAD]]
    for entry in v.entries():
        ratio = f"{entry.words / least:.2f}" if least else ""
        times = [_milliseconds(entry.exposed), _milliseconds(entry.hidden)]
        rows.append([entry.title(v.P), f"{entry.words:,}", ratio, f"{entry.memory:,}", *times])
    claimed = claimed_words(v.pass_, v.N, v.d, v.P, v.H)
    rows += [["claimed, not proved", f"{claimed:,}", *[""] * 4]] if claimed else []
    return [*rows, [f"lower bound ({id})", f"{least:,}", *[""] * 4]]


def _milliseconds(seconds: float) -> str:
    return f"{figures(1000 * seconds)} ms"


# ---------------------------------------------------------------------- in words
def headline(v: View) -> tuple[str, str]:
    """What holds at P in two lines: who moves the fewest words, and whom the time model puts first."""
    entries, (least, id) = v.entries(), v.bound
    fewest = min(entries, key=lambda one: one.words)
    fastest = min(entries, key=lambda one: one.hidden)
    others = sum(one.words == fewest.words for one in entries) - 1
    also = f" (as {with_unit(others, 'other')})" if others else ""
    first = f"P = {v.P:,}: {fewest.title(v.P)} moves the fewest words, {fewest.words:,}{also}"
    first += f", {fewest.words / least:.2f} × the bound ({id})." if least else "."
    where = f"On {v.on.chip.name} and {v.on.link.name}"
    return (
        first,
        f"{where} the time model puts {fastest.title(v.P)} first, with {_milliseconds(fastest.hidden)}.",
    )


def _alt(v: View, lines: Sequence[Line]) -> str:
    drawn = "; ".join(f"{line.label} {line.ends}" for line in lines if line.points)
    at = [f"{row[0]} {row[1]} words" for row in rows_of(v)[1:]]
    told = f"{title_of(v)}: words of the busiest rank against the number of ranks, both axes logarithmic"
    said = [f"{told}.", f"{drawn or 'Nothing is moved'}.", f"At P = {v.P:,}: {', '.join(at)}."]
    return " ".join([*said, *headline(v), REMARK])
