"""The rule for `flash_attention.py`, which solves exercises 11A to 12E: copied once lesson 12 was opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import progress
from ..project_paths import FILE, Course
from .copies import Copy
from .notebook import Json, cell_tags, cell_title, fingerprints

LESSON = "12_"  # beginning of the name of the lesson in which students read the file
NOT_YET = (
    f"{FILE} is not copied yet, because it solves exercises of lessons 11 and 12: run a cell of lesson 12, "
    "save the notebook, and try again"
)


def may_have_file(course: Course, lessons: Mapping[str, Json], copies: Sequence[Copy]) -> bool:
    """Return True if the student has the file already, or has opened lesson 12.

    Lesson 12 has been opened if a copy of it was edited or run, or if the progress file has one of its
    exercises.
    """
    file = course.work / FILE
    if file.exists() and file.stat().st_size > 0:
        return True
    lesson = next((name for name in lessons if name.startswith(LESSON)), "")
    if not lesson:
        return False
    own = [copy for copy in copies if copy.lesson == lesson and copy.notebook]
    return any(_was_opened(copy, lessons[lesson]) for copy in own) or _was_tried(lessons[lesson])


def _was_opened(copy: Copy, lesson: Json) -> bool:
    """Return True if a copy was edited or run; an unchanged copy without a record was not edited."""
    assert copy.notebook is not None
    cells = copy.notebook["cells"]
    run = any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    return run or (copy.edited and fingerprints(copy.notebook) != fingerprints(lesson))


def _was_tried(lesson: Json) -> bool:
    """Return True if the progress file has an exercise of the lesson; False if it cannot be read."""
    exercises = {cell_title(cell) for cell in lesson["cells"] if "exercise" in cell_tags(cell)}
    try:
        return not exercises.isdisjoint(progress.load())
    except OSError:
        return False
