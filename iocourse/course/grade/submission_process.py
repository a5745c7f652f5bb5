"""Process of one submission: it runs the cells and calls the student's functions, but does not judge them.

This module contains both ends. The grader's end (`ProcessClient`) sends requests with a deadline. The process
(`serve`) receives a case without expected values and returns the behaviour of the student's function. The
judge, the expected values and the verdicts stay on the grader's side. Cells are executed without IPython:
%magic and !shell lines have no effect, and top-level `await` works.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from threading import Timer
from time import monotonic
from types import CodeType
from typing import Any

from . import sandbox
from .protocol import Unreadable, name_of, read_answer, read_request, write_answer, write_request
from .sandbox import Limits, apply_limits, forbid_subprocesses

SAID = 10_000  # bytes that are read from the end of its standard error
START = 120.0  # seconds to start Python and import the library on a busy machine
LONGEST = 2_000  # maximum characters of a message
_KEPT_HERE = ("case", "error", "returned", "launches")  # fields of a trial that are not sent


# ------------------------------------------------------------------ the grader's end
class ProcessEnded(Exception):
    """The process has ended or gave no valid answer. The message is the reason, written for the student."""


class ProcessClient:
    """Client of one submission's process: starts it, sends requests and ends it.

    Attributes:
        ended: True after the first ProcessEnded.
    """

    def __init__(self, limits: Limits, sandboxed: bool) -> None:
        self.limits, self._late, self.ended = limits, False, False
        self.allow(START)
        self._home = tempfile.TemporaryDirectory(prefix="iocourse-grade-", ignore_cleanup_errors=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the session
        self._process = subprocess.Popen(
            sandbox.command(limits, sandboxed),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=sandbox.sandbox_environment(sandbox.HOME if sandboxed else self._home.name),
            cwd=self._home.name,
        )
        try:
            self._in_time()  # "ready"
        except ProcessEnded:
            self.close()
            raise

    def allow(self, seconds: float) -> None:
        """Set the deadline of the following requests to `seconds` from now."""
        self._allowed, self._due = seconds, monotonic() + seconds

    def ask(self, *message: Any) -> Any:
        """Send a request and return the answer. Raises ProcessEnded if none arrives in time."""
        return self._in_time(message)

    def _in_time(self, *messages: Any) -> Any:
        """Send messages and return the next answer; the deadline also covers the time to write them."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        timer = Timer(max(0.0, self._due - monotonic()), self._too_late)
        timer.start()
        try:
            for message in messages:
                with contextlib.suppress(OSError):  # if the process has ended, reading the answer fails below
                    write_request(asked, message)
            return read_answer(answers, self.limits.answer)
        except (EOFError, Unreadable) as error:
            self.ended = True
            raise ProcessEnded(str(error) if isinstance(error, Unreadable) else self._why()) from None
        finally:
            timer.cancel()

    def _too_late(self) -> None:
        self._late = True
        self._process.kill()

    def _why(self) -> str:
        if self._late:
            return f"took longer than {self._allowed:g} seconds"
        code = self._process.wait()
        self._said.seek(-min(SAID, self._said.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = self._said.read(SAID).decode(errors="replace").strip().splitlines()
        return f"its process ended (exit code {code})" + (f": {lines[-1][:200]}" if lines else "")

    def close(self) -> None:
        """End the process and delete its files."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        self._home.cleanup()


# ------------------------------------------------------------------ the process's end
class _Printed(io.TextIOBase):
    """Output stream that discards its text and raises RuntimeError after `most` characters."""

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
    """State of the process: the names that its cells have defined, and the trials of the current exercise."""

    def __init__(self, limits: Limits) -> None:
        from ...errors import error_text
        from ..checking import RUNS, judge
        from ..exercise import Trial, find

        self.trial = Trial
        self.judge, self.find, self.runs, self.error_text = judge, find, RUNS, error_text
        self.names = notebook_names()
        self.printed = _Printed(limits.printed)
        self.tried, self.trials = "", list[Any]()  # current exercise and its trials

    def answer(self, message: tuple[Any, ...]) -> Any:
        """Return the answer to a message (name of the request, *arguments)."""
        what, *rest = message
        self.printed.left = self.printed.most
        ways: dict[str, Callable[..., Any]] = {
            "run cell": self.run_cell,
            "refusal": self.refusal,
            "run case": self.run_case,
            "call": self.call,
        }
        return ways[what](*rest)

    def run_cell(self, name: str, source: str) -> str | None:
        """Run a cell as a file called `name`, with its source in linecache.

        Returns:
            The text of the error that the cell raised, or None.
        """
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            execute(source, name, self.names)
        except BaseException as error:  # also exit()
            return self.error_text(error)[:LONGEST]
        return self.printed.complaint if self.printed.left < 0 else None

    def refusal(self, exercise_id: str) -> list[tuple[str, str | None]]:
        """Return verdicts that explain why the student's function is not called; empty if it is."""
        exercise = self.find(exercise_id)
        if exercise.function not in self.names:
            return [(self.runs, f"the cell does not define {exercise.function}")]
        nothing = replace(exercise, cases=lambda rng: [], properties=())
        return self.judge(nothing, self.names[exercise.function], 0)

    def run_case(self, exercise_id: str, case: Any) -> tuple[str, Any, Any]:
        """Call the student's function on one case.

        Returns:
            ("trial", name of its type, its fields), or ("stopped", verdicts, None) if it cannot be judged.
        """
        exercise = self.find(exercise_id)
        student = self.names[exercise.function]
        try:
            trial = exercise.run_case(student, case)
        except BaseException as error:  # errors that the trial does not record, such as SystemExit
            return "stopped", [(self.runs, f"{self.error_text(error)[:LONGEST]} ({case.label})")], None
        if self.printed.left < 0:
            return "stopped", [(self.runs, f"{self.printed.complaint} ({case.label})")], None
        if exercise_id != self.tried:
            self.tried, self.trials = exercise_id, []
        self.trials.append(trial)
        if trial.error is not None:
            return "stopped", self._verdicts_on(exercise, student, [trial]), None
        if any(one.overwritten for one in self.trials):  # visible only here, because answers are copies
            return "stopped", self._verdicts_on(exercise, student, self.trials), None
        return _as_answer(trial)

    def call(self, at: int, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call a function that trial number `at` of the current exercise holds, such as `reversed`."""
        value = getattr(self.trials[at], name)(*arguments)
        return _as_answer(value) if isinstance(value, self.trial) else value

    def _verdicts_on(self, exercise: Any, student: Any, trials: list[Any]) -> Any:
        cases, seen = [trial.case for trial in trials], iter(trials)
        once = replace(exercise, cases=lambda rng: cases, run_case=lambda *_: next(seen), properties=())
        verdicts = self.judge(once, student, 0)
        return [(name, complaint and complaint[:LONGEST]) for name, complaint in verdicts]


def _as_answer(trial: Any) -> tuple[str, Any, Any]:
    """Return the answer for a trial: its type and fields. The grader calls their functions by `call`."""
    seen = {f.name: getattr(trial, f.name) for f in fields(trial) if f.name not in _KEPT_HERE}
    return "trial", name_of(type(trial)), seen


def serve(limits: Limits) -> None:
    """Answer requests from standard input on standard output, after hiding both from the cells."""
    forbid_subprocesses()
    apply_limits(limits)
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    process = SubmissionProcess(limits)
    write_answer(answers, "ready")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    sys.stdout = sys.stderr = process.printed
    while True:
        try:
            message = read_request(asked)
        except EOFError:
            os._exit(0)
        write_answer(answers, process.answer(message))


# ------------------------------------------------------------------ a cell
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_WHOLE = re.compile(r"\A\s*%%.*$", re.MULTILINE)  # a cell magic such as %%time; the other lines are Python


class _Shell:
    """Placeholder for IPython's shell: every method does nothing and returns None."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def notebook_names() -> dict[str, Any]:
    """Return the initial names of a notebook: `__name__`, `display`, `get_ipython`, `In` and `Out`."""
    shell = _Shell()
    own = {"display": lambda *_, **__: None, "get_ipython": lambda: shell, "In": [], "Out": {}}
    return {"__name__": "__main__"} | own


def execute(source: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell as a file called `name` in the namespace `names`. Errors of the cell are not caught."""
    try:
        code = _as_python(source, name)
    except SyntaxError:
        code = _as_python(_without_magic(source), name)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def _as_python(source: str, name: str) -> CodeType:
    code: CodeType = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def _without_magic(source: str) -> str:
    """Replace magics by function calls, by IPython's own rules if it is installed; line numbers are kept."""
    text = _WHOLE.sub("", source)
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return _MAGIC.sub(r"\1pass", text)
    return str(TransformerManager().transform_cell(text))
