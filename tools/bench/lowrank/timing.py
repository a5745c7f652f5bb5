"""Plan of a benchmark run, complete or quick, and interleaved timing of several pieces of work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from iocourse.gpu.timing import Timing, summary
from tools.bench.lowrank import published_protocol

Name = TypeVar("Name", bound=Hashable)
Work = Callable[[], object]

ROUNDS = 3
SLOW_S = 0.5  # slower work is warmed up once, other work twice
MOST = 200  # laps per repetition


def interleaved(works: Mapping[Name, Work], seconds: float, rounds: int = ROUNDS) -> dict[Name, Timing]:
    """Time several pieces of work, in `rounds` repetitions over all of them, in rotated order.

    A temporary slowdown of the machine then affects all of them. Compilation and page faults of a first run
    are not included.

    Args:
        works: the work by name.
        seconds: approximate total time of the laps of one piece; each runs at least once per repetition.
        rounds: number of repetitions.
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
    """Run the work once and return its seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _warm(work: Work) -> float:
    """Run the work once, or twice if it is fast, and return the seconds of the last run."""
    took = lap(work)
    return took if took > SLOW_S else lap(work)


def _repeats(lap_s: float, visit_s: float) -> int:
    return max(1, min(MOST, int(visit_s / lap_s)))


@dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark run.

    Attributes:
        rows: d of the published rows.
        lengths: tokens of the scaling runs, ascending.
        sdpa_to: maximum tokens at which exact attention is timed.
        shapes: (d, degrees) of the scaling runs.
        memory: tokens at which the peak memory of a gradient is measured.
        spreads: standard deviations of logits, one panel each.
        panel: number of keys and of queries in the panels.
        seeds: number of draws over which a panel takes the median error.
        most_features: maximum features of a method in the panels.
        heads: number of stored heads of a real model, from the first on.
        most_head_features: maximum features of a method on these heads.
        seconds: approximate total time of the laps of one piece of work, unless one lap is longer.
        threads: of all implementations.
    """

    rows: tuple[int, ...] = tuple(published_protocol.ROWS)
    lengths: tuple[int, ...] = tuple(2**p for p in range(10, 21))
    sdpa_to: int = 2**15
    shapes: tuple[tuple[int, tuple[int, ...]], ...] = ((8, (3,)), (12, (2, 3)))
    memory: int = 2**20
    spreads: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    panel: int = 2048
    seeds: int = 5
    most_features: int = 1300
    heads: int = 8
    most_head_features: int = 7000
    seconds: float = 0.3
    threads: int = 1

    def to_json(self) -> str:
        """Return the plan as one line of JSON, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan from a line of `to_json`."""
        return cls(**{name: _tuples(value) for name, value in json.loads(text).items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


WHOLE = Plan()
QUICK = replace(
    WHOLE, rows=(4, 5, 6, 7, 8), lengths=tuple(2**p for p in (10, 12, 13, 14, 15, 16)), sdpa_to=2**12,
    memory=2**17, panel=1024, seeds=3, most_features=500, heads=2, most_head_features=600, seconds=0.06,
)  # fmt: skip
