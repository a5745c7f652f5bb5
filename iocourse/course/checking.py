"""check("4B", my_function): run the student's function on new inputs and report its properties by name.

Also: hint("4B"), the progress messages of a long check, and the note that an old
version of a function is checked because the last run of its cell failed.
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
from . import progress
from .bound_ratio import bound_ratio_message
from .exercise import (
    FORM,
    KEEPS_INPUTS,
    RETURNS,
    STORES,
    Better,
    Exercise,
    FirstCause,
    NotJudged,
    NotReached,
    Property,
    TrafficCause,
    Trial,
    WrongEverywhere,
    WrongForm,
    exercises_asking_for,
    find,
    raised_in,
    set_current_exercise,
)
from .guard import LibrarySolutionUsed
from .missing_packages import Placeholder, caused_by_missing_package, raise_missing, what_to_do
from .properties import LARGE
from .run_context import (
    ipython_shell,
    is_graded,
    is_solved_notebook,
    is_strict,
    nbgrader_execution,
    warnings_to_stdout,
)
from .runtime_errors import below, failing_line, likely_cause
from .trials.kernel_errors import KernelError

RUNS = "runs without an error"
OWN = "is your own work"
UNWRITTEN = "not written yet"
NOT_TRIED = "not tried"  # of an exercise whose packages are missing
OTHER_FORM = "the result has another form"
KEEPS_RESULTS = "does not modify earlier results"
# Names that the report on any exercise may have, in addition to its properties.
COURSE_WIDE = (RUNS, OWN, RETURNS, FORM, STORES, KEEPS_INPUTS, KEEPS_RESULTS)
REUSED = "a later call modifies the array that your function returned before; create a new array in each call"
WHY_IT_RAISES = "In a solved notebook a failed check is an error; in your own copy of a lesson it is not."

NBGRADER_DIGITS = 4  # decimals of points on a feedback page
COLUMNS = 100  # of a hint; JupyterLab breaks longer lines inside words
SECONDS = 20.0  # before the first message that a check is still running

Verdict = tuple[str, str | None]


class HeldWithRemark(str):
    """The name of a property that holds with a remark, which the report of a solved exercise prints."""

    remark: str

    def __new__(cls, name: str, remark: str) -> HeldWithRemark:
        """Return the name with its remark."""
        held = super().__new__(cls, name)
        held.remark = remark
        return held


class CheckFailed(AssertionError):
    """A failed check in a solved notebook or with IOCOURSE_STRICT; not raised in a student's own notebook."""

    def _render_traceback_(self) -> list[str]:
        """Return the message without a traceback, which would only show lines of the library."""
        return [f"{type(self).__name__}: {self}"]


def check(exercise_id: str, answer: Callable[..., Any], *, seed: int | None = None) -> float | None:
    """Check a function for an exercise and print one line per property.

    The inputs are new in each call; the report of a failed check has the seed that repeats them. For a solved
    schedule with a known lower bound, the ratio to it is printed too. If a required package is missing, or if
    the last run of the function's cell failed, the report says so. A long check prints the current case.

    Args:
        exercise_id: such as "4B".
        answer: the student's function.
        seed: of the random inputs; default: IOCOURSE_SEED, or a random seed.

    Returns:
        The points if nbgrader runs the check, otherwise None.

    Raises:
        ValueError: unknown exercise, or a seed that is not an integer of at least 0.
        CheckFailed: a check failed in a solved notebook or with IOCOURSE_STRICT=1.
        KeyboardInterrupt: with the current case in its message.
    """
    exercise = find(exercise_id)
    set_current_exercise(exercise)
    chosen = fresh_seed(seed)
    try:
        with warnings_to_stdout():
            verdicts = _judged_aloud(exercise, answer, chosen)
    except TritonMissing:
        if is_graded():
            raise  # otherwise a grader would not notice that nothing was run
        print(f"{exercise.id} {exercise.title}\n  {NOT_TRIED}: {what_to_do()}")
        return None
    solved = all(complaint is None for _, complaint in verdicts)
    old, failure = _stale.get(exercise.function, (None, ""))
    if failure and answer is old:
        print(f"The last run of the cell that defines {exercise.function} failed {failure}")
    print(report(exercise, verdicts, chosen))
    if solved and exercise.compiles and not nbgrader_execution():
        from .trials.compiled_launch import compiler_lines  # other checks do not need the compiler

        same = exercise.cases(np.random.default_rng(0))  # a size that 16 divides is compiled in another way
        print(compiler_lines(exercise.run_case, answer, same))
    if solved and exercise.comparison:
        small = exercise.cases(np.random.default_rng(chosen))[0]
        print(bound_ratio_message(exercise.comparison, exercise.run_case, answer, small))
    # Run All before anything is solved must not count as an attempt.
    said = [complaint or "" for name, complaint in verdicts if name == RUNS]
    unwritten = any(text == UNWRITTEN or text.startswith("it calls ") for text in said)
    if solved or not unwritten:
        progress.record(exercise.id, "solved" if solved else "tried")
    if not solved and (is_solved_notebook() or is_strict()):
        failed = failed_properties(verdicts)
        first = read_first(exercise, failed)
        why = f"\n{WHY_IT_RAISES}" if is_solved_notebook() else ""
        raise CheckFailed(f"exercise {exercise.id} is not solved: {first}: {failed[first]}{why}")
    if not nbgrader_execution():
        return None
    from .points import how_paid, points_of  # other checks do not need the points

    points = points_of(exercise, verdicts)
    print(f"Points: {points.total:.3g} of {exercise.importance} ({points})")  # nbgrader shows the sum alone
    if 0 < points.total < exercise.importance:
        print(how_paid(exercise))
    return round(points.total, NBGRADER_DIGITS)


