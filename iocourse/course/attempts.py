"""attempt(fn, ...): a student's function in a later cell, without stopping the notebook while unsolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..errors import error_text
from . import progress
from .exercise import cause_of, exercises_asking_for, raised_in
from .missing_packages import caused_by_missing_package
from .run_context import is_strict
from .runtime_errors import line_of


class Unsolved:
    """Stands for a result that is not there yet: whatever is done with it is not there yet either."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __repr__(self) -> str:
        return self._reason

    __str__ = __repr__

    def _ipython_display_(self) -> None:
        """Nothing below a cell: `attempt` has said it above."""

    def __format__(self, spec: str) -> str:
        return self._reason

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Unsolved:
        # Python's and NumPy's and IPython's own protocols must find nothing here, or they would misread it.
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
    """`function(*args, **kwargs)`, or a placeholder that says "solve 4B first" while it raises.

    The exercise named is the one whose function raised, else that of `function` or of the first function
    among the arguments; one that has passed its check is said to raise an error here. With IOCOURSE_STRICT=1
    the error is raised instead, and so is TritonMissing, with which the whole cell ends (`missing_packages`).
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
        where = f"; {line}" if (line := line_of(cause)) else ""
        detail = "" if isinstance(cause, NotImplementedError) else f" ({error_text(cause)}{where})"
        print(f"{why}{detail}")
        return Unsolved(why)


def _solved(exercise: str) -> bool:
    try:
        return progress.load().get(exercise, {}).get("status") == "solved"
    except OSError:  # who cannot be asked has solved nothing
        return False


def _exercise_of(*candidates: Any) -> str:
    names = (getattr(candidate, "__name__", "") for candidate in candidates if callable(candidate))
    return next((ids for name in names if (ids := exercises_asking_for(name))), "the exercise above")
