"""Folders where every file is an entry, imported one and all, a broken one named; and files of no package."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Collection, Iterable
from pathlib import Path
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


def loaded(path: Path, name: str) -> ModuleType:
    """What a file that no package has says as a module of this name. Raises ImportError where it is no Python
    file, and what the file itself raises.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file", name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
