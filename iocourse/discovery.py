"""Import all modules of a package folder, or a single file that belongs to no package."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType


def files_of(package: str, path: Iterable[str], beside: Collection[str] = ()) -> list[ModuleType]:
    """Import the modules of a package, sorted by name, except those in `beside` and those that begin with _.

    Raises ImportError that names the file which cannot be imported, and the reason.
    """
    names = sorted(found.name for found in pkgutil.iter_modules(path))
    return [_imported(f"{package}.{name}") for name in names if name[0] != "_" and name not in beside]


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ImportError(f"{name.replace('.', '/')}.py is broken: {error}", name=name) from error


def loaded(path: Path, name: str) -> ModuleType:
    """Import a file outside any package as a module called `name`, and return the module.

    Raises ImportError if it is not a Python file, and any error that the file itself raises.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file", name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
