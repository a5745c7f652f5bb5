"""Exercises: the cases on which a student's function is run, and the properties that it must have.

The exercises of a lesson are in one file of `iocourse.course.exercises`. A check runs the student's function
on every case and then tests each property on all trials together. A property has a name that is a
sentence ("the result does not depend on the block size"). It returns None if it holds, otherwise what it saw.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from ..discovery import files_of
from ..ledger import Ledger
from ..machine import FastMemoryFull, run
from ..machine.run import IncompleteResult, NoResult
from .guard import solutions_blocked

if TYPE_CHECKING:
    from ..distributed import RankLedger

NO_LIMIT = 10**12  # words: more than the inputs of any check need


@dataclass(frozen=True)
class Case:
    """One input for the student's function, with the expected result.

    Attributes:
        label: sizes and difficulty, only for display.
        inputs: arguments by name.
        expected: the exact result.
        M: words of fast memory for a schedule; None for a plain function.
        budget: the closed form that must not be exceeded; for ranks, one per rank.
        machine: further keyword arguments of `run`, such as `dry`.
        tags: names by which properties select cases.
    """

    label: str
    inputs: Mapping[str, Any]
    expected: Any = None
    M: int | None = None
    budget: Ledger | tuple[RankLedger, ...] | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()

    def has(self, tag: str) -> bool:
        """Return whether the case has this tag."""
        return tag in self.tags


@dataclass(frozen=True)
class Sample:
    """The data of one case; a kind of exercise adds the exact result, the closed form and the memory size.

    Attributes:
        sizes: the sizes that the label shows, by name.
        inputs: arguments of the student's function, by name and in its order.
        results: exact results by name, in the order in which the function returns them (kinds `function`
            and `kernel`).
        words: the closed form of a kernel's loads and stores (kind `kernel`).
        tags: the difficulties of this case, in the order in which the label shows them; "" is ignored.
        prefix: the first words of the label.
        facts: further arguments of the exact result and of the closed form, by name (kind `schedule`).
    """

    sizes: Mapping[str, Any]
    inputs: Mapping[str, Any]
    results: Mapping[str, Any] = field(default_factory=dict)
    words: Ledger | None = None
    tags: tuple[str, ...] = ()
    prefix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The prefix, the sizes, and each tag that the prefix does not contain, separated by commas."""
        sizes = (f"{name}={size}" for name, size in self.sizes.items())
        tags = (tag for tag in self.tags if tag not in self.prefix)
        return ", ".join(part for part in (self.prefix, *sizes, *tags) if part)

    @property
    def tag_set(self) -> frozenset[str]:
        """The tags of the case, as `Case.tags` has them."""
        return frozenset(self.tags) - {""}

    def of(self, form: Callable[..., Any]) -> Any:
        """Call a closed form with the sizes, the facts and the inputs that are not arrays (tiles, a mask)."""
        options = {name: value for name, value in self.inputs.items() if not isinstance(value, np.ndarray)}
        return form(**{**self.sizes, **self.facts, **options})


Draw = Callable[[np.random.Generator], Iterable[Sample]]


@dataclass(frozen=True)
class Trial:
    """The run of the student's function on one case: a value and, for a schedule, a ledger, or an error.

    A schedule that needs more than `case.M` words runs again on a larger machine, so that all its properties
    are tested; `overflow` is then the error of the small machine. For a plain function, `returned` is a copy
    of its result and the result itself.
    """

    case: Case
    value: Any = None
    ledger: Ledger = field(default_factory=Ledger)
    error: Exception | None = None
    overflow: FastMemoryFull | None = None
    returned: tuple[Any, Any] | None = None

    @property
    def overwritten(self) -> bool:
        """True if the returned object was modified after the call."""
        return self.returned is not None and differs(*self.returned)


P = ParamSpec("P")
Judge = Callable[[Sequence[Trial]], str | None]
RunCase = Callable[[Callable[..., Any], Case], Trial]


RETURNS = "returns a result"
FORM = "returns a value of the requested form"
STORES = "stores its complete result"
KEEPS_INPUTS = "does not modify its inputs"


