"""Properties of schedules: the words they move, by a closed form, and the room they take."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ..ledger import Ledger
from .exercise import Property, Trial
from .properties import each, idle
from .runtime_errors import below, line_of


def one_temporary_of_each_kind(Br: int, Bc: int) -> int:
    """Words allowed beyond the footprint: one more score tile and four a row, never the N x N scores."""
    return Br * Bc + 4 * Br


def _multiple(ledger: Ledger, array: str, words: int) -> str:
    size = ledger.sizes.get(array)
    return f"{words / size:g}× ({words:,} words)" if size else f"{words:,} words"


def budget_of(trial: Trial) -> Ledger:
    """The closed form of a case that is judged by words."""
    assert isinstance(trial.case.budget, Ledger), "a case judged by words carries its closed form"
    return trial.case.budget


def _over_budget(trial: Trial, array: str, direction: str) -> str | None:
    budget = budget_of(trial)
    got = getattr(trial.ledger, direction).get(array, 0)
    allowed = getattr(budget, direction).get(array, 0)
    if got <= allowed:
        return None
    return f"yours {_multiple(budget, array, got)}, budget {_multiple(budget, array, allowed)}"


def reads_within(array: str, name: str) -> Property:
    """`array` is read no more often than the closed form says."""
    return idle(each(name, lambda trial: _over_budget(trial, array, "reads")))


def writes_within(array: str, name: str) -> Property:
    """`array` is written no more often than the closed form says."""
    return idle(each(name, lambda trial: _over_budget(trial, array, "writes")))


def reads(**how_often: str) -> tuple[Property, ...]:
    """`reads(K="⌈N/Br⌉ times")`: for each array a property "K is read ⌈N/Br⌉ times", by the closed form."""
    return tuple(reads_within(array, f"{array} is read {often}") for array, often in how_often.items())


def writes(**how_often: str) -> tuple[Property, ...]:
    """`writes(O="once")`: for each array a property "O is written once", by the closed form."""
    return tuple(writes_within(array, f"{array} is written {often}") for array, often in how_often.items())


def total_within(name: str = "no more words move than the closed form says") -> Property:
    """All words together stay within the closed form, scratch arrays of the student's own included."""

    def judge(trial: Trial) -> str | None:
        got, allowed = trial.ledger.total, budget_of(trial).total
        return None if got <= allowed else f"yours {got:,} words, budget {allowed:,}"

    return replace(each(name, judge), general=True, idle=True)


def _all_of_it(trial: Trial) -> str:
    """A clause where the tile that did not fit is a whole array, and the case has smaller tiles."""
    asked = re.match(r"loading (\w+)\[0:(\d+)\] ", trial.overflow.asked if trial.overflow else "")
    inputs = trial.case.inputs
    if not asked or len(np.atleast_1d(inputs.get(asked[1], 0))) != int(asked[2]):
        return ""
    tiles = [size for size in inputs.values() if isinstance(size, int)]
    smaller = bool(tiles) and max(tiles) < int(asked[2])
    return f" That is all of {asked[1]}: load it block by block, as the tile sizes say." if smaller else ""


def fits() -> Property:
    """The peak stays within the words of fast memory of the case, whose allowance the lesson states."""

    def judge(trial: Trial) -> str | None:
        if trial.overflow:
            return f"{trial.overflow}{_all_of_it(trial)}{below(line_of(trial.overflow))}"
        room = trial.case.M or 0
        peak = trial.ledger.peak
        return None if peak <= room else f"your peak is {peak:,} words, fast memory has {room:,}"

    return idle(each("fits in fast memory", judge))


def every_input_loaded(*arrays: str) -> Property:
    """Each input is read at least once in full: nobody can use words that were never loaded."""

    def judge(trial: Trial) -> str | None:
        for array in arrays:
            size = int(np.size(trial.case.inputs[array]))
            read = trial.ledger.reads.get(array, 0)
            if read < size:
                return f"{array} has {size:,} words, yours read {read:,}"
        return None

    return idle(each("every word of the input is loaded", judge))
