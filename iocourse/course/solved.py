"""Whether what runs here has the answers in it: a solved notebook says so, and so does the source of one."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

MARK = "_iocourse_solved"  # a name that the first cell of a solved notebook gives to its kernel
ANSWER = "### BEGIN SOLUTION"  # stands above every answer of a source, and in no student's file


def runs_here() -> bool:
    """Whether a solved notebook, or the source of one, runs in this process, in whatever folder it lies.

    A check that fails raises then, time prints nothing, and what it solves is nobody's progress.
    """
    main = sys.modules.get("__main__")
    return bool(getattr(main, MARK, False)) or _has_answers(getattr(main, "__file__", None))


@cache
def _has_answers(script: str | None) -> bool:
    """Whether the Python file that this process runs is a source of the course."""
    if script is None or not script.endswith(".py"):
        return False
    try:
        return ANSWER in Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
