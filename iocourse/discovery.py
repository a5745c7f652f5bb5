"""Folders where every file is an entry: they are imported one and all, and a broken one is named."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable
from types import ModuleType


def files_of(package: str, path: Iterable[str], beside: Collection[str] = ()) -> list[ModuleType]:
    """The modules of a package by name, but for those named in `beside` and those that begin with _.

    Raises ImportError that names the file which cannot be imported, and says why.
    """
    names = sorted(found.name for found in pkgutil.iter_modules(path))
    return [_imported(f"{package}.{name}") for name in names if name[0] != "_" and name not in beside]


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ImportError(f"{name.replace('.', '/')}.py is broken: {error}", name=name) from error
