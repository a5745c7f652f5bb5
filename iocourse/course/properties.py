"""Properties that several exercises share: form of a result, its values, words moved and memory footprint.

The message of a property states what was found and what was expected, never how to solve the exercise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import exact
from ..exact import real_numbers
from ..ledger import Ledger
from .exercise import Better, Case, NotReached, Property, Trial, WrongEverywhere, WrongForm
from .runtime_errors import below, failing_line

LARGE = "scores of ±10,000"  # a tag of a case, and part of the name of the property that selects it
TOLERANCE = 1e-9  # for float64: over a thousand rounding errors, and far below the error of a wrong formula
LEAST, MOST = 6, 17  # digits; different float64 numbers differ within 17 digits
Where = str | Callable[[Case], bool]  # a tag ("" selects every case), or a condition on the case
T = TypeVar("T")


# ------------------------------------------------------------------ which cases
def _first(complaints: Iterable[str | None]) -> str | None:
    """Return the first message of a failure, otherwise the first NotReached, otherwise None."""
    waiting = None
    for complaint in complaints:
        if complaint and not isinstance(complaint, NotReached):
            return complaint
        waiting = waiting or complaint
    return waiting


def each(name: str, judge: Callable[[Trial], str | None]) -> Property:
    """Return a property that must hold for every trial; its message has the label of the first that fails."""

    def over_all(trials: Sequence[Trial]) -> str | None:
        return _first(
            type(complaint)(f"{complaint} ({t.case.label})") for t in trials if (complaint := judge(t))
        )

    return Property(name, over_all)


def only_where(name: str, where: Where, judge: Callable[[Trial], str | None]) -> Property:
    """Return a property that is tested on the cases selected by `where` only."""
    concerned = where if callable(where) else lambda case: not where or case.has(where)
    asked = each(name, lambda trial: judge(trial) if concerned(trial.case) else None)
    return replace(asked, tag="" if callable(where) else where)


def idle(prop: Property) -> Property:
    """Return the property of values marked as one that also holds for some wrong values, such as zeros."""
    return replace(prop, idle=True)


def as_traffic(prop: Property, *arrays: str) -> Property:
    """Return the property marked as one of words moved, memory held or work done.

    It is not reached if the result does not depend on each of these input `arrays`.
    """
    return replace(prop, traffic=True, of=arrays)


# ------------------------------------------------------------------ the form of an answer
def is_number(value: Any) -> TypeGuard[float]:
    """Return whether the value is one number (Python, NumPy, or an array of shape ()); booleans are not."""
    one = single(value)
    return isinstance(one, (int, float, np.integer, np.floating)) and not isinstance(one, bool)


def whole(value: Any, least: int = 1) -> int | None:
    """Return the value as an int if it is an integer of at least `least`, otherwise None."""
    one = single(value)
    is_whole = isinstance(one, (int, np.integer)) and not isinstance(one, bool)
    return int(one) if is_whole and one >= least else None


def single(value: Any) -> Any:
    """Return the number in an array of shape (); any other value unchanged."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def several(value: Any, count: int, *, numbers: bool = False) -> Sequence[Any] | None:
    """Return a tuple or list of `count` elements, for `numbers` also an array; None for any other value."""
    if numbers and isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    return value if isinstance(value, (tuple, list)) and len(value) == count else None


def two_whole(trial: Trial) -> tuple[int, int] | None:
    """Return the result if it is a pair of positive integers, otherwise None."""
    one, other = (whole(number) for number in several(trial.value, 2) or (None, None))
    return None if one is None or other is None else (one, other)


@dataclass(frozen=True)
class Form(Generic[T]):
    """The form that a result must have before other properties can be tested.

    Attributes:
        name: the property that the result has this form.
        read: returns the result in this form, or None if it has another one.
        wanted: the expected form in words, for messages.
    """

    name: str
    read: Callable[[Trial], T | None]
    wanted: str

    def kept(self) -> Property:
        """Return the property that the result has this form."""
        return idle(each(self.name, lambda trial: self._missing(trial) if self.read(trial) is None else None))

    def must(self, name: str, judge: Callable[[Trial, T], str | None], where: Where = "") -> Property:
        """Return a property of results of this form; any other form fails it with a WrongForm."""

        def on_trial(trial: Trial) -> str | None:
            answer = self.read(trial)
            return self._missing(trial) if answer is None else judge(trial, answer)

        return only_where(name, where, on_trial)

    def _missing(self, trial: Trial) -> WrongForm:
        return WrongForm(f"expected {self.wanted}, got {shortened(trial.value)}")


