"""What makes it a course: checks that judge the student's own work, hints, predictions, progress."""

from ..doctor.needs_triton import NeedsTriton
from .attempts import attempt
from .challenges.referee import challenge
from .checking import CheckFailed, check
from .hinting import hint
from .lacking import stand_in
from .messages.old_version import watch as _watch
from .predictions import measured, predict

__all__ = [
    "CheckFailed",
    "NeedsTriton",
    "attempt",
    "challenge",
    "check",
    "hint",
    "measured",
    "predict",
    "stand_in",
]

_watch()
