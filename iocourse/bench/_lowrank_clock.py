"""Times on the CPU, side by side: warm, interleaved, the median of many laps."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from iocourse.gpu.timing import Timing, summary

Name = TypeVar("Name", bound=Hashable)
Work = Callable[[], object]

ROUNDS = 3
SLOW_S = 0.5  # work that takes longer is warmed up once, other work twice
MOST = 200  # laps a visit


def interleaved(works: Mapping[Name, Work], seconds: float, rounds: int = ROUNDS) -> dict[Name, Timing]:
    """The time of each piece of work; every round visits all of them, and begins with another one.

    A machine that slows down for a while then slows all of them, and what a first run pays, for compiling and
    for fresh pages of memory, is part of no time.

    Args:
        works: what to time, by name.
        seconds: about how long the laps of one of them may take in all; each is run once a round at least.
        rounds: how often each is visited.
    """
    repeats = {name: _repeats(_warm(work), seconds / rounds) for name, work in works.items()}
    laps: dict[Name, list[float]] = {name: [] for name in works}
    names = list(works)
    for turn in range(rounds):
        at = turn % len(names) if names else 0
        for name in names[at:] + names[:at]:
            laps[name] += [1000 * lap(works[name]) for _ in range(repeats[name])]
    return {name: summary(laps[name]) for name in works}


def lap(work: Work) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _warm(work: Work) -> float:
    """Run it once, and once more where that is quick; seconds of the last run."""
    took = lap(work)
    return took if took > SLOW_S else lap(work)


def _repeats(lap_s: float, visit_s: float) -> int:
    return max(1, min(MOST, int(visit_s / lap_s)))
