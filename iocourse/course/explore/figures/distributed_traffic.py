"""Figure of the traffic per rank against the number of ranks, with lower bound and a table at one P."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ....console import table
from ....distributed.time_model import (
    Cluster,
    ScheduleEstimate,
    claimed_words,
    cluster,
    compare_schedules,
    least_words,
    schedules_of,
)
from ....sizes import check_sizes
from ..draw.line_chart import Axis, Frame, Line, area_below, end_labels, every_line, frame_around, label_room
from ..draw.palette import BLACK, BOUND, INK, Stroke, stroke_of
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Text, example, figure, titled
from ..draw.shapes import circle
from ..draw.text import figures

WIDTH = 960.0
LEFT, TOP, BOTTOM = 92.0, 106.0, 400.0  # of the chart
TABLE, LINE = 484.0, 22.0  # top of the table, and its line height
REACH = 12.0  # pixels on each side of the line at P
MOST = 256  # the axis reaches at least this number of ranks
MANY = 1024  # largest P
ENDS = (18.0, 365.0, 455.0, 610.0, 772.0, 942.0)  # left end of the first column, right ends of the others
HEAD = ("schedule", "words W", "ratio", "memory (words)", "time, no overlap", "time, overlapped")
CLAIMED = Stroke(BLACK, (5, 3), "")
REMARK = "Times are modelled, to rank schedules: each rank has its own link, and launch overhead is ignored."


class DistributedTrafficView(NamedTuple):
    """Arguments of the figure: sizes, ranks, link, and grid rows a (None selects the least traffic)."""

    pass_: str
    P: int
    a: int | None
    N: int
    d: int
    H: int
    link: str

    @property
    def on(self) -> Cluster:
        """The cluster: chips and link."""
        return cluster(self.link)

    def checked(self) -> DistributedTrafficView:
        """Return this view. Raises ValueError or TypeError that names the invalid field."""
        schedules_of(self.pass_)
        P, N, d, H = check_sizes(P=self.P, N=self.N, d=self.d, H=self.H)
        cluster(self.link)
        if P > MANY:
            raise ValueError(f"P must be at most {MANY:,}, got {P:,}")
        view = self._replace(P=P, N=N, d=d, H=H)
        view.entries()
        return view

    def entries(self) -> list[ScheduleEstimate]:
        """Return the estimates of all schedules at P with the requested grids."""
        return compare_schedules(self.pass_, self.N, self.d, self.P, self.on, H=self.H, a=self.a)

    @property
    def bound(self) -> tuple[int, str]:
        """The lower bound at P in words, and its id."""
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
    """Traffic of the busiest rank against P for the schedules of a pass, with a table at one P.

    Lines use the grid with the least traffic at each P; circles mark the grids of the table. The black line
    is the lower bound.

    Args:
        pass_: "forward", "backward" or "causal".
        P: ranks of the table.
        N: sequence length.
        d: head dimension.
        H: heads.
        a: grid rows in the table; None selects the grid with the least traffic.
        link: one of `iocourse.gpu.chips.LINKS`, for the times.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    return draw_distributed_traffic(DistributedTrafficView(pass_, P, a, N, d, H, link).checked())


def draw_distributed_traffic(v: DistributedTrafficView) -> Picture:
    """Return the figure of a checked view."""
    lines, bound = _lines(v), _bound_line(v)
    frame, rows, above = _frame(lines, bound), traffic_rows(v), lines
    claimed = ((P, claimed_words(v.pass_, v.N, v.d, P, v.H)) for P in _ranks(v))
    if at := tuple((float(P), float(words)) for P, words in claimed if words):
        above = [*lines, Line("bound, claimed", at, CLAIMED, marker_every=0)]  # no shaded area below it
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
    shown = [Text(18, 52 + 20 * k, line, NORMAL) for k, line in enumerate(distributed_traffic_headline(v))]
    numbers = "\n".join([table(rows), *distributed_traffic_headline(v), REMARK])
    return titled(
        distributed_traffic_title(v), (WIDTH, end + 22), _alt(v, [*above, bound]), numbers, [*shown, *drawn]
    )


