"""hint("4B"): three levels, one more each time it is called."""

from __future__ import annotations

from . import progress
from .exercise import find

_shown: dict[str, int] = {}


def hint(exercise_id: str, level: int | None = None, *, count: bool = True) -> None:
    """Print the next hint for an exercise, or the one of a level from 1 to 3.

    `count=False`, for a lesson that shows what a hint is, leaves progress as it was. Raises ValueError for
    another level or an unknown exercise.
    """
    exercise = find(exercise_id)
    last = len(exercise.hints)
    if level is not None and (isinstance(level, bool) or level not in range(1, last + 1)):
        raise ValueError(f"level must be 1 to {last}, got {level!r}")
    shown = level if level is not None else min(_shown.get(exercise_id, 0) + 1, last)
    _shown[exercise_id] = shown
    more = f" Call again for hint {shown + 1}." if shown < last else " This was the last hint."
    print(f"Hint {shown} of {last} for {exercise.id}: {exercise.hints[shown - 1]}{more}")
    if count:
        progress.record(exercise.id, "seen", hint=shown)
