"""The process of one submission: it runs cells and calls the student's functions; the judge is elsewhere.

It is told a case without what is expected of it, and answers with what the student's function did: the judge,
the right values and the verdicts are in another process.
"""

from __future__ import annotations

import io
import linecache
import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from .cell_execution import execute, notebook_names
from .protocol import answer, name_of, read_trusted
from .sandbox import Limits, apply_limits, forbid_subprocesses

LONGEST = 2_000  # characters of a message
_KEPT_HERE = ("case", "error", "returned")  # of a trial: no part of what is told


class _Printed(io.TextIOBase):
    """Where prints go: nowhere, and not without end."""

    def __init__(self, most: int) -> None:
        self.most, self.left = most, most

    def write(self, text: str) -> int:
        self.left -= len(text)
        if self.left < 0:
            raise RuntimeError(self.complaint)
        return len(text)

    @property
    def complaint(self) -> str:
        return f"printed more than {self.most:,} characters"


class SubmissionProcess:
    """The cells run so far, and what they defined."""

    def __init__(self, limits: Limits) -> None:
        from ..course.checking import RUNS, judge
        from ..course.exercise import find

        self.judge, self.find, self.runs = judge, find, RUNS
        self.names = notebook_names()
        self.printed = _Printed(limits.printed)
        self.played, self.trials = "", list[Any]()  # of the exercise that is being played

    def do(self, message: tuple[Any, ...]) -> Any:
        """What a message asks for, as an answer."""
        what, *rest = message
        self.printed.left = self.printed.most
        ways: dict[str, Callable[..., Any]] = {"run": self.run, "own": self.own, "play": self.play}
        return ways[what](*rest)

    def run(self, name: str, source: str) -> str | None:
        """Run a cell as a file called `name` whose text can be looked up; the error, where it raised one."""
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            execute(source, name, self.names)
        except BaseException as error:  # also exit()
            return _told(error)
        return self.printed.complaint if self.printed.left < 0 else None

    def own(self, exercise_id: str) -> list[tuple[str, str | None]]:
        """Why the student's function is not even tried; empty where it is."""
        exercise = self.find(exercise_id)
        if exercise.function not in self.names:
            return [(self.runs, f"the cell does not define {exercise.function}")]
        nothing = replace(exercise, cases=lambda rng: [], properties=())
        return self.judge(nothing, self.names[exercise.function], 0)

    def play(self, exercise_id: str, case: Any) -> tuple[str, Any, Any]:
        """("trial", its type's name, its fields), or ("stopped", verdicts, None) with nothing to judge."""
        exercise = self.find(exercise_id)
        student = self.names[exercise.function]
        try:
            trial = exercise.run_case(student, case)
        except BaseException as error:  # what the play itself does not keep, such as exit()
            return "stopped", [(self.runs, f"{_told(error)} ({case.label})")], None
        if self.printed.left < 0:
            return "stopped", [(self.runs, f"{self.printed.complaint} ({case.label})")], None
        if exercise_id != self.played:
            self.played, self.trials = exercise_id, []
        self.trials.append(trial)
        if trial.error is not None:
            return "stopped", self._verdicts_on(exercise, student, [trial]), None
        if any(one.overwritten for one in self.trials):  # seen here alone: what is sent is a copy
            return "stopped", self._verdicts_on(exercise, student, self.trials), None
        seen = {f.name: getattr(trial, f.name) for f in fields(trial) if f.name not in _KEPT_HERE}
        return "trial", name_of(type(trial)), seen

    def _verdicts_on(self, exercise: Any, student: Any, trials: list[Any]) -> Any:
        cases, played = [trial.case for trial in trials], iter(trials)
        once = replace(exercise, cases=lambda rng: cases, run_case=lambda *_: next(played), properties=())
        verdicts = self.judge(once, student, 0)
        return [(name, complaint and complaint[:LONGEST]) for name, complaint in verdicts]


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:LONGEST]
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"


def serve(limits: Limits) -> None:
    """Answer messages from standard input on standard output, which cells can neither read nor write."""
    forbid_subprocesses()
    apply_limits(limits)
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    process = SubmissionProcess(limits)
    answer(answers, "ready")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    sys.stdout = sys.stderr = process.printed
    _answer_all(process.do, asked, answers)


def _answer_all(do: Callable[[Any], Any], asked: Any, answers: Any) -> None:
    while True:
        try:
            message = read_trusted(asked)
        except EOFError:
            os._exit(0)
        answer(answers, do(message))
