"""Functions that torch.compile calls without tracing them; importable without torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that Dynamo cannot trace, because it runs NumPy, Numba and cached checks.

    The compiled code around it has a graph break there, and calls it and its backward pass as usual.
    """

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            found: R = torch.compiler.disable(function)(*args, **options)
            return found
        return function(*args, **options)

    return call
