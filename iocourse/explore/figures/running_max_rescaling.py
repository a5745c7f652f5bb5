"""A running sum counted in the largest number so far: bars keep their length when the ruler below changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, isfinite
from typing import NamedTuple

from ...console import table
from ..draw.palette import INK, ORANGE, QUIET, SKY, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, example, figure, titled
from ..draw.shapes import swatch

LEFT, LENGTH, NOTES = 190.0, 400.0, 620.0  # pixels: where bars begin, the longest bar, where notes begin
TOP, ROW, BAR = 92.0, 86.0, 26.0
CARRIED, ADDED = Fill(SKY, ""), Fill(ORANGE, "/")
LABELLED = 20.0  # pixels between the marks of a ruler from which on each has its number


class Stage(NamedTuple):
    """One piece, the unit before and after it, what had been counted in each of them, and the count now."""

    piece: tuple[float, ...]
    old_unit: float
    unit: float
    old: float
    exchanged: float
    now: float

    @property
    def added(self) -> float:
        """The piece in the new unit."""
        return sum(self.piece) / self.unit

    @property
    def factor(self) -> float:
        """What an old unit is worth in new ones."""
        return self.old_unit / self.unit


@example([[2, 1], [8, 4, 4], [1]], title="A row that lesson 03 works by hand")
@example([[1.0]])
@example([[0.5] * 9, [100, 300], [0.25]])
@figure
def running_max_rescaling(
    pieces: Sequence[Sequence[float]], *, title: str = "One sum, counted in a unit that grows"
) -> Picture:
    """Numbers that come in pieces, added up in units of the largest so far.

    A bar for each piece, as long as the sum of all numbers up to it; a ruler below it, whose marks are units.
    Raises ValueError where there is no piece, one is empty, or a number is not positive and finite.
    """
    stages = _stages(pieces)
    longest = max(one.now * one.unit for one in stages)
    drawn: list[Element] = [
        *swatch(LEFT, 48, CARRIED, "counted before"),
        *swatch(LEFT + 160, 48, ADDED, "new"),
    ]
    for k, stage in enumerate(stages):
        drawn += _row(TOP + ROW * k, k + 1, stage, LENGTH / longest)
    numbered = list(enumerate(stages, 1))
    rows = [["piece", "brings", "factor", "unit", "count"], *(_facts(k, one) for k, one in numbered)]
    alt = f"{title}. Bars as long as the sums so far, each above a ruler in its own unit. "
    alt += " ".join(_said(k, one) for k, one in numbered)
    return titled(title, (860.0, TOP + ROW * len(stages)), alt, table(rows, left=2), drawn)


def _stages(pieces: Sequence[Sequence[float]]) -> list[Stage]:
    if not pieces or not all(len(piece) for piece in pieces):
        raise ValueError("pieces must be at least one piece, and none of them empty")
    for number in (number for piece in pieces for number in piece):
        if not (isfinite(number) and number > 0):
            raise ValueError(f"pieces has {number}; a number must be positive and finite")
    stages, unit, count = list[Stage](), float(max(pieces[0])), 0.0
    for piece in pieces:
        larger = max(unit, float(max(piece)))
        exchanged = count * unit / larger
        now = exchanged + sum(piece) / larger
        stages.append(Stage(tuple(map(float, piece)), unit, larger, count, exchanged, now))
        unit, count = larger, now
    return stages


def _row(y: float, number: int, stage: Stage, scale: float) -> Iterator[Element]:
    """A piece's numbers, its bar and its ruler, and what was exchanged."""
    middle = centred(y + BAR / 2, NORMAL)
    carried, added = (count * stage.unit * scale for count in (stage.exchanged, stage.added))
    yield Text(18, middle, f"piece {number}: {_listed(stage.piece)}", NORMAL)
    if carried:
        yield Rect(LEFT, y, carried, BAR, CARRIED.colour, CARRIED.hatch, INK, 0.7)
    yield Rect(LEFT + carried, y, added, BAR, ADDED.colour, ADDED.hatch, INK, 0.7)
    yield from _ruler(y + BAR + 6, stage, scale)
    yield Text(NOTES, middle, f"unit {stage.unit:g}, count {stage.now:.4g}", NORMAL, bold=True)
    yield Text(NOTES, middle + 19, _exchange(stage), SMALL)


def _ruler(y: float, stage: Stage, scale: float) -> Iterator[Element]:
    step, whole = stage.unit * scale, floor(stage.now + 1e-9)
    yield Poly(((LEFT, y), (LEFT + stage.now * step, y)), INK, 1.2)
    for mark in range(whole + 1):
        x = LEFT + mark * step
        yield Poly(((x, y), (x, y + 6)), INK, 1.2)
        if step >= LABELLED or mark == whole:
            yield Text(x, y + 19, f"{mark}", SMALL, "middle", QUIET)


def _exchange(stage: Stage) -> str:
    if not stage.old:
        return f"{stage.added:.4g} new"
    return f"{stage.old:.4g} × {stage.factor:.4g} before, {stage.added:.4g} new"


def _listed(piece: Sequence[float]) -> str:
    shown = ", ".join(f"{number:g}" for number in piece[:3])
    return shown if len(piece) <= 3 else f"{shown}, …"


def _facts(number: int, stage: Stage) -> list[str]:
    brings = ", ".join(f"{one:g}" for one in stage.piece)
    return [f"{number}", brings, f"{stage.factor:.4g}", f"{stage.unit:g}", f"{stage.now:.4g}"]


def _said(number: int, stage: Stage) -> str:
    brings = f"Piece {number} brings {_listed(stage.piece)}"
    if not stage.old:
        return f"{brings}: the unit is {stage.unit:g}, the count {stage.now:.4g}."
    way = f"makes the unit {stage.unit:g}" if stage.factor < 1 else f"leaves the unit {stage.unit:g}"
    return (
        f"{brings} and {way}: {stage.old:.4g} counted before are {stage.exchanged:.4g}, "
        f"{stage.added:.4g} are new, the count is {stage.now:.4g}."
    )
