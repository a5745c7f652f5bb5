"""Who runs this process: a student, a solved notebook, nbgrader, or a strict run; and in which notebook.

nbgrader takes the value of a check cell for its points, and gives none where anything stands in the cell's
standard error (https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html).
Without nbgrader that is off, so it changes nothing for students.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

SOLVED_MARK = "_iocourse_solved"  # a name that the first cell of a solved notebook gives to its kernel
ANSWER = "### BEGIN SOLUTION"  # stands above every answer of a source, and in no student's file


def is_solved_notebook() -> bool:
    """Whether a solved notebook, or the source of one, runs in this process, in whatever folder it lies.

    A check that fails raises then, time prints nothing, and what it solves is nobody's progress.
    """
    main = sys.modules.get("__main__")
    return bool(getattr(main, SOLVED_MARK, False)) or _has_answers(getattr(main, "__file__", None))


@cache
def _has_answers(script: str | None) -> bool:
    """Whether the Python file that this process runs is a source of the course."""
    if script is None or not script.endswith(".py"):
        return False
    try:
        return ANSWER in Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def nbgrader_execution() -> str:
    """What nbgrader runs this kernel for: "autograde", "validate", or "" where it does not."""
    return os.environ.get("NBGRADER_EXECUTION", "")


def is_strict() -> bool:
    """Whether IOCOURSE_STRICT=1 asks for an error where a student would read a line."""
    return os.environ.get("IOCOURSE_STRICT") == "1"


def is_graded() -> bool:
    """Whether the outcome of a cell is judged: by nbgrader, or in a strict run."""
    return bool(nbgrader_execution()) or is_strict()


@contextmanager
def warnings_to_stdout() -> Iterator[None]:
    """Within this block, under nbgrader, what goes to standard error goes to standard output: no failure."""
    if not nbgrader_execution():
        yield
        return
    with redirect_stderr(sys.stdout):
        yield


def notebook() -> Any:
    """IPython's shell where this runs in one, else None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
