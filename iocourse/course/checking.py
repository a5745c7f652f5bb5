"""check("4B", my_function): try the student's own object on fresh inputs, report properties by name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..doctor.triton_missing import TritonMissing
from ..solution_guard import LibrarySolutionUsed
from . import nbgrader_mode, progress
from . import solved as solved_notebook
from .bound_ratio import bound_ratio_message
from .exercise import (
    Exercise,
    Property,
    Trial,
    WrongEverywhere,
    WrongForm,
    asking_for,
    error_text,
    find,
    now_checking,
    raised_in,
)
from .missing_packages import Placeholder, lack_behind, refuse, what_to_do
from .runtime_errors import advice, below, line_of
from .slow_check import Doing, Interrupted, signs_of_life
from .stale_functions import failed, old_version
from .trials.kernel_errors import KernelError

RUNS = "runs without an error"
OWN = "is your own work"
UNWRITTEN = "not written yet"
NOT_TRIED = "not tried"
REUSED = "a later call writes into what your function returned before; make a new array in each call"
WHY_IT_RAISES = (
    "In a solved notebook a check that fails is an error; in your own copy of a lesson it never is."
)

Verdict = tuple[str, str | None]


class CheckFailed(AssertionError):
    """A check failed in a solved notebook, or where IOCOURSE_STRICT asks for an error; never raised in a
    student's own notebook.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback, which would show nothing but our own lines."""
        return [f"{type(self).__name__}: {self}"]


def check(exercise_id: str, answer: Callable[..., Any], *, seed: int | None = None) -> float | None:
    """Judge `answer` for an exercise and print one line for each property.

    Beside a solved schedule stands how near it comes to what anybody must move, where a bound is known.
    Inputs are fresh each time; a failing report names the seed that repeats them. Never raises for a
    student; in a solved notebook and with IOCOURSE_STRICT=1 a failed check raises CheckFailed below its
    report. Raises ValueError for an unknown id and for a seed that is no whole number from 0. Where what it
    needs is not installed, it says so and tries nothing. Where the last run of the function's cell failed, it
    says that it checks the old version. A check that takes long says which case is running; KeyboardInterrupt
    is raised again with the case in its message, which is all that a notebook shows.

    Returns:
        None, which a notebook does not show; the points where nbgrader runs it.
    """
    exercise = find(exercise_id)
    now_checking(exercise)
    chosen = fresh_seed(seed)
    try:
        with nbgrader_mode.warnings_are_no_failures():
            verdicts = _judged_aloud(exercise, answer, chosen)
    except TritonMissing:
        if nbgrader_mode.counts():
            raise  # or nobody would see that nothing was tried
        print(f"{exercise.id} {exercise.title}\n  {NOT_TRIED}: {what_to_do()}")
        return None
    solved = all(complaint is None for _, complaint in verdicts)
    if exercise.function in failed:
        print(old_version(exercise.function))
    print(report(exercise, verdicts, chosen))
    if solved and exercise.anybody:
        print(
            bound_ratio_message(
                exercise.anybody, exercise.run_case, answer, exercise.cases(np.random.default_rng(chosen))[0]
            )
        )
    if solved or not _is_unwritten(verdicts):
        progress.record(exercise.id, "solved" if solved else "tried")
    if not solved and (solved_notebook.runs_here() or os.environ.get("IOCOURSE_STRICT") == "1"):
        raise CheckFailed(_in_short(exercise, verdicts))
    if not nbgrader_mode.execution():
        return None
    return nbgrader_mode.points(exercise, verdicts)


def _judged_aloud(exercise: Exercise, answer: Any, seed: int) -> list[Verdict]:
    """The verdicts, with signs of life."""
    with signs_of_life() as doing:
        try:
            return judge(exercise, answer, seed, doing)
        except KeyboardInterrupt as stop:
            progress.record(exercise.id, "tried")
            said = f"{exercise.id} {exercise.title}\n  interrupted in {doing.now}{below(line_of(stop))}"
            raise Interrupted(f"{said}\nCounted as tried. Same inputs again: seed={seed}") from None


def _in_short(exercise: Exercise, verdicts: Sequence[Verdict]) -> str:
    """Which exercise is not solved, by the property to be read first, and why that is an error here."""
    failed = {name: said for name, said in verdicts if said is not None and said != NOT_TRIED}
    first = read_first(exercise, failed)
    told_so = f"exercise {exercise.id} is not solved: {first}: {failed[first]}"
    if not solved_notebook.runs_here():
        return told_so
    return f"{told_so}\n{WHY_IT_RAISES}"


def _is_unwritten(verdicts: Sequence[Verdict]) -> bool:
    """Whether nothing was tried yet: a notebook may be run whole before anything in it is solved."""
    said = [complaint or "" for name, complaint in verdicts if name == RUNS]
    return any(text == UNWRITTEN or text.startswith("it calls ") for text in said)