def shortened(value: Any) -> str:
    """Return `repr(value)`, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def one_array(value: Any) -> NDArray[np.float64] | None:
    """Return the value as one array of real numbers, or None if it is not one."""
    try:
        return None if value is None else real_numbers(value)
    except (TypeError, ValueError):
        return None


def describe_value(value: Any) -> str:
    """Describe a value that should have been one array, in a few words."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} results"
    shape = getattr(value, "shape", None)
    text = f"an array of {value.dtype} with shape {shape}" if shape else shortened(value)
    return f"{text}: does your function end with a return?" if value is None else text


# ------------------------------------------------------------------ values
def difference(got: Any, want: Any, tolerance: float = TOLERANCE, *, wanted: str = "expected") -> str | None:
    """Return None if `got` equals `want` up to `tolerance`·(1 + max|want|), otherwise the first difference.

    Args:
        got: the result of the student's function.
        want: the expected array or number.
        tolerance: relative to 1 + max|want|.
        wanted: the word for `want` in the message.
    """
    if got is None:
        return WrongForm("your function returned None")
    one = "an array of numbers" if np.ndim(want) else "a number"
    try:
        g = real_numbers(got, "it")
    except (TypeError, ValueError) as error:
        kind = f"tuple of {len(got)} results" if isinstance(got, tuple) else type(got).__name__
        return WrongForm(f"got a {kind}, {wanted} {one}: {error}")
    w = np.asarray(want, dtype=np.float64)
    if g.shape != w.shape:
        if isinstance(got, tuple):
            return WrongForm(f"got a tuple of {len(got)} results, {wanted} {one}")
        other = f"got shape {g.shape}, {wanted} {w.shape}"
        return other if g.shape else WrongForm(other)  # one number instead of an array
    finite = np.isfinite(w)
    scale = 1 + np.abs(w[finite]).max(initial=0.0)
    with np.errstate(invalid="ignore"):  # inf - inf
        off = np.abs(g - w)
        wrong = ~((g == w) | (finite & (off <= tolerance * scale)))
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{int(wrong.sum())} of {wrong.size} entries differ, first at {list(where)}: " if where else ""
    # Only as many digits as the comparison uses: the last digits of a float32 kernel depend on the processor.
    mine, right = format_apart(float(g[where]), float(w[where]), least=significant_digits(tolerance))
    shown = f"got {mine}, {wanted} {right}"
    return place + shown + too_short(got, float(off[wrong].max() / scale), tolerance)


def too_short(got: Any, off: float, tolerance: float = TOLERANCE) -> str:
    """Return a clause if the error is the rounding error of a float32 or float16 result, otherwise ""."""
    kind = getattr(got, "dtype", None)
    if kind not in (np.float32, np.float16) or not 0 < tolerance < off <= 100 * np.finfo(kind).eps:
        return ""
    return f" (your result is {kind}, which has {np.finfo(kind).precision} digits; compute in float64)"


def is_right(trial: Trial, tolerance: float = TOLERANCE) -> str | None:
    """Return None if the result, or each part of it, equals `case.expected`, otherwise a difference."""
    want = trial.case.expected
    if not isinstance(want, tuple):
        return difference_or_scale(trial.value, want, trial.case, tolerance)
    found = several(trial.value, len(want))
    if found is None:
        value = trial.value
        number = str(len(value)) if isinstance(value, (tuple, list)) else f"one {type(value).__name__}"
        return WrongForm(f"expected {len(want)} results, got {number}")
    pairs = zip(found, want, strict=True)
    return _first(difference_or_scale(g, w, trial.case, tolerance) for g, w in pairs)


def difference_or_scale(got: Any, want: Any, case: Case, tolerance: float = TOLERANCE) -> str | None:
    """Return `difference`, and add a clause if all of `got` is √d or 1/√d times `want`."""
    complaint = difference(got, want, tolerance)
    seen = complaint and wrong_factor(got, want, case.inputs, tolerance)
    return f"{complaint}; {seen}" if seen else complaint


