"""Timed configurations of a kernel in lesson 14: times, scores of a rule, chance, and a limited stopwatch.

A *row* is a dict of one configuration: its settings, the columns that are known without a run, and `ms`, its
time. A *rule* is a function of a row without its time; it chooses the row with the smallest number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from ..gpu.timed_tiles import TILE
from .guard import library_solution

Row = dict[str, Any]
Rule = Callable[[Row], float]
SETTINGS = TILE  # every other column follows from them
CALLS = 3  # of the stopwatch, per table


class TooManyCalls(UsageError):
    """The stopwatch was called more often than allowed."""


def named(row: Row) -> str:
    """Return the configuration of a row in words: BM × BN, warps and stages."""
    return f"{row['BM']} × {row['BN']}, {row['warps']} warps, {row['stages']} stages"


def untimed(row: Row) -> Row:
    """Return a copy of a row without its time."""
    return {name: value for name, value in row.items() if name != "ms"}


def times_of(rows: Sequence[Row]) -> list[float]:
    """Return the times of a table in milliseconds.

    Raises UsageError if the table is empty or a row has no time.
    """
    if not rows:
        raise UsageError("rows must have one configuration or more, got none")
    lacking = next((row for row in rows if not _is_number(row.get("ms"))), None)
    if lacking is not None:
        raise UsageError(f"rows must have times in ms, but {named(lacking)} has {lacking.get('ms')!r}")
    return [float(row["ms"]) for row in rows]


def scores_of(rows: Sequence[Row], rule: Rule) -> list[float]:
    """Return the number of a rule for each row; the rule does not get the times.

    Raises UsageError if the rule returns anything but one number (NaN is not one).
    """
    found = []
    for row in rows:
        score = rule(untimed(row))
        if not _is_number(score):
            raise UsageError(f"rule must return one number, got {_shown(score)} for {named(row)}")
        found.append(float(score))
    return found


def chance_of_best(rows: Sequence[Row], k: int) -> float:
    """Return (14.3): the mean regret of the best of `k` different rows that are chosen at random.

    Raises UsageError if `k` is not an integer from 1 to the number of rows, or as `times_of`.
    """
    times = sorted(times_of(rows))
    n = len(times)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= n:
        raise UsageError(f"k must be an integer from 1 to {n}, the number of rows, got {k!r}")
    ways = (math.comb(n - i, k - 1) for i in range(1, n + 1))
    return sum(way * time for way, time in zip(ways, times, strict=True)) / math.comb(n, k) / times[0]


@library_solution
def stopwatch_of(rows: Sequence[Row], calls: list[Any] | None = None) -> Callable[[Row], float]:
    """Return a stopwatch for one table: a function of a row that returns its time in milliseconds.

    It raises TooManyCalls at the fourth call, and UsageError for anything but a row of the table. A row is
    recognised by its `SETTINGS`. An exercise's check uses this function, so an answer cannot call it.

    Args:
        rows: the rows of the table, with times.
        calls: a list to which the argument of each call is appended, also of a call that raises.

    Raises:
        UsageError: as `times_of`.
    """
    times = dict(zip(map(settings_of, rows), times_of(rows), strict=True))
    made: list[Any] = [] if calls is None else calls

    def stopwatch(row: Row) -> float:
        """Return the time of `row` in milliseconds, at most three times per table."""
        made.append(row)
        if len(made) > CALLS:
            raise TooManyCalls(f"stopwatch can be called {CALLS} times per table, this is call {len(made)}")
        time = times.get(settings_of(row))
        if time is None:
            raise UsageError(f"row must be a row of the table, got {_shown(row)}")
        return time

    return stopwatch


def settings_of(row: Any) -> tuple[Any, ...] | None:
    """Return the values of `SETTINGS` of a row; None for anything that is not a row."""
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str | int) for name in SETTINGS):
        return None
    return tuple(row[name] for name in SETTINGS)


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return number and not math.isnan(value)


def _shown(value: Any) -> str:
    """Return a value in at most 60 characters on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
