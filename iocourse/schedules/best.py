"""Which schedule for this memory? The one with the fewest words among those that fit."""

from __future__ import annotations

from typing import NamedTuple

from ..guard import library_answer
from ..ledger import Ledger
from ..sizes import check_sizes
from .registry import Schedule, Tiles, of_pass


class Choice(NamedTuple):
    """A schedule, the tiles it picks, and what it then moves."""

    schedule: Schedule
    tiles: Tiles
    cost: Ledger


@library_answer
def best(N: int, d: int, M: int, pass_: str = "forward") -> Choice:
    """The cheapest dense schedule of a pass ("forward", "backward", "gradient") in a fast memory of M words.

    Among equals the one with the smallest footprint. A schedule that is given P takes no part: its N² words
    were moved before. Raises ValueError where none fits, naming the smallest M that works.
    """
    check_sizes(N=N, d=d, M=M)
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