def _judged_aloud(exercise: Exercise, answer: Any, seed: int) -> list[Verdict]:
    """Return the verdicts; print progress messages meanwhile."""
    with still_running() as activity:
        try:
            return judge(exercise, answer, seed, activity)
        except KeyboardInterrupt as stop:
            progress.record(exercise.id, "tried")
            said = (
                f"{exercise.id} {exercise.title}\n  interrupted in {activity.now}{below(failing_line(stop))}"
            )
            raise Interrupted(f"{said}\nCounted as tried. Same inputs again: seed={seed}") from None


def fresh_seed(seed: int | None = None) -> int:
    """Return `seed`, or IOCOURSE_SEED, or a random seed. Raises ValueError if it is not an integer >= 0."""
    if seed is not None:
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        return _from_0("seed", seed, int(seed) if whole else None)
    fixed = os.environ.get("IOCOURSE_SEED")
    if not fixed:
        return secrets.randbelow(10**6)
    return _from_0("IOCOURSE_SEED", fixed, int(fixed) if fixed.isdecimal() else None)


def _from_0(name: str, came: object, number: int | None) -> int:
    if number is None or number < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {came!r}")
    return number


def judge(exercise: Exercise, answer: Any, seed: int, activity: Activity | None = None) -> list[Verdict]:
    """Run the function on all cases and return (name, None or a message) for every property.

    A property holds (None), fails (a message), or is not reached (a NotReached). After an error only that
    error is returned. After a wrong form, the other properties that need the form are not reached. If a
    property fails, traffic is not reached where the result was not computed from the inputs.

    Args:
        exercise: its cases and properties.
        answer: the student's function.
        seed: of the random inputs.
        activity: is called with the current case or property.

    Raises:
        TritonMissing: a case needs torch or triton, which are not installed.
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
        except BaseException as error:  # exit() in a student's function must not end the notebook
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
    wrong_form = False  # reported at the first property that needs the form; later ones are not reached
    for prop in exercise.properties:
        tell(f'property "{prop.name}"')
        try:
            complaint = prop.judge(trials)
        except (Exception, SystemExit) as error:  # the result has a type that the property cannot handle
            complaint = WrongForm(f"the result cannot be tested: {error_text(error)}")
        if isinstance(complaint, Better):
            verdicts.append((HeldWithRemark(prop.name, complaint), None))
            continue
        again = wrong_form and isinstance(complaint, WrongForm)
        verdicts.append((prop.name, NotReached(OTHER_FORM) if again else complaint))
        wrong_form = wrong_form or isinstance(complaint, WrongForm)
    if not failed_properties(verdicts):  # right results: what was not touched was not needed
        return [(name, None) for name, _ in verdicts]
    return _with_first_cause(exercise, trials, _with_reach(exercise, answer, trials, verdicts))


def _with_reach(
    exercise: Exercise, answer: Any, trials: Sequence[Trial], verdicts: list[Verdict]
) -> list[Verdict]:
    """Return the verdicts; what holds only because nothing was computed from the inputs is not reached."""
    asked = {prop.name: prop for prop in exercise.properties}
    told = [asked[name] for name, said in verdicts if said is not None and not isinstance(said, NotReached)]
    vain = [name for name, said in verdicts if said is None and (asked[name].traffic or asked[name].idle)]
    if not vain or all(prop.traffic for prop in told):  # right values are computed from all inputs
        return verdicts
    from .reached import few_words, reached  # a check of a right result does not need it

    seen = reached(exercise, answer, trials)

    def instead(name: str) -> str | None:
        prop = asked[name]
        lost = [f"your result does not depend on {array}" for array in prop.of if array in seen.unused]
        few = [
            few_words(trials, array) for array in prop.of or ([""] if prop.traffic and prop.general else [])
        ]
        why = next(filter(None, [seen.nothing, *lost, *few]), "")
        return NotReached(why) if why else None

    return [(name, instead(name) if name in vain else said) for name, said in verdicts]


def _with_first_cause(exercise: Exercise, trials: Sequence[Trial], verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts; a fault of one kind of cases that explains all wrong values is a FirstCause.

    Softmax without its maximum is wrong for large logits only, and then no row sums to one either.
    """
    said = {name: text for name, text in failed_properties(verdicts).items()}
    wrong = [prop for prop in exercise.properties if prop.name in said and not prop.traffic]
    for prop in wrong if len(wrong) > 1 else ():
        others = [trial for trial in trials if prop.tag and not trial.case.has(prop.tag)]
        if others and all(_holds(one, others) for one in wrong):
            return [(name, FirstCause(text) if name == prop.name else text) for name, text in verdicts]
    return verdicts


