"""Whether kernels can run here at all, and what to do where they cannot."""

from __future__ import annotations

import importlib.util
import sys


class NeedsTriton(ImportError):
    """torch or triton is missing; the message says which, and what runs without them."""


def missing() -> tuple[str, ...]:
    """Those of torch and triton that cannot be imported here."""
    return tuple(name for name in ("torch", "triton") if not _importable(name))


def _importable(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def require_triton() -> None:
    """Raise `NeedsTriton` where torch or triton is missing."""
    if missing():
        raise NeedsTriton(explanation())


def explanation() -> str:
    """Which package is missing, how to get it, and what runs instead; "" where nothing is missing."""
    names = missing()
    if not names:
        return ""
    lacks = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} not installed here"
    instead = (
        "In a lesson, what stands above runs in NumPy; the schedules of attention's kernels are "
        "iocourse.schedules.flash2, split_backward and fused_backward, counted by the same Ledger."
    )
    if "triton" in names and sys.platform != "linux":
        return f"{lacks}, and triton is published for Linux only (Colab runs Linux). {instead}"
    from . import REQUIREMENTS

    wanted = " ".join(f'"{REQUIREMENTS[name]}"' for name in names)
    return f"{lacks}: python -m pip install {wanted}. {instead}"
