"""Choice between interpreted and compiled kernels, made once when `iocourse.kernels` is imported.

The variable `TRITON_INTERPRET` decides if it is set. Otherwise kernels are compiled if CUDA is available, and
interpreted if not. Triton reads the variable when a kernel is defined, and some functions of Triton are
kernels, so it must be set before triton is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class WrongOrder(ImportError):
    """Error: triton was imported for compiled kernels before `iocourse.kernels` chose the interpreter."""


def _choose() -> bool:
    """Set TRITON_INTERPRET=1 if it is unset and there is no CUDA; return True if kernels are interpreted."""
    asked = os.environ.get("TRITON_INTERPRET") or None  # an empty value counts as unset
    if asked is None and not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = asked = "1"
    interpreted = (asked or "0").lower() in ("1", "true", "on", "yes", "y")
    loaded = sys.modules.get("triton")
    if interpreted and loaded is not None and hasattr(loaded, "language") and not _interprets(loaded):
        raise WrongOrder(
            "triton was imported before iocourse.kernels and set up for a GPU (torch.compile imports it "
            "too), but kernels are interpreted here. Restart Python and import iocourse.kernels first, or "
            "set TRITON_INTERPRET=1 before triton is imported."
        )
    return interpreted


def _interprets(triton: object) -> bool:
    """Return True if Triton's own kernels, such as tl.sum, were defined for the interpreter."""
    return "Interpreted" in type(triton.language.sum).__name__  # type: ignore[attr-defined]


INTERPRETED: bool = _choose()
target_arch: int | None = None  # architecture for which launches are prepared without a GPU, or None


@contextmanager
def targeting(arch: int) -> Iterator[None]:
    """Prepare launches for a GPU of architecture `arch` within this block; kernels cannot be run there."""
    global target_arch
    target_arch = arch
    try:
        yield
    finally:
        target_arch = None
