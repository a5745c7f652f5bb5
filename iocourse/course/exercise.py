"""An exercise: what the student's function is tried on, and the properties it must have.

A lesson's exercises stand in one file of `iocourse.course.exercises`. A check tries the student's function
on every case, then asks each property about all the trials together. A property has a name that is a
sentence ("the result does not depend on the block size"). It returns None if it holds, otherwise what it saw.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from ..discovery import files_of
from ..ledger import Ledger
from ..machine import FastMemoryFull, run
from ..machine.run import IncompleteResult, NoResult
from ..solution_guard import solutions_blocked

if TYPE_CHECKING:
    from ..distributed import RankLedger

NO_LIMIT = 10**12  # words: more than any input of a check could fill


@dataclass(frozen=True)
class Case:
    """One input for the student's function, with what is known of the right answer before it is called.

    `inputs` are the arguments by name, `expected` the values it must return, `M` the words of fast memory
    for a schedule (None for a plain function), `budget` the closed form not to exceed (between ranks that of
    each), `label` the sizes, `machine` what else `run` is told: that a schedule runs dry, say. Properties
    select cases by their `tags`; the label is only shown.
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
class Trial:
    """What the student's function did with a case: a value and, for a schedule, a ledger; or an error.

    A schedule that needs more than `case.M` words is judged on a larger machine, so that all its properties
    are reported; `overflow` then holds what the small machine said. `returned` is a copy of
    what a plain function returned, and the object itself.
    """

    case: Case
    value: Any = None
    ledger: Ledger = field(default_factory=Ledger)
    error: Exception | None = None
    overflow: FastMemoryFull | None = None
    returned: tuple[Any, Any] | None = None

    @property
    def overwritten(self) -> bool:
        """Whether what the function returned is no longer what its copy still is."""
        return self.returned is not None and differs(*self.returned)


P = ParamSpec("P")
Judge = Callable[[Sequence[Trial]], str | None]
RunCase = Callable[[Callable[..., Any], Case], Trial]


RETURNS = "returns a result"
FORM = "returns a value of the requested form"
STORES = "stores its complete result"
KEEPS_INPUTS = "does not modify its inputs"


class NotJudged(Exception):
    """A function ran to its end, and what it left cannot be judged: `lacks` names the property it lacks."""

    def __init__(self, lacks: str, seen: str) -> None:
        super().__init__(seen)
        self.lacks = lacks


def wrong_return(value: Any, seen: str) -> NotJudged:
    """What is raised where a function returned nothing, or a value of another form than was asked for."""
    return NotJudged(RETURNS if value is None else FORM, seen)


class WrongForm(str):
    """A complaint that the answer is no such thing as was asked for: it is told once, for all properties."""

    __slots__ = ()


class WrongEverywhere(str):
    """A complaint about values that are wrong in every case: it is read before what only follows from it."""

    __slots__ = ()


class Better(str):
    """What a property that holds remarks: the answer is better than was asked for."""

    __slots__ = ()


@dataclass(frozen=True)
class Property:
    """A named property of the student's answer, judged over all trials.

    A `general` one fails for many reasons; where another fails beside it, that one is read first. An `idle`
    one holds for an answer that does nothing as well: by itself it is worth no points (`points_of`). An
    `echo` is bound to fail, as a rule, where the values are wrong everywhere, and tells nothing then.
    """

    name: str
    judge: Judge
    general: bool = False
    idle: bool = False
    echo: bool = False


@contextmanager
def student_call() -> Iterator[None]:
    """Where a student's function runs: library answers refuse, and what overflows is judged by its value."""
    with solutions_blocked(), np.errstate(all="ignore"):
        yield


def snapshot(value: Any) -> Any:
    """The value with copies of its arrays, which stay as they are when a later trial writes into them."""
    if isinstance(value, (tuple, list)):
        parts = map(snapshot, value)
        return list(parts) if isinstance(value, list) else tuple(parts)
    return np.array(value) if isinstance(value, np.ndarray) else value


def trial_from_error(
    run_case: Callable[Concatenate[Callable[..., Any], Case, P], Trial],
) -> Callable[Concatenate[Callable[..., Any], Case, P], Trial]:
    """What the student's function raises in `run_case` becomes a trial, whose error is the cause."""

    @functools.wraps(run_case)
    def guarded(student: Callable[..., Any], case: Case, /, *args: P.args, **kwargs: P.kwargs) -> Trial:
        try:
            return run_case(student, case, *args, **kwargs)
        except Exception as error:
            return Trial(case, error=cause_of(error))

    return guarded


def cause_of(error: Exception) -> Exception:
    """What went wrong inside a kernel: Triton reports it wrapped, once for each function it passed."""
    cause: BaseException = error
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause if isinstance(cause, Exception) else error


@trial_from_error
def run_function(student: Callable[..., Any], case: Case) -> Trial:
    """Call a plain function on copies of the inputs, by position and in the order of the case. It must leave
    them as they are.
    """
    inputs = copy.deepcopy(dict(case.inputs))
    with student_call():
        returned = student(*inputs.values())
    value = snapshot(returned)
    changed = [name for name, given in case.inputs.items() if differs(given, inputs[name])]
    if changed:
        raise modified_inputs_error(changed)
    return Trial(case, value=value, returned=(value, returned))


def modified_inputs_error(names: Sequence[str], wrote: str = "your function changes") -> NotJudged:
    """What is raised where inputs of these names were written into, and what did it."""
    return NotJudged(KEEPS_INPUTS, f"{wrote} {', '.join(names)}, which belongs to the caller")


