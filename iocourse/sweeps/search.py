"""The cheapest sequence of sweeps at one x, and piece by piece over a range of it."""

from __future__ import annotations

from functools import cache, lru_cache
from heapq import heappop, heappush
from itertools import count, pairwise
from math import inf
from typing import NamedTuple

from ..solution_guard import library_solution
from .products import TASKS, Task
from .transitions import State, Sweep, Terms, moves


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
