"""Guard of library functions that solve exercises: they raise LibrarySolutionUsed while a check runs.

The guard changes the function objects themselves. So it holds for every name that already refers to them: one
that a notebook imported earlier, one in another module of the library, a field of a registered schedule.
`library_answers` lists which functions are guarded.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Instead = Callable[..., Any]  # called with the original function and the arguments of the call
Guarded = tuple[Any, Instead | None]  # a function, and what a call during a check does instead of raising
AnswersOf = str | Callable[[ModuleType], Iterable[Guarded]]  # names in a module, or its functions

_open_blocks = 0  # one count for the process, so that a new thread is guarded too
_GUARDED = "__guarded_by_course__"
_THIS_MODULE = object()  # if the package is imported a second time, its guard counts for itself


class LibrarySolutionUsed(RuntimeError):
    """A library function that solves an exercise was called while a check runs."""


@contextmanager
def solutions_blocked() -> Iterator[None]:
    """Context manager: in its block every guarded function raises LibrarySolutionUsed."""
    global _open_blocks
    _open_blocks += 1
    try:
        yield
    finally:
        _open_blocks -= 1


def are_solutions_blocked() -> bool:
    """Return True while a check runs a student's answer."""
    return _open_blocks > 0


def refuse(name: str) -> NoReturn:
    """Raise `LibrarySolutionUsed`; `name` is the library function that was called."""
    raise LibrarySolutionUsed(
        f"{name} solves the exercise and cannot be called while a check runs; write your own solution"
    )


def guard(function: FunctionType, instead: Instead | None = None) -> None:
    """Change a function so that during a check a call raises LibrarySolutionUsed, under all of its names.

    `inspect.getsource`, `inspect.signature` and help() show the original, which is its `__wrapped__`. With
    `instead` a call during a check is `instead(original, *args, **kwargs)`. No function is guarded twice.
    """
    if is_guarded(function) or not isinstance(function, FunctionType):  # Sphinx documents stand-ins of torch
        return
    original = _copy_of(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not are_solutions_blocked():
            return original(*args, **kwargs)
        if instead is None:
            refuse(f"{original.__module__}.{original.__qualname__}")
        return instead(original, *args, **kwargs)

    function.__code__ = _code_that_calls_its_default(function)
    function.__kwdefaults__ = {"_call": call}
    function.__wrapped__ = original  # type: ignore[attr-defined]
    setattr(function, _GUARDED, _THIS_MODULE)


def is_guarded(function: Any) -> bool:
    """Return True if `guard` has changed this function."""
    return getattr(function, _GUARDED, None) is _THIS_MODULE


def library_solution(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of the course that solves an exercise, guarded; a cache becomes a function first."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    guarded = function if isinstance(function, FunctionType) else call
    assert isinstance(guarded, FunctionType)
    guard(guarded)
    return guarded


def _copy_of(function: FunctionType) -> FunctionType:
    """Return a second function object with the same code, defaults, closure and attributes."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        setattr(copy, name, getattr(function, name))
    copy.__dict__.update(vars(function))  # such as the __wrapped__ of a decorator
    return copy


def _code_that_calls_its_default(function: FunctionType) -> CodeType:
    """Return the code of `(*given, _call, **named): return _call(*given, **named)` for this function object.

    The globals and the closure of a function object cannot be replaced. So the function to call is a default,
    and the code declares as many free variables as the closure has cells.
    """
    cells = function.__code__.co_freevars
    lines = [
        f"def around({', '.join(cells)}):",
        "    def template(*_given, _call, **_named):",
        *[f"        {cell}" for cell in cells],
        "        return _call(*_given, **_named)",
        "    return template",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    code: CodeType = made["around"](*cells).__code__
    return code.replace(
        co_name=function.__name__, co_qualname=function.__qualname__, co_filename=f"<{__name__}>"
    )


# ------------------------------------------------------------------ functions of a module
def guard_modules(answers: Mapping[str, AnswersOf]) -> None:
    """Guard functions by the name of their module: of loaded modules now, of others when they are executed.

    So it makes no difference what was imported first, and a module that is reloaded is guarded again.
    """
    sys.meta_path.insert(0, _GuardWhenExecuted(answers))
    for name in answers:
        if name in sys.modules:
            _guard_functions_of(sys.modules[name], answers[name])


def _guard_functions_of(module: ModuleType, answers: AnswersOf) -> None:
    if isinstance(answers, str):
        for name in answers.split():
            guard(getattr(module, name))
    else:
        for function, instead in answers(module):
            guard(function, instead)


class _GuardWhenExecuted:
    """Finder that guards the functions of a module after the module was executed."""

    def __init__(self, answers: Mapping[str, AnswersOf]) -> None:
        self.answers = answers

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module of `answers`, with a loader that guards it; None for any other."""
        spec = PathFinder.find_spec(name, path, target) if name in self.answers else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_guard(module: ModuleType) -> None:
            execute(module)
            _guard_functions_of(module, self.answers[name])

        spec.loader.exec_module = execute_and_guard  # type: ignore[method-assign]
        return spec


# ------------------------------------------------------------------ all functions of some modules
@contextmanager
def no_calls_into(modules: tuple[str, ...], why: str) -> Iterator[None]:
    """Context manager: in its block a call into these modules or submodules raises LibrarySolutionUsed.

    The message is the name of the function and `why`. The error is raised at the first call, and again at the
    end of the block if the caller caught it. Functions written in C are identified by the module or the
    object they belong to; ufuncs and types are not seen. Only the current thread is watched.
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
