"""Line charts: scales and axes, lines with markers and end labels, and panels that share one legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10
from textwrap import wrap
from typing import NamedTuple

from .palette import FORBIDDEN, GRID, INK, PAPER, QUIET, Stroke
from .picture import LARGE, NORMAL, SMALL, Element, Picture, Point, Poly, Text, centred, text_width, titled
from .text import tick_label, words


# ---------------------------------------------------------------------- scales and axes
@dataclass(frozen=True)
class Scale:
    """A map from values in [low, high] to pixels in [start, stop], linear or logarithmic with `base`."""

    low: float
    high: float
    start: float
    stop: float
    base: int | None = None
    marks: tuple[float, ...] = ()  # explicit ticks; if empty, they are computed

    def __call__(self, value: float) -> float:
        return self.start + (self.stop - self.start) * self.share(value)

    def share(self, value: float) -> float:
        """Return the position of a value between low (0) and high (1)."""
        if self.base is None:
            return (value - self.low) / (self.high - self.low)
        return log(value / self.low) / log(self.high / self.low)

    def at(self, pixel: float) -> float:
        """Return the value at a pixel, clamped to the ends of the scale."""
        share = min(max((pixel - self.start) / (self.stop - self.start), 0.0), 1.0)
        if self.base is None:
            return self.low + (self.high - self.low) * share
        return float(self.low * (self.high / self.low) ** share)

    def ticks(self) -> list[float]:
        """Return about three to eight round values within the range."""
        if self.marks:
            return list(self.marks)
        return _log_ticks(self.low, self.high, self.base) if self.base else _ticks(self.low, self.high)


def _log_ticks(low: float, high: float, base: int) -> list[float]:
    first, last = ceil(log(low, base) - 1e-9), floor(log(high, base) + 1e-9)
    if last - first < (1 if base == 2 else 2):
        return _ticks_between_powers(low, high)
    stride = ceil((last - first + 1) / 8)
    return [float(base) ** k for k in range(first, last + 1) if k % stride == 0]


def _ticks_between_powers(low: float, high: float) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [m * 10.0**k for k in powers for m in (1, 2, 5)]
    return [v for v in values if low <= v <= high] or _ticks(low, high)


def _ticks(low: float, high: float) -> list[float]:
    step = 10.0 ** floor(log10((high - low) / 2))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    return [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Frame:
    """A chart's box in pixels and its two scales."""

    x: Scale
    y: Scale

    def at(self, point: Point) -> Point:
        """Return a data point in pixels."""
        return self.x(point[0]), self.y(point[1])

    def elements(self, xlabel: str, ylabel: str) -> Iterator[Element]:
        """Yield grid lines, tick labels, both axes and their labels."""
        left, right, bottom, top = self.x.start, self.x.stop, self.y.start, self.y.stop
        for tick in self.x.ticks():
            at, label = self.x(tick), tick_label(tick, self.x.base)
            yield Poly(((at, bottom), (at, top)), GRID, 1)
            yield Text(at, bottom + 18, label, SMALL, "middle", QUIET)
        for tick in self.y.ticks():
            at, label = self.y(tick), tick_label(tick, self.y.base)
            yield Poly(((left, at), (right, at)), GRID, 1)
            yield Text(left - 7, centred(at, SMALL), label, SMALL, "end", QUIET)
        yield Poly(((left, top), (left, bottom), (right, bottom)), INK, 1.2)
        yield Text((left + right) / 2, bottom + 40, xlabel, anchor="middle")
        yield from [Text(left - 7, top - 12, ylabel)] if ylabel else []


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near `wanted` in the same order, `gap` apart, and in [low, high] if they fit."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed: list[float] = []
    for k in order:
        placed.append(max(wanted[k], placed[-1] + gap if placed else low))
    limit = high
    for rank in reversed(range(len(placed))):
        placed[rank] = min(placed[rank], limit)
        limit = placed[rank] - gap
    result = [0.0] * len(wanted)
    for rank, k in enumerate(order):
        result[k] = placed[rank]
    return result


def marker(at: Point, stroke: Stroke, size: float = 4.5) -> list[Element]:
    """Return the marker of a line: a filled outline for four markers, strokes for the other three."""
    x, y = at
    crossing = _CROSSINGS.get(stroke.marker)
    if crossing:
        return [
            Poly(((x - a * size, y - b * size), (x + a * size, y + b * size)), stroke.colour, 2)
            for a, b in crossing
        ]
    corners = _OUTLINES.get(stroke.marker)
    if corners is None:
        return []
    return [Poly(tuple((x + a * size, y + b * size) for a, b in corners), PAPER, 1, (), stroke.colour)]


