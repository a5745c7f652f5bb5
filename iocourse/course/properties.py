"""Properties that exercises share: the form of an answer, its values, the words it moves and its footprint.

The message of a property says what was seen and what is expected, never how to solve the exercise.
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
from .exercise import Better, Case, Property, Trial, WrongEverywhere, WrongForm
from .runtime_errors import below, line_of

LARGE = "scores of ±10,000"  # a tag of a case, and in the name of the property that asks for it
TOLERANCE = 1e-9  # float64 against float64: a thousand rounding errors and more, far below any wrong formula
LEAST, MOST = 6, 17  # digits; with 17, different float64 numbers have different texts
Where = str | Callable[[Case], bool]  # cases with a tag, all for "", or those for which something is true
T = TypeVar("T")


# ------------------------------------------------------------------ which cases
def _first(complaints: Iterable[str | None]) -> str | None:
    return next((complaint for complaint in complaints if complaint), None)


def each(name: str, judge: Callable[[Trial], str | None]) -> Property:
    """A property that must hold for every trial; the first that breaks it is reported with its sizes."""

    def over_all(trials: Sequence[Trial]) -> str | None:
        return _first(
            type(complaint)(f"{complaint} ({t.case.label})") for t in trials if (complaint := judge(t))
        )

    return Property(name, over_all)


def only_where(name: str, where: Where, judge: Callable[[Trial], str | None]) -> Property:
    """A property that is asked of some of the cases only: its name says where to look."""
    concerned = where if callable(where) else lambda case: not where or case.has(where)
    return each(name, lambda trial: judge(trial) if concerned(trial.case) else None)


def idle(prop: Property) -> Property:
    """The property, as one that an answer which does nothing has too."""
    return replace(prop, idle=True)


# ------------------------------------------------------------------ the form of an answer
def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is one number, of Python or NumPy or in an array without axes, and no truth value."""
    one = single(value)
    return isinstance(one, (int, float, np.integer, np.floating)) and not isinstance(one, bool)


def whole(value: Any, least: int = 1) -> int | None:
    """The value, where it is a whole number of at least `least`."""
    one = single(value)
    is_whole = isinstance(one, (int, np.integer)) and not isinstance(one, bool)
    return int(one) if is_whole and one >= least else None


def single(value: Any) -> Any:
    """The number in an array without axes; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def several(value: Any, count: int) -> Sequence[Any] | None:
    """The value, where it is a tuple or list of so many."""
    return value if isinstance(value, (tuple, list)) and len(value) == count else None


def two_whole(trial: Trial) -> tuple[int, int] | None:
    """The answer, where it is a pair of whole numbers of at least 1."""
    one, other = (whole(number) for number in several(trial.value, 2) or (None, None))
    return None if one is None or other is None else (one, other)


@dataclass(frozen=True)
class Form(Generic[T]):
    """What an answer must be before anything can be asked of it.

    `name` is the property that it is of this form, `read` gives the answer in it or None, and `wanted` says
    in a message what was expected.
    """

    name: str
    read: Callable[[Trial], T | None]
    wanted: str

    def kept(self) -> Property:
        """The answer is of this form."""
        return idle(each(self.name, lambda trial: self._missing(trial) if self.read(trial) is None else None))

    def must(self, name: str, judge: Callable[[Trial, T], str | None], where: Where = "") -> Property:
        """A property of answers of this form."""

        def on_trial(trial: Trial) -> str | None:
            answer = self.read(trial)
            return self._missing(trial) if answer is None else judge(trial, answer)

        return only_where(name, where, on_trial)

    def _missing(self, trial: Trial) -> WrongForm:
        return WrongForm(f"expected {self.wanted}; yours is {shortened(trial.value)}")


def shortened(value: Any) -> str:
    """The value as code, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def one_array(value: Any) -> NDArray[np.float64] | None:
    """The value as one array of real numbers, where it is one."""
    try:
        return None if value is None else real_numbers(value)
    except (TypeError, ValueError):
        return None


