"""Lessons whose cells run Triton kernels, and why they cannot run here, where they cannot."""

from __future__ import annotations

import re

from iocourse.doctor import cannot_interpret, installed
from iocourse.doctor.needs_triton import explanation

_IMPORT = re.compile(
    r"^\s*\"?\s*(from iocourse import .*\bkernels\b|import (torch, )?triton\b)", re.MULTILINE
)


def runs_kernels(code: str) -> bool:
    """Whether this code, of a source or a notebook's JSON, imports Triton or the library's kernels."""
    return _IMPORT.search(code) is not None


def cannot_run(code: str) -> str:
    """Why a lesson's code cannot run here: "needs triton: …" and what to do; "" where it can.

    Code that runs no kernels runs everywhere. Nothing is imported to find out.
    """
    reason = explanation() or cannot_interpret(installed("triton"), installed("numpy"))
    return f"needs triton: {reason}" if reason and runs_kernels(code) else ""
