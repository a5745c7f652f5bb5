"""A check that nbgrader runs: the points it returns, and warnings that must not count as a failure.

nbgrader takes the value of a check cell for its points, and gives none where anything stands in the cell's
standard error (https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html).
Without nbgrader all of this is off, so it changes nothing for students.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr

from .exercise import Exercise
from .points import points_of

DIGITS = 4  # behind the point, of points: a feedback page shows them


def execution() -> str:
    """What nbgrader runs this kernel for: "autograde", "validate", or "" where it does not."""
    return os.environ.get("NBGRADER_EXECUTION", "")


def counts() -> bool:
    """Whether the outcome of a cell is judged: by nbgrader, or in a run with IOCOURSE_STRICT=1."""
    return bool(execution()) or os.environ.get("IOCOURSE_STRICT") == "1"


@contextmanager
def warnings_are_no_failures() -> Iterator[None]:
    """Within this block, under nbgrader, what goes to standard error goes to standard output."""
    if not execution():
        yield
        return
    with redirect_stderr(sys.stdout):
        yield


def points(exercise: Exercise, verdicts: Sequence[tuple[str, str | None]]) -> float:
    """What `iocourse grade` gives for these verdicts of the judge, to `DIGITS` digits."""
    return round(points_of(exercise, verdicts), DIGITS)
