"""Teaching library for the I/O complexity of attention: an I/O-counting emulator, closed-form costs, lower
bounds and Triton kernels.

Every run returns a `Ledger`; `costs` has the traffic of each schedule, `bounds` the lower bounds for all.
"""

import importlib
from types import ModuleType

from .ledger import Ledger
from .machine import FastMemoryFull, Machine, MachineError, RowStats, Run, run

__version__ = "0.2.0"

__all__ = ["FastMemoryFull", "Ledger", "Machine", "MachineError", "RowStats", "Run", "run"]


def __getattr__(name: str) -> ModuleType:
    """Import and return a submodule, such as `iocourse.schedules`, when it is first used."""
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
