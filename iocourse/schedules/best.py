"""Which schedule for this memory? The one with the fewest words among those that fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..ledger import Ledger
from ..sizes import check_sizes
from ..solution_guard import library_solution
from .registry import Schedule, Tiles, of_pass

P = ParamSpec("P")
R = TypeVar("R")


class Choice(NamedTuple):
    """A schedule, the tiles it picks, and what it then moves."""

    schedule: Schedule
    tiles: Tiles
    cost: Ledger


def _also_with_the_pass_last(function: Callable[P, R]) -> Callable[P, R]:
    """Callable with the sizes first too, as the lessons do: the pass is the argument that is a word."""

    @wraps(function)
    def either(*asked: Any, **named: Any) -> R:
        if not asked or not isinstance(asked[0], str):
            pass_ = asked[3] if len(asked) == 4 else named.pop("pass_", "forward")
            asked = (pass_, *asked[:3])
        return function(*asked, **named)

    return either


@library_solution
@_also_with_the_pass_last
def best(pass_: str, N: int, d: int, M: int) -> Choice:
    """The cheapest dense schedule of a pass, one of `PASSES` ("forward", …), in a fast memory of M words.

    `best(N, d, M)` is that of the forward pass, `best(N, d, M, pass_)` the same as `best(pass_, N, d, M)`.
    Among equals the one with the smallest footprint. A schedule that is given P takes no part: its N² words
    were moved before. Raises ValueError where none fits, naming the smallest M that works.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    known = [schedule for schedule in of_pass(pass_) if not schedule.given_weights]
    fitting = [schedule for schedule in known if schedule.smallest_M(N, d) <= M]
    if not fitting:
        least = min(schedule.smallest_M(N, d) for schedule in known)
        raise ValueError(
            f"M = {M} is too small for every {pass_} schedule at N = {N}, d = {d}: {least} works"
        )
    choices = (_choice(schedule, N, d, M) for schedule in fitting)
    return min(choices, key=lambda choice: (choice.cost.total, choice.cost.peak))


def _choice(schedule: Schedule, N: int, d: int, M: int) -> Choice:
    tiles = schedule.tiles(N, d, M)
    return Choice(schedule, tiles, schedule.cost(N, d, **tiles))
