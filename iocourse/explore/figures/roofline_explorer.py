"""The picture of the roofline explorer: forward, backward, decode and block-sparse under one chip's roof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from ...console import table
from ...gpu import Chip
from ...gpu.roofline import attainable_tflops, ridge_point
from ..draw.line_chart import Frame, Scale, marker
from ..draw.palette import INK, QUIET, STROKES, Stroke
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Text, centred, figure, titled
from ..draw.shapes import diamond
from ..draw.text import words
from ..models.roofline_explorer import (
    PASSES,
    Measured,
    Point,
    Record,
    RooflineState,
    measured,
    points,
    records_of,
    remark,
)
from .roofline import caveats, remarks, roof_in_words

WIDTH, LEFT, RIGHT = 960.0, 78.0, 800.0
LANES, LANE = 84.0, 26.0  # height of the first lane of a pass, and from one to the next
TOP, BOTTOM = 212.0, 452.0  # of the chart's rates
TABLE, LINE = 526.0, 22.0  # where the table begins, and its lines
SPAN = (0.25, 2.0**18)  # FLOP per byte that are always in view, so that points move and the roof stays
COLUMNS = (106.0, 186.0, 300.0, 384.0, 470.0, 582.0, 704.0, 788.0, 942.0)  # right ends of the table's columns
HEAD = (
    "", "GFLOP", "MB, each once", "FLOP/byte", "limited by", "µs at the roof",
    "MB, closed form", "FLOP/byte", "tile",
)  # fmt: skip
LOOKS = dict(zip(PASSES, (STROKES[0], STROKES[1], STROKES[2], STROKES[4]), strict=True))


class _Shown(NamedTuple):
    """RooflineState with their points, what was measured, and what is said where nothing was."""

    sizes: RooflineState
    points: list[Point]
    measured: list[Measured]
    remark: str

    @property
    def chip(self) -> Chip:
        """The chip of the roof."""
        return self.sizes.chip


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
    """Four passes of attention under a chip's roof: FLOP, bytes, which roof is met, the time at it.

    A pass is a bar from FLOP per byte of its closed form, as if caches served nothing, to FLOP per compulsory
    byte, as if they served every byte but the first time. The roof's time is of the latter. Decode is one
    query a head against N keys; the block mask keeps `density` of the tiles of every row, and no causal mask.
    Numbers have 16 bits, as the tensor cores' rate has it.
    A measured rate is drawn where a recorded run has this d, N and mask on this chip, and only there.

    Args:
        arch: 75, 80, 89, 90 or 100.
        N: queries, and keys, of a head.
        d: head size.
        H: heads of queries.
        H_kv: heads of keys and values; divides H.
        B: batches.
        causal: whether query i sees the keys up to i only, forward and backward.
        density: share of the tiles that the block mask keeps, more than 0 and 1 at most.
        records: by name, as `recorded(name)` gives them: resources for the tiles; attention, sparse and
            decode for measured rates. None: those that are shipped; {}: as where there are none.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    sizes = RooflineState(arch, N, d, H, H_kv, B, causal, density).checked()
    return picture_of(sizes, records_of(records))


def picture_of(s: RooflineState, records: Mapping[str, Record]) -> Picture:
    """The picture of checked sizes against records, {} where there is none."""
    found = measured(s, records)
    shown = _Shown(s, points(s, records["resources"]), found, remark(s, records))
    frame, notes = _frame(shown), [*wrap(shown.remark, 120), *caveats([shown.chip])]
    drawn: list[Element] = [
        *_key(),
        *frame.elements("arithmetic intensity (FLOP per byte)", "TFLOP/s"),
        *_roof(frame, shown.chip),
    ]
    for lane, one in enumerate(sorted(shown.points, key=lambda one: one.intensity)):
        drawn += _range(frame, LANES + LANE * lane, one, shown.chip, LOOKS[one.name])
    end = TABLE + LINE * (len(shown.points) + 1)
    drawn += [_diamond(frame.at((one.intensity, one.tflops))) for one in found]
    drawn += [*_table(shown), *remarks(notes, end + 8)]
    return titled(title_of(s), (WIDTH, end + 18 * len(notes)), _alt(shown), _numbers(shown), drawn)


def title_of(s: RooflineState) -> str:
    """The setting in a line."""
    mask = "causal" if s.causal else "no mask"
    heads = f"H = {s.H:,}, H_kv = {s.H_kv:,}"
    return f"{s.chip.name}: N = {s.N:,}, d = {s.d:,}, {heads}, B = {s.B:,}, {mask}, density {s.density:.3g}"


