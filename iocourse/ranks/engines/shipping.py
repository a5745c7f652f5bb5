"""Functions sent to another process, also those that were written in a cell of a notebook.

What can be imported there goes by its name, everything else as code with the names that it uses.
"""

from __future__ import annotations

import builtins
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any


class CannotShip(TypeError):
    """Something that a schedule uses cannot be sent to another process."""


def shipped(what: Any) -> bytes:
    """`what` as bytes for a Python of the same version. Raises CannotShip that says what cannot be sent."""
    buffer = io.BytesIO()
    try:
        Shipping(buffer).dump(what)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CannotShip(f"the schedule cannot be sent to other processes: {error}") from None
    return buffer.getvalue()


class Shipping(pickle.Pickler):
    """A pickler that also takes functions nobody can import, and modules."""

    def reducer_override(self, obj: Any) -> Any:
        """How to send a function or a module; the rest as pickle does."""
        if isinstance(obj, ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, FunctionType) and not _importable(obj):
            code = marshal.dumps(obj.__code__)
            made = _empty, (code, obj.__name__, len(obj.__code__.co_freevars))
            return *made, _state(obj), None, None, _fill
        if isinstance(obj, type) and obj.__module__ == "__main__":
            raise CannotShip(
                f"the class {obj.__name__} is written in the notebook; functions alone can be sent"
            )
        return NotImplemented


def _importable(function: FunctionType) -> bool:
    """Whether another process finds this function under its name."""
    found: Any = sys.modules.get(function.__module__) if function.__module__ != "__main__" else None
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _state(function: FunctionType) -> dict[str, Any]:
    """All that a function is beside its code: of its globals those that it names."""
    named = set(_names_in(function.__code__))
    return {
        "globals": {name: value for name, value in function.__globals__.items() if name in named},
        "closure": [cell.cell_contents for cell in function.__closure__ or ()],
        "defaults": function.__defaults__,
        "kwdefaults": function.__kwdefaults__,
    }


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _empty(code: bytes, name: str, cells: int) -> FunctionType:
    """A function with empty globals and cells, for `_fill`."""
    room = {"__builtins__": builtins, "__name__": "__main__"}
    return FunctionType(marshal.loads(code), room, name, None, tuple(CellType() for _ in range(cells)))


def _fill(function: Callable[..., Any], state: dict[str, Any]) -> None:
    assert isinstance(function, FunctionType)
    function.__globals__.update(state["globals"])
    for cell, value in zip(function.__closure__ or (), state["closure"], strict=True):
        cell.cell_contents = value
    function.__defaults__, function.__kwdefaults__ = state["defaults"], state["kwdefaults"]