def describe_value(value: Any) -> str:
    """What came in place of one array, in a few words."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} results"
    shape = getattr(value, "shape", None)
    text = f"an array of {value.dtype}, shape {shape}" if shape else shortened(value)
    return f"{text}: does your function end with a return?" if value is None else text


# ------------------------------------------------------------------ values
def difference(got: Any, want: Any, tolerance: float = TOLERANCE, *, wanted: str = "expected") -> str | None:
    """None where `got` equals `want` up to `tolerance`·(1 + max|want|), else the first entry that differs.

    `wanted` is the word for `want` in the message.
    """
    if got is None:
        return WrongForm("your function returned None")
    one = "an array of numbers" if np.ndim(want) else "a number"
    try:
        g = real_numbers(got, "it")
    except (TypeError, ValueError) as error:
        kind = f"tuple of {len(got)} results" if isinstance(got, tuple) else type(got).__name__
        return WrongForm(f"yours is a {kind}, {wanted} {one}: {error}")
    w = np.asarray(want, dtype=np.float64)
    if g.shape != w.shape:
        if isinstance(got, tuple):
            return WrongForm(f"yours is a tuple of {len(got)} results, {wanted} {one}")
        other = f"yours has shape {g.shape}, {wanted} {w.shape}"
        return other if g.shape else WrongForm(other)  # one number in place of an array
    finite = np.isfinite(w)
    scale = 1 + np.abs(w[finite]).max(initial=0.0)
    with np.errstate(invalid="ignore"):  # inf - inf, where the two are equal or both wrong
        off = np.abs(g - w)
        wrong = ~((g == w) | (finite & (off <= tolerance * scale)))
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{int(wrong.sum())} of {wrong.size} entries differ, first at {list(where)}: " if where else ""
    # No more digits than the comparison uses: a float32 kernel's last ones differ between processors.
    mine, right = format_apart(float(g[where]), float(w[where]), least=fewest_digits(tolerance))
    shown = f"yours {mine}, {wanted} {right}"
    return place + shown + too_short(got, float(off[wrong].max() / scale), tolerance)


def too_short(got: Any, off: float, tolerance: float = TOLERANCE) -> str:
    """A clause for an answer in float32 or float16 whose error is its rounding's; "" for any other."""
    kind = getattr(got, "dtype", None)
    if kind not in (np.float32, np.float16) or not 0 < tolerance < off <= 100 * np.finfo(kind).eps:
        return ""
    return f" (yours is {kind}, good for {np.finfo(kind).precision} digits: compute in float64)"


def is_right(trial: Trial, tolerance: float = TOLERANCE) -> str | None:
    """The returned value equals `case.expected`; a tuple or list of several part by part."""
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
    """`difference`; where all of `got` is √d or 1/√d times what is expected, that is said too."""
    complaint = difference(got, want, tolerance)
    seen = complaint and wrong_factor(got, want, case.inputs, tolerance)
    return f"{complaint}; {seen}" if seen else complaint


def values(name: str = "values equal exact attention", tolerance: float = TOLERANCE) -> Property:
    """The returned value is right in every case; where it is right in no ordinary one, it says so."""
    return as_general(values_in(name, "", tolerance), lambda case: not case.has(LARGE))


