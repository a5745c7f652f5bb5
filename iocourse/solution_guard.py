"""While a check looks at a student's answer, the library's own answers step aside."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_open_blocks = 0  # one count for the whole process, so that a thread is no way out


class LibrarySolutionUsed(RuntimeError):
    """A library function was called where a student's own work is being judged."""


@contextmanager
def solutions_blocked() -> Iterator[None]:
    """Within this block every function marked `library_solution` refuses to be called."""
    global _open_blocks
    _open_blocks += 1
    try:
        yield
    finally:
        _open_blocks -= 1


def are_solutions_blocked() -> bool:
    """Whether a check is looking at a student's answer now."""
    return _open_blocks > 0


def require_unblocked(name: str) -> None:
    """Raise `LibrarySolutionUsed` when a check is running; `name` says which library function was called."""
    if are_solutions_blocked():
        raise LibrarySolutionUsed(
            f"{name} is the library's own answer and refuses to be called while a check runs"
        )


def library_solution(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that would solve an exercise: callable everywhere, except inside `solutions_blocked()`.

    `inspect.getsource` and help() show the function as it was written.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        if are_solutions_blocked():
            require_unblocked(f"{function.__module__}.{function.__qualname__}")
        return function(*args, **kwargs)

    return guarded


@contextmanager
def no_calls_into(modules: tuple[str, ...], why: str) -> Iterator[None]:
    """Within this block any call of a function of these modules, or of one inside them, is refused.

    `why` ends the sentence of the `LibrarySolutionUsed`, which is raised at the call, and again at the end of
    the block if the caller caught it there. Functions written in C are known by the module or the object
    they belong to. Watches this thread alone.
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
    """The function that is called, as `module.name`; "" where the event is no call."""
    if event == "call":
        return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
    if event != "c_call":
        return ""
    owner = getattr(function, "__self__", None)
    homes = (getattr(function, "__module__", None), getattr(owner, "__name__", None), type(owner).__module__)
    home = next((x for x in homes if isinstance(x, str) and x and x != "builtins"), "builtins")
    return f"{home}.{getattr(function, '__name__', 'function')}"
