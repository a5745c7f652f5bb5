"""Guard of library functions that solve exercises: they raise LibrarySolutionUsed while a check runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_open_blocks = 0  # one count for the process, so that a new thread is guarded too


class LibrarySolutionUsed(RuntimeError):
    """A library function that solves an exercise was called while a check runs."""


@contextmanager
def solutions_blocked() -> Iterator[None]:
    """Context manager: in its block every function marked `library_solution` raises LibrarySolutionUsed."""
    global _open_blocks
    _open_blocks += 1
    try:
        yield
    finally:
        _open_blocks -= 1


def are_solutions_blocked() -> bool:
    """Return True while a check runs a student's answer."""
    return _open_blocks > 0


def require_unblocked(name: str) -> None:
    """Raise `LibrarySolutionUsed` while a check runs; `name` is the library function that was called."""
    if are_solutions_blocked():
        raise LibrarySolutionUsed(
            f"{name} solves the exercise and cannot be called while a check runs; write your own solution"
        )


def library_solution(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that solves an exercise: it cannot be called inside `solutions_blocked()`.

    `inspect.getsource` and help() show the original function.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        if are_solutions_blocked():
            require_unblocked(f"{function.__module__}.{function.__qualname__}")
        return function(*args, **kwargs)

    return guarded


@contextmanager
def no_calls_into(modules: tuple[str, ...], why: str) -> Iterator[None]:
    """Context manager: in its block a call into these modules or submodules raises LibrarySolutionUsed.

    The message is the name of the function and `why`. The error is raised at the call, and again at the end
    of the block if the caller caught it. Functions written in C are identified by the module or the object
    they belong to. Only the current thread is watched.
    """
    caught: list[LibrarySolutionUsed] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        name = _name_of_call(frame, event, function)
        if any(f"{name}.".startswith(f"{module}.") for module in modules):
            caught.append(LibrarySolutionUsed(f"{name} {why}"))
            raise caught[0]

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
    if caught:
        raise caught[0]


def _name_of_call(frame: FrameType, event: str, function: Any) -> str:
    """Return the called function as `module.name`, or "" if the event is not a call."""
    if event == "call":
        return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
    if event != "c_call":
        return ""
    owner = getattr(function, "__self__", None)
    homes = (getattr(function, "__module__", None), getattr(owner, "__name__", None), type(owner).__module__)
    home = next((x for x in homes if isinstance(x, str) and x and x != "builtins"), "builtins")
    return f"{home}.{getattr(function, '__name__', 'function')}"
