"""Was a wrong result computed from the inputs? If not, few words moved mean nothing.

A right result is computed from all inputs, so only wrong ones are tested. The results are compared with the
inputs, with each other, and with those of further calls in which one input array has other numbers. An array
that is loaded and not used leaves the result unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ledger import Ledger
from .exercise import Case, Exercise, Trial

SCALE, SHIFT = 0.75, 0.1  # of the other numbers: softmax hides a shift, and a normalisation hides a scale
FEW = 0.75  # of the words of the closed form
TAME = 0.01  # of the numbers for a result without a finite entry
SMALLEST = 2  # entries of every array in the smaller case that is run again
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the repr of an object: new in every call


@dataclass(frozen=True)
class Reached:
    """The inputs from which a wrong result was computed.

    Attributes:
        nothing: why the result counts as no work; "" if it was computed from the inputs.
        unused: input arrays on which the result does not depend.
    """

    nothing: str = ""
    unused: tuple[str, ...] = ()


def reached(exercise: Exercise, answer: Callable[..., Any], trials: Sequence[Trial]) -> Reached:
    """Return what the results of these trials were computed from.

    It calls `answer` up to twice per input array, and four times more; more often for a table of booleans.

    Nothing was computed if every result has the entries of an input (scaled or in another order), if all
    results are equal, if no entry is repeated by a second call, or if it depends on at most one of several
    input arrays.
    """
    with np.errstate(all="ignore"):
        if trials and _handed_back(trials):
            return Reached("your function returns an input, scaled or in another order")
        tested = [trial for trial in trials if _arrays(trial)]
        overflows = tested and not any(_finite(trial.value) for trial in trials)
        alike = len({_fingerprint(trial.value) for trial in trials}) == 1 < len(set(map(_given, trials)))
        if alike and not overflows:  # an overflow hides what it was computed from, see `_tame`
            return Reached("your function returns the same for every input")
        try:
            return _reached_arrays(exercise, answer, tested) if tested else Reached()
        except _Failed:  # a function gains nothing by raising now
            return Reached("your function fails when it is called again with other numbers in its inputs")


def _reached_arrays(exercise: Exercise, answer: Callable[..., Any], trials: Sequence[Trial]) -> Reached:
    """Change one array at a time in a small case, and in the largest one if that changes nothing.

    A table of booleans stays the same for most other numbers, so further cases are tried for it.
    """
    plain = sorted([one for one in trials if not one.case.tags] or trials, key=_words)
    large = plain[-1]
    small = next(filter(_has_room, plain), large)
    names = tuple(_arrays(small))
    used = list[str]()
    further = trials if _of_booleans(small.value) else () if small is large else (large,)
    for trial in (small, *further):
        if len(used) == len(names):
            break
        tested = _tame(exercise, answer, trial)
        repeated = _alike(_again(exercise, answer, tested.case).value, tested.value)
        enough = np.all if _of_booleans(tested.value) else np.any  # half of random booleans are repeated
        if not any(map(enough, repeated)):
            return Reached("your function returns something else when it is called again with the same input")
        left = [name for name in names if name not in used and name in _arrays(tested)]
        used += [name for name in left if _influences(exercise, answer, tested, repeated, name)]
    if not used and not any(_finite(trial.value) for trial in (small, large)):
        return Reached("every element of your result is NaN or infinite")
    if not used:
        return Reached("your result does not depend on the input arrays")
    if len(used) == 1 < len(names):
        return Reached(f"your result depends on {used[0]} only")
    return Reached(unused=tuple(name for name in names if name not in used))


def few_words(trials: Sequence[Trial], array: str = "") -> str:
    """Return a message if wrong results took far fewer words than the closed form; "" if not.

    A schedule that is better than the closed form saves a few words. One that loads each row once and adds it
    up saves most of them, and then few words are not a merit.

    Args:
        trials: all trials of a schedule.
        array: the input whose words are read; "" for all words moved.
    """
    counted = [(one.ledger, one.case.budget) for one in trials if isinstance(one.case.budget, Ledger)]
    pairs = (
        (x.reads.get(array, 0), y.reads.get(array, 0)) if array else (x.total, y.total) for x, y in counted
    )
    got, wanted = map(sum, zip(*pairs, strict=True)) if counted else (0, 0)
    if got >= FEW * wanted:
        return ""
    what = f"words of {array} are read" if array else "words are moved"
    return f"the values are wrong, and only {got:,} of {wanted:,} {what}"


# ------------------------------------------------------------------ further calls
class _Failed(Exception):
    """A further call ended without a result."""


def _again(exercise: Exercise, answer: Callable[..., Any], case: Case) -> Trial:
    """Return the trial of a further call. Raises _Failed, also if a grader's time is over."""
    try:
        trial = exercise.run_case(answer, case)
    except KeyboardInterrupt:
        raise
    except BaseException:  # also exit() in a student's function
        raise _Failed from None
    if trial.error is not None:
        raise _Failed
    return trial


def _influences(
    exercise: Exercise, answer: Callable[..., Any], trial: Trial, repeated: Sequence[Any], name: str
) -> bool:
    """Return whether a repeated entry of the result changes with the numbers of an array.

    Entries that a second call does not repeat are random, or memory that was never written.
    """
    for case in _with_others(trial, name):
        alike = _alike(_again(exercise, answer, case).value, trial.value)
        if len(alike) != len(repeated) or any(map(_one_without_other, repeated, alike)):
            return True
    return False


