"""Properties that many exercises share: values, words, peak.

Each function here returns a `Property`. A message says what was seen and what is allowed, never how to
solve it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ledger import Ledger
from .exercise import Case, Property, Trial

LARGE = "scores of ±10,000"  # in the label of a case, and in the name of the property that asks for it
TOLERANCE = 1e-9  # float64 against float64: a thousand rounding errors and more, far below any wrong formula


def _first(complaints: Iterable[str | None]) -> str | None:
    return next((complaint for complaint in complaints if complaint), None)


def each(name: str, judge: Callable[[Trial], str | None]) -> Property:
    """A property that must hold for every trial; the first that breaks it is reported with its sizes."""

    def over_all(trials: Sequence[Trial]) -> str | None:
        return _first(f"{complaint} ({t.case.label})" for t in trials if (complaint := judge(t)))

    return Property(name, over_all)


def only_where(
    name: str, concerned: Callable[[Case], bool], judge: Callable[[Trial], str | None]
) -> Property:
    """A property that is asked of some of the cases only: its name says where to look."""
    return each(name, lambda trial: judge(trial) if concerned(trial.case) else None)


def values_where(name: str, concerned: Callable[[Case], bool]) -> Property:
    """Exact values in some of the cases."""
    return only_where(name, concerned, lambda trial: difference(trial.value, trial.case.expected))


def values_in(name: str, label: str) -> Property:
    """Exact values in the cases whose label holds `label`."""
    return values_where(name, lambda case: label in case.label)


def difference(got: Any, want: Any, tolerance: float = TOLERANCE, *, wanted: str = "expected") -> str | None:
    """None where `got` equals `want` up to `tolerance`·(1 + max|want|), else the first entry that differs.

    `wanted` is the word for `want` in the message.
    """
    try:
        g = np.asarray(got, dtype=np.float64)
    except (TypeError, ValueError):
        return f"yours is a {type(got).__name__}, {wanted} an array of numbers"
    w = np.asarray(want, dtype=np.float64)
    if got is None:
        return "your function returned None"
    if g.shape != w.shape:
        return f"yours has shape {g.shape}, {wanted} {w.shape}"
    finite = np.isfinite(w)
    allowed = tolerance * (1 + np.abs(w[finite]).max(initial=0.0))
    with np.errstate(invalid="ignore"):  # inf - inf, where the two are equal or both wrong
        wrong = ~((g == w) | (finite & (np.abs(g - w) <= allowed)))
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{int(wrong.sum())} of {wrong.size} entries differ, first at {list(where)}: " if where else ""
    return place + _side_by_side(float(g[where]), float(w[where]), wanted)


def _side_by_side(got: float, want: float, wanted: str) -> str:
    """Both numbers in six digits, or in all where six look the same."""
    digits = 6 if f"{got:.6g}" != f"{want:.6g}" else 17
    return f"yours {got:.{digits}g}, {wanted} {want:.{digits}g}"


def values(name: str = "values equal exact attention", tolerance: float = TOLERANCE) -> Property:
    """The returned value equals `case.expected`; a tuple is compared part by part."""

    def judge(trial: Trial) -> str | None:
        want = trial.case.expected
        if not isinstance(want, tuple):
            return difference(trial.value, want, tolerance)
        if not isinstance(trial.value, tuple) or len(trial.value) != len(want):
            return f"expected {len(want)} results, got {_count(trial.value)}"
        return _first(difference(g, w, tolerance) for g, w in zip(trial.value, want, strict=True))

    return each(name, judge)


def _count(value: Any) -> str:
    return str(len(value)) if isinstance(value, tuple) else f"one {type(value).__name__}"


def same_answer_for(name: str, key: Callable[[Trial], Any]) -> Property:
    """Trials with the same `key` must give the same values: block size does not change the answer, say."""

    def judge(trials: Sequence[Trial]) -> str | None:
        first: dict[Any, Trial] = {}
        for trial in trials:
            other = first.setdefault(key(trial), trial)
            complaint = None if other is trial else difference(trial.value, other.value, wanted="there")
            if complaint:
                return f"{trial.case.label} against {other.case.label}: {complaint}"
        return None

    return Property(name, judge)


def block_size(part: int | None = None) -> Property:
    """The answer, or its `part`-th result, is the same for every tile on the same queries."""
    same = same_answer_for(
        "block size does not change the answer", lambda trial: trial.case.inputs["Q"].tobytes()
    )
    if part is None:
        return same

    def judge(trials: Sequence[Trial]) -> str | None:
        return same.judge([replace(trial, value=trial.value[part]) for trial in trials])

    return Property(same.name, judge)


def one_temporary_of_each_kind(Br: int, Bc: int) -> int:
    """Words allowed beyond the footprint: one more score tile and four a row, never the N x N scores."""
    return Br * Bc + 4 * Br


def _multiple(ledger: Ledger, array: str, words: int) -> str:
    size = ledger.sizes.get(array)
    return f"{words / size:g}× ({words:,} words)" if size else f"{words:,} words"


def _over_budget(trial: Trial, array: str, direction: str) -> str | None:
    budget = trial.case.budget
    assert budget is not None, "a case judged by words carries its closed form"
    got = getattr(trial.ledger, direction).get(array, 0)
    allowed = getattr(budget, direction).get(array, 0)
    if got <= allowed:
        return None
    return f"yours {_multiple(budget, array, got)}, budget {_multiple(budget, array, allowed)}"


def reads_within(array: str, name: str) -> Property:
    """`array` is read no more often than the closed form says."""
    return each(name, lambda trial: _over_budget(trial, array, "reads"))


def writes_within(array: str, name: str) -> Property:
    """`array` is written no more often than the closed form says."""
    return each(name, lambda trial: _over_budget(trial, array, "writes"))


def total_within(name: str = "no more words move than the closed form says") -> Property:
    """All words together stay within the closed form, scratch arrays of the student's own included."""

    def judge(trial: Trial) -> str | None:
        assert trial.case.budget is not None, "a case judged by words carries its closed form"
        got, allowed = trial.ledger.total, trial.case.budget.total
        return None if got <= allowed else f"yours {got:,} words, budget {allowed:,}"

    return each(name, judge)


def fits() -> Property:
    """The peak stays within the words of fast memory of the case, whose allowance the lesson states."""

    def judge(trial: Trial) -> str | None:
        if trial.overflow:
            return str(trial.overflow)
        room = trial.case.M or 0
        peak = trial.ledger.peak
        return None if peak <= room else f"your peak is {peak:,} words, fast memory has {room:,}"

    return each("fits in fast memory", judge)


def every_input_loaded(*arrays: str) -> Property:
    """Each input is read at least once in full: nobody can use words that were never loaded."""

    def judge(trial: Trial) -> str | None:
        for array in arrays:
            size = int(np.size(trial.case.inputs[array]))
            read = trial.ledger.reads.get(array, 0)
            if read < size:
                return f"{array} has {size:,} words, yours read {read:,}"
        return None

    return each("every word of the input is loaded", judge)