def _holds(prop: Property, trials: Sequence[Trial]) -> bool:
    try:
        return not prop.judge(trials)
    except Exception:  # it needs a case that is left out
        return False


def _not_a_student_function(exercise: Exercise, answer: Any) -> str | None:
    if not callable(answer):
        return f"expected the function {exercise.function}, got {type(answer).__name__}"
    module = getattr(answer, "__module__", "") or ""
    if module == "iocourse" or module.startswith("iocourse."):
        name = getattr(answer, "__name__", "function")
        return f"this is the library's own {name}; write your own function in the notebook"
    return None


def _verdict_on(exercise: Exercise, error: BaseException, label: str) -> Verdict:
    if isinstance(error, NotImplementedError):
        used = raised_in(error)
        if used in ("", *exercise.names):
            return RUNS, UNWRITTEN
        return RUNS, f"it calls {used}, which is {UNWRITTEN}: solve {exercises_asking_for(used)} first"
    if isinstance(error, LibrarySolutionUsed):
        return OWN, str(error)
    if isinstance(error, NotJudged):
        return error.lacks, f"{error} ({label})"
    if isinstance(error, KernelError):  # its message has line, shapes and cause
        return RUNS, f"{error_text(error)} ({label})"
    return RUNS, f"{error_text(error)} ({label}){below(failing_line(error))}{below(likely_cause(error))}"


def report(exercise: Exercise, verdicts: Sequence[Verdict], seed: int) -> str:
    """Return the report for the student. Lines of properties that hold have no sizes, so they are stable.

    Properties that fail with another one are named below it, so one fault reads as one.
    """
    lines = [f"{exercise.id} {exercise.title}"]
    failed = failed_properties(verdicts)
    with_it = _followers(exercise, failed)
    quiet = {name for names in with_it.values() for name in names}
    for name, complaint in verdicts:
        if complaint is None:
            remark = f": {name.remark}" if isinstance(name, HeldWithRemark) and not failed else ""
            lines.append(f"  holds  {name}{remark}")
        elif isinstance(complaint, NotReached):
            lines.append(f"  not reached  {name}: {complaint}")
        elif name not in quiet:
            lines.append(f"  FAILS  {name}: {complaint}")
            if name in with_it:
                lines.append(f"         {_joined(exercise, name)}: {'; '.join(with_it[name])}")
    if len(failed) - len(quiet) > 1:
        first = read_first(exercise, failed)
        lines.append(f'Read "{first}" first: the others may fail for the same reason.')
    if not failed:
        lines.append("Solved.")
    else:
        lines.append(f'Not solved yet. Same inputs again: seed={seed}. Stuck? hint("{exercise.id}")')
    return "\n".join(lines)


