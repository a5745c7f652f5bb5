"""Plan of a benchmark run, complete or quick, and interleaved timing of several pieces of work."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from iocourse.gpu.timing import Timing, summary
from tools.bench.lowrank.published_protocol import ROWS

Name = TypeVar("Name", bound=Hashable)
Work = Callable[[], Any]
ROUNDS = 3
SLOW_S = 1.0  # a slower first lap is one of the three laps; a faster one is repeated and not counted
FAR = 1.5  # slow work that takes longer than the fastest slow one by this factor has one lap alone
MOST = 200  # laps of one piece in a row


def interleaved(works: Mapping[Name, Work], seconds: float) -> dict[Name, Timing]:
    """Time several pieces of work in rounds over all of them, in rotated order.

    A temporary slowdown of the machine then affects all of them. `seconds`: approximate total time of the
    laps of one piece. Each has three laps or more; slow work that is `FAR` from the fastest has one. Compile
    before: a first lap may count.
    """
    laps: dict[Name, list[float]] = {}
    repeats: dict[Name, int] = {}
    firsts = {name: lap(work) for name, work in works.items()}
    slow = {name: first for name, first in firsts.items() if first > SLOW_S}
    alone = {name for name, first in slow.items() if first > FAR * min(slow.values())}
    for name, work in works.items():
        laps[name] = [slow[name]] if name in slow else []
        again = slow[name] if name in slow else lap(work)
        repeats[name] = max(1, min(MOST, int(seconds / ROUNDS / again)))
    names = list(works)
    for turn in range(ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if not laps[name] or (turn and name not in alone):
                laps[name] += [lap(works[name]) for _ in range(repeats[name])]
    return {name: summary([1000 * one for one in laps[name]]) for name in works}


def lap(work: Work) -> float:
    """Run the work once and return its seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark run."""

    rows: Sequence[tuple[int, int]] = (*ROWS, (12, 4096), (12, 10_240), (16, 4096), (32, 4096))  # (d, n)
    lengths: Sequence[int] = tuple(2**p for p in (10, 12, 13, 14, 16, 18, 20))  # tokens of the scaling runs
    exact_to: int = 2**14  # maximum tokens at which exact attention is timed there
    shapes: Sequence[tuple[int, Sequence[int]]] = ((8, (3,)), (12, (2, 3)))  # (d, degrees) of these runs
    memory: int = 2**20  # tokens at which the peak memory of a gradient is measured
    spreads: Sequence[float] = (0.25, 0.5, 1.0, 2.0)  # standard deviations of logits, one panel each
    panel: int = 2048  # keys and queries in a panel
    seeds: int = 3  # draws over which a panel takes the median error
    most_features: int = 1300  # of a method in a panel
    heads: int = 8  # stored heads of a real model
    most_head_features: int = 7000  # of a method on these heads
    seconds: float = 0.2  # approximate total time of the laps of one piece of work
    threads: int = 1  # of all implementations


QUICK: dict[str, Any] = {
    "rows": Plan.rows[:5], "lengths": (2**10, 2**12, 2**13, 2**14, 2**16), "exact_to": 2**12,
    "memory": 2**17, "panel": 1024, "seeds": 3, "most_features": 500, "heads": 2,
    "most_head_features": 600, "seconds": 0.06,
}  # fmt: skip
