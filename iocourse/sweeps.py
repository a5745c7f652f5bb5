"""Search over all divisions of a pass into sweeps, with the least traffic; it checks `schedules.best`.

A sweep is one pass over all N x N pairs: blocks of one side are resident in fast memory, the other side is
streamed. With r resident arrays of width d, M/(r·d) rows fit; with t streamed arrays, t·N·d words are moved
per block. A streamed sum is read and written, so it counts twice. Each N x N matrix that is read or written
costs N² words. In units of N², with x = d/√M and n such matrices, a sweep costs r·t·x² + n. A sweep with a
single product can also be cut:

- in tiles, to compute a matrix: √M x √M of it are resident, and the factors are streamed by columns. 2x + n;
- in two slices, to use a matrix, up to x = 2: half the width of the sum is resident, so twice as many rows
  fit. The cost is x²/2 instead of x², and the matrix is read twice;
- in tiles, to use a matrix, from x = 2 on: √M x √M of the sum are resident, in x slices. 2x with the matrix.
  The number of slices is an integer, which is neglected here; the error is 0 at x = 2, 3, ..., and at most
  2 %, at x = √6.

These are leading terms for 1 << d << N and M << N·d. Row statistics (log-sum-exp, D) are of lower order. They
are available in time, because a sweep ends before the next one begins; so stored scores S serve as stored
weights P. The result is the minimum over these sweeps, not a lower bound: other schedules may move less.
"""
# <!-- 2 = 10**2 * (math.sqrt(6) * (1 / 2 + 1 / 3) / 2 - 1) -->

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import heappop, heappush
from itertools import chain, combinations, count, pairwise, product
from math import inf, sqrt
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .errors import renamed

__all__ = [
    "TASKS",
    "Found",
    "Piece",
    "Product",
    "StoredMatrices",
    "Sweep",
    "Task",
    "Terms",
    "lower_envelope",
    "min_cost",
    "transitions",
]

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = renamed(__name__, {"State": "StoredMatrices", "moves": "transitions"})

Item = TypeVar("Item")
Names = tuple[str, ...]


# ------------------------------------------------------------------ products of a pass
class Product(NamedTuple):
    """One matrix product: it computes an N x N matrix from two arrays, or multiplies one into an output."""

    matrix: str  # (N, N)
    row: str  # (N, d), on the side of the queries
    column: str  # (N, d), on the side of the keys
    output: str = ""  # row or column, whichever is the output; "" if the matrix is computed
    after: str = ""  # the output that must be complete before


@dataclass(frozen=True)
class Task:
    """A pass: its products, the two N x N factors of dS, and the matrices stored at the start."""

    products: tuple[Product, ...]
    factors: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    @property
    def outputs(self) -> frozenset[str]:
        """Names of the output arrays (N, d)."""
        return frozenset(product.output for product in self.products) - {""}


