"""check("4B", my_function): try the student's own object on fresh inputs, report properties by name.

And what belongs to a check: hint("4B"), the points of an answer, what is printed while a check takes long,
and that an old version of a function is checked where the last run of its cell failed.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from textwrap import fill
from typing import Any

import numpy as np

from ..doctor.triton_missing import TritonMissing
from ..errors import error_text
from ..solution_guard import LibrarySolutionUsed
from . import progress
from .bound_ratio import bound_ratio_message
from .exercise import (
    FORM,
    KEEPS_INPUTS,
    RETURNS,
    STORES,
    Better,
    Exercise,
    NotJudged,
    Trial,
    WrongEverywhere,
    WrongForm,
    exercises_asking_for,
    find,
    raised_in,
    set_current_exercise,
)
from .missing_packages import Placeholder, caused_by_missing_package, raise_missing, what_to_do
from .run_context import (
    is_graded,
    is_solved_notebook,
    is_strict,
    nbgrader_execution,
    notebook,
    warnings_to_stdout,
)
from .runtime_errors import below, likely_cause, line_of
from .trials.kernel_errors import KernelError

RUNS = "runs without an error"
OWN = "is your own work"
UNWRITTEN = "not written yet"
NOT_TRIED = "not tried"
KEEPS_RESULTS = "does not modify earlier results"
# What the report on any exercise may say, whatever properties it has.
COURSE_WIDE = (RUNS, OWN, RETURNS, FORM, STORES, KEEPS_INPUTS, KEEPS_RESULTS)
REUSED = "a later call writes into what your function returned before; make a new array in each call"
WHY_IT_RAISES = (
    "In a solved notebook a check that fails is an error; in your own copy of a lesson it never is."
)

NBGRADER_DIGITS = 4  # behind the point, of points: a feedback page shows them
COLUMNS = 100  # of a hint: JupyterLab breaks what is longer inside a word
SECONDS = 20.0  # before a check says that it still runs

Verdict = tuple[str, str | None]


class Held(str):
    """The name of a property that holds and has a remark, which the report of a solved exercise adds."""

    remark: str

    def __new__(cls, name: str, remark: str) -> Held:
        """The name, as any other text of it."""
        held = super().__new__(cls, name)
        held.remark = remark
        return held


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
    set_current_exercise(exercise)
    chosen = fresh_seed(seed)
    try:
        with warnings_to_stdout():
            verdicts = _judged_aloud(exercise, answer, chosen)
    except TritonMissing:
        if is_graded():
            raise  # or nobody would see that nothing was tried
        print(f"{exercise.id} {exercise.title}\n  {NOT_TRIED}: {what_to_do()}")
        return None
    solved = all(complaint is None for _, complaint in verdicts)
    if exercise.function in _stale:
        cell = f"The last run of the cell that defines {exercise.function} failed"
        print(f"{cell} ({_stale[exercise.function]}), so its old version is checked.")
    print(report(exercise, verdicts, chosen))
    if solved and exercise.comparison:
        small = exercise.cases(np.random.default_rng(chosen))[0]
        print(bound_ratio_message(exercise.comparison, exercise.run_case, answer, small))
    # A notebook may be run whole before anything in it is solved: what is not written yet was not tried.
    said = [complaint or "" for name, complaint in verdicts if name == RUNS]
    unwritten = any(text == UNWRITTEN or text.startswith("it calls ") for text in said)
    if solved or not unwritten:
        progress.record(exercise.id, "solved" if solved else "tried")
    if not solved and (is_solved_notebook() or is_strict()):
        failed = failed_properties(verdicts)
        first = read_first(exercise, failed)
        why = f"\n{WHY_IT_RAISES}" if is_solved_notebook() else ""
        raise CheckFailed(f"exercise {exercise.id} is not solved: {first}: {failed[first]}{why}")
    return round(points_of(exercise, verdicts), NBGRADER_DIGITS) if nbgrader_execution() else None


def _judged_aloud(exercise: Exercise, answer: Any, seed: int) -> list[Verdict]:
    """The verdicts, with signs of life."""
    with still_running() as activity:
        try:
            return judge(exercise, answer, seed, activity)
        except KeyboardInterrupt as stop:
            progress.record(exercise.id, "tried")
            said = f"{exercise.id} {exercise.title}\n  interrupted in {activity.now}{below(line_of(stop))}"
            raise Interrupted(f"{said}\nCounted as tried. Same inputs again: seed={seed}") from None


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


def judge(exercise: Exercise, answer: Any, seed: int, activity: Activity | None = None) -> list[Verdict]:
    """(property, None or what was seen) for every property; the first error makes the rest moot, and what
    asks for another form than the answer has is not tried.

    `activity` is told which case is being tried, and which property judged. Raises TritonMissing where a case
    cannot be tried here.
    """
    if isinstance(answer, Placeholder):
        raise_missing()
    tell = activity or Activity()
    refusal = _not_a_student_function(exercise, answer)
    if refusal:
        return [(OWN, refusal)]
    trials: list[Trial] = []
    for case in exercise.cases(np.random.default_rng(seed)):
        tell(f"case {case.label}")
        try:
            trial = exercise.run_case(answer, case)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # exit() in an answer ends neither the check nor the notebook
            return [_verdict_on(exercise, error, case.label)]
        if trial.error is not None:
            if caused_by_missing_package(trial.error):
                raise_missing()
            return [_verdict_on(exercise, trial.error, case.label)]
        trials.append(trial)
    reused = next((trial.case.label for trial in trials if trial.overwritten), None)
    if reused is not None:
        return [(KEEPS_RESULTS, f"{REUSED} ({reused})")]
    verdicts: list[Verdict] = []
    wrong_form = False  # said at the first property that asks for the right one; the others were not tried
    for prop in exercise.properties:
        tell(f'property "{prop.name}"')
        try:
            complaint = prop.judge(trials)
        except (Exception, SystemExit) as error:  # the answer is of a kind it cannot even look at
            complaint = WrongForm(f"cannot be judged: {error_text(error)}")
        if isinstance(complaint, Better):
            verdicts.append((Held(prop.name, complaint), None))
            continue
        again = wrong_form and isinstance(complaint, WrongForm)
        verdicts.append((prop.name, NOT_TRIED if again else complaint))
        wrong_form = wrong_form or isinstance(complaint, WrongForm)
    return verdicts


def _not_a_student_function(exercise: Exercise, answer: Any) -> str | None:
    if not callable(answer):
        return f"expected the function {exercise.function}, got {type(answer).__name__}"
    module = getattr(answer, "__module__", "") or ""
    if module == "iocourse" or module.startswith("iocourse."):
        name = getattr(answer, "__name__", "function")
        return f"this is the library's own {name}; write yours in the notebook"
    return None


def _verdict_on(exercise: Exercise, error: BaseException, label: str) -> Verdict:
    if isinstance(error, NotImplementedError):
        used = raised_in(error)
        if used in ("", exercise.function):
            return RUNS, UNWRITTEN
        return RUNS, f"it calls {used}, which is {UNWRITTEN}: solve {exercises_asking_for(used)} first"
    if isinstance(error, LibrarySolutionUsed):
        return OWN, str(error)
    if isinstance(error, NotJudged):
        return error.lacks, f"{error} ({label})"
    if isinstance(error, KernelError):  # it tells its line, shapes and cause itself
        return RUNS, f"{error_text(error)} ({label})"
    return RUNS, f"{error_text(error)} ({label}){below(line_of(error))}{below(likely_cause(error))}"


def report(exercise: Exercise, verdicts: Sequence[Verdict], seed: int) -> str:
    """The lines a student reads. Passing lines carry no sizes or times, so that they compare equal."""
    lines = [f"{exercise.id} {exercise.title}"]
    failed = failed_properties(verdicts)
    for name, complaint in verdicts:
        if complaint is None:
            remark = f": {name.remark}" if isinstance(name, Held) and not failed else ""
            lines.append(f"  holds  {name}{remark}")
        else:
            lines.append(
                f"  {NOT_TRIED}  {name}" if complaint == NOT_TRIED else f"  FAILS  {name}: {complaint}"
            )
    if len(failed) > 1:
        first = read_first(exercise, failed)
        lines.append(f'Read "{first}" first: the others may fail for the same reason.')
    if not failed:
        lines.append("Solved.")
    else:
        lines.append(f'Not solved yet. Same inputs again: seed={seed}. Stuck? hint("{exercise.id}")')
    return "\n".join(lines)


def failed_properties(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """The properties that were tried and do not hold, with what was seen."""
    return {name: said for name, said in verdicts if said is not None and said != NOT_TRIED}


def read_first(exercise: Exercise, failed: Mapping[str, str]) -> str:
    """Of the properties that fail, with what they say: a wrong form, or else the first that says something in
    particular. Most have one cause. Where values are wrong everywhere, their echoes say nothing more.
    """
    everywhere = any(isinstance(said, WrongEverywhere) for said in failed.values())
    vague = {one.name for one in exercise.properties if one.general or (one.echo and everywhere)}
    misshapen = [name for name, said in failed.items() if isinstance(said, WrongForm)]
    return next(iter([*misshapen, *(name for name in failed if name not in vague), *failed]))


# ------------------------------------------------------------------ the points of an answer
def points_of(exercise: Exercise, verdicts: Sequence[tuple[str, str | None]]) -> float:
    """The points of an answer, from the verdicts that `judge` returns for it.

    All properties have the same weight. Those that an answer which does nothing has as well (`idle`: few
    words moved, inputs not modified) count in the share in which the others hold.
    """
    held = {name for name, complaint in verdicts if complaint is None}
    working = [prop.name in held for prop in exercise.properties if not prop.idle]
    idle = [prop.name in held for prop in exercise.properties if prop.idle]
    counted = sum(working) + sum(idle) * sum(working) / len(working)
    return exercise.importance * counted / len(exercise.properties)


# ------------------------------------------------------------------ while a check takes long
class Interrupted(KeyboardInterrupt):
    """An interrupted check. A notebook's cell, and Run All, end with its message and without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Activity:
    """What is being done now, in words; a check says so as it goes on."""

    def __init__(self) -> None:
        self.now = "the inputs are drawn"

    def __call__(self, words: str) -> None:
        self.now = words