class NotJudged(Exception):
    """A function ended, but its result cannot be tested; `lacks` is the property that fails."""

    def __init__(self, lacks: str, seen: str) -> None:
        super().__init__(seen)
        self.lacks = lacks


def wrong_return(value: Any, seen: str) -> NotJudged:
    """Return the error for a function that returned None or a value of another form."""
    return NotJudged(RETURNS if value is None else FORM, seen)


class WrongForm(str):
    """A message about a wrong form of the result, which a report prints once for all properties."""

    __slots__ = ()


class WrongEverywhere(str):
    """A message about values that are wrong in every case, which a report recommends to read first."""

    __slots__ = ()


class NotReached(str):
    """A message about a property that neither holds nor fails: the run, or the result, does not reach it."""

    __slots__ = ()


class FirstCause(str):
    """A message about the fault without which every other failing property of the values would hold."""

    __slots__ = ()


class TrafficCause(str):
    """A message about a fault that can make traffic fail too, and is to be read before it in a report."""

    __slots__ = ()


class Better(str):
    """A remark of a property that holds: the result is better than required."""

    __slots__ = ()


@dataclass(frozen=True)
class Property:
    """A named property of the student's function, tested on all trials.

    `idle` and `traffic` decide what it earns (`points.py`). Without `traffic` it is about the values.

    Attributes:
        name: a sentence, such as "K is read once".
        judge: returns None if the property holds, otherwise a message: a NotReached if nothing was tested.
        general: it fails for many reasons, so a report recommends to read other failures first.
        idle: it also holds for some functions with wrong values, such as one that returns zeros.
        echo: it usually fails if the values are wrong in every case, and then says nothing new.
        traffic: it is about words moved, memory held or work done.
        of: the input arrays that it counts; it is not reached if the result does not depend on one of them.
        tag: the tag of the cases on which it is tested, if these are the cases with one tag.
    """

    name: str
    judge: Judge
    general: bool = False
    idle: bool = False
    echo: bool = False
    traffic: bool = False
    of: tuple[str, ...] = ()
    tag: str = ""


@contextmanager
def student_call() -> Iterator[None]:
    """Context for a student's function: solutions of the library raise, and NumPy's warnings are silenced."""
    with solutions_blocked(), np.errstate(all="ignore"):
        yield


def snapshot(value: Any) -> Any:
    """Return the value with copies of its arrays, which later trials cannot modify."""
    if isinstance(value, (tuple, list)):
        parts = map(snapshot, value)
        return list(parts) if isinstance(value, list) else tuple(parts)
    return np.array(value) if isinstance(value, np.ndarray) else value


def trial_from_error(
    run_case: Callable[Concatenate[Callable[..., Any], Case, P], Trial],
) -> Callable[Concatenate[Callable[..., Any], Case, P], Trial]:
    """Decorate `run_case`: an error of the student's function becomes a trial with this error."""

    @functools.wraps(run_case)
    def guarded(student: Callable[..., Any], case: Case, /, *args: P.args, **kwargs: P.kwargs) -> Trial:
        try:
            return run_case(student, case, *args, **kwargs)
        except Exception as error:
            return Trial(case, error=cause_of(error))

    return guarded


def cause_of(error: Exception) -> Exception:
    """Return the original error of a kernel, which Triton wraps once per function."""
    cause: BaseException = error
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause if isinstance(cause, Exception) else error


@trial_from_error
def run_function(student: Callable[..., Any], case: Case) -> Trial:
    """Call a plain function with copies of the inputs, by position in the order of the case.

    Raises:
        NotJudged: the function modifies an input.
    """
    inputs = copy.deepcopy(dict(case.inputs))
    with student_call():
        returned = student(*inputs.values())
    value = snapshot(returned)
    changed = [name for name, given in case.inputs.items() if differs(given, inputs[name])]
    if changed:
        raise modified_inputs_error(changed)
    return Trial(case, value=value, returned=(value, returned))


