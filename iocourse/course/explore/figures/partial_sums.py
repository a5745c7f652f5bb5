"""Figure for the proof of Theorem A: number of partial sums of one output in fast memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ....console import table, with_unit
from ..draw.palette import BLUE, GRID, INK, PAPER, QUIET, VERMILION
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, example, figure, titled
from ..draw.shapes import circle

COLUMN, LEVEL = 54.0, 46.0  # pixels per event, per partial sum
LEFT, TOP = 92.0, 66.0
THERE = "#E8F3FB"  # fill while at least one partial sum is in fast memory
RISE = {"begin": 1, "read": 1, "merge": -1, "drop": -1}


@dataclass(frozen=True)
class _Life:
    """The events of the partial sums of one output, and the number in fast memory after each."""

    events: tuple[str, ...]
    heights: tuple[int, ...]  # one more than events; starts with 0

    @property
    def reads(self) -> list[bool]:
        """True for each event that is a read."""
        return [event == "read" for event in self.events]

    @property
    def entries(self) -> list[bool]:
        """True for each event at which the accumulator enters: n rises from 0."""
        steps = zip(self.heights, self.heights[1:], strict=False)
        return [before == 0 and after == 1 for before, after in steps]


@example(("begin",))
@example(("begin", "begin", "drop", "drop", "begin", "read", "merge", "read", "merge"))
@figure
def partial_sums(events: Sequence[str]) -> Picture:
    """Staircase of the number n of partial sums of one output in fast memory, with reads and entries counted.

    Args:
        events: sequence of "begin" (a new partial sum), "drop" (one is stored and evicted), "read" (a dropped
            one is loaded again) and "merge" (two are added).

    Raises:
        ValueError: no events, an unknown event, or an event without the partial sums that it needs.
    """
    life = _checked(tuple(events))
    heading = f"One output's partial sums: {_entries(life)}, {with_unit(sum(life.reads), 'read')}"
    floor = TOP + LEVEL * max(life.heights)
    size = (LEFT + COLUMN * len(life.events) + 24, floor + 122)
    drawn = [*_levels(life, floor), *_bars(life, floor), *_counts(life, floor)]
    numbers = (accumulate(map(int, marked)) for marked in (life.reads, life.entries))
    counts = zip(life.events, life.heights[1:], *numbers, strict=True)
    rows = [("event", "n", "reads", "entries"), *counts]
    steps = ", ".join(f"{event} {n}" for event, n in zip(life.events, life.heights[1:], strict=True))
    over = with_unit(len(life.events), "event")
    alt = f"A staircase over {over}: the number n of partial sums of one output in fast memory after each "
    alt += f"of them. It starts at 0: {steps}. Numbers in squares count "
    alt += f"{with_unit(sum(life.reads), 'read')}, numbers in circles {_entries(life)}: rises of n from 0."
    return titled(heading, size, alt, table(rows, left=0), drawn)


def _checked(events: tuple[str, ...]) -> _Life:
    if not events:
        raise ValueError(f"events must contain at least one of {', '.join(RISE)}, got none")
    there, away = 0, 0
    for number, event in enumerate(events, 1):
        if event not in RISE:
            raise ValueError(f"event {number} must be one of {', '.join(RISE)}, got {event!r}")
        have, least = {"drop": (there, 1), "merge": (there, 2), "read": (away, 1)}.get(event, (0, 0))
        if have < least:
            where = "dropped before" if event == "read" else "in fast memory"
            raise ValueError(
                f"event {number}, {event}, needs {with_unit(least, 'partial sum')} {where}, got {have}"
            )
        there += RISE[event]
        away += {"drop": 1, "read": -1}.get(event, 0)
    return _Life(events, tuple(accumulate((RISE[event] for event in events), initial=0)))


def _levels(life: _Life, floor: float) -> Iterator[Element]:
    """Yield a line for each n."""
    right = LEFT + COLUMN * len(life.events)
    for n in range(max(life.heights) + 1):
        y = floor - n * LEVEL
        yield Poly(((LEFT, y), (right, y)), INK if n == 0 else GRID, 1.2 if n == 0 else 1)
        yield Text(LEFT - 8, centred(y, SMALL), f"n = {n}", SMALL, "end", QUIET)


def _bars(life: _Life, floor: float) -> Iterator[Element]:
    """Yield a bar of height n after each event, and the staircase along the tops."""
    points = [(LEFT, floor)]
    for k, n in enumerate(life.heights[1:]):
        x, y = LEFT + k * COLUMN, floor - n * LEVEL
        if n:
            yield Rect(x, y, COLUMN, n * LEVEL, THERE)
        points += [(x, y), (x + COLUMN, y)]
    yield Poly(tuple(points), INK, 2.4)


def _counts(life: _Life, floor: float) -> Iterator[Element]:
    """Yield below each event its name, and its number among the reads and among the entries."""
    lines = (("read", life.reads, BLUE, 62.0), ("entry", life.entries, VERMILION, 92.0))
    for k, event in enumerate(life.events):
        yield Text(LEFT + (k + 0.5) * COLUMN, floor + 30, event, NORMAL, "middle")
    for name, marked, colour, down in lines:
        yield Text(LEFT - 8, centred(floor + down, SMALL), name, SMALL, "end", INK, True)
        for k, (here, number) in enumerate(zip(marked, accumulate(map(int, marked)), strict=True)):
            x, y = LEFT + (k + 0.5) * COLUMN, floor + down
            if here and colour == BLUE:
                yield Rect(x - 11, y - 11, 22, 22, PAPER, "", colour, 2)
            elif here:
                yield circle((x, y), 12, PAPER, 2)
            if here:
                yield Text(x, centred(y, SMALL), str(number), SMALL, "middle", INK, True)


def _entries(life: _Life) -> str:
    number = sum(life.entries)
    return f"{number} {'entry' if number == 1 else 'entries'}"
