"""Figure of one query-key pair during a run: which of its rows are resident, and the charge per event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from ...bounds.row_schedules import BACKWARD, FORWARD, QueryKeyPair
from ...console import table
from ...solution_guard import library_solution
from ..draw.palette import GRID, INK, ORANGE, QUIET, SKY, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, example, figure, titled
from ..draw.shapes import swatch
from ..draw.text import listed

LEFT, TOP, WIDE = 64.0, 82.0, 30.0  # left edge, top edge, width of an event
LINE, BAR = 28.0, 18.0
OF_QUERY, OF_KEY = Fill(SKY, ""), Fill(ORANGE, "/")
COMES, GOES = ("load", "enters"), ("drop", "leaves")


class Step(NamedTuple):
    """One event: its row is loaded or evicted (`comes`), the charge, and the accumulators updated then."""

    event: str
    row: str
    comes: bool
    charge: int
    done: tuple[str, ...]


@example(["load k", "load v", "load q", "o enters", "o leaves", "drop q"], pair=FORWARD)
@example(["load q", "load do", "dq enters", "load k", "load v", "dq leaves"], title="The first pass")
@figure
@library_solution
def pair_residency(
    walk: Sequence[str], *, pair: QueryKeyPair = BACKWARD, title: str | None = None
) -> Picture:
    """Bars for each row of the pair while it is in fast memory, and the charge of each event.

    Each event except a drop is charged 1 for each resident row of the other side.

    Args:
        walk: events such as "load q", "drop q", "dq enters" and "dq leaves".
        pair: the rows and tasks, FORWARD or BACKWARD.
        title: of the figure.

    Raises:
        ValueError: no events, an unknown event, a load of a resident row, or a drop of one that is not.
    """
    steps = list(_steps(walk, pair))
    if not steps:
        raise ValueError("walk must contain at least one event, such as 'load q', got none")
    paid = sum(step.charge for step in steps)
    heading = f"{title or 'Events of one pair'}: charged {paid}"
    rows = [*_in_order(pair.queries), *_in_order(pair.keys)]
    right = LEFT + WIDE * (len(steps) + 1)
    bottom = TOP + LINE * len(rows)
    drawn = [*_bars(steps, rows, pair, right), *_charges(steps, bottom, right, paid)]
    drawn += swatch(LEFT - 30, bottom + 44, OF_QUERY, "row of the query")
    drawn += swatch(LEFT + 130, bottom + 44, OF_KEY, "row of the key")
    return titled(heading, (right + 90, bottom + 80), *_in_words(heading, steps), drawn)


def _steps(walk: Sequence[str], pair: QueryKeyPair) -> Iterator[Step]:
    there: set[str] = set()
    left = list(pair.tasks)
    for event in walk:
        row, verb = _parsed(event, pair)
        comes = verb in COMES
        if comes == (row in there):
            raise ValueError(f"{event!r}: {row} is {'already' if comes else 'not'} in fast memory")
        charge = 0 if verb == "drop" else len(pair.opposite(row) & there)
        there ^= {row}
        done = [task for task in left if task <= there]
        left = [task for task in left if task not in done]
        made = tuple(name for task in done for name in sorted(task & pair.accumulators))
        yield Step(event, row, comes, charge, made)


def _parsed(event: str, pair: QueryKeyPair) -> tuple[str, str]:
    """Return (row, verb): inputs are loaded and dropped, accumulators enter and leave."""
    words = event.split() if isinstance(event, str) else []
    for row, verb in (words, words[::-1]) if len(words) == 2 else ():
        if row in pair.rows and verb in (COMES[row in pair.accumulators], GOES[row in pair.accumulators]):
            return row, verb
    raise ValueError(
        f"unknown event {event!r}; expected 'load' or 'drop' and an input, or an accumulator and "
        f"'enters' or 'leaves', of {listed(pair.rows)}"
    )


def _in_order(rows: frozenset[str]) -> list[str]:
    """Sort rows, inputs before accumulators: q, do, dq."""
    return sorted(rows, key=("q", "do", "o", "dq", "k", "v", "dk", "dv").index)


# ---------------------------------------------------------------------- the drawing
def _bars(steps: Sequence[Step], rows: Sequence[str], pair: QueryKeyPair, right: float) -> Iterator[Element]:
    for n, row in enumerate(rows):
        y = TOP + LINE * n
        yield Text(LEFT - 16, centred(y + BAR / 2, NORMAL), row, NORMAL, "end")
        yield Poly(((LEFT, y + BAR / 2), (right, y + BAR / 2)), GRID, 1)
        fill = OF_QUERY if row in pair.queries else OF_KEY
        own = [at for at, step in enumerate(steps) if step.row == row]
        for come, go in zip_longest(own[::2], own[1::2], fillvalue=len(steps)):  # the last may stay resident
            yield Rect(_at(come), y, WIDE * (go - come), BAR, *fill, INK, 0.7)
    if any(step.done for step in steps):
        yield Text(LEFT - 16, TOP - 10, "done", SMALL, "end", QUIET)
    for n, step in enumerate(steps):
        for k, name in enumerate(step.done):
            yield Text(_at(n), TOP - 10 - 16 * k, name, SMALL, "middle", bold=True)


def _at(n: int) -> float:
    return LEFT + WIDE * (n + 0.5)


def _charges(steps: Sequence[Step], bottom: float, right: float, paid: int) -> Iterator[Element]:
    y = bottom + 18
    yield Text(LEFT - 16, y, "charge", SMALL, "end", QUIET)
    for n, step in enumerate(steps):
        said = "–" if step.event.startswith("drop") else str(step.charge)
        yield Text(_at(n), y, said, NORMAL, "middle", INK if step.charge else QUIET, bold=step.charge > 0)
    yield Text(right + 8, y, f"= {paid}", NORMAL, bold=True)


# ---------------------------------------------------------------------- text
def _in_words(heading: str, steps: Sequence[Step]) -> tuple[str, str]:
    lines = [
        [step.event, " ".join(step.done), str(step.charge)] for step in steps if step.charge or step.done
    ]
    paid = sum(step.charge for step in steps)
    tasks = [f"{listed(step.done)} at {step.event!r}" for step in steps if step.done]
    alt = f"{heading} in {len(steps)} events. A bar for each row while it is in fast memory. Charges: "
    alt += f"{'; '.join(f'{step.event} {step.charge}' for step in steps)}. "
    alt += f"All rows of a task are resident together: {'; '.join(tasks) or 'never'}."
    return alt, table([["event", "done", "charge"], *lines, ["all", "", paid]], left=2)
