"""The library's best schedule for a challenge: every schedule that solves it, each with its best tiles.

If a challenge names a better schedule, its words are counted too, on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ...machine import run
from ...masks import Window
from ...schedules import PASSES, REGISTRY, Choice, Schedule
from ...solution_guard import library_solution
from .challenge_spec import Challenge


@library_solution
@cache
def library_best(challenge: Challenge) -> Choice:
    """The schedule with the fewest words at the challenge's size, its tiles and its closed form."""
    return min(contenders(challenge), key=lambda choice: choice.cost.total)


@library_solution
@cache
def known_words(challenge: Challenge) -> int | None:
    """The words of the schedule that is known beside the library, counted dry; None where there is none."""
    if challenge.known is None:
        return None
    N, d = challenge.N, challenge.d
    shapes: dict[str, Any] = {name: PASSES[challenge.pass_].shapes(N, d)[name] for name in challenge.arrays}
    given = shapes | challenge.told(N)
    return run(challenge.known, M=challenge.M, dry=True, unroll=True, trace=False, **given).ledger.total


def contenders(challenge: Challenge) -> Iterator[Choice]:
    """The schedules that solve the problem, take what is handed over and fit, with the tiles they pick."""
    N, d, M = challenge.N, challenge.d, challenge.M
    for schedule in REGISTRY.values():
        told = problem_of(schedule, challenge)
        if told is not None and schedule.smallest_M(N, d, **told) <= M:
            tiles = schedule.tiles(N, d, M, **told)
            yield Choice(schedule, tiles, schedule.cost(N, d, **tiles, **told))


def problem_of(schedule: Schedule, challenge: Challenge) -> dict[str, Any] | None:
    """What makes this schedule solve the challenge, to the last digit; None where nothing does."""
    exact = schedule.safe and schedule.approximates is None
    if schedule.pass_ != challenge.pass_ or not exact or not {*schedule.operands} <= {*challenge.arrays}:
        return None
    mask = challenge.mask(challenge.N)
    if mask is None:
        return None if schedule.needs else {}
    if isinstance(mask, Window) and schedule.needs == ("w",):
        return {"w": mask.w}
    takes_it = "mask" in (*schedule.needs, *schedule.options)
    return {"mask": mask} if takes_it and set(schedule.needs) <= {"mask"} else None