# ---------------------------------------------------------------------- the chart
def _frame(shown: _Shown) -> Frame:
    """The same scales for every setting of a chip, unless a point lies beyond them."""
    chip = shown.chip
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
    yield Text(RIGHT + 8, y + 40, f"ridge {words(ridge_point(chip))}", SMALL, colour=QUIET)


def _key() -> Iterator[Element]:
    yield from marker((26, 52), _quiet(STROKES[0]))
    yield Text(36, 56, "bytes of the closed form: caches serve nothing", SMALL)
    yield from marker((356, 52), STROKES[0])
    yield Text(366, 56, "each array once: caches serve the rest", SMALL)
    yield _diamond((636, 52))
    yield Text(648, 56, "measured", SMALL)


def _quiet(stroke: Stroke) -> Stroke:
    """The same marker in the quiet colour: the end of the range that is not the roof's."""
    return Stroke(QUIET, stroke.dash, stroke.marker)


def _range(frame: Frame, y: float, point: Point, chip: Chip, stroke: Stroke) -> Iterator[Element]:
    """A pass's bar in its lane, with a pole down to the roof from its right end."""
    left, right = frame.x(point.ledger_intensity), frame.x(point.intensity)
    roof = frame.y(attainable_tflops(point.intensity, chip))
    yield Poly(((right, y), (right, roof)), QUIET, 1.2, (2, 3))
    yield Poly(((left, y), (right, y)), stroke.colour, 3)
    yield from marker((left, y), _quiet(stroke))
    yield from marker((right, y), stroke, 5.5)
    yield from marker((right, roof), stroke, 5.5)
    yield Text(right + 12, centred(y, NORMAL), f"{point.name}: {point.limit(chip)}", NORMAL)


def _diamond(at: tuple[float, float]) -> Poly:
    return diamond(at, 6, 7)


# ---------------------------------------------------------------------- the table
def rows_of(s: RooflineState, found: Sequence[Point]) -> list[list[str]]:
    """The table as text: a heading, and a line for each pass."""
    return [list(HEAD), *(_row(one, s.chip) for one in found)]


def _row(one: Point, chip: Chip) -> list[str]:
    least = [words(one.flop / 1e9), words(one.compulsory / 2**20), words(one.intensity)]
    at_the_roof = [one.limit(chip), words(one.microseconds(chip))]
    moved = [words(one.ledger / 2**20), words(one.ledger_intensity)]
    return [one.name, *least, *at_the_roof, *moved, one.tile]


def _table(shown: _Shown) -> Iterator[Element]:
    for line, row in enumerate(rows_of(shown.sizes, shown.points)):
        y = TABLE + LINE * line
        for k, (end, cell) in enumerate(zip(COLUMNS, row, strict=True)):
            yield Text(end, y, cell, SMALL, "end", bold=line == 0 or k == 0)


# ---------------------------------------------------------------------- in words
def _alt(shown: _Shown) -> str:
    chip = shown.chip
    told = [f"{title_of(shown.sizes)}. The roof rises with {roof_in_words(chip)}"]
    told += [_told(one, chip) for one in shown.points]
    told += [
        f"Measured {one.name} ({one.sizes}): {words(one.tflops)} TFLOP/s, "
        f"{one.tflops / attainable_tflops(one.intensity, chip):.0%} of the roof"
        for one in shown.measured
    ]
    return ". ".join([*told, shown.remark.removesuffix("."), *caveats([chip])]) + "."


def _told(one: Point, chip: Chip) -> str:
    return (
        f"{one.name}: {words(one.intensity)} FLOP per compulsory byte, limited by "
        f"{one.limit(chip)}, {words(one.microseconds(chip))} µs at the roof; by its closed form "
        f"{words(one.ledger_intensity)} FLOP per byte"
    )


def _numbers(shown: _Shown) -> str:
    rates = [f"measured {one.name}, {one.sizes}: {words(one.tflops)} TFLOP/s" for one in shown.measured]
    return "\n".join([table(rows_of(shown.sizes, shown.points), left=0), *rates, shown.remark])


def roofline_explorer_words(s: RooflineState, records: Mapping[str, Record]) -> str:
    """The headline of some sizes: what limits each pass."""
    found = points(s, records["resources"])
    limits = "; ".join(
        f"{one.name} by {one.limit(s.chip)}, {words(one.microseconds(s.chip))} µs" for one in found
    )
    return f"At the roof of {s.chip.name}: {limits}."
