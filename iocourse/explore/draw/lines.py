"""Lines of a chart: runs of points with dash and marker, labelled at their ends; and tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .frame import Frame, Scale, marker, spread
from .palette import QUIET, Stroke
from .picture import NORMAL, Element, Point, Poly, Text, centred


class Line(NamedTuple):
    """A labelled run of points, drawn as a line, with or without markers, or as markers alone."""

    label: str
    points: tuple[Point, ...]
    stroke: Stroke
    joined: bool = True
    marker_every: int = 8


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


def line_elements(frame: Frame, line: Line) -> list[Element]:
    """A line and its markers."""
    at = tuple(frame.at(point) for point in line.points)
    drawn: list[Element] = []
    if line.joined and len(at) > 1:
        drawn.append(Poly(at, line.stroke.colour, 2.2, line.stroke.dash))
    if line.marker_every:
        for place in [*at[:: line.marker_every], at[-1]]:
            drawn += marker(place, line.stroke)
    return drawn


def end_labels(frame: Frame, lines: Sequence[Line]) -> list[Element]:
    """Labels to the right of the chart, one below the other, each tied to the end of its line."""
    ends = [frame.at(line.points[-1]) for line in lines]
    heights = spread([y for _, y in ends], NORMAL + 6, frame.y.stop, frame.y.start)
    drawn: list[Element] = []
    for line, (x, y), height in zip(lines, ends, heights, strict=True):
        left, right = frame.x.stop + 24, frame.x.stop + 54
        drawn.append(Poly(((x + 7, y), (left - 4, height)), QUIET, 0.8))
        if line.joined:
            drawn.append(Poly(((left, height), (right, height)), line.stroke.colour, 2.2, line.stroke.dash))
        if line.marker_every:
            drawn += marker(((left + right) / 2, height), line.stroke)
        drawn.append(Text(right + 8, centred(height, NORMAL), line.label, NORMAL))
    return drawn
