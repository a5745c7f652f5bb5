"""Functions for lessons: checks of the student's code, hints, predictions, challenges and progress.

The course uses the library, which does not know it. `course.explore` has the figures and explorers of the
lessons, `course.grade` grades submissions. Importing the course guards the functions that solve exercises.
"""

from ..doctor.triton_missing import TritonMissing
from .attempts import attempt
from .challenges.scoring import challenge
from .checking import CheckFailed, check, hint
from .checking import watch_cells as _watch_cells
from .guard import guard_modules as _guard_modules
from .library_answers import ANSWERS as _ANSWERS
from .missing_packages import missing_package
from .predictions import measured, predict

__all__ = [
    "CheckFailed",
    "TritonMissing",
    "attempt",
    "challenge",
    "check",
    "hint",
    "measured",
    "missing_package",
    "predict",
]

_guard_modules(_ANSWERS)
_watch_cells()
