"""Did the student's function compute something from its inputs? If not, few words moved mean nothing.

A check tests this only if the result is wrong: a right result is computed from all inputs. The result is
compared with the inputs, with those of the other cases, and with the result of a second call in which one
input array has other numbers. An array that is loaded and not used leaves the result unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .exercise import Exercise, NotJudged, Trial

SCALE, SHIFT = 0.75, 0.1  # of the other numbers: softmax hides a shift, and a normalisation hides a scale
SMALLEST = 2  # entries of every array in the case that is run again


@dataclass(frozen=True)
class Reached:
    """What a wrong result was computed from.

    Attributes:
        nothing: why the result counts as no work; "" if it was computed from the inputs.
        unused: input arrays on which the result does not depend.
    """

    nothing: str = ""
    unused: tuple[str, ...] = ()


def reached(exercise: Exercise, answer: Callable[..., Any], trials: Sequence[Trial]) -> Reached:
    """Return what the results of these trials were computed from; calls `answer` up to twice per input array.

    Nothing was computed if every result is an input (or a multiple of one), if all results are equal, or if
    the result depends on at most one of several input arrays.
    """
    if trials and all(_handed_back(trial) for trial in trials):
        return Reached("your function returns its input")
    if len({repr(_fingerprint(trial.value)) for trial in trials}) == 1 and len(trials) > 1:
        return Reached("your function returns the same for every input")
    if not any(_arrays(trial) for trial in trials):
        return Reached()
    unused = _unused(exercise, answer, trials)
    names = _arrays(trials[0])
    used = [name for name in names if name not in unused]
    if not used:
        return Reached("your result does not depend on the input arrays")
    if len(used) == 1 < len(names):
        return Reached(f"your result depends on {used[0]} only")
    return Reached(unused=unused)


def _unused(exercise: Exercise, answer: Callable[..., Any], trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return the arrays without influence on the result of a small case, nor on that of the largest."""
    plain = sorted([one for one in trials if not one.case.tags] or trials, key=_words)
    large = plain[-1]
    small = next((one for one in plain if min(map(np.size, _arrays(one).values())) >= SMALLEST), large)
    unused = tuple(_arrays(small))
    for trial in (small,) if small is large else (small, large):
        unused = tuple(name for name in unused if not _influences(exercise, answer, trial, name))
    return unused


def _influences(exercise: Exercise, answer: Callable[..., Any], trial: Trial, name: str) -> bool:
    """Return whether the result changes with the numbers of an array; a failed call counts as a change."""
    given = _arrays(trial).get(name)
    if given is None:
        return False
    other = (given * SCALE + SHIFT).astype(given.dtype)
    case = replace(trial.case, inputs={**trial.case.inputs, name: other})
    try:
        again = exercise.run_case(answer, case)
    except (NotJudged, SystemExit):
        return True
    return again.error is not None or repr(_fingerprint(again.value)) != repr(_fingerprint(trial.value))


def _arrays(trial: Trial) -> dict[str, Any]:
    """Return the input arrays of real numbers."""
    inputs = trial.case.inputs.items()
    return {name: x for name, x in inputs if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size}


def _words(trial: Trial) -> int:
    return sum(x.size for x in _arrays(trial).values())


def _fingerprint(value: Any) -> Any:
    """Return an object whose `repr` differs for different results; equal entries count as one number."""
    if isinstance(value, (tuple, list)):
        return [_fingerprint(part) for part in value]
    x = _as_array(value)
    if x is None:
        return repr(value)
    return float(x.flat[0]) if x.size and _constant(x) else (x.shape, x.tobytes())


def _constant(x: Any) -> bool:
    return bool((x == x.flat[0]).all() or np.isnan(x).all())


def _as_array(value: Any) -> Any:
    try:
        x = np.asarray(value)
    except Exception:
        return None
    return x.astype(np.float64) if x.dtype.kind in "biuf" else None


def _handed_back(trial: Trial) -> bool:
    """Return whether each part of the result is an input or a multiple of one."""
    value = trial.value
    parts = list(value) if isinstance(value, (tuple, list)) and value else [value]
    return all(any(_multiple(part, x) for x in trial.case.inputs.values()) for part in parts)


def _multiple(part: Any, given: Any) -> bool:
    if part is given:
        return True
    x, y = _as_array(given), _as_array(part)
    if x is None or y is None or x.shape != y.shape or not x.size:
        return False
    if not x.shape:
        return bool(x == y)
    finite = np.isfinite(x)
    if not finite.any() or not np.isfinite(y).all() or not x[finite].any() or not y.any():
        return False
    at = np.unravel_index(np.abs(np.where(finite, x, 0.0)).argmax(), x.shape)
    return bool(np.allclose(y, y[at] / x[at] * x, rtol=1e-5, atol=1e-12 * np.abs(y).max()))
