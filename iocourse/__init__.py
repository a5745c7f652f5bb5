"""Teaching library for the I/O complexity of attention: an I/O-counting emulator, closed-form costs, lower
bounds and Triton kernels.

Every run returns a `Ledger`; `costs` has the traffic of each schedule, `bounds` the lower bounds for all.
`course` is the course, which uses this library: exercises, checks, figures, grading.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from .ledger import Ledger
from .machine import FastMemoryFull, Machine, MachineError, RowStats, Run, run

__version__ = "0.2.0"

__all__ = ["FastMemoryFull", "Ledger", "Machine", "MachineError", "RowStats", "Run", "run"]


# Modules of an earlier version, with their present names.
_MOVED = {
    "iocourse.explore": "iocourse.course.explore",
    "iocourse.grade": "iocourse.course.grade",
    "iocourse.solution_guard": "iocourse.course.guard",
    "iocourse.data.misleading_table": "iocourse.course.misleading_table",
    "iocourse.kernels.host.dispatch": "iocourse.kernels.host.choices",
}


def __getattr__(name: str) -> ModuleType:
    """Import and return a submodule, such as `iocourse.schedules`, when it is first used."""
    if f"{__name__}.{name}" in _MOVED:
        raise AttributeError(_where(f"{__name__}.{name}"))
    if name not in _rooms():
        raise AttributeError(f"iocourse has no {name}; its submodules are {', '.join(_rooms())}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError as error:
        raise AttributeError(f"iocourse.{name} cannot be loaded: {error}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_rooms()})


def _rooms() -> list[str]:
    import pkgutil

    return sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name[0] != "_")


def _where(moved: str) -> str:
    package, _, name = _MOVED[moved].rpartition(".")
    return (
        f"{moved} moved: write `from {package} import {name}`. "
        "In your copies of the lessons, `iocourse lab --update` does it"
    )


class _MovedModules:
    """Finder that tells where a module of an earlier version is.

    It comes first: a checkout that was updated may keep the old folder, with what Python had compiled, and
    Python would import that as an empty package.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name in _MOVED:
            raise ImportError(_where(name), name=name)


if not any(getattr(finder, "__qualname__", "") == "_MovedModules" for finder in sys.meta_path):
    sys.meta_path.insert(0, _MovedModules)
