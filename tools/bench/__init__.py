"""Measurements side by side, one module per subject, or one folder where it takes several files.

A subject has ``NAME`` and ``HELP`` (text), ``run(quick) -> dict`` (the numbers, as JSON can hold them) and
``show(result) -> str`` (the same as a table). `tools/bench/__main__.py` has the list of subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Protocol

Row = dict[str, Any]


class Subject(Protocol):
    """What a module of this folder offers."""

    NAME: str
    HELP: str

    def run(self, quick: bool) -> Row:
        """Measure; `quick` asks for the fewest repeats that still say something."""

    def show(self, result: Row) -> str:
        """The result as plain text."""


def laps(seconds: Sequence[float], digits: int) -> Row:
    """What a record says of work that was timed several times: each time in seconds, and their median."""
    return {"seconds": [round(s, digits) for s in seconds], "median_s": round(median(seconds), digits)}


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values they have under these keys, in the order in which the values come first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def verdict(reached: float, goal: float, floor: float | None = None, *, less: bool = False) -> str:
    """What is said of a number beside its goal and floor, of which it is to be no less, or no more."""
    sign = -1 if less else 1
    if sign * reached >= sign * goal:
        return "goal met"
    if floor is None:
        return "goal missed"
    return "goal missed, floor met" if sign * reached >= sign * floor else "floor missed"
