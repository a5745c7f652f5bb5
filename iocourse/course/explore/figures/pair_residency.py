"""Figures of one query-key pair during a run: its resident rows over time, or an arrow for each charge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import hypot
from typing import NamedTuple

from ....bounds.row_schedules import BACKWARD, FORWARD, QueryKeyPair
from ....console import table
from ...guard import library_solution
from ..draw.palette import BLUE, GRID, INK, ORANGE, PAPER, QUIET, RUST, SKY, Fill, Stroke
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Point,
    Poly,
    Rect,
    Text,
    centred,
    example,
    figure,
    titled,
)
from ..draw.shapes import swatch
from ..draw.text import join_names

LEFT, TOP, WIDE = 64.0, 82.0, 30.0  # left edge, top edge, width of an event
LINE, BAR = 28.0, 18.0
OF_QUERY, OF_KEY = Fill(SKY, ""), Fill(ORANGE, "/")
COMES, GOES = ("load", "enters"), ("drop", "leaves")
BOX, BETWEEN, MARGIN, PITCH, HEAD = (128.0, 44.0), 230.0, 96.0, 88.0, 44.0  # of the figure with arrows
TO_QUERY, TO_KEY = Stroke(BLUE, (), ""), Stroke(RUST, (9, 4), "")


class RowEvent(NamedTuple):
    """One event: its row is loaded or evicted (`comes`), the charge, and the accumulators updated then."""

    event: str
    row: str
    comes: bool
    charge: int
    done: tuple[str, ...]


@example(["load k", "load v", "load q", "o enters", "o leaves", "drop q"], pair=FORWARD)
@example(["load q", "load do", "dq enters", "load k", "load v", "dq leaves"], title="The first pass")
@example(["load q", "load k", "o enters", "load v"], pair=FORWARD, arrows=True)
@example([*(f"load {row}" for row in "vkq"), "load do", *(f"{row} enters" for row in ("dv", "dq", "dk"))],
         arrows=True)  # fmt: skip
@figure
@library_solution
def pair_residency(
    walk: Sequence[str], *, pair: QueryKeyPair = BACKWARD, title: str | None = None, arrows: bool = False
) -> Picture:
    """Bars for each row of the pair while it is in fast memory, and the charge of each event.

    Each event except a drop is charged 1 for each resident row of the other side.

    Args:
        walk: events such as "load q", "drop q", "dq enters" and "dq leaves".
        pair: the rows and tasks, FORWARD or BACKWARD.
        title: of the figure.
        arrows: True to draw, instead of the bars, an arrow between each row of the query and each row of the
            key, to the one that is charged. The walk must load each row once and drop none.

    Raises:
        ValueError: no events, an unknown event, a load of a resident row, or a drop of one that is not; with
            `arrows`, a walk that does not load each row exactly once.
    """
    steps = list(_steps(walk, pair))
    if not steps:
        raise ValueError("walk must contain at least one event, such as 'load q', got none")
    paid = sum(step.charge for step in steps)
    heading = f"{title or 'Events of one pair'}: charged {paid}"
    if arrows:
        return _with_arrows(heading, steps, pair, paid)
    rows = [*_in_order(pair.queries), *_in_order(pair.keys)]
    right = LEFT + WIDE * (len(steps) + 1)
    bottom = TOP + LINE * len(rows)
    drawn = [*_bars(steps, rows, pair, right), *_charges(steps, bottom, right, paid)]
    drawn += swatch(LEFT - 30, bottom + 44, OF_QUERY, "row of the query")
    drawn += swatch(LEFT + 130, bottom + 44, OF_KEY, "row of the key")
    return titled(heading, (right + 90, bottom + 80), *_in_words(heading, steps), drawn)


def _steps(walk: Sequence[str], pair: QueryKeyPair) -> Iterator[RowEvent]:
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
        yield RowEvent(event, row, comes, charge, made)


def _parsed(event: str, pair: QueryKeyPair) -> tuple[str, str]:
    """Return (row, verb): inputs are loaded and dropped, accumulators enter and leave."""
    words = event.split() if isinstance(event, str) else []
    for row, verb in (words, words[::-1]) if len(words) == 2 else ():
        if row in pair.rows and verb in (COMES[row in pair.accumulators], GOES[row in pair.accumulators]):
            return row, verb
    raise ValueError(
        f"unknown event {event!r}; expected 'load' or 'drop' and an input, or an accumulator and "
        f"'enters' or 'leaves', of {join_names(pair.rows)}"
    )


def _in_order(rows: frozenset[str]) -> list[str]:
    """Sort rows, inputs before accumulators: q, do, dq."""
    return sorted(rows, key=("q", "do", "o", "dq", "k", "v", "dk", "dv").index)


# ---------------------------------------------------------------------- the drawing
def _bars(
    steps: Sequence[RowEvent], rows: Sequence[str], pair: QueryKeyPair, right: float
) -> Iterator[Element]:
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


def _charges(steps: Sequence[RowEvent], bottom: float, right: float, paid: int) -> Iterator[Element]:
    y = bottom + 18
    yield Text(LEFT - 16, y, "charge", SMALL, "end", QUIET)
    for n, step in enumerate(steps):
        said = "–" if step.event.startswith("drop") else str(step.charge)
        yield Text(_at(n), y, said, NORMAL, "middle", INK if step.charge else QUIET, bold=step.charge > 0)
    yield Text(right + 8, y, f"= {paid}", NORMAL, bold=True)


# ---------------------------------------------------------------------- text
def _in_words(heading: str, steps: Sequence[RowEvent]) -> tuple[str, str]:
    lines = [
        [step.event, " ".join(step.done), str(step.charge)] for step in steps if step.charge or step.done
    ]
    paid = sum(step.charge for step in steps)
    tasks = [f"{join_names(step.done)} at {step.event!r}" for step in steps if step.done]
    alt = f"{heading} in {len(steps)} events. A bar for each row while it is in fast memory. Charges: "
    alt += f"{'; '.join(f'{step.event} {step.charge}' for step in steps)}. "
    alt += f"All rows of a task are resident together: {'; '.join(tasks) or 'never'}."
    return alt, table([["event", "done", "charge"], *lines, ["all", "", paid]], left=2)


# ---------------------------------------------------------------------- arrows instead of bars
def _with_arrows(heading: str, steps: Sequence[RowEvent], pair: QueryKeyPair, paid: int) -> Picture:
    """Return the figure with the rows of the query on the left, those of the key on the right."""
    order = {step.row: n for n, step in enumerate(steps)}
    if [step.row for step in steps] != [*order] or len(order) != len(pair.rows):
        raise ValueError(
            f"with arrows=True the walk must load each of {join_names(pair.rows)} once and drop none, "
            f"got {', '.join(step.event for step in steps)}"
        )
    queries, keys = _in_order(pair.queries), _in_order(pair.keys)
    height = PITCH * max(len(queries), len(keys))
    right = MARGIN + BOX[0] + BETWEEN
    drawn = [
        element
        for n, q in enumerate(queries)
        for m, k in enumerate(keys)
        for element in _arrow(
            (MARGIN + BOX[0], _middle(n, queries, height) + _apart(m, keys)),
            (right, _middle(m, keys, height) + _apart(n, queries)),
            order[k] > order[q],
        )
    ]
    for names, x, fill in ((queries, MARGIN, OF_QUERY), (keys, right, OF_KEY)):
        for n, row in enumerate(names):
            step = steps[order[row]]
            drawn += _box(x, _middle(n, names, height), fill, step, order[row] + 1, x == right)
    bottom = HEAD + height
    drawn += swatch(MARGIN, bottom + 8, OF_QUERY, "row of the query")
    drawn += swatch(right - 30, bottom + 8, OF_KEY, "row of the key")
    to_queries = sum(steps[order[row]].charge for row in queries)
    for x, stroke, charges, side in (
        (MARGIN, TO_QUERY, to_queries, "query"),
        (right - 30, TO_KEY, paid - to_queries, "key"),
    ):
        if charges:
            drawn.append(Poly(((x - 6, bottom + 41), (x + 18, bottom + 41)), stroke.colour, 2, stroke.dash))
            label = f"charged to the {side}: {charges}"
            drawn.append(Text(x + 24, centred(bottom + 41, NORMAL), label, NORMAL))
    said = "Each arrow points to the row that enters later. That row is charged."
    drawn.append(Text(MARGIN, bottom + 74, said, SMALL))
    alt, numbers = _arrows_in_words(heading, steps, pair)
    return titled(heading, (right + BOX[0] + MARGIN, bottom + 92), alt, numbers, drawn)


def _middle(n: int, names: Sequence[str], height: float) -> float:
    return HEAD + height * (n + 0.5) / len(names)


def _apart(n: int, names: Sequence[str]) -> float:
    """Return the vertical offset of the n-th arrow at a box, so that arrowheads do not overlap."""
    return 14 * (n - (len(names) - 1) / 2)


def _arrow(query: Point, key: Point, to_key: bool) -> Iterator[Element]:
    """Yield a line between two boxes and the arrowhead at the row that is charged."""
    (x, y), (far_x, far_y) = (key, query) if to_key else (query, key)
    length = hypot(far_x - x, far_y - y)
    u, v = (far_x - x) / length, (far_y - y) / length  # from the arrowhead backwards
    stroke = TO_KEY if to_key else TO_QUERY
    neck = x + 13 * u, y + 13 * v
    yield Poly(((far_x, far_y), neck), stroke.colour, 2, stroke.dash)
    corners = ((x, y), (neck[0] - 5 * v, neck[1] + 5 * u), (neck[0] + 5 * v, neck[1] - 5 * u))
    yield Poly(corners, stroke.colour, 1, (), stroke.colour)


def _box(x: float, y: float, fill: Fill, step: RowEvent, number: int, right: bool) -> Iterator[Element]:
    """Yield a row of the pair: its name, when it is loaded, and outside the box its charge."""
    wide, high = BOX
    yield Rect(x, y - high / 2, wide, high, fill.colour, fill.hatch, INK, 1)
    yield Rect(x + 14, y - high / 2 + 5, wide - 28, high - 10, PAPER, "", "")
    yield Text(x + wide / 2, y - 2, step.row, NORMAL, "middle", bold=True)
    verb = "loaded" if step.event.startswith("load") else "enters"
    yield Text(x + wide / 2, y + 14, f"{verb} {_ordinal(number)}", SMALL, "middle")
    at, anchor = (x + wide + 10, "start") if right else (x - 10, "end")
    yield Text(at, centred(y, SMALL), f"charged {step.charge}", SMALL, anchor, INK, step.charge > 0)


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _arrows_in_words(heading: str, steps: Sequence[RowEvent], pair: QueryKeyPair) -> tuple[str, str]:
    seen: list[str] = []
    lines = [["row", "order", "charged", "for the row pair with"]]
    for n, step in enumerate(steps, 1):
        earlier = _in_order(pair.opposite(step.row) & {*seen})
        lines.append([step.row, _ordinal(n), str(step.charge), ", ".join(earlier) or "none"])
        seen.append(step.row)
    left, right = (", ".join(_in_order(rows)) for rows in (pair.queries, pair.keys))
    alt = f"{heading}. Rows of the query ({left}) are boxes on the left, rows of the key ({right}) on the "
    alt += "right. An arrow joins any two of them and points to the row that enters later and is charged. "
    alt += "; ".join(
        f"{row} {order}: charged {charge}, arrows from {others}" for row, order, charge, others in lines[1:]
    )
    return f"{alt}.", table(lines, left=0)
