"""Benchmarks of the course: one module or folder per subject.

A subject has ``NAME`` and ``HELP`` (text), ``run(quick) -> dict`` (the numbers, in JSON types) and
``show(result) -> str`` (the same as a table). `tools/bench/__main__.py` lists the subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Protocol

Row = dict[str, Any]


class Subject(Protocol):
    """Interface of a module that measures one subject."""

    NAME: str
    HELP: str

    def run(self, quick: bool) -> Row:
        """Measure and return the record; `quick`: with the minimum of repeats."""

    def show(self, result: Row) -> str:
        """Format the record as plain text."""


def laps(seconds: Sequence[float], digits: int) -> Row:
    """Return the entry of a record for repeated timings: each time in seconds, rounded, and their median."""
    return {"seconds": [round(s, digits) for s in seconds], "median_s": round(median(seconds), digits)}


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by their values under these keys, in the order of first appearance."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def verdict(reached: float, goal: float, floor: float | None = None, *, less: bool = False) -> str:
    """Return the verdict on a number, given its goal and floor: at least these, or at most if `less`."""
    sign = -1 if less else 1
    if sign * reached >= sign * goal:
        return "goal met"
    if floor is None:
        return "goal missed"
    return "goal missed, floor met" if sign * reached >= sign * floor else "floor missed"