def _one_without_other(one: Any, other: Any) -> bool:
    return bool(one.shape != other.shape or (one & ~other).any())


def _tame(exercise: Exercise, answer: Callable[..., Any], trial: Trial) -> Trial:
    """Return the trial, or one with small inputs if no entry of its result is finite.

    exp without the maximum overflows for every large score, and infinity shows nothing about its inputs.
    """
    if _finite(trial.value):
        return trial
    small = {name: (x * TAME).astype(x.dtype) for name, x in _arrays(trial).items()}
    return _again(exercise, answer, replace(trial.case, inputs={**trial.case.inputs, **small}))


def _with_others(trial: Trial, name: str) -> Iterator[Case]:
    """Yield the case with other numbers in one input array: the first that change the result are enough."""
    given = trial.case.inputs[name]
    others = [given * SCALE + SHIFT]
    if _of_booleans(trial.value):
        others = [given / TAME, given * TAME, -given]
    for other in others:
        yield replace(trial.case, inputs={**trial.case.inputs, name: other.astype(given.dtype)})


def _arrays(trial: Trial) -> dict[str, Any]:
    """Return the input arrays of real numbers."""
    inputs = trial.case.inputs.items()
    return {name: x for name, x in inputs if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size}


def _words(trial: Trial) -> int:
    return sum(x.size for x in _arrays(trial).values())


def _has_room(trial: Trial) -> bool:
    return min((x.size for x in _arrays(trial).values()), default=0) >= SMALLEST


def _given(trial: Trial) -> str:
    """Return a text that differs for different input arrays; tiles may change without them."""
    return _fingerprint([*(_arrays(trial) or trial.case.inputs).values()])


# ------------------------------------------------------------------ comparing results
def _as_array(value: Any) -> Any:
    """Return the value as an array of float64, or None if it does not consist of real numbers."""
    try:
        x = np.asarray(value)
    except Exception:  # rows of different lengths, or an array of another library
        return None
    return x.astype(np.float64) + 0.0 if x.dtype.kind in "biuf" else None  # -0.0 is 0.0


def _of_booleans(value: Any) -> bool:
    """Return whether the result is a table of booleans."""
    return getattr(value, "dtype", None) == np.bool_


def _finite(value: Any) -> bool:
    """Return whether a part of the result has a finite entry, or is not an array."""
    if isinstance(value, (tuple, list)):
        return not value or any(map(_finite, value))
    x = _as_array(value)
    return x is None or not x.size or bool(np.isfinite(x).any())


def _fingerprint(value: Any) -> str:
    """Return a text that differs for different results; equal entries, or equal parts, count as one."""
    if isinstance(value, (tuple, list)):
        parts = list(map(_fingerprint, value))
        return parts[0] if len(set(parts)) == 1 else f"[{', '.join(parts)}]"
    x = _as_array(value)
    if x is not None:
        return repr(float(x.flat[0]) if x.size and _constant(x) else (x.shape, x.tobytes()))
    try:
        return ADDRESS.sub("", repr(value))
    except Exception:  # of a student's class
        return type(value).__name__


def _constant(x: Any) -> bool:
    return bool((x == x.flat[0]).all() or np.isnan(x).all())


def _entries(value: Any) -> list[Any]:
    """Return the arrays of numbers, and the strings of other objects, of which a result consists."""
    if isinstance(value, (tuple, list)) and value:
        return [entry for part in value for entry in _entries(part)]
    x = _as_array(value)
    return [np.array(_fingerprint(value)) if x is None else x]


def _alike(one: Any, other: Any) -> list[Any]:
    """Return for every entry whether both results have it; [] if the results have different forms."""
    pairs = [*zip(_entries(one), _entries(other), strict=False)]
    if len(_entries(one)) != len(_entries(other)) or any(x.shape != y.shape for x, y in pairs):
        return []
    return [np.asarray((x == y) | ((x != x) & (y != y))) for x, y in pairs]  # NaN is not equal to itself


def _handed_back(trials: Sequence[Trial]) -> bool:
    """Return whether every result has the entries of an input.

    Where the expected result has them too, as in a transposed copy, they must also be in the input's order.
    """
    telling = [trial for trial in trials if _has_room(trial)] or trials
    moved = all(_of_inputs(trial, trial.case.expected, in_order=False) for trial in telling)
    return all(_of_inputs(trial, trial.value, in_order=moved) for trial in telling)


def _of_inputs(trial: Trial, value: Any, in_order: bool) -> bool:
    """Return whether each part of the value has the entries of an input."""
    parts = list(value) if isinstance(value, (tuple, list)) and value else [value]
    return all(any(_same_entries(part, x, in_order) for x in trial.case.inputs.values()) for part in parts)


def _same_entries(part: Any, given: Any, in_order: bool) -> bool:
    """Return whether `part` is `given`, possibly scaled, in another shape, or in another order."""
    x, y = _as_array(given), _as_array(part)
    if x is None or y is None:  # such as an iterator
        return part is given and part is not None
    if x.size != y.size:
        return False
    if x.size == 1:  # one number is a multiple of every other
        return bool(x.flat[0] == y.flat[0])
    x, y = x.ravel() / (_largest(x) or 1.0), y.ravel() / (_largest(y) or 1.0)
    signed = (y, -y) if in_order else (np.sort(y), np.sort(-y))
    x = x if in_order else np.sort(x)
    return any(np.allclose(x, one, rtol=1e-5, atol=1e-12, equal_nan=True) for one in signed)


def _largest(x: Any) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
