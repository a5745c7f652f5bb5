"""Count the element operations (multiplications and additions) of a student's NumPy function.

The student's function gets `CountedArray` objects. Each NumPy operation on one of them adds to a tally: the
size of the result, for a product times the length of the summed axis, and for a sum the size of its
operand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..exercise import Case, Property, Trial, snapshot, student_call, trial_from_error
from ..properties import as_traffic
from ..side_effects import WatchedTrial, changed
from .streamed_rows import HeldTrial, least_held, memory_watch


@dataclass
class Tally:
    """The number of element operations so far."""

    count: int = 0


@dataclass(frozen=True)
class WorkTrial(WatchedTrial, HeldTrial):
    """A trial with the number of element operations and the most bytes held at once."""

    work: int = 0


class CountedArray(np.ndarray):
    """An array whose operations are added to a tally shared with its views and results."""

    tally: Tally

    def __array_finalize__(self, made_from: Any) -> None:
        self.tally = getattr(made_from, "tally", Tally())

    def dot(self, b: Any, out: Any = None) -> Any:
        """Return np.dot, which is counted; NumPy does not dispatch the method."""
        return np.dot(self, b, out=out)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        given = kwargs.get("out")
        if given is not None:
            kwargs["out"] = tuple(_plain(x) for x in given)
        found = getattr(ufunc, method)(*(_plain(x) for x in inputs), **_plain(kwargs))
        tally = _tally_of((inputs, kwargs, given))
        tally.count += _ufunc_work(ufunc, method, inputs, found)
        return given[0] if given is not None and len(given) == 1 else _counted(found, tally)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        tally = _tally_of((args, kwargs))
        found = func(*_plain(args), **_plain(kwargs))
        tally.count += _function_work(func.__name__, args, found)
        return kwargs["out"] if isinstance(kwargs.get("out"), np.ndarray) else _counted(found, tally)


def _plain(x: Any) -> Any:
    if isinstance(x, CountedArray):
        return x.view(np.ndarray)
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    return type(x)(map(_plain, x)) if type(x) in (list, tuple) else x


def _counted(found: Any, tally: Tally) -> Any:
    if type(found) is np.ndarray:
        found = found.view(CountedArray)
        found.tally = tally
    return type(found)(_counted(x, tally) for x in found) if type(found) in (list, tuple) else found


def _tally_of(x: Any) -> Tally:
    """Return the tally of the first counted array in x."""
    if isinstance(x, CountedArray):
        return x.tally
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return next((t for part in parts if (t := _tally_of(part)).count >= 0), NONE)


NONE = Tally(-1)


def _ufunc_work(ufunc: np.ufunc, method: str, inputs: Sequence[Any], found: Any) -> int:
    if ufunc.signature is not None:  # matmul and its kin sum over the last axis of the first operand
        return int(np.size(found) * np.shape(inputs[0])[-1])
    if method == "__call__" or method == "outer":
        return int(np.size(found))
    return int(np.size(inputs[0]))


def _function_work(name: str, args: Sequence[Any], found: Any) -> int:
    if name == "einsum" and isinstance(args[0], str):
        return _einsum_work(args[0], args[1:])
    size = int(np.size(found)) if isinstance(found, (np.ndarray, np.generic)) else 0
    if name in ("dot", "inner", "tensordot", "vdot") and size:
        return int(size * (np.size(args[0]) * np.size(args[1]) / size) ** 0.5)
    return max([size, *(int(x.size) for x in args if isinstance(x, np.ndarray))])


def _einsum_work(subscripts: str, operands: Sequence[Any]) -> int:
    """Return one operation per combination of all indices."""
    extents: dict[str, int] = {}
    for letters, x in zip(subscripts.split("->")[0].replace(" ", "").split(","), operands, strict=True):
        extents.update(zip(letters, np.shape(x), strict=True))
    return prod(extents.values())


@trial_from_error
def run_counted(student: Callable[..., Any], case: Case, *, watched: str | None = None) -> Trial:
    """Call a function with counted copies of the inputs, by position, and record its operations.

    If the case has the tag `watched`, the trial also has the most bytes held.
    """
    if watched is None or not case.has(watched):
        return _counting(student, case, False)
    return least_held(lambda: _counting(student, case, True))


def _counting(student: Callable[..., Any], case: Case, watched: bool) -> WorkTrial:
    tally = Tally()
    inputs = {name: _counted(value, tally) for name, value in copy.deepcopy(dict(case.inputs)).items()}
    with student_call(), memory_watch(watched) as held:
        returned = student(*inputs.values())
        value = snapshot(returned)
    work = tally.count  # before the comparison of the inputs, which is counted too
    seen = changed(case.inputs, inputs)
    return WorkTrial(case, value, returned=(value, returned), changed=seen, work=work, held=held())


ONCE, TWICE = "N tokens", "2N tokens"  # tags of the two cases that are compared


def linear_work(name: str, most: float = 2.3) -> Property:
    """Return the property that the case tagged `TWICE` takes at most `most` times the work of `ONCE`.

    If fewer operations are counted than the inputs have elements, the function has bypassed the counter.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        once, twice = (
            next(t for t in trials if isinstance(t, WorkTrial) and t.case.has(tag)) for tag in (ONCE, TWICE)
        )
        least = sum(np.size(x) for x in twice.case.inputs.values() if isinstance(x, np.ndarray))
        if twice.work < least:
            return (
                f"only {twice.work:,} operations were counted for {least:,} input elements. Compute with the "
                "arrays as they are passed: results of np.array or np.asarray, and single elements, are not "
                "counted"
            )
        ratio = twice.work / max(1, once.work)
        return (
            None
            if ratio <= most
            else f"twice the tokens take {ratio:.1f} times the operations, expected about 2"
        )

    return as_traffic(Property(name, judge))