def modified_inputs_error(names: Sequence[str], wrote: str = "your function modifies") -> NotJudged:
    """Return the error for modified inputs with these names; `wrote` says what modified them."""
    return NotJudged(KEEPS_INPUTS, f"{wrote} {', '.join(names)}, which belongs to the caller")


def differs(given: Any, now: Any) -> bool:
    """Return whether an array, a container or what it holds was changed; False for objects of other types."""
    if isinstance(given, np.ndarray) and given.dtype.hasobject:  # an object may be an array
        return given.shape != np.shape(now) or differs([*given.flat], [*np.asarray(now).flat])
    if isinstance(given, np.ndarray):
        return not np.array_equal(given, now, equal_nan=given.dtype.kind in "fc")
    if isinstance(given, (list, tuple)):
        return len(given) != len(now) or any(map(differs, given, now))
    if isinstance(given, dict):
        return list(given) != list(now) or differs([*given.values()], [*now.values()])
    plain = isinstance(given, (set, str, int, float, np.generic))  # a list may be sorted in place
    return plain and given == given and bool(given != now)  # NaN is unchanged


def run_schedule(student: Callable[..., Any], case: Case) -> Trial:
    """Run a schedule on a machine with `case.M` words, and after an overflow on one without limit."""
    assert case.M is not None, "a case for a schedule needs M"
    trial = _run_with(student, case, case.M)
    if isinstance(trial.error, FastMemoryFull):
        return replace(_run_with(student, case, NO_LIMIT), overflow=trial.error)
    return trial


@trial_from_error
def _run_with(student: Callable[..., Any], case: Case, M: int) -> Trial:
    try:
        with student_call():
            done = run(student, M=M, trace=False, **case.machine, **copy.deepcopy(dict(case.inputs)))
    except NoResult as error:
        raise NotJudged(RETURNS, str(error)) from None
    except IncompleteResult as error:
        raise NotJudged(STORES, str(error)) from None
    value = done.O if len(done.outputs) == 1 else done.outputs
    return Trial(case, value=value, ledger=done.ledger)


@dataclass(frozen=True)
class BoundComparison:
    """The sizes at which a solved schedule is compared with a lower bound (see `bound_ratio`).

    Attributes:
        inputs: shapes, tiles and a mask.
        bound: returns words and the bound's id for M words of fast memory; it holds for every schedule that
            solves the exercise.
        every_block: count every block instead of one of several equal ones.
    """

    inputs: Mapping[str, Any]
    bound: Callable[[int], tuple[int, str]]
    every_block: bool = False


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson; `exercise` makes it.

    `function` is the name of the student's function in the notebook, and `helpers` are other functions of its
    cell that later exercises call. `cases` draws new inputs from a generator. `hints` go from a first step to
    nearly the complete idea, and never contain code. `comparison` has the sizes at which a solved schedule is
    compared with a lower bound. If `compiles`, a solved check shows what the compiler makes of the kernels.
    """

    id: str
    title: str
    function: str
    difficulty: int
    importance: int
    minutes: int
    hints: tuple[str, str, str]
    cases: Callable[[np.random.Generator], list[Case]]
    properties: tuple[Property, ...]
    run_case: RunCase = run_function
    comparison: BoundComparison | None = None
    compiles: bool = False
    helpers: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The functions that a student writes in the exercise's cell and that are called from other cells."""
        return self.function, *self.helpers

    @property
    def lesson(self) -> str:
        """The number of the lesson that has the exercise now, such as "04b" for 4E."""
        from .course_map import lesson_of  # a check does not need the map

        return lesson_of(self.id)

    @property
    def box(self) -> str:
        """The line under the title of an exercise: difficulty, importance, minutes."""
        return (
            f"difficulty {self.difficulty} of 5 · importance {self.importance} of 5 · {self.minutes} minutes"
        )