_OUTLINES: dict[str, tuple[Point, ...]] = {
    "circle": (
        (1, 0), (0.87, 0.5), (0.5, 0.87), (0, 1), (-0.5, 0.87), (-0.87, 0.5),
        (-1, 0), (-0.87, -0.5), (-0.5, -0.87), (0, -1), (0.5, -0.87), (0.87, -0.5),
    ),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.15), (1.1, 0.8), (-1.1, 0.8)),
    "diamond": ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
}  # fmt: skip
_CROSSINGS: dict[str, tuple[Point, ...]] = {
    "cross": ((0.9, 0.9), (0.9, -0.9)),
    "plus": ((1.1, 0), (0, 1.1)),
    "star": ((0.9, 0.9), (0.9, -0.9), (1.1, 0)),
}


# ---------------------------------------------------------------------- lines and their labels
class Line(NamedTuple):
    """A labelled sequence of points, drawn as a line with or without markers, or as markers only."""

    label: str
    points: tuple[Point, ...]
    stroke: Stroke
    joined: bool = True
    marker_every: int = 8

    @property
    def ends(self) -> str:
        """The first and last point as text: "from 8 at 1 to 2 at 4", or "8 at 1" for a single point."""
        (x, y), (last_x, last_y) = self.points[0], self.points[-1]
        first = f"{words(y)} at {words(x)}"
        return first if len(self.points) == 1 else f"from {first} to {words(last_y)} at {words(last_x)}"


class Axis(NamedTuple):
    """Parameters of an axis: start and stop in pixels, logarithm base or None, margin factor at its ends."""

    start: float
    stop: float
    base: int | None = None
    margin: float = 1.0

    def over(self, values: Sequence[float]) -> Scale:
        """Return the scale that contains all values plus the margin; a linear scale also contains 0."""
        low, high = min(values), max(values)
        if self.base:
            low, high = low / self.margin, high * self.margin
            low, high = (low, high) if low < high else (low / 2, high * 2)
            return Scale(low, high, self.start, self.stop, self.base)
        low = min(0.0, low)
        high = high if low < high else low + 1.0
        return Scale(low, high + (high - low) * (self.margin - 1) / 4, self.start, self.stop)


def frame_around(lines: Iterable[Line], x: Axis, y: Axis) -> Frame:
    """Return the frame whose axes contain all points of the lines."""
    points = [point for line in lines for point in line.points]
    return Frame(x.over([p[0] for p in points]), y.over([p[1] for p in points]))


def label_room(lines: Iterable[Line]) -> float:
    """Return the width in pixels that `end_labels` needs to the right of a chart."""
    return 74 + max(text_width(line.label, NORMAL) for line in lines)


def chart(frame: Frame, lines: Sequence[Line], xlabel: str, ylabel: str) -> Iterator[Element]:
    """Yield axes, lines with dots above them, and the end label of each."""
    yield from frame.elements(xlabel, ylabel)
    yield from every_line(frame, sorted(lines, key=lambda one: not one.joined))
    yield from end_labels(frame, lines)


def every_line(frame: Frame, lines: Iterable[Line]) -> Iterator[Element]:
    """Yield all lines and their markers, later ones in front."""
    for line in lines:
        yield from line_elements(frame, line)


def line_elements(frame: Frame, line: Line) -> Iterator[Element]:
    """Yield one line and its markers."""
    at = tuple(frame.at(point) for point in line.points)
    if line.joined and len(at) > 1:
        yield Poly(at, line.stroke.colour, 2.2, line.stroke.dash)
    elif at and line.joined and not line.marker_every:  # a single point: draw a short line
        yield Poly(((at[0][0] - 5, at[0][1]), (at[0][0] + 5, at[0][1])), line.stroke.colour, 2.2)
    if line.marker_every:
        for place in [*at[:: line.marker_every], at[-1]]:
            yield from marker(place, line.stroke)


def end_labels(frame: Frame, lines: Sequence[Line]) -> Iterator[Element]:
    """Yield labels to the right of the chart, one below the other, each connected to the end of its line."""
    ends = [frame.at(line.points[-1]) for line in lines]
    heights = spread([y for _, y in ends], NORMAL + 6, frame.y.stop, frame.y.start)
    for line, (x, y), height in zip(lines, ends, heights, strict=True):
        left, right = frame.x.stop + 24, frame.x.stop + 54
        yield Poly(((x + 7, y), (left - 4, height)), QUIET, 0.8)
        yield from key_line(line, left, right, height)
        yield Text(right + 8, centred(height, NORMAL), line.label, NORMAL)


