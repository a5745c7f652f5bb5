"""How Numba compiles the loops of this package: kept on disk where that can be, and announced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event


class _Announcing(event.Listener):  # type: ignore[misc]
    """Print a line when Numba first compiles a loop of this package, because all of them take 10 to 30 s."""

    announced = False

    def on_start(self, event: Any) -> None:
        if self.announced or not event.data["dispatcher"].py_func.__module__.startswith(__package__):
            return
        self.announced = True
        print(
            "iocourse.lowrank: Numba compiles the passes for this type of numbers, which takes 10 to 30 s. "
            "The result is kept on disk where that is possible. engine='numpy' does not compile.",
            file=sys.stderr,
        )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcing())


def compiling(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options; what is compiled is kept on disk, unless no folder can be written."""

    def compiled(function: Callable[..., Any]) -> Any:
        shared = {"nogil": True, "error_model": "numpy"} | options
        try:
            return njit(cache=True, **shared)(function)
        except RuntimeError:  # neither the package's folder nor one of the user's can be written
            return njit(**shared)(function)

    return compiled