@functools.cache
def _texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the texts of every exercise (title, hints, …), which the build copies from the lessons."""
    text = files(__package__).joinpath("exercises.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def exercise(
    id: str,
    *,
    cases: Callable[[np.random.Generator], list[Case]],
    properties: Sequence[Property],
    run_case: RunCase = run_function,
    comparison: BoundComparison | None = None,
    compiles: bool = False,
) -> Exercise:
    """Return the exercise with this id, from the texts in its lesson and the parts passed here.

    Raises ValueError if the lesson has no texts for this id.
    """
    if id not in _texts():
        raise ValueError(
            f"exercise {id!r} has no title, hints and minutes. Add a cell "
            f'# %% [raw] name="about-{id}" to its lesson, then run python -m tools.build'
        )
    texts = dict(_texts()[id])
    hints, helpers = tuple(texts.pop("hints")), tuple(texts.pop("helpers", ()))
    return Exercise(
        id, **texts, hints=hints, cases=cases, properties=tuple(properties), run_case=run_case,
        comparison=comparison, compiles=compiles, helpers=helpers,
    )  # fmt: skip


def number_of(exercise_id: str) -> int:
    """Return the number in an exercise's id: 4 for 4B, which is declared in exercises/lesson04.py.

    Raises ValueError for an id without a number.
    """
    number = re.match(r"\d+", exercise_id)
    if number is None:
        raise ValueError(f"exercise id must begin with a number, such as 4B, got {exercise_id!r}")
    return int(number[0])


_exercises: dict[str, Exercise] = {}  # of all lessons, after their import


def exercises() -> Mapping[str, Exercise]:
    """Return every exercise of the course by id, in the order of the modules that declare them."""
    if not _exercises:
        from . import exercises as folder

        modules = files_of(folder.__name__, folder.__path__)
        _exercises.update({exercise.id: exercise for module in modules for exercise in module.EXERCISES})
    return _exercises


@functools.cache
def _declared(number: int) -> Mapping[str, Exercise]:
    """Return the exercises whose ids have this number; {} if no exercise has it."""
    name = f"{__package__}.exercises.lesson{number:02d}"
    if importlib.util.find_spec(name) is None:
        return {}
    return {exercise.id: exercise for exercise in importlib.import_module(name).EXERCISES}


def find(exercise_id: str) -> Exercise:
    """Return the exercise with this id; only the file of its number is imported.

    Raises ValueError with a list of the known ids.
    """
    number = re.match(r"\d+", exercise_id) if isinstance(exercise_id, str) else None
    known = _declared(int(number[0])) if number and not _exercises else {}
    if exercise_id not in known:
        known = exercises()
    if exercise_id not in known:
        raise ValueError(f"unknown exercise {exercise_id!r}; the exercises are {', '.join(known) or 'none'}")
    return known[exercise_id]


def raised_in(error: BaseException) -> str:
    """Return the name of the innermost exercise function in which an error arose, or ""."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    if names and any(names[-1] in exercise.names for exercise in _checked_last):
        return names[-1]  # the usual case: no import of all lessons
    known = {name for exercise in exercises().values() for name in exercise.names}
    return next((name for name in reversed(names) if name in known), "")


_checked_last: list[Exercise] = []


def set_current_exercise(exercise: Exercise) -> None:
    """Remember the exercise that was checked last; its lesson is the current one."""
    _checked_last[:] = [exercise]


def exercises_asking_for(function: str) -> str:
    """Return the exercise that requires a function of this name, such as "4B", or "" for none.

    If several lessons require it, return that of the lesson checked last, or of another part of this lesson.
    If these lessons do not have it, or nothing was checked yet, return all of them, as "2C or 10A".
    """
    asking = [exercise for exercise in exercises().values() if function in exercise.names]
    last = {_place(exercise) for exercise in _checked_last}
    here = [exercise for exercise in asking if _place(exercise) in last]
    other_part = [exercise for exercise in asking if _place(exercise)[0] in {number for number, _ in last}]
    return " or ".join(exercise.id for exercise in here or other_part or asking)


def _place(exercise: Exercise) -> tuple[str, str]:
    """Return the number and the part of the exercise's lesson: ("04", "b") for 4E.

    An exercise outside the course, such as one in a teacher's file, has its id as number.
    """
    try:
        return exercise.lesson[:2], exercise.lesson[2:]
    except ValueError:
        return exercise.id, ""
