"""Every way to do a pass in sweeps, and the cheapest: the search that keeps `schedules.best` honest.

A sweep goes through the N x N pairs once: blocks of one side stay in fast memory, the other side passes by.
With r arrays of width d that stay, M/(r·d) rows fit; with t that pass, t·N·d words go by for each block. A
sum that passes is read and written, so it counts twice. Each N x N matrix read or written is N² words. In
units of N² and with x = d/√M a sweep costs r·t·x² + n. A sweep with a single product can also be cut:

- in tiles, to make a matrix: √M x √M of it stay, a column of each factor passes at a time. 2x + n;
- in two slices, to use one, up to x = 2: half the width of the sum stays, so twice the rows: x²/2 instead of
  x², and the matrix is read twice;
- in tiles, to use one, from x = 2 on: √M x √M of the sum stay, x slices. 2x with the matrix. Slices are whole
  in number, which is left out here: it costs nothing at x = 2, 3, ..., and 2 per cent at most, at x = √6.

These are leading terms, for 1 << d << N and M << N·d. Numbers a row (log-sum-exp, D) are of lower order.
They are there in time, for a sweep ends before the next begins: stored scores S serve as stored weights P.
What is found is the least of these sweeps, and no bound: another kind of schedule may move less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import heappop, heappush
from itertools import chain, combinations, count, pairwise, product
from math import inf, sqrt
from typing import NamedTuple, TypeVar

from .solution_guard import library_solution

__all__ = [
    "TASKS",
    "Found",
    "Piece",
    "Product",
    "State",
    "Sweep",
    "Task",
    "Terms",
    "lower_envelope",
    "min_cost",
    "moves",
]

Item = TypeVar("Item")
Names = tuple[str, ...]


# ------------------------------------------------------------------ what a pass consists of
class Product(NamedTuple):
    """One product of matrices: it makes an N x N matrix from two arrays, or uses one to add to an output."""

    matrix: str  # (N, N)
    row: str  # (N, d), on the side of the queries
    column: str  # (N, d), on the side of the keys
    output: str = ""  # the one of the two that is added to; none where the matrix is made
    after: str = ""  # the output that must be done before


@dataclass(frozen=True)
class Task:
    """A pass: its products, the two N x N factors of dS, and the matrices stored at the start."""

    products: tuple[Product, ...]
    factors: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    @property
    def outputs(self) -> frozenset[str]:
        """The arrays (N, d) to be done."""
        return frozenset(product.output for product in self.products) - {""}


FORWARD = (Product("S", "Q", "K"), Product("S", "O", "V", output="O"))
BACKWARD = (
    Product("P", "Q", "K"),
    Product("dP", "dO", "V"),
    Product("dS", "dQ", "K", output="dQ"),
    Product("dS", "Q", "dK", output="dK"),
    Product("P", "dO", "dV", output="dV"),
)
GRADIENT = (  # forward, which leaves dO = O - E, and then dQ
    *FORWARD,
    Product("dP", "dO", "V", after="O"),
    Product("dS", "dQ", "K", output="dQ"),
)
TIED = (Product("S", "Q", "X"), Product("S", "O", "X", output="O"))  # forward with K = V = X
TASKS = {
    "forward": Task(FORWARD),
    "backward": Task(BACKWARD, factors=frozenset({"P", "dP"})),
    "given": Task(BACKWARD, factors=frozenset({"P", "dP"}), given=frozenset({"P"})),  # P of the forward pass
    "gradient": Task(GRADIENT, factors=frozenset({"S", "dP"})),
    "tied": Task(TIED),
}


# ------------------------------------------------------------------ sweeps, and what they lead to
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


# ------------------------------------------------------------------ the cheapest sequence
class Found(NamedTuple):
    """The least words at some x, in units of N², and the sweeps that move them, in order."""

    cost: float
    sweeps: tuple[Sweep, ...]

    @property
    def terms(self) -> Terms:
        """The words of all sweeps together."""
        return Terms(*map(sum, zip(*(sweep.terms for sweep in self.sweeps), strict=True)))

    def __str__(self) -> str:
        return "\n".join([f"{self.cost:.4g} N²", *(f"  {sweep}" for sweep in self.sweeps)])


class Piece(NamedTuple):
    """From x_from to x_to no sequence costs less than these sweeps: a·x² + b·x + c, in units of N²."""

    x_from: float
    x_to: float
    a: float
    b: float
    c: float
    sweeps: tuple[Sweep, ...]


@library_solution
def min_cost(pass_: str, x: float) -> Found:
    """The cheapest sequence of sweeps for a pass at x = d/√M: Dijkstra over what slow memory can hold.

    `pass_` is a name in `TASKS`. Among equals a sequence with the fewest sweeps. Raises ValueError for
    another name, with those there are, and where x is no number above 0.
    """
    if pass_ not in TASKS:
        raise ValueError(f"pass_ = {pass_!r} is unknown; there are {', '.join(TASKS)}")
    return _least(TASKS[pass_], _above_zero("x", x))


@lru_cache(maxsize=1000)  # an envelope asks at the ends of every stretch
def _least(task: Task, x: float) -> Found:
    order, begin, no_sweeps = count(), State(task.given, frozenset()), tuple[Sweep, ...]()
    waiting = [(0.0, 0, next(order), begin, no_sweeps)]
    reached = {begin: (0.0, 0)}
    while True:
        words, length, _, state, sweeps = heappop(waiting)
        if state.done == task.outputs:
            return Found(words, sweeps)
        for sweep, after in _worth_trying(task, state):
            # To 12 digits, so that equal sums stay equal in whichever order they were added.
            far = (float(f"{words + sweep.terms.at(x):.12g}"), length + 1)
            if sweep.holds[0] <= x <= sweep.holds[1] and far < reached.get(after, (inf, 0)):
                reached[after] = far
                heappush(waiting, (*far, next(order), after, (*sweeps, sweep)))


@cache
def _worth_trying(task: Task, state: State) -> list[tuple[Sweep, State]]:
    """The moves without those to whose state another always moves fewer words."""
    found = moves(task, state)
    return [(one, after) for one, after in found if not any(_beats(o, one) for o, to in found if to == after)]


def _beats(one: Sweep, other: Sweep) -> bool:
    """Whether `one` moves fewer words at every x at which `other` is offered."""
    mine, its = one.terms, other.terms
    least = mine.a <= its.a and mine.b <= its.b and mine.c <= its.c and mine != its
    return least and one.holds[0] <= other.holds[0] and other.holds[1] <= one.holds[1]


@library_solution
def lower_envelope(pass_: str, low: float, high: float) -> list[Piece]:
    """From x = low to x = high, piece by piece, the terms that are the least and the sweeps they belong to.

    Raises ValueError as `min_cost` does, and unless low < high.
    """
    low, high = _above_zero("low", low), _above_zero("high", high)
    if low >= high:
        raise ValueError(f"low = {low} must be below high = {high}")
    steps = [*(low * (high / low) ** (step / 32) for step in range(32)), high]
    changes = [change for left, right in pairwise(steps) for change in _changes(pass_, left, right)]
    starts = [(low, min_cost(pass_, low)), *changes, (high, min_cost(pass_, high))]
    return [
        Piece(x, x_to, *found.terms, found.sweeps)
        for (x, found), (x_to, _) in pairwise(starts)
        if x_to - x > 1e-9 * x  # where three meet in a point, the one in the middle is no piece
    ]


def _changes(pass_: str, left: float, right: float) -> list[tuple[float, Found]]:
    """Each x from left to right from which on other terms are the least, and what is cheapest there."""
    before, after = min_cost(pass_, left), min_cost(pass_, right)
    if before.terms == after.terms:
        return []
    border = _crossing(before.terms, after.terms, left, right)
    if min_cost(pass_, border).cost > before.terms.at(border) * (1 - 1e-9) or not left < border < right:
        return [(border, after)]
    return _changes(pass_, left, border) + _changes(pass_, border, right)


def _crossing(before: Terms, after: Terms, left: float, right: float) -> float:
    """Where `after` becomes less than `before`, by halving."""
    while left < (middle := (left + right) / 2) < right:
        left, right = (middle, right) if before.at(middle) <= after.at(middle) else (left, middle)
    return middle


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < inf:
        raise ValueError(f"{name} = {value} must be a number above 0")
    return float(value)
