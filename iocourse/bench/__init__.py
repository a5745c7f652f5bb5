"""Measurements side by side, one module a subject.

A subject is a module in this folder with ``NAME`` and ``HELP`` (text), ``run(quick) -> dict`` (the numbers,
as JSON can hold them) and ``show(result) -> str`` (the same as a table). `iocourse bench` finds it by itself.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
from datetime import date
from importlib import metadata
from typing import Any, Protocol, cast


class Subject(Protocol):
    """What a module of this folder offers."""

    NAME: str
    HELP: str

    def run(self, quick: bool) -> dict[str, Any]:
        """Measure; `quick` asks for the fewest repeats that still say something."""

    def show(self, result: dict[str, Any]) -> str:
        """The result as plain text."""


def subjects() -> dict[str, Subject]:
    """Every subject by its name. Modules that start with an underscore are helpers."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    modules = [cast(Subject, importlib.import_module(f"{__name__}.{name}")) for name in sorted(names)]
    return {module.NAME: module for module in modules}


def circumstances(*packages: str) -> dict[str, Any]:
    """What every record needs: date, cores, and the versions of Python and those of `packages` there are."""
    versions = {"Python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"date": date.today().isoformat(), "cores": cores, "versions": versions}
