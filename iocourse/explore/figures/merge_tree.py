"""Parts of a sum, each in its own unit, merged in pairs: which one changes its unit, and by what factor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from ...console import table
from ..draw.palette import INK, PAPER, QUIET, VERMILION
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    example,
    figure,
    text_width,
    titled,
)

MOST = 8  # parts
WIDE, HIGH, LEVEL, GAP = 96.0, 44.0, 104.0, 14.0  # pixels: a box, from level to level, between two boxes


@dataclass(frozen=True)
class Part:
    """A part of the sum: `count` times `unit`, what it was merged from, and where its box stands."""

    unit: float
    count: float
    x: float  # of its middle
    level: int
    merged: tuple[Part, ...] = ()

    @property
    def top(self) -> float:
        """Where its box begins."""
        return 56.0 + LEVEL * self.level


@example([(2, 1.5), (8, 2), (1, 2), (4, 1.5)])
@example([(3, 1)])
@example([(10.0**k, 1 + k / 3) for k in range(7)], title="Seven parts, the last without a partner")
@figure
def merge_tree(
    parts: Sequence[tuple[float, float]], *, title: str = "Parts of a row, merged in pairs"
) -> Picture:
    """Up to eight parts (unit, count), from the top down: neighbours become one, in the larger unit.

    Raises ValueError for no or more parts, or a unit or count that is not positive and finite.
    """
    levels = _levels(parts)
    everyone = [part for level in levels for part in level]
    merges = [part for part in everyone if part.merged]
    drawn = [element for part in merges for child in part.merged for element in _edge(child, part)]
    drawn += [element for part in everyone for element in _box(part)]
    rows = [["parts", "factors", "unit", "count"], *map(_facts, merges or everyone)]
    alt = f"{title}: {len(parts)} parts in {len(levels)} levels, the merged ones below their two. "
    alt += " ".join(map(_said, merges)) or f"One part, unit {parts[0][0]:g}, count {parts[0][1]:g}."
    width = max(levels[0][-1].x + WIDE / 2 + 18, 420.0)
    return titled(title, (width, everyone[-1].top + HIGH + 18), alt, table(rows, left=2), drawn)


def _levels(parts: Sequence[tuple[float, float]]) -> list[list[Part]]:
    """The parts as given, then what is new on each level; who has no partner waits for the next."""
    if not 1 <= len(parts) <= MOST:
        raise ValueError(f"parts has {len(parts)} entries; allowed are 1 to {MOST}")
    for number in (number for part in parts for number in part):
        if not (isfinite(number) and number > 0):
            raise ValueError(f"parts has {number}; units and counts must be positive and finite")
    waiting = [Part(u, c, 18 + WIDE / 2 + k * (WIDE + GAP), 0) for k, (u, c) in enumerate(parts)]
    levels = [waiting]
    while len(waiting) > 1:
        pairs = [tuple(waiting[k : k + 2]) for k in range(0, len(waiting), 2)]
        waiting = [_merged(pair, len(levels)) if len(pair) == 2 else pair[0] for pair in pairs]
        levels.append([part for part in waiting if part.level == len(levels)])
    return levels


def _merged(pair: tuple[Part, ...], level: int) -> Part:
    unit = max(part.unit for part in pair)
    count = sum(part.count * part.unit / unit for part in pair)
    return Part(unit, count, sum(part.x for part in pair) / 2, level, pair)


def _box(part: Part) -> Iterator[Element]:
    yield Rect(part.x - WIDE / 2, part.top, WIDE, HIGH, PAPER, "", INK, 1.2)
    yield Text(part.x, part.top + 18, f"unit {part.unit:g}", SMALL, "middle")
    yield Text(part.x, part.top + 36, f"count {part.count:.4g}", SMALL, "middle", bold=True)


def _edge(child: Part, parent: Part) -> Iterator[Element]:
    """The way from a part to what it becomes, with its factor; thick where the unit changes."""
    factor = child.unit / parent.unit
    start, end = (child.x, child.top + HIGH), (parent.x, parent.top)
    colour, line = (VERMILION, 3.0) if factor < 1 else (QUIET, 1.2)
    yield Poly((start, end), colour, line)
    said = f"× {factor:.3g}"
    width = text_width(said, NORMAL)
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    yield Rect(x - width / 2, y - 9, width, 18, PAPER)
    yield Text(x, y + 5, said, NORMAL, "middle")


def _facts(part: Part) -> list[str]:
    from_ = " and ".join(f"{one.count:.4g} of {one.unit:g}" for one in part.merged) or "alone"
    factors = ", ".join(f"{one.unit / part.unit:.3g}" for one in part.merged)
    return [from_, factors, f"{part.unit:g}", f"{part.count:.4g}"]


def _said(part: Part) -> str:
    a, b = part.merged
    return (
        f"{a.count:.4g} in units of {a.unit:g}, times {a.unit / part.unit:.3g}, and {b.count:.4g} in units "
        f"of {b.unit:g}, times {b.unit / part.unit:.3g}, are {part.count:.4g} in units of {part.unit:g}."
    )
