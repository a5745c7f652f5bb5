"""`attempt(function, …)`: call a student's function in a later cell, and continue if it is unsolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..errors import error_text
from . import progress
from .exercise import cause_of, exercises_asking_for, raised_in
from .missing_packages import caused_by_missing_package
from .run_context import is_strict
from .runtime_errors import failing_line


class Unsolved:
    """Placeholder for the result of an unsolved exercise; every operation on it returns it again."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __repr__(self) -> str:
        return self._reason

    __str__ = __repr__

    def _ipython_display_(self) -> None:
        """Display nothing below the cell, because `attempt` has already printed the reason."""

    def __format__(self, spec: str) -> str:
        return self._reason

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Unsolved:
        # Protocol methods of Python, NumPy and IPython must not be found here, or they would misread it.
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Unsolved:
        return self

    def __array_function__(self, *args: Any, **kwargs: Any) -> Unsolved:
        return self

    def _same(self, *args: Any, **kwargs: Any) -> Unsolved:
        return self

    __call__ = __getitem__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = __pow__ = __neg__ = __abs__ = __round__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _same


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function(*args, **kwargs)`; if it raises, print "solve 4B first" and return a placeholder.

    The exercise named is the one whose function raised; otherwise that of `function`, or of the first
    function among the arguments. For an exercise that has passed its check, the line states that it raises an
    error here.

    Returns:
        The result of the call, or an `Unsolved`.

    Raises:
        TritonMissing: a missing package caused the error; the cell then ends (`missing_packages`).
        Exception: the error itself, with IOCOURSE_STRICT=1.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        if is_strict() or caused_by_missing_package(error):
            raise
        raiser = raised_in(error)
        named = exercises_asking_for(raiser) or _exercise_of(function, *args, *kwargs.values())
        cause = cause_of(error)
        unwritten = isinstance(error.__cause__ or cause, NotImplementedError)
        passed = not unwritten and any(map(_solved, named.split(" or ")))
        why = f"{named} has passed, and raises an error here" if passed else f"solve {named} first"
        where = f"; {line}" if (line := failing_line(cause)) else ""
        detail = "" if isinstance(cause, NotImplementedError) else f" ({error_text(cause)}{where})"
        print(f"{why}{detail}")
        return Unsolved(why)


def _solved(exercise: str) -> bool:
    try:
        return progress.load().get(exercise, {}).get("status") == "solved"
    except OSError:  # an unreadable progress file counts as unsolved
        return False


def _exercise_of(*candidates: Any) -> str:
    names = (getattr(candidate, "__name__", "") for candidate in candidates if callable(candidate))
    return next((ids for name in names if (ids := exercises_asking_for(name))), "the exercise above")
