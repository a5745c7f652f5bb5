"""While a check looks at a student's answer, the library's own answers step aside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_in_exam: ContextVar[bool] = ContextVar("iocourse_exam", default=False)


class LibraryAnswer(RuntimeError):
    """A library function was called where a student's own work is being judged."""


@contextmanager
def exam() -> Iterator[None]:
    """Within this block every function marked `library_answer` refuses to be called."""
    token = _in_exam.set(True)
    try:
        yield
    finally:
        _in_exam.reset(token)


def refuse_in_exam(name: str) -> None:
    """Raise `LibraryAnswer` when a check is running; `name` says which library function was called."""
    if _in_exam.get():
        raise LibraryAnswer(f"{name} is the library's own answer and refuses to be called while a check runs")


def library_answer(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that would solve an exercise: callable everywhere, except inside `exam()`."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_in_exam(f"{function.__module__}.{function.__qualname__}")
        return function(*args, **kwargs)

    return guarded
