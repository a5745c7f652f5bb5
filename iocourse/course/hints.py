"""hint("4B"): hints of an exercise on three levels; level 1 by default."""

from __future__ import annotations

from textwrap import fill

from . import progress
from .exercise import find

COLUMNS = 100  # JupyterLab breaks what is longer inside a word


def hint(exercise_id: str, level: int = 1, *, count: bool = True) -> None:
    """Print a hint for an exercise: `level` 1 to 3, each more than the one before.

    A cell that is run again shows the same hint again. `count=False`, for a lesson that shows what a hint
    is, leaves progress as it was. Raises ValueError for another level or an unknown exercise.
    """
    exercise = find(exercise_id)
    last = len(exercise.hints)
    if isinstance(level, bool) or level not in range(1, last + 1):
        raise ValueError(f"level must be 1 to {last}, got {level!r}")
    more = (
        f'hint("{exercise.id}", {level + 1}) shows the next.' if level < last else "This was the last hint."
    )
    text = f"Hint {level} of {last} for {exercise.id}: {exercise.hints[level - 1]}"
    print(fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False), more, sep="\n")
    if count:
        progress.record(exercise.id, "seen", hint=level)