def key_line(line: Line, left: float, right: float, y: float) -> Iterator[Element]:
    """Yield the legend symbol of a line: a short piece with its marker."""
    if line.joined:
        yield Poly(((left, y), (right, y)), line.stroke.colour, 2.2, line.stroke.dash)
    if line.marker_every:
        yield from marker(((left + right) / 2, y), line.stroke)


# ---------------------------------------------------------------------- several charts with one legend
COLUMNS = 2
WIDTH, HEIGHT = 430.0, 320.0  # of one panel
TOP, LEGEND_LINE = 66.0, 24.0
CHARACTERS, NOTE_LINE = 120, 18.0  # characters per line of the note; pixels from line to line


class Panel(NamedTuple):
    """One chart of several: axis labels (y, x), lines, and the logarithm base of each axis or None."""

    ylabel: str
    xlabel: str
    lines: Sequence[Line]
    bases: tuple[int | None, int | None]

    @property
    def in_words(self) -> str:
        """Alternative text: the axes, and first and last point of each line."""
        said = "; ".join(f"{line.label}: {line.ends}" for line in self.lines)
        return f"{self.ylabel} against {self.xlabel}: {said}."


def panels_picture(title: str, panels: Sequence[Panel], source: str, numbers: str, note: str = "") -> Picture:
    """Return panels in two columns. Lines with the same label share one stroke and one legend entry.

    Args:
        title: title of the figure.
        panels: at least one.
        source: source of the numbers, drawn below the title.
        numbers: the plotted values as text.
        note: remark on the numbers, drawn below the legend.

    Raises:
        ValueError: `panels` is empty, or a panel has no line.
    """
    if not panels or not all(panel.lines for panel in panels):
        raise ValueError("panels must contain at least one panel, each with at least one line")
    width = max(COLUMNS * WIDTH, 36 + 1.08 * text_width(title, LARGE), 36 + text_width(source, SMALL))
    drawn: list[Element] = [Text(18, 50, source, SMALL, colour=QUIET)]
    for at, panel in enumerate(panels):
        drawn += _panel(panel, WIDTH * (at % COLUMNS), TOP + HEIGHT * (at // COLUMNS))
    y = TOP + HEIGHT * -(-len(panels) // COLUMNS) + 18
    keys = list(_legend([line for panel in panels for line in panel.lines], y, width))
    bottom = max((e.y for e in keys if isinstance(e, Text)), default=y)
    bottom += 6 if note else 0
    for line in wrap(note, CHARACTERS):
        bottom += NOTE_LINE
        drawn.append(Text(18, bottom, line, SMALL, colour=QUIET))
    said = " ".join(filter(None, [*(panel.in_words for panel in panels), note]))
    alt = f"{title}. {said} Measured: {source}."
    words = "\n".join(filter(None, (numbers, note, source)))
    return titled(title, (width, bottom + 18), alt, words, (*drawn, *keys))


def _panel(panel: Panel, left: float, top: float) -> Iterator[Element]:
    points = [point for line in panel.lines for point in line.points]
    x = _scale([p[0] for p in points], Axis(left + 76, left + WIDTH - 24, panel.bases[0], 1.12))
    y = _scale([p[1] for p in points], Axis(top + HEIGHT - 58, top + 36, panel.bases[1], 1.25))
    frame = Frame(x, y)
    yield from frame.elements(panel.xlabel, panel.ylabel)
    yield from every_line(frame, panel.lines)


def _scale(values: Sequence[float], axis: Axis) -> Scale:
    """Return the scale of an axis. Unlike in `Axis.over`, a linear one starts near the smallest value."""
    if axis.base is not None:
        return axis.over(values)
    room = 0.04 * (max(values) - min(values)) or 1.0
    return Scale(min(values) - room, max(values) + room, axis.start, axis.stop)


def _legend(lines: Sequence[Line], y: float, width: float) -> Iterator[Element]:
    """Yield the legend with each label once, as many per line as fit."""
    x = 18.0
    for line in {line.label: line for line in lines}.values():
        needed = 44 + text_width(line.label, SMALL) + 18
        if x > 18 and x + needed > width:
            x, y = 18.0, y + LEGEND_LINE
        yield from key_line(line, x, x + 34, y)
        yield Text(x + 42, centred(y, SMALL), line.label, SMALL)
        x += needed


def area_below(frame: Frame, lines: Sequence[Line]) -> list[Element]:
    """Return the area below the highest of several lower bounds, which no schedule reaches."""
    heights = [dict(line.points) for line in lines]
    xs = sorted({x for at in heights for x in at})
    if len(xs) < 2:
        return []
    top, floor = [frame.at((x, max(at[x] for at in heights if x in at))) for x in xs], frame.y.start
    return [Poly((*top, (top[-1][0], floor), (top[0][0], floor)), "", 0, (), FORBIDDEN)]
