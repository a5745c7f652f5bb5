"""Find the student's copies of the lessons, also under a former file name of a lesson.

The map of the course has the former names. A copy is recognised by the name in its record, so a student may
rename the file; without a record it is recognised by its cells, and last by its file name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UsageError
from ..course_map import lesson_named
from ..project_paths import Course
from .notebook import Json, cell_key, fingerprints, read_notebook, recorded_fingerprints, recorded_lesson

KEPT = re.compile(r"kept-\d{8}-\d{6}-")  # prefix of the names of replaced files


@dataclass(frozen=True)
class Copy:
    """A student's copy of a lesson.

    Attributes:
        path: path of the file.
        lesson: name of the lesson that it is a copy of.
        notebook: the notebook; None if the file is not a valid notebook.
        fault: the reason why it is not valid; "" if it is.
        edited: False if no source has changed since the file was copied.
        received: names of the answers that were put into `notebook`, and the file that each is from.
        given: names of the answers that were taken from `notebook`, and the file that each is in now.
    """

    path: Path
    lesson: str
    notebook: Json | None
    fault: str = ""
    edited: bool = True
    received: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_former_name(self) -> bool:
        """True if the file has a name that its lesson had before."""
        return self.path.stem in former_names(self.lesson)


def present_name(name: str, lessons: Collection[str]) -> str:
    """Return the file name, without ending, of the lesson that has or had this name, otherwise ""."""
    if name in lessons:
        return name
    lesson = lesson_named(name)
    return lesson.file if lesson and lesson.file in lessons else ""


def former_names(lesson: str) -> tuple[str, ...]:
    """Return the names that the lesson had before, oldest first."""
    found = lesson_named(lesson)
    return found.former if found else ()


def find_copies(course: Course, lessons: dict[str, Json]) -> list[Copy]:
    """Return the student's copies of the lessons, except old files that an update has kept."""
    paths = sorted(path for path in course.work.glob("*.ipynb") if not KEPT.match(path.name))
    copies = (_copy(path, lessons) for path in paths if path.is_file() and path.stat().st_size)
    return [copy for copy in copies if copy.lesson]


def _copy(path: Path, lessons: dict[str, Json]) -> Copy:
    named = present_name(path.stem, lessons)
    try:
        notebook = read_notebook(path)
    except UsageError as error:
        return Copy(path, named, None, str(error))
    edited = fingerprints(notebook) != recorded_fingerprints(notebook)
    return Copy(path, lesson_of_copy(notebook, lessons) or named, notebook, edited=edited)


def lesson_of_copy(notebook: Json, lessons: dict[str, Json]) -> str:
    """Return the lesson that a notebook is a copy of; "" if there is none.

    It is the lesson that has, or had, the recorded name. Without a record it is the lesson that contains more
    than half of the notebook's cells.
    """
    if recorded := present_name(recorded_lesson(notebook), lessons):
        return recorded
    mine = set(map(cell_key, notebook["cells"])) - {"setup"}  # every lesson has this cell
    shared = {name: len(mine & set(map(cell_key, lesson["cells"]))) for name, lesson in lessons.items()}
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and 2 * shared[best] > len(mine) else ""


def resolve_lesson_and_file(name: str, names: Sequence[str], copies: Sequence[Copy]) -> tuple[str, str]:
    """Resolve the argument of ``--update NAME`` to a lesson and a file.

    Args:
        name: ``4``, ``04``, ``04_flash_forward``, a former name of a lesson, ``notation``,
            ``flash_attention``, or the name of a file in the work folder.
        names: names of all lessons, pages and other files.
        copies: the student's copies.

    Returns:
        The name of the lesson, and the name of the file; "" for all copies of the lesson.

    Raises:
        UsageError: there is no such lesson, page or copy.
    """
    wanted = Path(name).name
    for copy in copies:
        if wanted in (copy.path.name, copy.path.stem) and not present_name(copy.path.stem, names):
            return copy.lesson, copy.path.name
    asked = re.sub(r"\.(ipynb|md|py)$", "", wanted).lower()
    asked = f"0{asked}" if re.fullmatch(r"\d[a-z]?", asked) else asked
    found = present_name(asked, names) or next((one for one in names if asked == short_name(one)), "")
    if not found:
        short = ", ".join(map(short_name, names))
        raise UsageError(f"--update: unknown lesson {name!r}. Available lessons: {short}")
    return found, ""


def short_name(name: str) -> str:
    """Return the number of a lesson, such as ``04b``; the name itself of any other file."""
    return name.split("_")[0] if name[:1].isdigit() else name
