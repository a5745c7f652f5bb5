"""The pages of the library's rooms, from their docstrings: which names a page has, and in what order."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from iocourse.bounds import Bound
from iocourse.doctor.needs_triton import missing
from iocourse.schedules import Schedule

ROOMS = {
    "ledger": "What was moved",
    "machine": "The two-level memory",
    "exact": "What is true",
    "masks": "Which pairs are seen",
    "costs": "What a schedule must cost",
    "bounds": "How little is possible",
    "schedules": "How to move less",
    "pebbling": "The smallest graphs, solved exactly",
    "sweeps": "The cheapest sequences of sweeps",
    "kernels": "The schedules as Triton kernels",
    "traffic": "The ledger of a launch",
    "lowrank": "Almost-linear time",
    "distributed": "Many chips",
    "explore": "Pictures and explorers",
    "course": "Checks, hints, predictions",
}
NEED_TRITON = ("kernels", "traffic")
ELSEWHERE = {Bound: ("bounds", "bounds"), Schedule: ("schedules", "schedules")}  # kind: what it is, its page


def api_pages() -> dict[str, str]:
    """Path of the page → its text, in reStructuredText; `api/index.rst` leads to all."""
    return {"api/index.rst": _index(), **{f"api/{room}.rst": _page(room) for room in ROOMS}}


def _index() -> str:
    rooms = "\n".join(f"   {room}" for room in ROOMS)
    rows = "\n".join(
        f"- :doc:`iocourse.{room} <{room}>`: {_lowered(title)}." for room, title in ROOMS.items()
    )
    return (
        f"{_headed('The library, room by room')}\nRooms are reached from ``import iocourse``, such as "
        "``iocourse.schedules``, and are loaded when they are first used.\n\n"
        f"{rows}\n\n.. toctree::\n   :hidden:\n\n{rooms}\n"
    )


def _lowered(title: str) -> str:
    return title[0].lower() + title[1:]


def _page(room: str) -> str:
    head = f"{_headed(f'iocourse.{room}: {_lowered(ROOMS[room])}')}\n"
    if room in NEED_TRITON and missing():  # Sphinx imports it with stand-ins for what is not here
        return f"{head}.. automodule:: iocourse.{room}\n   :members:\n"
    module = importlib.import_module(f"iocourse.{room}")
    return head + f".. automodule:: iocourse.{room}\n   :no-members:\n\n" + "\n".join(_entries(room, module))


def _headed(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n"


def _entries(room: str, module: ModuleType) -> Iterator[str]:
    """A directive for each public class and function; where bounds or schedules are listed, a link."""
    for kind, (what, page) in ELSEWHERE.items():
        names = [name for name in _public(module) if isinstance(getattr(module, name), kind)]
        if names:
            listed = ", ".join(f"``{name}``" for name in names)
            yield f"The {what}, each on the :doc:`page of {what} </{page}>`: {listed}.\n"
    for name in _public(module):
        found = getattr(module, name)
        directive = _directive(found)
        if directive:
            yield f".. {directive}:: iocourse.{room}.{name}\n" + "   :members:\n" * inspect.isclass(found)


def _public(module: ModuleType) -> list[str]:
    own = [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", "") == module.__name__
    ]
    return list(getattr(module, "__all__", own))


def _directive(found: Any) -> str:
    if inspect.isclass(found):
        return "autoexception" if issubclass(found, BaseException) else "autoclass"
    return "autofunction" if inspect.isfunction(found) else ""