def fresh_seed(seed: int | None = None) -> int:
    """`seed`, else IOCOURSE_SEED, else one drawn. Raises ValueError where it is no whole number from 0."""
    if seed is not None:
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        return _from_0("seed", seed, int(seed) if whole else None)
    fixed = os.environ.get("IOCOURSE_SEED")
    if not fixed:
        return secrets.randbelow(10**6)
    return _from_0("IOCOURSE_SEED", fixed, int(fixed) if fixed.isdecimal() else None)


def _from_0(name: str, came: object, number: int | None) -> int:
    if number is None or number < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, got {came!r}")
    return number


def judge(exercise: Exercise, answer: Any, seed: int, doing: Doing | None = None) -> list[Verdict]:
    """(property, None or what was seen) for every property; the first error makes the rest moot, and what
    asks for another form than the answer has is not tried.

    `doing` is told which case is being tried, and which property judged. Raises TritonMissing where a case
    cannot be tried here.
    """
    if isinstance(answer, Placeholder):
        refuse()
    tell = doing or Doing()
    refusal = _not_a_student_function(exercise, answer)
    if refusal:
        return [(OWN, refusal)]
    trials: list[Trial] = []
    for case in exercise.cases(np.random.default_rng(seed)):
        tell(f"case {case.label}")
        trial = exercise.run_case(answer, case)
        if lack_behind(trial.error):
            refuse()
        if trial.error is not None:
            return [_verdict_on(exercise, trial.error, case.label)]
        trials.append(trial)
    reused = next((trial.case.label for trial in trials if trial.overwritten), None)
    if reused is not None:
        return [(RUNS, f"{REUSED} ({reused})")]
    verdicts = []
    for prop in exercise.properties:
        tell(f'property "{prop.name}"')
        verdicts.append((prop.name, _ask(prop, trials)))
    return _told_once(verdicts)


def _told_once(verdicts: list[Verdict]) -> list[Verdict]:
    """A wrong form is told at the first property that asks for the right one; the others were not tried."""
    known = [name for name, complaint in verdicts if isinstance(complaint, WrongForm)][:1]
    return [
        (name, NOT_TRIED if isinstance(complaint, WrongForm) and name not in known else complaint)
        for name, complaint in verdicts
    ]


def _not_a_student_function(exercise: Exercise, answer: Any) -> str | None:
    if not callable(answer):
        return f"expected the function {exercise.function}, got {type(answer).__name__}"
    module = getattr(answer, "__module__", "") or ""
    if module == "iocourse" or module.startswith("iocourse."):
        name = getattr(answer, "__name__", "function")
        return f"this is the library's own {name}; write yours in the notebook"
    return None


def _verdict_on(exercise: Exercise, error: Exception, label: str) -> Verdict:
    if isinstance(error, NotImplementedError):
        used = raised_in(error)
        if used in ("", exercise.function):
            return RUNS, UNWRITTEN
        return RUNS, f"it calls {used}, which is {UNWRITTEN}: solve {asking_for(used)} first"
    if isinstance(error, LibrarySolutionUsed):
        return OWN, str(error)
    if isinstance(error, KernelError):  # it tells its line, shapes and cause itself
        return RUNS, f"{error_text(error)} ({label})"
    return RUNS, f"{error_text(error)} ({label}){below(line_of(error))}{below(advice(error))}"


def _ask(prop: Property, trials: Sequence[Trial]) -> str | None:
    try:
        return prop.judge(trials)
    except Exception as error:  # the answer is of a kind the property cannot even look at
        return WrongForm(f"cannot be judged: {error_text(error)}")


def report(exercise: Exercise, verdicts: Sequence[Verdict], seed: int) -> str:
    """The lines a student reads. Passing lines carry no sizes or times, so that they compare equal."""
    lines = [f"{exercise.id} {exercise.title}"]
    for name, complaint in verdicts:
        lines.append(_line(name, complaint))
    if all(complaint is None for _, complaint in verdicts):
        lines.append("Solved.")
    else:
        lines += _which_first(exercise, verdicts)
        lines.append(f'Not solved yet. Same inputs again: seed={seed}. Stuck? hint("{exercise.id}")')
    return "\n".join(lines)


def _line(name: str, complaint: str | None) -> str:
    if complaint is None:
        return f"  holds  {name}"
    return f"  {NOT_TRIED}  {name}" if complaint == NOT_TRIED else f"  FAILS  {name}: {complaint}"


def _which_first(exercise: Exercise, verdicts: Sequence[Verdict]) -> list[str]:
    failed = {name: said for name, said in verdicts if said is not None and said != NOT_TRIED}
    if len(failed) < 2:
        return []
    return [f'Read "{read_first(exercise, failed)}" first: the others may fail for the same reason.']


def read_first(exercise: Exercise, failed: Mapping[str, str]) -> str:
    """Of the properties that fail, with what they say: a wrong form, or else the first that says something in
    particular. Most have one cause. Where values are wrong everywhere, their echoes say nothing more.
    """
    everywhere = any(isinstance(said, WrongEverywhere) for said in failed.values())
    vague = {one.name for one in exercise.properties if one.general or (one.echo and everywhere)}
    misshapen = [name for name, said in failed.items() if isinstance(said, WrongForm)]
    return next(iter([*misshapen, *(name for name in failed if name not in vague), *failed]))
