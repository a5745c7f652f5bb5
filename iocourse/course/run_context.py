"""Context of this process: run by a student, as a solved notebook, by nbgrader, or in strict mode.

nbgrader takes the value of a check cell as its points, and gives none if the cell writes to standard error
(https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html), which
`warnings_to_stdout` prevents. Without nbgrader it changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

SOLVED_MARK = "_iocourse_solved"  # global that the first cell of a solved notebook defines
ANSWER = "### BEGIN SOLUTION"  # line above every answer in a source; students' files never contain it


def is_solved_notebook() -> bool:
    """Return True if this process runs a solved notebook or its source, in any folder.

    A failed check then raises, no times are printed, and solved exercises are not recorded as progress.
    """
    main = sys.modules.get("__main__")
    return bool(getattr(main, SOLVED_MARK, False)) or _has_answers(getattr(main, "__file__", None))


@cache
def _has_answers(script: str | None) -> bool:
    """Return True if the Python file that this process runs is a source of the course."""
    if script is None or not script.endswith(".py"):
        return False
    try:
        return ANSWER in Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def nbgrader_execution() -> str:
    """Return the nbgrader command that runs this kernel, "autograde" or "validate"; otherwise ""."""
    return os.environ.get("NBGRADER_EXECUTION", "")


def is_strict() -> bool:
    """Return True if IOCOURSE_STRICT=1 is set, so that failures raise instead of printing a line."""
    return os.environ.get("IOCOURSE_STRICT") == "1"


def is_graded() -> bool:
    """Return True if the outcome of a cell is graded: by nbgrader, or in strict mode."""
    return bool(nbgrader_execution()) or is_strict()


@contextmanager
def warnings_to_stdout() -> Iterator[None]:
    """Redirect standard error to standard output within this block, if nbgrader runs the kernel."""
    if not nbgrader_execution():
        yield
        return
    with redirect_stderr(sys.stdout):
        yield


def ipython_shell() -> Any:
    """Return the IPython shell of this process, or None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