def differs(given: Any, now: Any) -> bool:
    """Whether an array or a container is no longer as it was given. Of other values nobody can say."""
    if isinstance(given, np.ndarray):
        return not np.array_equal(given, now, equal_nan=given.dtype.kind in "fc")
    if isinstance(given, (list, tuple)):
        return len(given) != len(now) or any(map(differs, given, now))
    if isinstance(given, dict):
        return list(given) != list(now) or differs([*given.values()], [*now.values()])
    return isinstance(given, set) and given != now


def run_schedule(student: Callable[..., Any], case: Case) -> Trial:
    """Run a schedule on a machine of `case.M` words, and where that overflows on one without limit."""
    assert case.M is not None, "a case for a schedule says how large fast memory is"
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

    `inputs` are shapes, tiles and a mask; `bound` returns words and the bound's id for M words of fast
    memory, and holds for every schedule that solves the exercise. `every_block`: each block is counted, not
    one for many.
    """

    inputs: Mapping[str, Any]
    bound: Callable[[int], tuple[int, str]]
    every_block: bool = False


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson; `exercise` makes it.

    `function` is the name the student's function has in the notebook. `cases` draws fresh inputs from a
    generator. `hints` go from a nudge to nearly the whole idea, never the code of the answer. `comparison`
    says where a solved schedule is set beside a lower bound.
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

    @property
    def lesson(self) -> int:
        """The number of its lesson: 4 for exercise 4B."""
        return lesson_of(self.id)

    @property
    def box(self) -> str:
        """The line under an exercise's title: difficulty, importance, minutes."""
        return (
            f"difficulty {self.difficulty} of 5 · importance {self.importance} of 5 · {self.minutes} minutes"
        )


@functools.cache
def _texts() -> Mapping[str, Mapping[str, Any]]:
    """Title, hints, function and estimates of every exercise, as the build wrote them from the lessons."""
    text = files("iocourse").joinpath("data", "exercises.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def exercise(
    id: str,
    *,
    cases: Callable[[np.random.Generator], list[Case]],
    properties: Sequence[Property],
    run_case: RunCase = run_function,
    comparison: BoundComparison | None = None,
) -> Exercise:
    """Return the exercise with this id: its texts stand in its lesson, what its check asks is given here.

    Raises ValueError where the lesson has no texts of this id.
    """
    if id not in _texts():
        raise ValueError(
            f"exercise {id!r} has no title, hints and minutes: its lesson needs a cell "
            f'# %% [raw] name="about-{id}"; then run python -m tools.build'
        )
    texts = dict(_texts()[id])
    hints = tuple(texts.pop("hints"))
    return Exercise(
        id, **texts, hints=hints, cases=cases, properties=tuple(properties), run_case=run_case,
        comparison=comparison,
    )  # fmt: skip


def lesson_of(exercise_id: str) -> int:
    """The number that an exercise's id begins with, as in 4B. Raises ValueError where there is none."""
    number = re.match(r"\d+", exercise_id)
    if number is None:
        raise ValueError(f"an exercise's id begins with the number of its lesson, as 4B; got {exercise_id!r}")
    return int(number[0])


_exercises: dict[str, Exercise] = {}  # of all files, once they were imported


def exercises() -> Mapping[str, Exercise]:
    """Every exercise of the course by id, in the order of the lessons."""
    if not _exercises:
        from . import exercises as folder

        modules = files_of(folder.__name__, folder.__path__)
        _exercises.update({exercise.id: exercise for module in modules for exercise in module.EXERCISES})
    return _exercises


@functools.cache
def _of_lesson(number: int) -> Mapping[str, Exercise]:
    """The exercises of a lesson and its part b, which one file holds; none where there is no such file."""
    name = f"{__package__}.exercises.lesson{number:02d}"
    if importlib.util.find_spec(name) is None:
        return {}
    return {exercise.id: exercise for exercise in importlib.import_module(name).EXERCISES}


def find(exercise_id: str) -> Exercise:
    """The exercise with this id, of whose lesson alone the file is imported. Raises ValueError that lists the
    ids there are.
    """
    number = re.match(r"\d+", exercise_id) if isinstance(exercise_id, str) else None
    known = _of_lesson(int(number[0])) if number and not _exercises else {}
    if exercise_id not in known:
        known = exercises()
    if exercise_id not in known:
        raise ValueError(f"there is no exercise {exercise_id!r}; there are {', '.join(known) or 'none'}")
    return known[exercise_id]


def raised_in(error: BaseException) -> str:
    """The exercise's function in which an error arose, "" for none: the innermost where one calls another."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    if names and any(exercise.function == names[-1] for exercise in _checked_last):
        return names[-1]  # without importing every lesson: the usual case, an exercise not written yet
    known = {exercise.function for exercise in exercises().values()}
    return next((name for name in reversed(names) if name in known), "")


_checked_last: list[Exercise] = []


def set_current_exercise(exercise: Exercise) -> None:
    """Remember the exercise that was checked last: its lesson is the one a student is in."""
    _checked_last[:] = [exercise]


def exercises_asking_for(function: str) -> str:
    """The exercise that asks for a function of this name, such as "4B"; "" for none.

    Where several lessons ask for it, the one of the lesson that was checked last, and all of them, as "2C or
    10A", where that lesson has none or nothing was checked yet.
    """
    asking = [exercise for exercise in exercises().values() if exercise.function == function]
    lessons = {exercise.lesson for exercise in _checked_last}
    here = [exercise for exercise in asking if exercise.lesson in lessons]
    return " or ".join(exercise.id for exercise in here or asking)
