"""Errors that a user can correct, names of an earlier version, and the text of any error in one line."""

from collections.abc import Callable, Mapping
from typing import NoReturn


class UsageError(Exception):
    """A wrong argument, or a command run in the wrong folder; the command line exits with code 2."""


def error_text(error: BaseException) -> str:
    """Return the error in one line: its type and its message, or its type if `str(error)` itself fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """Return a `__getattr__` for a module; it names the present name of each name of an earlier version.

    For these it raises ImportError, because `from module import name` replaces the text of an AttributeError.
    """

    def missing(name: str) -> NoReturn:
        if name in names:
            raise ImportError(f"{module}.{name} is now {module}.{names[name]}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)

    return missing
