"""The axes of a chart: scales, ticks, grid lines, and labels that keep out of each other's way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10

from .palette import GRID, INK, PAPER, QUIET, Stroke
from .picture import SMALL, Element, Point, Poly, Text, centred
from .wording import tick_label


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to pixels in [start, stop], linearly or by logarithm to `base`."""

    low: float
    high: float
    start: float
    stop: float
    base: int | None = None
    marks: tuple[float, ...] = ()  # the ticks, where they are not to be found

    def __call__(self, value: float) -> float:
        return self.start + (self.stop - self.start) * self.share(value)

    def share(self, value: float) -> float:
        """Where the value stands between low (0) and high (1)."""
        if self.base is None:
            return (value - self.low) / (self.high - self.low)
        return log(value / self.low) / log(self.high / self.low)

    def at(self, pixel: float) -> float:
        """The value whose place this is; the nearest end where it is beyond the scale."""
        share = min(max((pixel - self.start) / (self.stop - self.start), 0.0), 1.0)
        if self.base is None:
            return self.low + (self.high - self.low) * share
        return float(self.low * (self.high / self.low) ** share)

    def ticks(self) -> list[float]:
        """Between about three and eight round values within the range."""
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
        """A point of the data in pixels."""
        return self.x(point[0]), self.y(point[1])

    def elements(self, xlabel: str, ylabel: str) -> Iterator[Element]:
        """Grid lines, tick labels, the box, and the labels of both axes."""
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
    """Positions near `wanted`, in the same order, `gap` apart and in [low, high] where there is room."""
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
    """The marker of a line: filled for the first four, drawn with strokes for the others."""
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
