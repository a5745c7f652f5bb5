"""Find the copies of each lesson in a work folder, also those that were renamed or duplicated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError
from ..project_paths import Course
from .notebook import Json, lesson_of, read_notebook

KEPT = re.compile(r"kept-\d{8}-\d{6}-")  # how the name of an old file begins


@dataclass(frozen=True)
class Copy:
    """A file of the student's.

    Attributes:
        path: where it lies.
        lesson: the name of the lesson that it is a copy of.
        notebook: what stands in it; None where it is no notebook.
        fault: why not.
    """

    path: Path
    lesson: str
    notebook: Json | None
    fault: str = ""


def find_copies(course: Course, lessons: dict[str, Json]) -> list[Copy]:
    """The student's copies of the lessons, but for those that an update has kept beside a newer one."""
    paths = sorted(path for path in course.work.glob("*.ipynb") if not KEPT.match(path.name))
    copies = (_copy(path, lessons) for path in paths if path.is_file() and path.stat().st_size)
    return [copy for copy in copies if copy.lesson]


def _copy(path: Path, lessons: dict[str, Json]) -> Copy:
    named = path.stem if path.stem in lessons else ""
    try:
        notebook = read_notebook(path)
    except UsageError as error:
        return Copy(path, named, None, str(error))
    return Copy(path, lesson_of(notebook, lessons) or named, notebook)


def chosen(name: str, names: Sequence[str], copies: Sequence[Copy]) -> tuple[str, str]:
    """What ``--update NAME`` means: a lesson, and the one file that is meant, "" for all copies of it.

    Args:
        name: ``4``, ``04``, ``04_flash_forward``, ``notation``, or the name of a file in the work folder.
        names: of all lessons and pages.
        copies: the student's.

    Raises:
        UsageError: it is none of them.
    """
    wanted = Path(name).name
    for copy in copies:
        if wanted in (copy.path.name, copy.path.stem) and copy.path.stem not in names:
            return copy.lesson, copy.path.name
    asked = re.sub(r"\.(ipynb|md)$", "", wanted).lower()
    asked = f"0{asked}" if re.fullmatch(r"\d[a-z]?", asked) else asked
    found = [one for one in names if asked in (one, one.split("_")[0])]
    if not found:
        short = ", ".join(one.split("_")[0] for one in names)
        raise UsageError(f"--update {name!r} is no lesson; there are: {short}")
    return found[0], ""