def distributed_traffic_title(v: DistributedTrafficView) -> str:
    """Return the title of a view: pass and sizes."""
    passed = "causal forward" if v.pass_ == "causal" else v.pass_
    heads = f", H = {v.H:,}" if v.H > 1 else ""
    return f"Traffic between ranks in a {passed} pass, N = {v.N:,}, d = {v.d:,}{heads}"


# ---------------------------------------------------------------------- the chart
def _ranks(v: DistributedTrafficView) -> list[int]:
    """Return the numbers of ranks at which the lines have points."""
    powers = {2**k for k in range(1, 11) if 2**k <= max(MOST, v.P)}
    return sorted(powers | ({v.P} if v.P > 1 else set()))


def _lines(v: DistributedTrafficView) -> list[Line]:
    """Return a line for each schedule; one that is limited by the number of heads ends there."""
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


def _bound_line(v: DistributedTrafficView) -> Line:
    """Return the line of the lower bound, where it is at least one word."""
    at = ((P, least_words(v.pass_, v.N, v.d, P, v.H)[0]) for P in _ranks(v))
    points = tuple((float(P), float(words)) for P, words in at if words)
    return Line("lower bound", points, BOUND, marker_every=0)


def _frame(lines: Sequence[Line], bound: Line) -> Frame:
    drawn = [*lines, *([bound] if bound.points else [])]
    x = Axis(LEFT, WIDTH - label_room([*lines, bound]), 2, 1.1)
    return frame_around(drawn, x, Axis(BOTTOM, TOP, 10, 1.3))


def _at_P(frame: Frame, v: DistributedTrafficView) -> Iterator[Element]:
    """Yield the line at P, and a circle around the traffic of each schedule there."""
    if not frame.x.low <= v.P <= frame.x.high:
        return
    x = frame.x(v.P)
    yield Poly(((x, TOP), (x, BOTTOM)), INK, 1.6, (7, 3))
    for entry in v.entries():
        if frame.y.low <= entry.words <= frame.y.high:
            yield circle((x, frame.y(entry.words)), 7.0, "", 2, corners=16)


def line_at_P(v: DistributedTrafficView) -> tuple[float, float, float, float]:
    """Return the draggable region of the line at P: x, y, width and height in pixels."""
    frame = _frame(_lines(v), _bound_line(v))
    x = frame.x(min(max(v.P, frame.x.low), frame.x.high))
    return x - REACH, TOP, 2 * REACH, BOTTOM - TOP


def P_at(v: DistributedTrafficView, x: float) -> int:
    """Return the number of ranks at pixel x."""
    return max(1, round(_frame(_lines(v), _bound_line(v)).x.at(x)))


# ---------------------------------------------------------------------- the table
def traffic_rows(v: DistributedTrafficView) -> list[list[str]]:
    """Return the table as text: header, one row per schedule, and the lower bound."""
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
def distributed_traffic_headline(v: DistributedTrafficView) -> tuple[str, str]:
    """Return two sentences for P: the least traffic of those counted, and the least time by the model."""
    entries, (least, id) = v.entries(), v.bound
    fewest = min(entries, key=lambda one: one.words)
    fastest = min(entries, key=lambda one: one.hidden)
    others = sum(one.words == fewest.words for one in entries) - 1
    also = f" (tied with {others})" if others else ""
    first = f"P = {v.P:,}: {fewest.title(v.P)} moves the least of {len(entries)} counted, "
    first += f"{fewest.words:,} words{also}"
    first += f", {fewest.words / least:.2f} times the lower bound ({id})." if least else "."
    where = f"On {v.on.chip.name} with {v.on.link.name}"
    return (
        first,
        f"{where}, {fastest.title(v.P)} is the fastest by the time model, {_milliseconds(fastest.hidden)}.",
    )


def _alt(v: DistributedTrafficView, lines: Sequence[Line]) -> str:
    drawn = "; ".join(f"{line.label} {line.ends}" for line in lines if line.points)
    at = [f"{row[0]} {row[1]} words" for row in traffic_rows(v)[1:]]
    axes = "words of the busiest rank against the number of ranks, both axes logarithmic"
    said = [
        f"{distributed_traffic_title(v)}: {axes}.",
        f"{drawn or 'No traffic'}.",
        f"At P = {v.P:,}: {', '.join(at)}.",
    ]
    return " ".join([*said, *distributed_traffic_headline(v), REMARK])