def _followers(exercise: Exercise, failed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the failed properties that one other explains, by the name of that one.

    One fault explains all wrong values if it is a FirstCause, or if no property of right values holds.
    Otherwise a specific property explains the vague ones. The sum of all words fails with those of an array.
    """
    found: dict[str, list[str]] = {}
    values = [prop for prop in exercise.properties if prop.name in failed and not prop.traffic]
    if values:
        first = read_first(exercise, {prop.name: failed[prop.name] for prop in values})
        lead = next(prop for prop in values if prop.name == first)
        telling = [prop for prop in exercise.properties if not (prop.traffic or prop.idle)]
        alone = isinstance(failed[first], FirstCause) or all(prop.name in failed for prop in telling)
        found[first] = [one.name for one in values if one is not lead and (alone or _vaguer(one, lead))]
    words = [prop for prop in exercise.properties if prop.name in failed and prop.traffic]
    if special := [prop for prop in words if not prop.general]:
        counted = next((prop for prop in special if prop.of), special[0])  # a peak does not add up words
        found[counted.name] = [prop.name for prop in words if prop.general]
    return {name: others for name, others in found.items() if others}


def _joined(exercise: Exercise, lead: str) -> str:
    """Return the words before the properties that fail with this one.

    Where values are wrong for one reason, the other properties of the values were not tested apart from it.
    """
    traffic = next(prop.traffic for prop in exercise.properties if prop.name == lead)
    return "and with it" if traffic else "with it, and not tested apart"


def _vaguer(one: Property, lead: Property) -> bool:
    return (one.general and not lead.general) or (one.echo and not lead.echo)


def failed_properties(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return the properties that were tested and failed, with their messages."""
    return {name: said for name, said in verdicts if said is not None and not isinstance(said, NotReached)}


def read_first(exercise: Exercise, failed: Mapping[str, str]) -> str:
    """Return the failed property to read first: a wrong form, a FirstCause, or the first specific failure.

    Most failures have one cause. If the values are wrong in every case, `echo` properties count as vague.
    Large scores alone are a FirstCause. If they fail with a general property of the values, they are vague.
    A TrafficCause comes before all traffic, unless values are wrong.
    """
    everywhere = any(isinstance(said, WrongEverywhere) for said in failed.values())
    wrong = [one for one in exercise.properties if one.name in failed and not one.traffic]
    some_general = any(one.general for one in wrong)
    echoes = {one.name for one in wrong if one.echo and (everywhere or (some_general and one.tag == LARGE))}
    vague = echoes | {one.name for one in exercise.properties if one.general}
    certain = [
        name for kind in (WrongForm, FirstCause) for name, said in failed.items() if isinstance(said, kind)
    ]
    if all(one.idle for one in wrong):
        certain += [name for name, said in failed.items() if isinstance(said, TrafficCause)]
    return next(iter([*certain, *(name for name in failed if name not in vague), *failed]))


# ------------------------------------------------------------------ progress messages
class Interrupted(KeyboardInterrupt):
    """An interrupted check; the notebook shows its message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Activity:
    """The current step of a check, in words."""

    def __init__(self) -> None:
        self.now = "the inputs are drawn"

    def __call__(self, words: str) -> None:
        self.now = words


@contextmanager
def still_running() -> Iterator[Activity]:
    """Print "still running: …" after 20 s in the block, and again after 40 s, 80 s and so on.

    Nothing is printed in a solved notebook or with IOCOURSE_SEED, because those outputs are compared.
    """
    # <!-- 20, 40, 80 = [course.checking.SECONDS * 2**n for n in range(3)] -->
    activity, over = Activity(), threading.Event()
    teller = threading.Thread(target=_tell, args=(activity, over), daemon=True)
    if not (is_solved_notebook() or os.environ.get("IOCOURSE_SEED")):
        with suppress(RuntimeError):  # a browser has no threads
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
# Indented lines too, since the indentation may be the error.
_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_stale: dict[str, tuple[Any, str]] = {}  # by the name of a function: the old one, and why in words


def watch_cells() -> None:
    """Start to watch cells in a notebook or IPython; do nothing elsewhere."""
    shell = ipython_shell()
    if shell is not None:
        hooks = _Hooks(shell)
        shell.events.register("pre_run_cell", hooks.begin)
        shell.events.register("post_run_cell", hooks.end)


class _Hooks:
    """Compare the functions that a cell defines before and after its run."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.before: dict[str, Any] = {}

    def begin(self, info: Any) -> None:
        """Remember the current values of the names that the cell defines."""
        self.before = dict(self._now(info.raw_cell))

    def end(self, result: Any) -> None:
        """Record the functions that a failed cell has not defined again."""
        error = result.error_before_exec or result.error_in_exec
        now = dict(self._now(result.info.raw_cell))
        old = [name for name in now if now[name] is self.before.get(name)]
        new = [name for name in now if name not in (*old, "_")]
        for name in now:
            _stale.pop(name, None)
        for name in old if error is not None else ():
            if now[name] is not None:
                _stale[name] = now[name], _in_words(error, result.error_before_exec is not None, new)

    def _now(self, text: str) -> Iterator[tuple[str, Any]]:
        return ((name, self.shell.user_ns.get(name)) for name in _DEFINITION.findall(text))


def _in_words(error: BaseException, at_once: bool, new: Sequence[str]) -> str:
    """Return why a failed cell has left a function as it was; `new` are the functions it replaced."""
    kind = type(error).__name__
    if at_once:
        return f"({kind}) before its first line, so the version of an earlier run is checked."
    others = f", with the new {', '.join(new)}" if new else ""
    return f"({kind}), so its old version is checked{others}."


# ------------------------------------------------------------------ hints
def hint(exercise_id: str, level: int = 1, *, count: bool = True) -> None:
    """Print a hint for an exercise.

    Args:
        exercise_id: such as "4B".
        level: 1 to 3; each level says more than the one before.
        count: False does not record the hint in the progress file.

    Raises:
        ValueError: unknown exercise, or another level.
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
