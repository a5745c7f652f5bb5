"""Roofline figure: attainable rate against arithmetic intensity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from ....console import table
from ....gpu import Chip, chip_of
from ....gpu.roofline import attainable_tflops, ridge_point
from ..draw.line_chart import Axis, Frame, Line, end_labels, every_line, label_room, marker
from ..draw.palette import QUIET, stroke_of
from ..draw.picture import SMALL, Element, Picture, Poly, Text, figure, text_width, titled
from ..draw.shapes import diamond
from ..draw.text import words

LEFT, WIDTH, PLOT = 78.0, 900.0, 360.0  # left edge of the chart, width of the figure, height of the chart
FLAGS, FLAG = 62.0, 20.0  # top of the labels, and distance between them


class _Kernel(NamedTuple):
    """A kernel: label, FLOPs per byte, and measured TFLOP/s or None."""

    label: str
    intensity: float
    measured: float | None

    def __str__(self) -> str:
        told = f"{self.label}: {words(self.intensity)} FLOP/byte"
        return told if self.measured is None else f"{told}, measured {words(self.measured)} TFLOP/s"


@figure
def roofline(
    chips: int | Chip | Sequence[int | Chip],
    points: Mapping[str, float | tuple[float, float]],
    *,
    title: str = "Roofline",
) -> Picture:
    """Attainable rate against arithmetic intensity: memory bandwidth × FLOP/byte up to the peak rate.

    Rates are from data sheets (`iocourse.gpu.CHIPS`), for dense 16-bit products on tensor cores. The bytes of
    a point are those loaded from device memory, not from caches.

    Args:
        chips: 90 or `CHIPS[90]`, or several of these.
        points: label → FLOP per byte, or (FLOP per byte, measured TFLOP/s).
        title: of the figure.

    Raises:
        ValueError: empty `chips`, an unknown chip, a number that is not positive and finite, or a measured
            rate with several chips.
    """
    asked = list(chips) if isinstance(chips, Sequence) else [chips]
    if not asked:
        raise ValueError("chips must contain at least one, such as 90, got none")
    shown = [one if isinstance(one, Chip) else chip_of(one) for one in asked]
    read = sorted((_kernel(label, given) for label, given in points.items()), key=lambda p: p.intensity)
    if len(shown) > 1 and any(point.measured is not None for point in read):
        raise ValueError(
            "chips must be the one chip on which the TFLOP/s of points were measured, got several"
        )
    places = [*map(ridge_point, shown), *(point.intensity for point in read)]
    low, high = min(places) / 4, max(places) * 4
    roofs = []
    for k, chip in enumerate(shown):
        label = f"{chip.name}: {words(chip.tensor_tflops)}{'' if chip.tensor_cores_in_triton else ' *'}"
        points_of = tuple((x, attainable_tflops(x, chip)) for x in (low, ridge_point(chip), high))
        roofs.append(Line(label, points_of, stroke_of(k), marker_every=1))
    frame = _frame(roofs, read)
    notes, floor = caveats(shown), frame.y.start + 66
    drawn: list[Element] = [
        *frame.elements("arithmetic intensity (FLOP per byte)", "TFLOP/s"),
        *every_line(frame, [roof._replace(marker_every=0) for roof in roofs]),
    ]
    for row, point in enumerate(read):
        x, y = (
            frame.x(point.intensity),
            FLAGS + FLAG * row,
        )  # labels of larger points are lower, so no line crosses them
        drawn.append(Poly(((x, frame.y.start), (x, y - 9)), QUIET, 1.2, (2, 3)))
        drawn.append(Text(x + 6, y, str(point) if point.measured is None else f"{point} ◆", SMALL))
        drawn += _dots(frame, shown, point)
    drawn += [*end_labels(frame, roofs), *remarks(notes, floor)]
    ends = [frame.x(p.intensity) + 40 + text_width(str(p), SMALL) for p in read]
    size = max([WIDTH, *ends]), floor + 18 * len(notes)
    return titled(title, size, _alt(title, shown, read), _numbers(shown, read), drawn)


def remarks(lines: Sequence[str], y: float) -> list[Element]:
    """Return remarks in small grey text below a chart."""
    return [Text(18, y + 18 * k, line, SMALL, colour=QUIET) for k, line in enumerate(lines)]


def _kernel(label: str, given: float | tuple[float, float]) -> _Kernel:
    values = given if isinstance(given, tuple) else (given,)
    if len(values) not in (1, 2) or not all(isfinite(value) and value > 0 for value in values):
        raise ValueError(
            f"points[{label!r}] must be FLOP per byte, or (FLOP per byte, TFLOP/s), positive and finite, "
            f"got {given!r}"
        )
    return _Kernel(label, float(values[0]), float(values[1]) if len(values) == 2 else None)


# ---------------------------------------------------------------------- the chart
def _frame(roofs: Sequence[Line], points: Sequence[_Kernel]) -> Frame:
    top = FLAGS + FLAG * len(points) + 22
    across = [x for roof in roofs for x, _ in roof.points]
    rates = [y for roof in roofs for _, y in roof.points]
    rates += [point.measured for point in points if point.measured is not None]
    x = Axis(LEFT, WIDTH - label_room(roofs) - 6, 10)
    return Frame(x.over(across), Axis(top + PLOT, top, 10, 1.25).over(rates))


def _dots(frame: Frame, chips: Sequence[Chip], point: _Kernel) -> Iterator[Element]:
    for k, chip in enumerate(chips):
        yield from marker(frame.at((point.intensity, attainable_tflops(point.intensity, chip))), stroke_of(k))
    if point.measured is not None:
        yield diamond(frame.at((point.intensity, point.measured)), 7, 8)


# ---------------------------------------------------------------------- text
def _allowed(chip: Chip, point: _Kernel, where: str = "") -> str:
    """Format the attainable rate of a point on a chip, and what limits it: memory or products."""
    limit = "memory" if point.intensity < ridge_point(chip) else "products"
    return f"{words(attainable_tflops(point.intensity, chip))}{where} ({limit})"


def _alt(title: str, chips: Sequence[Chip], points: Sequence[_Kernel]) -> str:
    told = [f"{title}: attainable TFLOP/s against FLOP per byte, on logarithmic axes"]
    told += [f"{chip.name} rises with {roof_in_words(chip, ' of memory')}" for chip in chips]
    told += [_told(chips, point) for point in points]
    return ". ".join([*told, *caveats(chips)]) + "."


def _told(chips: Sequence[Chip], point: _Kernel) -> str:
    allowed = ", ".join(_allowed(chip, point, f" on {chip.name}") for chip in chips)
    told = f"{point}, attainable: {allowed}"
    if point.measured is None:
        return told
    share = point.measured / attainable_tflops(point.intensity, chips[0])
    return f"{told}; the measured rate is {share:.0%} of that"


def roof_in_words(chip: Chip, of: str = "") -> str:
    """Format bandwidth, peak rate and ridge point of a chip."""
    return (
        f"{words(chip.gbytes_per_s)} GB/s{of} up to {words(chip.tensor_tflops)} TFLOP/s "
        f"(ridge point {words(ridge_point(chip))} FLOP per byte)"
    )


def caveats(chips: Sequence[Chip]) -> list[str]:
    """Return a remark for each chip whose tensor cores Triton does not use."""
    names = [chip.name for chip in chips if not chip.tensor_cores_in_triton]
    return [
        f"* Triton uses no tensor cores on a {name}, so its kernels do not reach this roof" for name in names
    ]


def _numbers(chips: Sequence[Chip], points: Sequence[_Kernel]) -> str:
    facts = [
        ["", *(chip.name for chip in chips)],
        ["peak, TFLOP/s", *(words(chip.tensor_tflops) for chip in chips)],
        ["memory, GB/s", *(words(chip.gbytes_per_s) for chip in chips)],
        ["ridge point, FLOP/byte", *(words(ridge_point(chip)) for chip in chips)],
    ]
    for point in points:
        facts.append([str(point), *(_allowed(chip, point) for chip in chips)])
    return "\n".join([table(facts, left=0), *caveats(chips)])
