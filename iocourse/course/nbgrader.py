"""Where nbgrader runs a submission: what a check gives back, and what does not count against it.

nbgrader takes the value of a check cell for its points, and gives none where anything stands in the cell's
standard error (https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html).
Not to be had without nbgrader, so students never meet any of this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr

from .exercise import Exercise

DIGITS = 4  # behind the point, of points: a feedback page shows them


def execution() -> str:
    """What nbgrader runs this kernel for: "autograde", "validate", or "" where it does not."""
    return os.environ.get("NBGRADER_EXECUTION", "")


@contextmanager
def warnings_are_no_failures() -> Iterator[None]:
    """Within this block, under nbgrader, what goes to standard error goes to standard output."""
    if not execution():
        yield
        return
    with redirect_stderr(sys.stdout):
        yield


def points(exercise: Exercise, complaints: Sequence[str | None]) -> float:
    """The exercise's importance, in proportion to the properties that hold.

    Args:
        exercise: which.
        complaints: one for each property judged, None where it holds; fewer than the exercise has where an
            error made the rest moot.
    """
    held = sum(complaint is None for complaint in complaints)
    return round(exercise.importance * held / max(len(complaints), len(exercise.properties)), DIGITS)
