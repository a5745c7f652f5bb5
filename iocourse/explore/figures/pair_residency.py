"""One pair of a query and a key through a run: which of its rows are in fast memory, and who pays what."""

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

LEFT, TOP, WIDE = 64.0, 82.0, 30.0  # where the first event stands, and from one to the next
LINE, BAR = 28.0, 18.0
OF_QUERY, OF_KEY = Fill(SKY, ""), Fill(ORANGE, "/")
COMES, GOES = ("load", "enters"), ("drop", "leaves")


class Step(NamedTuple):
    """An event of a walk: its row comes or goes, what it pays, and the sums whose tasks are then done."""

    event: str
    row: str
    comes: bool
    charge: int
    done: tuple[str, ...]


@example(["load k", "load v", "load q", "o enters", "o leaves", "drop q"], pair=FORWARD)
@example(["load q", "load do", "dq enters", "load k", "load v", "dq leaves"], title="The first sweep")
@figure
@library_solution
def pair_residency(
    walk: Sequence[str], *, pair: QueryKeyPair = BACKWARD, title: str | None = None
) -> Picture:
    """A bar for each row of the pair while it is in fast memory; below it what each event is charged.

    `walk` has events such as "load q", "drop q", "dq enters" and "dq leaves". Every event but a drop is
    charged one for each row of the other side that is there. Raises ValueError for a walk without an event,
    for what is none, and where a row comes that is there or goes that is not.
    """
    steps = list(_steps(walk, pair))
    if not steps:
        raise ValueError("walk has no event; it needs one or more, such as 'load q'")
    paid = sum(step.charge for step in steps)
    heading = f"{title or 'A walk of one pair'}: charged {paid}"
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
            raise ValueError(f"{event!r}: {row} is {'there already' if comes else 'not there'}")
        charge = 0 if verb == "drop" else len(pair.opposite(row) & there)
        there ^= {row}
        done = [task for task in left if task <= there]
        left = [task for task in left if task not in done]
        made = tuple(name for task in done for name in sorted(task & pair.accumulators))
        yield Step(event, row, comes, charge, made)


def _parsed(event: str, pair: QueryKeyPair) -> tuple[str, str]:
    """(row, verb): an input is loaded and dropped, an accumulator enters and leaves."""
    words = event.split() if isinstance(event, str) else []
    for row, verb in (words, words[::-1]) if len(words) == 2 else ():
        if row in pair.rows and verb in (COMES[row in pair.accumulators], GOES[row in pair.accumulators]):
            return row, verb
    raise ValueError(
        f"{event!r} is no event of {listed(pair.rows)}: load and drop inputs, enters and leaves the others"
    )


def _in_order(rows: frozenset[str]) -> list[str]:
    """Inputs before sums: q, do, dq."""
    return sorted(rows, key=("q", "do", "o", "dq", "k", "v", "dk", "dv").index)


# ---------------------------------------------------------------------- the drawing
def _bars(steps: Sequence[Step], rows: Sequence[str], pair: QueryKeyPair, right: float) -> Iterator[Element]:
    for n, row in enumerate(rows):
        y = TOP + LINE * n
        yield Text(LEFT - 16, centred(y + BAR / 2, NORMAL), row, NORMAL, "end")
        yield Poly(((LEFT, y + BAR / 2), (right, y + BAR / 2)), GRID, 1)
        fill = OF_QUERY if row in pair.queries else OF_KEY
        own = [at for at, step in enumerate(steps) if step.row == row]
        for come, go in zip_longest(own[::2], own[1::2], fillvalue=len(steps)):  # the last may not leave
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
    yield Text(LEFT - 16, y, "pays", SMALL, "end", QUIET)
    for n, step in enumerate(steps):
        said = "–" if step.event.startswith("drop") else str(step.charge)
        yield Text(_at(n), y, said, NORMAL, "middle", INK if step.charge else QUIET, bold=step.charge > 0)
    yield Text(right + 8, y, f"= {paid}", NORMAL, bold=True)


# ---------------------------------------------------------------------- and in words
def _in_words(heading: str, steps: Sequence[Step]) -> tuple[str, str]:
    lines = [
        [step.event, " ".join(step.done), str(step.charge)] for step in steps if step.charge or step.done
    ]
    paid = sum(step.charge for step in steps)
    tasks = [f"{listed(step.done)} at {step.event!r}" for step in steps if step.done]
    alt = f"{heading} in {len(steps)} events. A bar for each of its rows while it is in fast memory: "
    alt += f"{'; '.join(f'{step.event} pays {step.charge}' for step in steps)}. "
    alt += f"Where all rows of a task are there together: {'; '.join(tasks) or 'nowhere'}."
    return alt, table([["event", "done", "pays"], *lines, ["all", "", paid]], left=2)
