"""What makes it a course: checks that judge the student's own work, hints, predictions, progress."""

from .attempts import attempt
from .challenges.referee import challenge
from .checking import CheckFailed, check
from .hinting import hint
from .predictions import measured, predict

__all__ = ["CheckFailed", "attempt", "challenge", "check", "hint", "measured", "predict"]
