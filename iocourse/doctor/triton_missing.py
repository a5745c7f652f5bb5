"""Check that torch and triton can be imported, and explain how to install what is missing."""

from __future__ import annotations

import importlib.util
import sys


class TritonMissing(ImportError):
    """torch or triton is missing; the message names it and the schedules that run without it."""


def missing() -> tuple[str, ...]:
    """Return the names of torch and triton that cannot be imported."""
    return tuple(name for name in ("torch", "triton") if not _importable(name))


def _importable(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def require_triton() -> None:
    """Raise `TritonMissing` if torch or triton is missing."""
    if missing():
        raise TritonMissing(explanation())


def explanation() -> str:
    """Return text with the missing packages, how to install them and what runs without them; "" if none."""
    if not missing():
        return ""
    return (
        f"{what_to_install()}. The same schedules run in NumPy: iocourse.schedules.flash2, split_backward "
        "and fused_backward, counted by the same Ledger."
    )


def what_to_install() -> str:
    """Return a line with the missing packages and how to install them, without a full stop; "" if none."""
    names = missing()
    if not names:
        return ""
    lacks = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} not installed here"
    if "triton" in names and sys.platform != "linux":
        return f"{lacks}, and triton is published for Linux only (Colab runs Linux)"
    from . import install_command

    return f"{lacks}: {install_command.command('triton' if 'triton' in names else 'torch')}"
