"""Exercise of lesson 00: the compulsory traffic of attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..exercise import Case, NotReached, Property, Trial, exercise, run_function, wrong_return
from ..properties import each, idle, single

Sizes = tuple[int, int, int]  # (Nq, Nk, d)
Table = dict[Sizes, Any]  # results of the student's function


def _case(Nq: int, Nk: int, d: int) -> Case:
    inputs = {"Nq": Nq, "Nk": Nk, "d": d}
    return Case(f"Nq={Nq}, Nk={Nk}, d={d}", inputs, expected=2 * d * (Nq + Nk))


def compulsory_cases(rng: np.random.Generator) -> list[Case]:
    """Return new sizes, each also with more queries, more keys, both, and 2d, and some edge cases."""
    sizes: list[Sizes] = []
    for drawn in rng.integers((5, 5, 2), (400, 400, 130), size=(3, 3)):
        Nq, Nk, d = (int(n) for n in drawn)
        sizes += [(Nq, Nk, d), (Nq + 3, Nk, d), (Nq, Nk + 3, d), (Nq + 3, Nk + 3, d), (Nq, Nk, 2 * d)]
    sizes += [(512, 512, 64), (1, 4096, 64), (4096, 1, 64), (1, 1, 1)]
    return [_case(*one) for one in dict.fromkeys(sizes)]


def call_for_a_number(student: Callable[..., Any], case: Case) -> Trial:
    """Call the student's function; a value that is not an integer is an error."""
    trial = run_function(student, case)
    trial = replace(trial, value=single(trial.value))
    if trial.error is not None or _is_whole(trial.value):
        return trial
    seen = f"expected an integer number of words, got the {type(trial.value).__name__} {trial.value!r:.60}"
    if trial.value is None:
        seen = "your function returned None; does it print instead of return?"
    return replace(trial, error=wrong_return(trial.value, seen))


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _steps(name: str, judge: Callable[[Table, Sizes], str | None]) -> Property:
    """Return a property that compares values at neighbouring sizes."""

    def over_all(trials: Sequence[Trial]) -> str | None:
        table: Table = {_sizes(trial): trial.value for trial in trials}
        for sizes in table:
            if _neighbours(*sizes) <= table.keys():
                complaint = judge(table, sizes)
                if complaint:
                    return complaint
        return None

    return Property(name, over_all)


def _sizes(trial: Trial) -> Sizes:
    Nq, Nk, d = trial.case.inputs.values()
    return Nq, Nk, d


def _neighbours(Nq: int, Nk: int, d: int) -> set[Sizes]:
    return {(Nq + 3, Nk, d), (Nq, Nk + 3, d), (Nq + 3, Nk + 3, d), (Nq, Nk, 2 * d)}


def _no_scores(table: Table, sizes: Sizes) -> str | None:
    Nq, Nk, d = sizes
    crossed = table[Nq + 3, Nk + 3, d] - table[Nq + 3, Nk, d] - table[Nq, Nk + 3, d] + table[sizes]
    if crossed == 0:
        return None
    return f"3 more queries add {crossed:g} words more if there are also 3 more keys, expected 0"


def _three_more_queries(table: Table, sizes: Sizes) -> str | None:
    Nq, Nk, d = sizes
    return _more("queries", table[Nq + 3, Nk, d] - table[sizes], d)


def _three_more_keys(table: Table, sizes: Sizes) -> str | None:
    Nq, Nk, d = sizes
    return _more("keys", table[Nq, Nk + 3, d] - table[sizes], d)


def _more(what: str, added: Any, d: int) -> str | None:
    if added == 6 * d:
        return None
    return f"3 more {what} with d={d} add {added:g} words: {added / (3 * d):.3g} × d per row"


def _twice_d(table: Table, sizes: Sizes) -> str | None:
    Nq, Nk, d = sizes
    if table[Nq, Nk, 2 * d] == 2 * table[sizes]:
        return None
    return (
        f"the result goes from {table[sizes]:g} to {table[Nq, Nk, 2 * d]:g} when d goes from {d} to {2 * d}"
    )


def _in_words(trials: Sequence[Trial]) -> str | None:
    factors = {float(trial.value / trial.case.expected) for trial in trials}
    if len(factors) > 1:
        return NotReached("the ratio of your result to the compulsory traffic depends on the sizes")
    if factors == {1.0}:
        return None
    return f"for all sizes the result is {factors.pop():g} times the compulsory traffic"


def _least(trial: Trial) -> str | None:
    if trial.value == trial.case.expected:
        return None
    return f"got {trial.value:g} words, which is too {'many' if trial.value > trial.case.expected else 'few'}"


EXERCISES = (
    exercise(
        "0A",
        cases=compulsory_cases,
        properties=(
            _steps("counts every array that has one row per query", _three_more_queries),
            _steps("counts every array that has one row per key", _three_more_keys),
            idle(_steps("counts only inputs and outputs", _no_scores)),
            idle(_steps("doubles when d doubles", _twice_d)),
            idle(Property("counts each word once, in words and not in bytes", _in_words)),
            each("returns the compulsory traffic", _least),
        ),
        run_case=call_for_a_number,
    ),
)
