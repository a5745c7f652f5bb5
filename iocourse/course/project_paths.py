"""Paths of the course: root of a checkout or the installed package, lessons, and the student's copies."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError

PACKAGED = Path(__file__).resolve().parents[1] / "lessons"  # exists only in an installed wheel
FIRST = "00_start_here.ipynb"
FILE = "flash_attention.py"  # kernels to copy, for students who have opened lesson 12


def find_checkout(start: Path | None = None) -> Path:
    """Return the root of the checkout that contains `start`, or otherwise this module.

    Args:
        start: a folder; default: the current folder.

    Raises:
        UsageError: both are outside a checkout of the course.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents, Path(__file__).resolve().parents[2]):
        if is_checkout(folder):
            return folder
    raise UsageError(
        f"this needs a checkout of the course with its sources and tests, but {start} is not in one. "
        "Clone the repository and run iocourse inside it"
    )


@dataclass(frozen=True)
class Course:
    """Source and destination folders of a student's copies.

    Attributes:
        lessons: folder of the notebooks that students start from.
        root: folder in which the student's `work/` is or will be created.
    """

    lessons: Path
    root: Path

    @property
    def work(self) -> Path:
        """Folder of the student's copies."""
        return self.root / "work"

    def notebooks(self) -> list[Path]:
        """Return the paths of the lessons, in order.

        Raises:
            UsageError: the folder contains no lessons.
        """
        found = sorted(self.lessons.glob("[0-9]*.ipynb"))
        if not found:
            raise UsageError(
                f"no lessons in {self.lessons}. Build them from solutions/ with python -m tools.build"
            )
        return found

    def pages(self) -> list[Path]:
        """Return the paths of the Markdown pages that lessons link to."""
        return sorted(self.lessons.glob("*.md"))

    def files(self) -> list[Path]:
        """Return the paths of the pages and of `FILE`, if there is one."""
        return [*self.pages(), *self.lessons.glob(FILE)]


def find_course(start: Path | None = None) -> Course:
    """Return the course in the checkout at `start` (default: the current folder) or the installed package.

    Raises:
        UsageError: there is no checkout, and the package contains no lessons.
    """
    try:
        root = find_checkout(start)
    except UsageError:
        if not PACKAGED.is_dir():
            raise
        here = (start or Path.cwd()).resolve()
        inside = here.name == "work" and (here / FIRST).exists()
        return Course(PACKAGED, here.parent if inside else here)
    return Course(root / "lessons", root)


def is_checkout(folder: Path) -> bool:
    """Return True if this folder is the root of a checkout of the course."""
    if not (folder / "lessons").is_dir() and not (folder / "solutions").is_dir():
        return False
    return pyproject_table(folder).get("name") == "iocourse"


def pyproject_table(root: Path, *names: str) -> dict[str, Any]:
    """Return a table of pyproject.toml, [project] without `names`; empty if it is missing."""
    try:
        table: Any = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    for name in names or ("project",):
        table = table.get(name, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}


def exercise_ids(course: Course) -> tuple[str, ...]:
    """Return the ids of all exercises in the students' notebooks; the cell of ``4B`` is named ``ex-4B``."""
    notebooks = (json.loads(path.read_text(encoding="utf-8")) for path in course.notebooks())
    cells = (cell["metadata"] for notebook in notebooks for cell in notebook["cells"])
    return tuple(c["name"].removeprefix("ex-") for c in cells if "exercise" in c.get("tags", ()))
