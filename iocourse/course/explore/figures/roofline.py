"""Roofline figures: attainable rate against arithmetic intensity, and four attention passes on one chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from textwrap import wrap
from typing import Any, NamedTuple

from ....console import table
from ....gpu import Chip, chip_of
from ....gpu.roofline import attainable_tflops, ridge_point
from ..draw.line_chart import Axis, Frame, Line, Scale, end_labels, every_line, label_room, marker
from ..draw.palette import INK, QUIET, STROKES, Stroke, stroke_of
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Text, centred, figure, text_width, titled
from ..draw.shapes import diamond
from ..draw.text import duration, words
from ..models.roofline_explorer import (
    PASSES,
    Point,
    Record,
    RecordedRate,
    RooflineState,
    kernels_remark,
    points,
    recorded_rates,
    records_of,
    remark,
)

# ---------------------------------------------------------------------- kernels and several chips
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


# ---------------------------------------------------------------------- figure of the roofline explorer
EXPLORER_WIDTH, LEFT, RIGHT = 960.0, 78.0, 800.0
LANES, LANE = 84.0, 26.0  # top of the first row of a pass, and row height
TOP, BOTTOM = 212.0, 452.0  # of the chart
TABLE, LINE = 526.0, 22.0  # top of the table, and its line height
SPAN = (0.25, 2.0**18)  # FLOP per byte always shown, so the roof is fixed while points move
COLUMNS = (106.0, 186.0, 300.0, 384.0, 470.0, 582.0, 704.0, 788.0, 942.0)  # right ends of the table columns
HEAD = (
    "", "GFLOP", "MB, compulsory", "FLOP/byte", "limited by", "time at the roof",
    "MB, closed form", "FLOP/byte", "tile",
)  # fmt: skip
LOOKS = dict(zip(PASSES, (STROKES[0], STROKES[1], STROKES[2], STROKES[4]), strict=True))


class _Shown(NamedTuple):
    """Sizes with their points, measured rates, and the remark on their source."""

    sizes: RooflineState
    points: list[Point]
    measured: list[RecordedRate]
    remark: str


@figure
def roofline_explorer_picture(
    arch: int,
    N: int,
    d: int,
    H: int,
    H_kv: int,
    *,
    B: int = 1,
    causal: bool = True,
    density: float = 0.25,
    records: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> Picture:
    """Four attention passes under the roofline of a chip: FLOPs, bytes, limit and time at the roof. Kernels
    and tiles are those that `attention` and `decode` choose.

    A pass is a bar from FLOP per byte of its closed form (no caches) to FLOP per compulsory byte (ideal
    caches). The time at the roof uses compulsory bytes. Decode has one query per head and N keys. The block
    mask keeps `density` of the tiles in each row and is not causal. Elements have 16 bits. A measured rate is
    drawn if a recorded run has the same d, N and mask on this chip.

    Args:
        arch: 75, 80, 89, 90 or 100.
        N: queries and keys per head.
        d: head dimension.
        H: query heads.
        H_kv: key and value heads; divides H.
        B: batch size.
        causal: True for a causal mask in forward and backward.
        density: share of the tiles that the block mask keeps, in (0, 1].
        records: name → `load_record(name)`: attention, sparse and decode, for measured rates. None selects
            the shipped ones, {} means no records.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    sizes = RooflineState(arch, N, d, H, H_kv, B, causal, density).checked()
    return draw_roofline(sizes, records_of(records))


def draw_roofline(s: RooflineState, records: Mapping[str, Record]) -> Picture:
    """Return the figure of checked sizes with records, {} for a missing one."""
    found = recorded_rates(s, records)
    shown = _Shown(s, points(s), found, remark(s, records))
    frame, notes = (
        _explorer_frame(shown),
        [*wrap(kernels_remark(s), 120), *wrap(shown.remark, 120), *caveats([s.chip])],
    )
    drawn: list[Element] = [
        *_key(),
        *frame.elements("arithmetic intensity (FLOP per byte)", "TFLOP/s"),
        *_roof(frame, shown.sizes.chip),
    ]
    for lane, one in enumerate(sorted(shown.points, key=lambda one: one.intensity)):
        drawn += _range(frame, LANES + LANE * lane, one, shown.sizes.chip, LOOKS[one.name])
    end = TABLE + LINE * (len(shown.points) + 1)
    drawn += [diamond(frame.at((one.intensity, one.tflops)), 6, 7) for one in found]
    drawn += [*_table(shown), *remarks(notes, end + 8)]
    rates = [f"measured {one.name}, {one.sizes}: {words(one.tflops)} TFLOP/s" for one in found]
    numbers = "\n".join([table(rate_rows(s, shown.points), left=0), *rates, kernels_remark(s), shown.remark])
    return titled(
        roofline_title(s), (EXPLORER_WIDTH, end + 18 * len(notes)), _explorer_alt(shown), numbers, drawn
    )


def roofline_title(s: RooflineState) -> str:
    """Return the title of a state: chip, sizes and masks."""
    mask = "causal" if s.causal else "no mask"
    heads = f"H = {s.H:,}, H_kv = {s.H_kv:,}"
    return f"{s.chip.name}: N = {s.N:,}, d = {s.d:,}, {heads}, B = {s.B:,}, {mask}, density {s.density:.3g}"


