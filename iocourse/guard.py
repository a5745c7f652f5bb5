"""While a check looks at a student's answer, the library's own answers step aside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_exams_open = 0  # one count for the whole process, so that a thread is no way out


class LibraryAnswer(RuntimeError):
    """A library function was called where a student's own work is being judged."""


@contextmanager
def exam() -> Iterator[None]:
    """Within this block every function marked `library_answer` refuses to be called."""
    global _exams_open
    _exams_open += 1
    try:
        yield
    finally:
        _exams_open -= 1


def in_exam() -> bool:
    """Whether a check is looking at a student's answer now."""
    return _exams_open > 0


def refuse_in_exam(name: str) -> None:
    """Raise `LibraryAnswer` when a check is running; `name` says which library function was called."""
    if in_exam():
        raise LibraryAnswer(f"{name} is the library's own answer and refuses to be called while a check runs")


def library_answer(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that would solve an exercise: callable everywhere, except inside `exam()`.

    `inspect.getsource` and help() show the function as it was written.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_in_exam(f"{function.__module__}.{function.__qualname__}")
        return function(*args, **kwargs)

    return guarded
