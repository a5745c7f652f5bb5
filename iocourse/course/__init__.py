"""Functions for lessons: checks of the student's code, hints, predictions, challenges and progress."""

from ..doctor.triton_missing import TritonMissing
from .attempts import attempt
from .challenges.scoring import challenge
from .checking import CheckFailed, check, hint
from .checking import watch_cells as _watch_cells
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

_watch_cells()
