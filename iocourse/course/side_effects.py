"""Side effects of a student's function: does it modify its inputs, or results that it returned before?

Later cells of a notebook need the inputs. In a model, a function is called with the same shapes layer after
layer while earlier results are kept for the backward pass, so each call must return a new result.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .exercise import (
    KEEPS_INPUTS,
    Case,
    Property,
    RunCase,
    Trial,
    differs,
    modified_inputs_error,
    snapshot,
    student_call,
    trial_from_error,
)
from .properties import each, idle


@dataclass(frozen=True)
class WatchedTrial(Trial):
    """A trial with the names of the input arrays that the function modified."""

    changed: tuple[str, ...] = ()


def changed(given: Mapping[str, Any], afterwards: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the inputs that the call modified."""
    return tuple(name for name, one in given.items() if differs(one, afterwards[name]))


def detect_side_effects(run_case: RunCase, *free: str) -> RunCase:
    """Return `run_case` with an error if the function modifies an input that is not in `free`."""

    @functools.wraps(run_case)
    @trial_from_error
    def watched(student: Callable[..., Any], case: Case) -> Trial:
        trial = run_case(student, case)
        names = [
            name for name in (trial.changed if isinstance(trial, WatchedTrial) else ()) if name not in free
        ]
        if names:
            raise modified_inputs_error(names)
        return trial

    return watched


def does_not_modify_inputs() -> Property:
    """Return the property that no input array is modified."""

    def judge(trial: Trial) -> str | None:
        written = trial.changed if isinstance(trial, WatchedTrial) else ()
        return (
            f"{', '.join(written)} {'was' if len(written) == 1 else 'were'} modified in place"
            if written
            else None
        )

    return idle(each(KEEPS_INPUTS, judge))


@dataclass(frozen=True)
class AfterAnother(Case):
    """A case that follows a call with inputs of the same shapes, `before`."""

    before: Mapping[str, Any] = field(default_factory=dict)


def after(one: Case, other: Case) -> AfterAnother:
    """Return the case `other`, to be run after a call with the inputs of `one`."""
    label = f"{other.label}, again"
    return AfterAnother(label, other.inputs, other.expected, tags=other.tags, before=one.inputs)


def does_not_modify_results(run_case: RunCase) -> RunCase:
    """Return `run_case`, which first calls the function with the earlier inputs of an `AfterAnother`.

    The results of both calls must not be modified later; the second result is tested.
    """

    @functools.wraps(run_case)
    @trial_from_error
    def tried(student: Callable[..., Any], case: Case) -> Trial:
        if not isinstance(case, AfterAnother):
            return run_case(student, case)
        with student_call():
            first = student(*copy.deepcopy(dict(case.before)).values())
        as_it_was = snapshot(first)
        trial = run_case(student, case)
        if trial.returned is None:
            return trial
        copied, returned = trial.returned
        return replace(trial, returned=((as_it_was, copied), (first, returned)))

    return tried