def values(name: str = "values equal exact attention", tolerance: float = TOLERANCE) -> Property:
    """Return the property that the result is correct in every case.

    If it is wrong in every ordinary case, the message is a WrongEverywhere.
    """
    return as_general(values_in(name, "", tolerance), lambda case: not case.has(LARGE) and not _one_key(case))


def _one_key(case: Case) -> bool:
    """Return whether there is one key: its weight is then 1 for any scale of the scores."""
    return "K" in case.inputs and np.shape(case.inputs["K"])[-2:-1] == (1,)


def as_general(asked: Property, ordinary: Callable[[Case], bool]) -> Property:
    """Return the property as a general one.

    If it fails in every ordinary case (in every case if none is ordinary), the message is a WrongEverywhere.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        said = asked.judge(trials)
        plain = [trial for trial in trials if ordinary(trial.case)] or trials
        if said is None or isinstance(said, WrongForm) or not all(asked.judge([one]) for one in plain):
            return said
        return WrongEverywhere(said)

    return replace(asked, judge=judge, general=True, echo=False)


def values_in(name: str, where: Where, tolerance: float = TOLERANCE) -> Property:
    """Return the property that the result is correct in the cases selected by `where`."""
    asked = only_where(name, where, lambda trial: is_right(trial, tolerance))
    return replace(asked, echo=True)


def part(
    name: str,
    results: Sequence[str],
    k: int,
    where: Where = "",
    tolerance: float = TOLERANCE,
    rows: Callable[[Case], NDArray[np.bool_]] | None = None,
) -> Property:
    """Return the property that result number k is correct in the selected cases; `results` are all names.

    With `rows`, only these rows of it are compared, so that other results, such as zeros, can have it too.
    """

    def judge(trial: Trial) -> str | None:
        found = several(trial.value, len(results), numbers=not any(map(np.ndim, trial.case.expected)))
        if found is None:
            return WrongForm(f"expected {len(results)} results: {', '.join(results)}")
        want = trial.case.expected[k]
        said = difference_or_scale(found[k], want, trial.case, tolerance)
        if said and rows is not None and np.shape(found[k]) == want.shape:
            chosen = rows(trial.case).reshape(-1, *[1] * (want.ndim - 1))
            return difference(np.where(chosen, found[k], 0.0), np.where(chosen, want, 0.0), tolerance)
        return said and (exchanged(found[k], trial.case.expected, results, k, tolerance) or said)

    asked = only_where(name, where, judge)
    return asked if rows is None else idle(asked)


def exchanged(
    got: Any, wanted: Sequence[Any], results: Sequence[str], k: int, tolerance: float = TOLERANCE
) -> str | None:
    """Return a clause if result number k equals another of the expected results, otherwise None.

    A text among them is equal to the same text alone; it is not compared with numbers.
    """

    def equal(n: int) -> bool:
        if isinstance(wanted[n], str) or isinstance(got, str):
            return isinstance(got, str) and got == wanted[n]
        return bool(np.any(wanted[n])) and not difference(got, wanted[n], tolerance)

    taken = next((n for n in range(len(results)) if n != k and equal(n)), None)
    return None if taken is None else f"got {results[taken]}; return {', '.join(results)} in this order"


def same_answer_for(name: str, key: Callable[[Trial], Any]) -> Property:
    """Return the property that trials with the same `key` have the same result (for any block size, say)."""

    def judge(trials: Sequence[Trial]) -> str | None:
        first: dict[Any, Trial] = {}
        for trial in trials:
            other = first.setdefault(key(trial), trial)
            complaint = (
                None if other is trial else difference(trial.value, other.value, wanted="in the other case")
            )
            if complaint:
                labels = f"{trial.case.label} compared with {other.case.label}"
                return type(complaint)(f"{labels}: {complaint}")
        return None

    return Property(name, judge, idle=True, echo=True)


BLOCK_SIZE = "the result does not depend on the block size"


def same_answer_from(array: str, name: str = BLOCK_SIZE) -> Property:
    """Return the property that cases with equal values of this input have equal results for all tiles."""
    return same_answer_for(name, lambda trial: trial.case.inputs[array].tobytes())


def block_size(part: int | None = None) -> Property:
    """Return the property that the result, or its `part`-th part, is the same for every tile on equal Q."""
    same = same_answer_from("Q")
    if part is None:
        return same

    def judge(trials: Sequence[Trial]) -> str | None:
        return same.judge([replace(trial, value=trial.value[part]) for trial in trials])

    return replace(same, judge=judge)


# ------------------------------------------------------------------ describing a wrong value
def significant_digits(tolerance: float) -> int:
    """Return the number of significant digits that a comparison up to `tolerance` uses, at most six.

    >>> fewest_digits(2e-5), fewest_digits(1e-9)
    (4, 6)
    """
    return max(1, min(LEAST, math.floor(-math.log10(tolerance)))) if tolerance else LEAST


def format_apart(one: float, other: float, grouped: str = "", least: int = LEAST) -> tuple[str, str]:
    """Format both numbers with the fewest digits (at least `least`) that differ; `grouped` may be ",".

    >>> format_apart(268770123.0, 268770456.0)
    ('2.687701e+08', '2.687705e+08')
    """
    for digits in range(least, MOST + 1):
        texts = f"{one:{grouped}.{digits}g}", f"{other:{grouped}.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def wrong_scale(Q: Any, K: Any, V: Any, O: Any, tolerance: float = 1e-9) -> str | None:
    """Return a clause if O = softmax(cQKᵀ)V for a likely wrong c, else None. Shapes (N, d), O (Nq, dv)."""
    d, wanted = Q.shape[1], f"1/√{Q.shape[1]} = {Q.shape[1] ** -0.5:.4g}"
    likely = {  # forgotten, twice, a wrong power, multiplied instead of divided, the wrong sign
        "1": 1.0,
        f"1/{d}": 1 / d,
        f"√{d}": d**0.5,
        f"{d}": float(d),
        f"1/{d * d}": d**-2.0,
        f"-1/√{d}": -(d**-0.5),
        "0": 0.0,
    }
    for name, scale in likely.items():
        rows = exact.attention(Q, K, V, scale=scale)
        if np.shape(O) == rows.shape and np.abs(O - rows).max() <= tolerance * (1 + np.abs(rows).max()):
            return f"QKᵀ is multiplied by {name}, expected {wanted}"
    return None


def wrong_factor(got: Any, want: Any, inputs: Mapping[str, Any], tolerance: float = 1e-9) -> str | None:
    """Return a clause if all of `got` is √d or 1/√d times `want`; d is the number of columns of Q (or q)."""
    shapes = [np.shape(inputs[name]) for name in ("Q", "q") if name in inputs]
    d = shapes[0][-1] if shapes and len(shapes[0]) > 1 else 0
    for name, factor in {"√d": d**0.5, "1/√d": (d or 1) ** -0.5}.items() if d > 1 else ():
        scaled = factor * np.asarray(want, dtype=np.float64)
        if _equal(np.asarray(got), scaled, tolerance):
            return f"every entry is {name} times the expected value"
    return None


def _equal(got: Any, want: Any, tolerance: float) -> bool:
    if got.shape != want.shape or got.dtype.kind not in "iuf" or not np.isfinite(want).all():
        return False
    return bool(np.abs(got - want).max(initial=0.0) <= tolerance * (1 + np.abs(want).max(initial=0.0)))


# ------------------------------------------------------------------ words moved, and fast memory used
# A property of words is not reached where its array was not touched: no word moved is not few words moved.
def budget_of(trial: Trial) -> Ledger:
    """Return the closed form of a case whose words are tested."""
    assert isinstance(trial.case.budget, Ledger), "a case whose words are tested has a closed form"
    return trial.case.budget


def reads_within(array: str, name: str) -> Property:
    """Return the property that at most as many words of `array` are read as in the closed form."""
    return as_traffic(each(name, lambda trial: _over_budget(trial, array, "reads")), array)


def writes_within(array: str, name: str) -> Property:
    """Return the property that at most as many words of `array` are written as in the closed form."""
    return as_traffic(each(name, lambda trial: _over_budget(trial, array, "writes")), array)


def reads(**how_often: str) -> tuple[Property, ...]:
    """Return a property per array: `reads(K="at most ⌈N/Br⌉ times")`: "K is read at most ⌈N/Br⌉ times"."""
    return tuple(reads_within(array, f"{array} is read {often}") for array, often in how_often.items())


def writes(**how_often: str) -> tuple[Property, ...]:
    """Return a property per array: `writes(O="once")` gives "O is written once"."""
    return tuple(writes_within(array, f"{array} is written {often}") for array, often in how_often.items())


def _over_budget(trial: Trial, array: str, direction: str) -> str | None:
    budget = budget_of(trial)
    got = getattr(trial.ledger, direction).get(array, 0)
    allowed = getattr(budget, direction).get(array, 0)
    size = budget.sizes.get(array, 0)
    verb = "read" if direction == "reads" else "written"
    if got <= allowed:
        return _too_few(trial, array, verb, got, min(allowed, size or 1))
    if not size:
        return f"{direction} {got:,} words of {array}, expected at most {allowed:,}"
    return f"{array} is {verb} {_multiple(got, size)}, expected at most {_multiple(allowed, size)}"


def _too_few(trial: Trial, array: str, verb: str, got: int, least: int) -> NotReached | None:
    """Return a message if fewer than `least` words of an array were moved; a result must be written for 0."""
    if not least and array not in trial.case.inputs and not trial.ledger.writes.get(array):
        return NotReached(f"{array} is never written")
    if got >= least:
        return None
    return NotReached(f"only {got:,} words of {array} are {verb}" if got else f"{array} is never {verb}")


def untouched(trial: Trial) -> NotReached | None:
    """Return a message if an input of the closed form is not read at all, or no word is written."""
    budget = trial.case.budget
    if not isinstance(budget, Ledger):  # a challenge
        return None
    for array in array_names(trial.case):
        if budget.reads.get(array) and not trial.ledger.reads.get(array):
            return NotReached(f"{array} is never read")
    return NotReached("nothing is written") if budget.written and not trial.ledger.written else None


def _multiple(words: int, size: int) -> str:
    return f"{'once' if words == size else f'{words / size:g} times'} ({words:,} words)"


def total_within(name: str = "moves no more words than the closed form") -> Property:
    """Return the property that all words moved, scratch included, are at most those of the closed form.

    If they are fewer, the report of a solved exercise has a remark.
    """

    def judge(trial: Trial) -> str | None:
        got, allowed = trial.ledger.total, budget_of(trial).total
        return untouched(trial) if got <= allowed else f"moves {got:,} words, expected at most {allowed:,}"

    within = each(name, judge)

    def judge_all(trials: Sequence[Trial]) -> str | None:
        fewer = next((one for one in trials if one.ledger.total < budget_of(one).total), None)
        said = within.judge(trials)
        if said or fewer is None:
            return said
        got, allowed = fewer.ledger.total, budget_of(fewer).total
        words = f"{got:,} words instead of {allowed:,}"
        return Better(f"fewer than the closed form, {words} ({fewer.case.label})")

    return as_traffic(Property(name, judge_all, general=True))


def fits_in_fast_memory() -> Property:
    """Return the property that the peak is at most `case.M`, the words of fast memory of the case."""

    def judge(trial: Trial) -> str | None:
        if trial.overflow:
            return f"{trial.overflow}{_all_of_it(trial)}{below(failing_line(trial.overflow))}"
        room = trial.case.M or 0
        peak = trial.ledger.peak
        return untouched(trial) if peak <= room else f"the peak is {peak:,} words, but M = {room:,}"

    return as_traffic(each("fits in fast memory", judge))


def _all_of_it(trial: Trial) -> str:
    """Return a clause if the tile that did not fit is a complete array and the case has smaller tiles."""
    asked = re.match(r"loading (\w+)\[0:(\d+)\] ", trial.overflow.asked if trial.overflow else "")
    inputs = trial.case.inputs
    if not asked or len(np.atleast_1d(inputs.get(asked[1], 0))) != int(asked[2]):
        return ""
    tiles = [size for size in inputs.values() if isinstance(size, int)]
    smaller = bool(tiles) and max(tiles) < int(asked[2])
    return f" That is all of {asked[1]}: load it in blocks of the given tile size." if smaller else ""


def array_names(case: Case) -> list[str]:
    """Return the names of the inputs that are arrays."""
    return [name for name, value in case.inputs.items() if isinstance(value, np.ndarray)]


def every_input_loaded(*arrays: str) -> Property:
    """Return the property that every input array, or each of `arrays`, is read completely at least once."""

    def judge(trial: Trial) -> str | None:
        for array in arrays or array_names(trial.case):
            size = int(np.size(trial.case.inputs[array]))
            read = trial.ledger.reads.get(array, 0)
            if read < size:
                return f"{array} has {size:,} words, but only {read:,} are read"
        return None

    return as_traffic(each("loads every word of its inputs", judge))
