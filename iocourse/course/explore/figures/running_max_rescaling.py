"""Figures of rescaled sums, in units of the running maximum: piece by piece, and merged in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from typing import NamedTuple

from ....console import table
from ..draw.palette import INK, ORANGE, PAPER, QUIET, SKY, VERMILION, Fill
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    centred,
    check_count,
    example,
    figure,
    text_width,
    titled,
)
from ..draw.shapes import swatch

# ---------------------------------------------------------------------- running maximum
LEFT, LENGTH, NOTES = 190.0, 400.0, 620.0  # pixels: left edge of bars, longest bar, left edge of notes
TOP, ROW, BAR = 92.0, 86.0, 26.0
CARRIED, ADDED = Fill(SKY, ""), Fill(ORANGE, "/")
LABELLED = 20.0  # minimum pixels between ruler marks to label each of them


class Stage(NamedTuple):
    """One piece: unit before and after, previous count in both units, and the count including the piece."""

    piece: tuple[float, ...]
    old_unit: float
    unit: float
    old: float
    exchanged: float
    now: float

    @property
    def added(self) -> float:
        """The sum of the piece in the new unit."""
        return sum(self.piece) / self.unit

    @property
    def factor(self) -> float:
        """The rescaling factor: old unit divided by new unit."""
        return self.old_unit / self.unit


@example([[2, 1], [8, 4, 4], [1]], title="A row that lesson 03 works by hand")
@example([[1.0]])
@example([[0.5] * 9, [100, 300], [0.25]])
@figure
def running_max_rescaling(
    pieces: Sequence[Sequence[float]], *, title: str = "One sum, counted in a unit that grows"
) -> Picture:
    """Sum of numbers given in pieces, in units of the running maximum.

    A bar for each piece shows the sum of all numbers so far, with a ruler below it in the current unit.

    Args:
        pieces: sequences of positive numbers.
        title: of the figure.

    Raises:
        ValueError: no pieces, an empty piece, or a number that is not positive and finite.
    """
    stages = _stages(pieces)
    longest = max(one.now * one.unit for one in stages)
    drawn = swatch(LEFT + 160, 48, ADDED, "new")
    if len(stages) > 1:
        drawn += swatch(LEFT, 48, CARRIED, "previous sum")
    for k, stage in enumerate(stages):
        drawn += _row(TOP + ROW * k, k + 1, stage, LENGTH / longest)
    rows = [["piece", "numbers", "factor", "unit", "count"]]
    for k, stage in enumerate(stages, 1):
        brings = ", ".join(f"{one:g}" for one in stage.piece)
        rows.append([f"{k}", brings, f"{stage.factor:.4g}", f"{stage.unit:g}", f"{stage.now:.4g}"])
    alt = f"{title}. Bars show the sum so far, each above a ruler in the current unit. "
    alt += " ".join(_said(k, one) for k, one in enumerate(stages, 1))
    return titled(title, (860.0, TOP + ROW * len(stages)), alt, table(rows, left=2), drawn)


def _stages(pieces: Sequence[Sequence[float]]) -> list[Stage]:
    if not pieces or not all(len(piece) for piece in pieces):
        raise ValueError("pieces must contain at least one piece, none of them empty")
    for number in (number for piece in pieces for number in piece):
        if not (isfinite(number) and number > 0):
            raise ValueError(f"pieces must contain positive and finite numbers, got {number}")
    stages, unit, count = list[Stage](), float(max(pieces[0])), 0.0
    for piece in pieces:
        larger = max(unit, float(max(piece)))
        exchanged = count * unit / larger
        now = exchanged + sum(piece) / larger
        stages.append(Stage(tuple(map(float, piece)), unit, larger, count, exchanged, now))
        unit, count = larger, now
    return stages


def _row(y: float, number: int, stage: Stage, scale: float) -> Iterator[Element]:
    """Yield the numbers of a piece, its bar with ruler, and the rescaling."""
    middle = centred(y + BAR / 2, NORMAL)
    carried, added = (count * stage.unit * scale for count in (stage.exchanged, stage.added))
    yield Text(18, middle, f"piece {number}: {_listed(stage.piece)}", NORMAL)
    if carried:
        yield Rect(LEFT, y, carried, BAR, *CARRIED, INK, 0.7)
    yield Rect(LEFT + carried, y, added, BAR, *ADDED, INK, 0.7)
    yield from _ruler(y + BAR + 6, stage, scale)
    yield Text(NOTES, middle, f"unit {stage.unit:g}, count {stage.now:.4g}", NORMAL, bold=True)
    before = f"{stage.old:.4g} × {stage.factor:.4g} before, " if stage.old else ""
    yield Text(NOTES, middle + 19, f"{before}{stage.added:.4g} new", SMALL)


def _ruler(y: float, stage: Stage, scale: float) -> Iterator[Element]:
    step, whole = stage.unit * scale, floor(stage.now + 1e-9)
    yield Poly(((LEFT, y), (LEFT + stage.now * step, y)), INK, 1.2)
    for mark in range(whole + 1):
        x = LEFT + mark * step
        yield Poly(((x, y), (x, y + 6)), INK, 1.2)
        if step >= LABELLED or mark == whole:
            yield Text(x, y + 19, f"{mark}", SMALL, "middle", QUIET)


def _listed(piece: Sequence[float]) -> str:
    shown = ", ".join(f"{number:g}" for number in piece[:3])
    return shown if len(piece) <= 3 else f"{shown}, …"


def _said(number: int, stage: Stage) -> str:
    brings = f"Piece {number} contains {_listed(stage.piece)}"
    if not stage.old:
        return f"{brings}. The unit is {stage.unit:g} and the count is {stage.now:.4g}."
    way = f"changes the unit to {stage.unit:g}" if stage.factor < 1 else f"keeps the unit {stage.unit:g}"
    return (
        f"{brings} and {way}. The previous count {stage.old:.4g} becomes {stage.exchanged:.4g}, "
        f"{stage.added:.4g} is added, and the count is {stage.now:.4g}."
    )


# ---------------------------------------------------------------------- parts merged in pairs
MOST = 8  # parts
WIDE, HIGH, LEVEL, GAP = (
    96.0,
    44.0,
    104.0,
    14.0,
)  # pixels: width and height of a box, from level to level, gap between boxes


@dataclass(frozen=True)
class Part:
    """A part of the sum, `count` times `unit`, with the parts merged into it and the position of its box."""

    unit: float
    count: float
    x: float  # of the centre
    level: int
    merged: tuple[Part, ...] = ()

    @property
    def top(self) -> float:
        """Top of the box."""
        return 56.0 + LEVEL * self.level

    @property
    def in_words(self) -> str:
        """Sentence on the merge of its two parts, rescaled to its unit."""
        both = (
            f"{one.count:.4g} in units of {one.unit:g}, times {one.unit / self.unit:.3g}"
            for one in self.merged
        )
        return f"{', and '.join(both)}, give {self.count:.4g} in units of {self.unit:g}."


@example([(2, 1.5), (8, 2), (1, 2), (4, 1.5)])
@example([(3, 1)])
@example([(10.0**k, 1 + k / 3) for k in range(7)], title="Seven parts, the last without a partner")
@figure
def merge_tree(
    parts: Sequence[tuple[float, float]], *, title: str = "Parts of a row, merged in pairs"
) -> Picture:
    """Tree of up to eight parts (unit, count), merged in pairs from the top down in the larger unit.

    Raises:
        ValueError: no parts or more than eight, or a unit or count that is not positive and finite.
    """
    levels = _levels(parts)
    everyone = [part for level in levels for part in level]
    merges = [part for part in everyone if part.merged]
    drawn: list[Element] = []
    for part in merges:
        for child in part.merged:
            drawn += _edge(child, part)
    rows = [["parts", "factors", "unit", "count"]]
    for part in everyone:
        drawn.append(Rect(part.x - WIDE / 2, part.top, WIDE, HIGH, PAPER, "", INK, 1.2))
        drawn.append(Text(part.x, part.top + 18, f"unit {part.unit:g}", SMALL, "middle"))
        drawn.append(Text(part.x, part.top + 36, f"count {part.count:.4g}", SMALL, "middle", bold=True))
    for part in merges or everyone:
        merged = " and ".join(f"{one.count:.4g} of {one.unit:g}" for one in part.merged) or "alone"
        factors = ", ".join(f"{one.unit / part.unit:.3g}" for one in part.merged)
        rows.append([merged, factors, f"{part.unit:g}", f"{part.count:.4g}"])
    alt = f"{title}: {len(parts)} parts in {len(levels)} levels, each merged part below its two parts. "
    alt += (
        " ".join(part.in_words for part in merges)
        or f"One part, unit {parts[0][0]:g}, count {parts[0][1]:g}."
    )
    width = max(levels[0][-1].x + WIDE / 2 + 18, 420.0)
    return titled(title, (width, everyone[-1].top + HIGH + 18), alt, table(rows, left=2), drawn)


def _levels(parts: Sequence[tuple[float, float]]) -> list[list[Part]]:
    """Return the given parts, then the merged parts of each level; a part without partner moves on."""
    check_count("parts", parts, MOST)
    for number in (number for part in parts for number in part):
        if not (isfinite(number) and number > 0):
            raise ValueError(f"parts must have positive and finite units and counts, got {number}")
    waiting = [Part(u, c, 18 + WIDE / 2 + k * (WIDE + GAP), 0) for k, (u, c) in enumerate(parts)]
    levels = [waiting]
    while len(waiting) > 1:
        last = waiting[len(waiting) - len(waiting) % 2 :]
        merged = []
        for a, b in zip(waiting[::2], waiting[1::2], strict=False):
            unit = max(a.unit, b.unit)
            count = a.count * a.unit / unit + b.count * b.unit / unit
            merged.append(Part(unit, count, (a.x + b.x) / 2, len(levels), (a, b)))
        levels.append(merged)
        waiting = [*merged, *last]
    return levels


def _edge(child: Part, parent: Part) -> Iterator[Element]:
    """Yield the line from a part to the merged part with its factor, thick if the unit changes."""
    factor = child.unit / parent.unit
    start, end = (child.x, child.top + HIGH), (parent.x, parent.top)
    colour, line = (VERMILION, 3.0) if factor < 1 else (QUIET, 1.2)
    yield Poly((start, end), colour, line)
    said = f"× {factor:.3g}"
    width = text_width(said, NORMAL)
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    yield Rect(x - width / 2, y - 9, width, 18, PAPER)
    yield Text(x, y + 5, said, NORMAL, "middle")
