"""The roofline: how fast a chip can compute when each byte from memory serves so many operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from ...console import table
from ...gpu import Chip, chip_of
from ...gpu.roofline import attainable_tflops, ridge_point
from ..draw.line_chart import Axis, Frame, Line, end_labels, every_line, label_room, marker
from ..draw.palette import QUIET, stroke_of
from ..draw.picture import SMALL, Element, Picture, Poly, Text, figure, text_width, titled
from ..draw.shapes import diamond
from ..draw.text import words

LEFT, WIDTH, PLOT = 78.0, 900.0, 360.0  # the chart's left edge, the picture's width, the chart's height
FLAGS, FLAG = 62.0, 20.0  # where the first label stands, and how far apart they are


class _Point(NamedTuple):
    """A kernel: its operations a byte, and its measured TFLOP/s if there is one."""

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
    """What a chip allows at each arithmetic intensity: memory bandwidth × FLOP/byte, up to its peak rate.

    Rates are the data sheets' (`iocourse.gpu.CHIPS`): dense 16-bit products on tensor cores. The bytes of a
    point are those that come from this memory: what a cache serves does not count.

    Args:
        chips: 90 or `CHIPS[90]`, or several of these.
        points: label → FLOP per byte, or (FLOP per byte, measured TFLOP/s).
        title: of the picture.

    Raises:
        ValueError: no chip or one that is not in the table, a number that is not positive and finite, or a
            measured rate beside several chips: it was measured on one.
    """
    shown = _chips(chips)
    read = sorted((_point(label, given) for label, given in points.items()), key=lambda p: p.intensity)
    if len(shown) > 1 and any(point.measured is not None for point in read):
        raise ValueError("points have measured TFLOP/s: name the one chip of chips they were measured on")
    roofs = _roofs(shown, read)
    frame = _frame(roofs, read)
    notes, floor = caveats(shown), frame.y.start + 66
    drawn: list[Element] = [
        *frame.elements("arithmetic intensity (FLOP per byte)", "TFLOP/s"),
        *every_line(frame, [roof._replace(marker_every=0) for roof in roofs]),
    ]
    for row, point in enumerate(read):
        drawn += [*_flag(frame, FLAGS + FLAG * row, point), *_dots(frame, shown, point)]
    drawn += [*end_labels(frame, roofs), *remarks(notes, floor)]
    ends = [frame.x(p.intensity) + 40 + text_width(str(p), SMALL) for p in read]
    size = max([WIDTH, *ends]), floor + 18 * len(notes)
    return titled(title, size, _alt(title, shown, read), _numbers(shown, read), drawn)


def remarks(lines: Sequence[str], y: float) -> list[Element]:
    """Quiet lines below a chart."""
    return [Text(18, y + 18 * k, line, SMALL, colour=QUIET) for k, line in enumerate(lines)]


def _chips(given: int | Chip | Sequence[int | Chip]) -> list[Chip]:
    asked = list(given) if isinstance(given, Sequence) else [given]
    if not asked:
        raise ValueError("chips is empty: name at least one, such as 90")
    return [one if isinstance(one, Chip) else chip_of(one) for one in asked]


def _point(label: str, given: float | tuple[float, float]) -> _Point:
    values = given if isinstance(given, tuple) else (given,)
    if len(values) not in (1, 2) or not all(isfinite(value) and value > 0 for value in values):
        raise ValueError(
            f"points[{label!r}] is {given!r}; wanted: FLOP per byte, or (FLOP per byte, TFLOP/s), "
            "positive and finite"
        )
    return _Point(label, float(values[0]), float(values[1]) if len(values) == 2 else None)


# ---------------------------------------------------------------------- the chart
def _roofs(chips: Sequence[Chip], points: Sequence[_Point]) -> list[Line]:
    places = [*(ridge_point(chip) for chip in chips), *(point.intensity for point in points)]
    low, high = min(places) / 4, max(places) * 4
    return [
        Line(
            f"{chip.name}: {words(chip.tensor_tflops)}{'' if chip.tensor_cores_in_triton else ' *'}",
            tuple((x, attainable_tflops(x, chip)) for x in (low, ridge_point(chip), high)),
            stroke_of(k),
            marker_every=1,
        )
        for k, chip in enumerate(chips)
    ]


def _frame(roofs: Sequence[Line], points: Sequence[_Point]) -> Frame:
    top = FLAGS + FLAG * len(points) + 22
    across = [x for roof in roofs for x, _ in roof.points]
    rates = [y for roof in roofs for _, y in roof.points]
    rates += [point.measured for point in points if point.measured is not None]
    x = Axis(LEFT, WIDTH - label_room(roofs) - 6, 10)
    return Frame(x.over(across), Axis(top + PLOT, top, 10, 1.25).over(rates))


def _flag(frame: Frame, y: float, point: _Point) -> list[Element]:
    """A label on a pole that stands on the axis; larger intensities have lower flags, so none are crossed."""
    x = frame.x(point.intensity)
    label = str(point) if point.measured is None else f"{point} ◆"
    return [Poly(((x, frame.y.start), (x, y - 9)), QUIET, 1.2, (2, 3)), Text(x + 6, y, label, SMALL)]


def _dots(frame: Frame, chips: Sequence[Chip], point: _Point) -> Iterator[Element]:
    for k, chip in enumerate(chips):
        yield from marker(frame.at((point.intensity, attainable_tflops(point.intensity, chip))), stroke_of(k))
    if point.measured is not None:
        yield diamond(frame.at((point.intensity, point.measured)), 7, 8)


# ---------------------------------------------------------------------- in words
def _allowed(chip: Chip, point: _Point, where: str = "") -> str:
    """The rate that a chip allows a point, and what limits it there."""
    limit = "memory" if point.intensity < ridge_point(chip) else "products"
    return f"{words(attainable_tflops(point.intensity, chip))}{where} ({limit})"


def _alt(title: str, chips: Sequence[Chip], points: Sequence[_Point]) -> str:
    told = [f"{title}: TFLOP/s a chip allows against FLOP per byte, both on logarithmic axes"]
    told += [f"{chip.name} rises with {roof_in_words(chip, ' of memory')}" for chip in chips]
    told += [_told(chips, point) for point in points]
    return ". ".join([*told, *caveats(chips)]) + "."


def _told(chips: Sequence[Chip], point: _Point) -> str:
    allowed = ", ".join(_allowed(chip, point, f" on {chip.name}") for chip in chips)
    told = f"{point} may reach {allowed}"
    if point.measured is None:
        return told
    share = point.measured / attainable_tflops(point.intensity, chips[0])
    return f"{told}; measured is {share:.0%} of that"


def roof_in_words(chip: Chip, of: str = "") -> str:
    """Bandwidth, peak and ridge of a chip."""
    return (
        f"{words(chip.gbytes_per_s)} GB/s{of} up to {words(chip.tensor_tflops)} TFLOP/s, "
        f"reached at {words(ridge_point(chip))} FLOP per byte"
    )


def caveats(chips: Sequence[Chip]) -> list[str]:
    """What a reader must know of chips whose roof Triton does not reach."""
    names = [chip.name for chip in chips if not chip.tensor_cores_in_triton]
    return [f"* Triton uses no tensor cores on a {name}: its kernels stay below this roof" for name in names]


def _numbers(chips: Sequence[Chip], points: Sequence[_Point]) -> str:
    facts = [
        ["", *(chip.name for chip in chips)],
        ["peak, TFLOP/s", *(words(chip.tensor_tflops) for chip in chips)],
        ["memory, GB/s", *(words(chip.gbytes_per_s) for chip in chips)],
        ["ridge, FLOP/byte", *(words(ridge_point(chip)) for chip in chips)],
    ]
    for point in points:
        facts.append([str(point), *(_allowed(chip, point) for chip in chips)])
    return "\n".join([table(facts, left=0), *caveats(chips)])