FORWARD = (Product("S", "Q", "K"), Product("S", "O", "V", output="O"))
BACKWARD = (
    Product("P", "Q", "K"),
    Product("dP", "dO", "V"),
    Product("dS", "dQ", "K", output="dQ"),
    Product("dS", "Q", "dK", output="dK"),
    Product("P", "dO", "dV", output="dV"),
)
GRADIENT = (  # forward, which stores dO = O - E, and then dQ
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


# ------------------------------------------------------------------ sweeps and the states between them
class Terms(NamedTuple):
    """Cost a·x² + b·x + c of a sweep as a function of x = d/√M, in units of N² words."""

    a: float
    b: float
    c: float

    def at(self, x: float) -> float:
        """Return the words at x = d/√M, in units of N²."""
        return self.a * x * x + self.b * x + self.c


@dataclass(frozen=True)
class Sweep:
    """One sweep: resident and streamed arrays, N x N matrices read and written, completed outputs, cost."""

    stay: Names
    passing: Names
    read: Names
    written: Names
    done: Names
    terms: Terms
    cut: str = ""  # "in two slices" or "in tiles"
    holds: tuple[float, float] = (0.0, inf)  # range of x for which it is offered

    def __str__(self) -> str:
        parts = (
            (self.stay, "resident"),
            (self.passing, "streamed"),
            (self.read, "read"),
            (self.written, "written"),
        )
        said = [f"{', '.join(names)} {what}" for names, what in (*parts, (self.done, "done")) if names]
        return "; ".join([self.cut, *said] if self.cut else said)


class StoredMatrices(NamedTuple):
    """Slow memory between two sweeps: the stored N x N matrices and the completed outputs."""

    stored: frozenset[str]
    done: frozenset[str]


@cache
def transitions(task: Task, state: StoredMatrices) -> list[tuple[Sweep, StoredMatrices]]:
    """Return each sweep that completes an output or stores a matrix, with the state after it."""
    found = dict[tuple[Terms, StoredMatrices], tuple[Sweep, StoredMatrices]]()  # one per cost and state
    waiting = [p for p in task.products if p.output not in state.done and p.after in state.done | {""}]
    for read, products in product(_subsets(sorted(state.stored)), _subsets(waiting)):
        at_hand = {*read, *(p.matrix for p in products if not p.output)}
        if task.factors and task.factors <= at_hand:
            at_hand.add("dS")
        if not at_hand.issuperset(p.matrix for p in products):
            continue
        done = tuple(p.output for p in products if p.output)
        for written in _subsets(sorted(at_hand - state.stored)):
            after = StoredMatrices(state.stored.union(written), state.done.union(done))
            for sweep in _ways(products, read, written, done) if after != state else ():
                found.setdefault((sweep.terms, after), (sweep, after))
    return list(found.values())


def _ways(products: tuple[Product, ...], read: Names, written: Names, done: Names) -> Iterator[Sweep]:
    """Yield the sweeps that compute these products: rows resident, columns resident, or one product cut."""
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
    """Yield all subsets, from large to small, so that reading a matrix is tried before recomputing it."""
    return chain.from_iterable(combinations(items, size) for size in range(len(items), -1, -1))


# ------------------------------------------------------------------ the cheapest sequence
class Found(NamedTuple):
    """The least cost at one x, in units of N² words, and the sweeps that reach it, in order."""

    cost: float
    sweeps: tuple[Sweep, ...]

    @property
    def terms(self) -> Terms:
        """Sum of the terms of all sweeps."""
        return Terms(*map(sum, zip(*(sweep.terms for sweep in self.sweeps), strict=True)))

    def __str__(self) -> str:
        return "\n".join([f"{self.cost:.4g} N²", *(f"  {sweep}" for sweep in self.sweeps)])


class Piece(NamedTuple):
    """Interval of x in which these sweeps are the cheapest, with their cost a·x² + b·x + c in units of N²."""

    x_from: float
    x_to: float
    a: float
    b: float
    c: float
    sweeps: tuple[Sweep, ...]


def min_cost(pass_: str, x: float) -> Found:
    """Return the cheapest sequence of sweeps for a pass at x = d/√M, and its cost.

    Dijkstra's algorithm over the states of slow memory; if costs are equal, the fewest sweeps. `pass_` is a
    name in `TASKS`. Raises ValueError for another name, or if x is not a number above 0.
    """
    if pass_ not in TASKS:
        raise ValueError(f"pass_ must be one of {', '.join(TASKS)}, got {pass_!r}")
    return _least(TASKS[pass_], _above_zero("x", x))


@lru_cache(maxsize=1000)  # an envelope evaluates the ends of every interval twice
def _least(task: Task, x: float) -> Found:
    order, begin, no_sweeps = count(), StoredMatrices(task.given, frozenset()), tuple[Sweep, ...]()
    waiting = [(0.0, 0, next(order), begin, no_sweeps)]
    reached = {begin: (0.0, 0)}
    while True:
        words, length, _, state, sweeps = heappop(waiting)
        if state.done == task.outputs:
            return Found(words, sweeps)
        for sweep, after in _worth_trying(task, state):
            # Rounded to 12 digits, so that sums in different orders of addition stay equal.
            far = (float(f"{words + sweep.terms.at(x):.12g}"), length + 1)
            if sweep.holds[0] <= x <= sweep.holds[1] and far < reached.get(after, (inf, 0)):
                reached[after] = far
                heappush(waiting, (*far, next(order), after, (*sweeps, sweep)))


@cache
def _worth_trying(task: Task, state: StoredMatrices) -> list[tuple[Sweep, StoredMatrices]]:
    """Return the moves without those for which another move to the same state always costs less."""
    found = transitions(task, state)
    return [(one, after) for one, after in found if not any(_beats(o, one) for o, to in found if to == after)]


def _beats(one: Sweep, other: Sweep) -> bool:
    """Return True if `one` moves fewer words at every x for which `other` is offered."""
    mine, its = one.terms, other.terms
    least = mine.a <= its.a and mine.b <= its.b and mine.c <= its.c and mine != its
    return least and one.holds[0] <= other.holds[0] and other.holds[1] <= one.holds[1]


def lower_envelope(pass_: str, low: float, high: float) -> list[Piece]:
    """Return the pieces of the least cost as a function of x, from x = low to x = high, in order.

    Raises ValueError as `min_cost` does, and unless low < high.
    """
    low, high = _above_zero("low", low), _above_zero("high", high)
    if low >= high:
        raise ValueError(f"low must be below high, got low = {low} and high = {high}")
    steps = [*(low * (high / low) ** (step / 32) for step in range(32)), high]
    changes = [change for left, right in pairwise(steps) for change in _changes(pass_, left, right)]
    starts = [(low, min_cost(pass_, low)), *changes, (high, min_cost(pass_, high))]
    return [
        Piece(x, x_to, *found.terms, found.sweeps)
        for (x, found), (x_to, _) in pairwise(starts)
        if x_to - x > 1e-9 * x  # omit empty pieces, where three curves intersect in one point
    ]


def _changes(pass_: str, left: float, right: float) -> list[tuple[float, Found]]:
    """Return each x between left and right at which the cheapest terms change, with the new cheapest."""
    before, after = min_cost(pass_, left), min_cost(pass_, right)
    if before.terms == after.terms:
        return []
    border = _crossing(before.terms, after.terms, left, right)
    if min_cost(pass_, border).cost > before.terms.at(border) * (1 - 1e-9) or not left < border < right:
        return [(border, after)]
    return _changes(pass_, left, border) + _changes(pass_, border, right)


def _crossing(before: Terms, after: Terms, left: float, right: float) -> float:
    """Return the x at which `after` becomes less than `before`, by bisection."""
    while left < (middle := (left + right) / 2) < right:
        left, right = (middle, right) if before.at(middle) <= after.at(middle) else (left, middle)
    return middle


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < inf:
        raise ValueError(f"{name} must be a number above 0, got {value}")
    return float(value)
