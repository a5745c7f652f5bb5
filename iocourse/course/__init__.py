"""What makes it a course: checks that judge the student's own work, hints, predictions, progress."""

from ..doctor.triton_missing import TritonMissing
from .attempts import attempt
from .challenges.scoring import challenge
from .checking import CheckFailed, check
from .hints import hint
from .missing_packages import missing_package
from .predictions import measured, predict
from .stale_functions import watch as _watch

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

_watch()
