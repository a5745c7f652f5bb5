"""A chart of lines: axes around their points, runs of points with dash and marker, labels at their ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .frame import Frame, Scale, marker, spread
from .palette import QUIET, Stroke
from .picture import NORMAL, Element, Point, Poly, Text, centred, text_width
from .wording import words


class Line(NamedTuple):
    """A labelled run of points, drawn as a line, with or without markers, or as markers alone."""

    label: str
    points: tuple[Point, ...]
    stroke: Stroke
    joined: bool = True
    marker_every: int = 8

    @property
    def ends(self) -> str:
        """Its first and last point in words; one point stands alone."""
        (x, y), (last_x, last_y) = self.points[0], self.points[-1]
        first = f"{words(y)} at {words(x)}"
        return first if len(self.points) == 1 else f"from {first} to {words(last_y)} at {words(last_x)}"


def scale_over(values: Sequence[float], start: float, stop: float, base: int | None, margin: float) -> Scale:
    """A scale that holds all values, with room of the factor `margin` at its ends; a linear one holds 0."""
    low, high = min(values), max(values)
    if base:
        low, high = low / margin, high * margin
        low, high = (low, high) if low < high else (low / 2, high * 2)
        return Scale(low, high, start, stop, base)
    low = min(0.0, low)
    high = high if low < high else low + 1.0
    return Scale(low, high + (high - low) * (margin - 1) / 4, start, stop)


class Axis(NamedTuple):
    """An axis to be: its pixels, its base (None: linear), and the factor of room at its ends."""

    start: float
    stop: float
    base: int | None = None
    margin: float = 1.0

    def over(self, values: Sequence[float]) -> Scale:
        """The scale that holds all values."""
        return scale_over(values, *self)


def frame_around(lines: Iterable[Line], x: Axis, y: Axis) -> Frame:
    """The frame whose axes hold every point of the lines."""
    points = [point for line in lines for point in line.points]
    return Frame(x.over([p[0] for p in points]), y.over([p[1] for p in points]))


def label_room(lines: Iterable[Line]) -> float:
    """Pixels that `end_labels` take to the right of a chart."""
    return 74 + max(text_width(line.label, NORMAL) for line in lines)


def chart(frame: Frame, lines: Sequence[Line], xlabel: str, ylabel: str) -> Iterator[Element]:
    """Axes, lines with dots above them, and a label at the end of each."""
    yield from frame.elements(xlabel, ylabel)
    yield from every_line(frame, sorted(lines, key=lambda one: not one.joined))
    yield from end_labels(frame, lines)


def every_line(frame: Frame, lines: Iterable[Line]) -> Iterator[Element]:
    """Lines and their markers, one upon the other."""
    for line in lines:
        yield from line_elements(frame, line)


def line_elements(frame: Frame, line: Line) -> Iterator[Element]:
    """A line and its markers."""
    at = tuple(frame.at(point) for point in line.points)
    if line.joined and len(at) > 1:
        yield Poly(at, line.stroke.colour, 2.2, line.stroke.dash)
    if line.marker_every:
        for place in [*at[:: line.marker_every], at[-1]]:
            yield from marker(place, line.stroke)


def end_labels(frame: Frame, lines: Sequence[Line]) -> Iterator[Element]:
    """Labels to the right of the chart, one below the other, each tied to the end of its line."""
    ends = [frame.at(line.points[-1]) for line in lines]
    heights = spread([y for _, y in ends], NORMAL + 6, frame.y.stop, frame.y.start)
    for line, (x, y), height in zip(lines, ends, heights, strict=True):
        left, right = frame.x.stop + 24, frame.x.stop + 54
        yield Poly(((x + 7, y), (left - 4, height)), QUIET, 0.8)
        yield from key_line(line, left, right, height)
        yield Text(right + 8, centred(height, NORMAL), line.label, NORMAL)


def key_line(line: Line, left: float, right: float, y: float) -> Iterator[Element]:
    """A piece of a line, with its marker, as a legend shows it."""
    if line.joined:
        yield Poly(((left, y), (right, y)), line.stroke.colour, 2.2, line.stroke.dash)
    if line.marker_every:
        yield from marker(((left + right) / 2, y), line.stroke)
