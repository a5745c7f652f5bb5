"""Interpreter or GPU: chosen once, when `iocourse.kernels` is imported, and never changed after.

`TRITON_INTERPRET` decides where it is set; else kernels are compiled where CUDA is present and interpreted
elsewhere. Triton reads that variable when a kernel is defined, and some of its own functions are kernels: so
it must stand before triton is imported at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class WrongOrder(ImportError):
    """triton was imported before anybody had said that kernels are interpreted here."""


def _choose() -> bool:
    """Set TRITON_INTERPRET where it is not set, and return whether kernels are interpreted."""
    asked = os.environ.get("TRITON_INTERPRET") or None  # set to nothing is not set
    if asked is None and not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = asked = "1"
    interpreted = (asked or "0").lower() in ("1", "true", "on", "yes", "y")
    loaded = sys.modules.get("triton")
    if interpreted and loaded is not None and hasattr(loaded, "language") and not _interprets(loaded):
        raise WrongOrder(
            "triton was imported before iocourse.kernels, as if for a GPU (torch.compile imports it too), "
            "and kernels are interpreted here. Restart, and import iocourse.kernels first, or set "
            "TRITON_INTERPRET=1 before that import."
        )
    return interpreted


def _interprets(triton: object) -> bool:
    """Whether Triton's own small kernels, such as tl.sum, were defined for the interpreter."""
    return "Interpreted" in type(triton.language.sum).__name__  # type: ignore[attr-defined]


INTERPRETED: bool = _choose()
target_arch: int | None = None  # the architecture for which launches are only prepared, on no GPU


@contextmanager
def targeting(arch: int) -> Iterator[None]:
    """Within this block launches are prepared as for a GPU of architecture `arch`; none can be made."""
    global target_arch
    target_arch = arch
    try:
        yield
    finally:
        target_arch = None