@contextmanager
def still_running() -> Iterator[Activity]:
    """Within this block, "still running: …" after 20 s, then after 40, 80 and so on.

    Never where outputs are compared with others and must not depend on time: in a solved notebook, and where
    IOCOURSE_SEED is set.
    """
    activity, over = Activity(), threading.Event()
    teller = threading.Thread(target=_tell, args=(activity, over), daemon=True)
    if not (is_solved_notebook() or os.environ.get("IOCOURSE_SEED")):
        with suppress(RuntimeError):  # there are no threads in a browser
            teller.start()
    try:
        yield activity
    finally:
        over.set()


def _tell(activity: Activity, over: threading.Event) -> None:
    waits = SECONDS
    while not over.wait(waits):
        print(f"still running: {activity.now}", flush=True)
        waits *= 2


# ------------------------------------------------------------------ old versions of functions
# Also where the line is indented, since that may be the error.
_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_stale: dict[str, str] = {}  # the name of a function: the type of the error


def watch_cells() -> None:
    """From now on, in a notebook or in IPython; elsewhere this does nothing."""
    shell = notebook()
    if shell is not None:
        hooks = _Hooks(shell)
        shell.events.register("pre_run_cell", hooks.begin)
        shell.events.register("post_run_cell", hooks.end)


class _Hooks:
    """Look at the functions that a cell defines, before it runs and after it has run."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.before: dict[str, Any] = {}

    def begin(self, info: Any) -> None:
        """Keep what stands under the names that the cell defines."""
        self.before = dict(self._now(info.raw_cell))

    def end(self, result: Any) -> None:
        """A cell that raised without defining a function again leaves its old version."""
        error = result.error_before_exec or result.error_in_exec
        for name, now in self._now(result.info.raw_cell):
            _stale.pop(name, None)
            if error is not None and now is self.before.get(name):
                _stale[name] = type(error).__name__

    def _now(self, text: str) -> Iterator[tuple[str, Any]]:
        return ((name, self.shell.user_ns.get(name)) for name in _DEFINITION.findall(text))


# ------------------------------------------------------------------ hints
def hint(exercise_id: str, level: int = 1, *, count: bool = True) -> None:
    """Print a hint for an exercise: `level` 1 to 3, each more than the one before.

    A cell that is run again shows the same hint again. `count=False`, for a lesson that shows what a hint
    is, leaves progress as it was. Raises ValueError for another level or an unknown exercise.
    """
    exercise = find(exercise_id)
    last = len(exercise.hints)
    if isinstance(level, bool) or level not in range(1, last + 1):
        raise ValueError(f"level must be 1 to {last}, got {level!r}")
    more = (
        f'hint("{exercise.id}", {level + 1}) shows the next.' if level < last else "This was the last hint."
    )
    text = f"Hint {level} of {last} for {exercise.id}: {exercise.hints[level - 1]}"
    print(fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False), more, sep="\n")
    if count:
        progress.record(exercise.id, "seen", hint=level)
