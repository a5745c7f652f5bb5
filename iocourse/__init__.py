"""iocourse: attention is a question about moving words.

Everything the course runs writes a `Ledger`; `costs` says what a schedule must move, `bounds` what any must.
"""

import importlib
from types import ModuleType

from .ledger import Ledger
from .machine import FastMemoryFull, Machine, MachineError, RowStats, Run, run

__version__ = "0.2.0"

__all__ = ["FastMemoryFull", "Ledger", "Machine", "MachineError", "RowStats", "Run", "run"]


def __getattr__(name: str) -> ModuleType:
    """A room of the library, such as `iocourse.schedules`, loaded when it is first asked for."""
    if name not in _rooms():
        raise AttributeError(f"iocourse has no {name}; its rooms are {', '.join(_rooms())}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError as error:
        raise AttributeError(f"iocourse.{name} cannot be loaded: {error}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_rooms()})


def _rooms() -> list[str]:
    import pkgutil

    return sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name[0] != "_")