def as_general(asked: Property, ordinary: Callable[[Case], bool]) -> Property:
    """The property as one that fails for many reasons; where it holds in no ordinary case, or there is none
    and it holds in no case, it says so.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        said = asked.judge(trials)
        plain = [trial for trial in trials if ordinary(trial.case)] or trials
        if said is None or isinstance(said, WrongForm) or not all(asked.judge([one]) for one in plain):
            return said
        return WrongEverywhere(said)

    return replace(asked, judge=judge, general=True, echo=False)


def values_in(name: str, where: Where, tolerance: float = TOLERANCE) -> Property:
    """The returned value is right in some of the cases."""
    asked = only_where(name, where, lambda trial: is_right(trial, tolerance))
    return replace(asked, echo=True)


def part(
    name: str, results: Sequence[str], k: int, where: Where = "", tolerance: float = TOLERANCE
) -> Property:
    """Result number k is right in some of the cases; `results` are the names of all of them."""

    def judge(trial: Trial) -> str | None:
        found = several(trial.value, len(results))
        if found is None:
            return WrongForm(f"expected {len(results)} results: {', '.join(results)}")
        said = difference_or_scale(found[k], trial.case.expected[k], trial.case, tolerance)
        return said and (exchanged(found[k], trial.case.expected, results, k, tolerance) or said)

    return only_where(name, where, judge)


def exchanged(
    got: Any, wanted: Sequence[Any], results: Sequence[str], k: int, tolerance: float = TOLERANCE
) -> str | None:
    """Where a wrong result number k is another of the results that were asked for: which, and their order."""
    others = (n for n in range(len(results)) if n != k and np.any(wanted[n]))
    taken = next((n for n in others if not difference(got, wanted[n], tolerance)), None)
    return None if taken is None else f"yours is {results[taken]}; return {', '.join(results)} in this order"


def same_answer_for(name: str, key: Callable[[Trial], Any]) -> Property:
    """Trials with the same `key` must give the same values, whatever their block size, for example."""

    def judge(trials: Sequence[Trial]) -> str | None:
        first: dict[Any, Trial] = {}
        for trial in trials:
            other = first.setdefault(key(trial), trial)
            complaint = None if other is trial else difference(trial.value, other.value, wanted="there")
            if complaint:
                return type(complaint)(f"{trial.case.label} against {other.case.label}: {complaint}")
        return None

    return Property(name, judge, idle=True, echo=True)


BLOCK_SIZE = "the result does not depend on the block size"


def same_answer_from(array: str, name: str = BLOCK_SIZE) -> Property:
    """Cases with the same values in this input must give the same answer, whatever their tiles are."""
    return same_answer_for(name, lambda trial: trial.case.inputs[array].tobytes())


def block_size(part: int | None = None) -> Property:
    """The answer, or its `part`-th result, is the same for every tile on the same queries."""
    same = same_answer_from("Q")
    if part is None:
        return same

    def judge(trials: Sequence[Trial]) -> str | None:
        return same.judge([replace(trial, value=trial.value[part]) for trial in trials])

    return replace(same, judge=judge)


# ------------------------------------------------------------------ how a wrong value differs
def fewest_digits(tolerance: float) -> int:
    """The number of significant digits in a comparison up to `tolerance`, at most six.

    >>> fewest_digits(2e-5), fewest_digits(1e-9)
    (4, 6)
    """
    return max(1, min(LEAST, math.floor(-math.log10(tolerance)))) if tolerance else LEAST


def format_apart(one: float, other: float, grouped: str = "", least: int = LEAST) -> tuple[str, str]:
    """Both numbers in the fewest digits, from `least` on, in which they differ; `grouped` may be ",".

    >>> format_apart(268770123.0, 268770456.0)
    ('2.687701e+08', '2.687705e+08')
    """
    for digits in range(least, MOST + 1):
        texts = f"{one:{grouped}.{digits}g}", f"{other:{grouped}.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def wrong_scale(Q: Any, K: Any, V: Any, O: Any, tolerance: float = 1e-9) -> str | None:
    """Which likely wrong c makes O = softmax(cQKᵀ)V; None if there is none. Shapes (N, d), O (Nq, dv)."""
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
            return f"yours multiplies QKᵀ by {name}, expected {wanted}"
    return None


def wrong_factor(got: Any, want: Any, inputs: Mapping[str, Any], tolerance: float = 1e-9) -> str | None:
    """A clause if all of `got` is √d or 1/√d times `want`; d is the width of the input Q, or q."""
    shapes = [np.shape(inputs[name]) for name in ("Q", "q") if name in inputs]
    d = shapes[0][-1] if shapes and len(shapes[0]) > 1 else 0
    for name, factor in {"√d": d**0.5, "1/√d": (d or 1) ** -0.5}.items() if d > 1 else ():
        scaled = factor * np.asarray(want, dtype=np.float64)
        if _equal(np.asarray(got), scaled, tolerance):
            return f"all of yours is {name} times what is expected"
    return None


def _equal(got: Any, want: Any, tolerance: float) -> bool:
    if got.shape != want.shape or got.dtype.kind not in "iuf" or not np.isfinite(want).all():
        return False
    return bool(np.abs(got - want).max(initial=0.0) <= tolerance * (1 + np.abs(want).max(initial=0.0)))


# ------------------------------------------------------------------ words moved, and fast memory used
def budget_of(trial: Trial) -> Ledger:
    """The closed form of a case that is judged by words."""
    assert isinstance(trial.case.budget, Ledger), "a case judged by words carries its closed form"
    return trial.case.budget


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


def _over_budget(trial: Trial, array: str, direction: str) -> str | None:
    budget = budget_of(trial)
    got = getattr(trial.ledger, direction).get(array, 0)
    allowed = getattr(budget, direction).get(array, 0)
    if got <= allowed:
        return None
    return f"yours {_multiple(budget, array, got)}, budget {_multiple(budget, array, allowed)}"


def _multiple(ledger: Ledger, array: str, words: int) -> str:
    size = ledger.sizes.get(array)
    return f"{words / size:g}× ({words:,} words)" if size else f"{words:,} words"


def total_within(name: str = "moves no more words than the closed form") -> Property:
    """All words together stay within the closed form, scratch arrays of the student's own included; where
    they are fewer, the report of a solved exercise says so.
    """

    def judge(trial: Trial) -> str | None:
        got, allowed = trial.ledger.total, budget_of(trial).total
        return None if got <= allowed else f"yours {got:,} words, budget {allowed:,}"

    within = each(name, judge)

    def judge_all(trials: Sequence[Trial]) -> str | None:
        fewer = next((one for one in trials if one.ledger.total < budget_of(one).total), None)
        said = within.judge(trials)
        if said or fewer is None:
            return said
        got, allowed = fewer.ledger.total, budget_of(fewer).total
        return Better(f"fewer than the closed form, {got:,} words for {allowed:,} ({fewer.case.label})")

    return Property(name, judge_all, general=True, idle=True)


def fits() -> Property:
    """The peak stays within the words of fast memory of the case, whose allowance the lesson states."""

    def judge(trial: Trial) -> str | None:
        if trial.overflow:
            return f"{trial.overflow}{_all_of_it(trial)}{below(line_of(trial.overflow))}"
        room = trial.case.M or 0
        peak = trial.ledger.peak
        return None if peak <= room else f"your peak is {peak:,} words, fast memory has {room:,}"

    return idle(each("fits in fast memory", judge))


def _all_of_it(trial: Trial) -> str:
    """A clause where the tile that did not fit is a whole array, and the case has smaller tiles."""
    asked = re.match(r"loading (\w+)\[0:(\d+)\] ", trial.overflow.asked if trial.overflow else "")
    inputs = trial.case.inputs
    if not asked or len(np.atleast_1d(inputs.get(asked[1], 0))) != int(asked[2]):
        return ""
    tiles = [size for size in inputs.values() if isinstance(size, int)]
    smaller = bool(tiles) and max(tiles) < int(asked[2])
    return f" That is all of {asked[1]}: load it block by block, as the tile sizes say." if smaller else ""


def arrays_of(case: Case) -> list[str]:
    """The names of the inputs that are arrays."""
    return [name for name, value in case.inputs.items() if isinstance(value, np.ndarray)]


def every_input_loaded(*arrays: str) -> Property:
    """Each input, or each of these, is read at least once in full: no word is used that was not loaded."""

    def judge(trial: Trial) -> str | None:
        for array in arrays or arrays_of(trial.case):
            size = int(np.size(trial.case.inputs[array]))
            read = trial.ledger.reads.get(array, 0)
            if read < size:
                return f"{array} has {size:,} words, yours read {read:,}"
        return None

    return idle(each("loads every word of its inputs", judge))
