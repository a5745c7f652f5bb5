"""Whether kernels can run here at all, and what to do where they cannot."""

from __future__ import annotations

import importlib.util
import sys


class TritonMissing(ImportError):
    """torch or triton is missing; the message says which, and what runs without them."""


def missing() -> tuple[str, ...]:
    """Those of torch and triton that cannot be imported here."""
    return tuple(name for name in ("torch", "triton") if not _importable(name))


def _importable(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def require_triton() -> None:
    """Raise `TritonMissing` where torch or triton is missing."""
    if missing():
        raise TritonMissing(explanation())


def explanation() -> str:
    """Which package is missing, how to get it, and what runs instead; "" where nothing is missing."""
    if not missing():
        return ""
    return (
        f"{what_to_install()}. The schedules of attention's kernels run in NumPy: iocourse.schedules.flash2, "
        "split_backward and fused_backward, counted by the same Ledger."
    )


def what_to_install() -> str:
    """Which package is missing and how to get it, as a line without its full stop; "" where none is."""
    names = missing()
    if not names:
        return ""
    lacks = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} not installed here"
    if "triton" in names and sys.platform != "linux":
        return f"{lacks}, and triton is published for Linux only (Colab runs Linux)"
    from . import install_command

    return f"{lacks}: {install_command(*names)}"
