"""All sweeps from a state of slow memory, with their words: what stays times what passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations, product
from math import inf, sqrt
from typing import NamedTuple, TypeVar

from .products import Product, Task

Item = TypeVar("Item")
Names = tuple[str, ...]


class Terms(NamedTuple):
    """a·x² + b·x + c, in units of N² words."""

    a: float
    b: float
    c: float

    def at(self, x: float) -> float:
        """The words at x = d/√M, in units of N²."""
        return self.a * x * x + self.b * x + self.c


@dataclass(frozen=True)
class Sweep:
    """What stays, what passes, which N x N matrices are read and written, what is done; and the words."""

    stay: Names
    passing: Names
    read: Names
    written: Names
    done: Names
    terms: Terms
    cut: str = ""  # "in two slices" or "in tiles"
    holds: tuple[float, float] = (0.0, inf)  # from which x to which it is offered

    def __str__(self) -> str:
        parts = ((self.stay, "stay"), (self.passing, "pass"), (self.read, "read"), (self.written, "written"))
        said = [f"{', '.join(names)} {what}" for names, what in (*parts, (self.done, "done")) if names]
        return "; ".join([self.cut, *said] if self.cut else said)


class State(NamedTuple):
    """Slow memory between two sweeps: the N x N matrices stored, and the outputs done."""

    stored: frozenset[str]
    done: frozenset[str]


@cache
def moves(task: Task, state: State) -> list[tuple[Sweep, State]]:
    """Each sweep that does an output or stores a matrix, and the state it leads to."""
    found = dict[tuple[Terms, State], tuple[Sweep, State]]()  # one of those that cost the same
    waiting = [p for p in task.products if p.output not in state.done and p.after in state.done | {""}]
    for read, products in product(_subsets(sorted(state.stored)), _subsets(waiting)):
        at_hand = {*read, *(p.matrix for p in products if not p.output)}
        if task.factors and task.factors <= at_hand:
            at_hand.add("dS")
        if not at_hand.issuperset(p.matrix for p in products):
            continue
        done = tuple(p.output for p in products if p.output)
        for written in _subsets(sorted(at_hand - state.stored)):
            after = State(state.stored.union(written), state.done.union(done))
            for sweep in _ways(products, read, written, done) if after != state else ():
                found.setdefault((sweep.terms, after), (sweep, after))
    return list(found.values())


def _ways(products: tuple[Product, ...], read: Names, written: Names, done: Names) -> Iterator[Sweep]:
    """These products in one sweep: rows stay, columns stay, or a single product is cut."""
    rows, columns = _distinct(p.row for p in products), _distinct(p.column for p in products)
    moved = len(read) + len(written)
    for stay, passing in ((rows, columns), (columns, rows)):
        passes = len(passing) + sum(name in done for name in passing)
        yield Sweep(stay, passing, read, written, done, Terms(len(stay) * passes, 0, moved))
        if len(products) == 1 and stay == done:
            slices, tiles = Terms(1 / 2, 0, moved + len(read)), Terms(0, 2 * sqrt(len(read)), len(written))
            yield Sweep(stay, passing, read, written, done, slices, "in two slices", (0, 2))
            yield Sweep(stay, passing, read, written, done, tiles, "in tiles", (2, inf))
    if len(products) == 1 and not done:
        yield Sweep((), rows + columns, read, written, done, Terms(0, 2, moved), "in tiles")


def _distinct(names: Iterable[str]) -> Names:
    return tuple(dict.fromkeys(names))


def _subsets(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """All of them, from large to small: what is read is tried before what is made again."""
    return chain.from_iterable(combinations(items, size) for size in range(len(items), -1, -1))