# ---------------------------------------------------------------------- the chart
def _explorer_frame(shown: _Shown) -> Frame:
    """Return axes that are the same for all sizes on a chip, unless a point is outside."""
    chip = shown.sizes.chip
    across = [*SPAN, *(x for one in shown.points for x in (one.intensity, one.ledger_intensity))]
    across += [one.intensity for one in shown.measured]
    rates = [attainable_tflops(min(across), chip), 2 * chip.tensor_tflops]
    rates += [one.tflops for one in shown.measured]
    x = Scale(min(across), max(across), LEFT, RIGHT, 10)
    return Frame(x, Scale(min(rates), max(rates), BOTTOM, TOP, 10))


def _roof(frame: Frame, chip: Chip) -> Iterator[Element]:
    low, high = frame.x.low, frame.x.high
    corners = (low, ridge_point(chip), high)
    yield Poly(tuple(frame.at((x, attainable_tflops(x, chip))) for x in corners), INK, 2.4)
    y = frame.y(chip.tensor_tflops)
    yield Text(RIGHT + 8, centred(y, NORMAL), f"{words(chip.tensor_tflops)} TFLOP/s")
    yield Text(RIGHT + 8, y + 22, f"{words(chip.gbytes_per_s)} GB/s", SMALL, colour=QUIET)
    yield Text(RIGHT + 8, y + 40, f"ridge point {words(ridge_point(chip))}", SMALL, colour=QUIET)


def _key() -> Iterator[Element]:
    yield from marker((26, 52), STROKES[0]._replace(colour=QUIET))
    yield Text(36, 56, "bytes of the closed form (no caches)", SMALL)
    yield from marker((356, 52), STROKES[0])
    yield Text(366, 56, "compulsory bytes (ideal caches)", SMALL)
    yield diamond((636, 52), 6, 7)
    yield Text(648, 56, "measured", SMALL)


def _range(frame: Frame, y: float, point: Point, chip: Chip, stroke: Stroke) -> Iterator[Element]:
    """Yield the bar of a pass in its row, with a dashed line from its right end down to the roof."""
    left, right = frame.x(point.ledger_intensity), frame.x(point.intensity)
    roof = frame.y(attainable_tflops(point.intensity, chip))
    yield Poly(((right, y), (right, roof)), QUIET, 1.2, (2, 3))
    yield Poly(((left, y), (right, y)), stroke.colour, 3)
    yield from marker((left, y), stroke._replace(colour=QUIET))  # the end without caches
    yield from marker((right, y), stroke, 5.5)
    yield from marker((right, roof), stroke, 5.5)
    yield Text(right + 12, centred(y, NORMAL), f"{point.name}: {point.limit(chip)}", NORMAL)


# ---------------------------------------------------------------------- the table
def rate_rows(s: RooflineState, found: Sequence[Point]) -> list[list[str]]:
    """Return the table as text: header, and one row per pass."""
    rows = [list(HEAD)]
    for one in found:
        # Bytes in units of 10⁶, because bandwidths are in units of 10⁹: MB ÷ GB/s is the time in ms.
        least = [words(one.flop / 1e9), words(one.compulsory / 1e6), words(one.intensity)]
        at_the_roof = [one.limit(s.chip), duration(one.microseconds(s.chip))]
        moved = [words(one.ledger / 1e6), words(one.ledger_intensity)]
        rows.append([one.name, *least, *at_the_roof, *moved, one.tile])
    return rows


def _table(shown: _Shown) -> Iterator[Element]:
    for line, row in enumerate(rate_rows(shown.sizes, shown.points)):
        y = TABLE + LINE * line
        for k, (end, cell) in enumerate(zip(COLUMNS, row, strict=True)):
            yield Text(end, y, cell, SMALL, "end", bold=line == 0 or k == 0)


# ---------------------------------------------------------------------- in words
def _explorer_alt(shown: _Shown) -> str:
    chip = shown.sizes.chip
    told = [f"{roofline_title(shown.sizes)}. The roofline rises with {roof_in_words(chip)}"]
    told += [
        f"{one.name}: {words(one.intensity)} FLOP per compulsory byte, limited by "
        f"{one.limit(chip)}, {duration(one.microseconds(chip))} at the roof; closed form "
        f"{words(one.ledger_intensity)} FLOP per byte"
        for one in shown.points
    ]
    told += [
        f"Measured {one.name} ({one.sizes}): {words(one.tflops)} TFLOP/s, "
        f"{one.tflops / attainable_tflops(one.intensity, chip):.0%} of the roof"
        for one in shown.measured
    ]
    told += [kernels_remark(shown.sizes).removesuffix("."), shown.remark.removesuffix(".")]
    return ". ".join([*told, *caveats([chip])]) + "."


def roofline_explorer_words(s: RooflineState, records: Mapping[str, Record]) -> str:
    """Return the headline: limit and time at the roof of each pass."""
    found = points(s)
    limits = "; ".join(
        f"{one.name} by {one.limit(s.chip)}, {duration(one.microseconds(s.chip))}" for one in found
    )
    return f"At the roof of {s.chip.name}: {limits}."
