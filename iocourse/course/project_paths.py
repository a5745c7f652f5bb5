"""Paths of the course: of a checkout or the installed package, its lessons, and the student's copies."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError

PACKAGED = Path(__file__).resolve().parents[1] / "lessons"  # there in a wheel, and nowhere else
FIRST = "00_start_here.ipynb"


def find_checkout(start: Path | None = None) -> Path:
    """The root of the checkout that holds `start` (default: the current folder), else of this very module.

    Raises:
        UsageError: neither lies in a checkout of the course.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents, Path(__file__).resolve().parents[2]):
        if is_checkout(folder):
            return folder
    raise UsageError(
        f"this needs a checkout of the course, with its sources and tests, and there is none at {start}: "
        "clone the repository and run iocourse inside it"
    )


@dataclass(frozen=True)
class Course:
    """Where a student's copies come from, and where they go.

    Attributes:
        lessons: the folder of the notebooks that students start from.
        root: the folder that holds, or will hold, the student's `work/`.
    """

    lessons: Path
    root: Path

    @property
    def work(self) -> Path:
        """The folder of the student's copies."""
        return self.root / "work"

    def notebooks(self) -> list[Path]:
        """The lessons, in order.

        Raises:
            UsageError: there are none.
        """
        found = sorted(self.lessons.glob("[0-9]*.ipynb"))
        if not found:
            raise UsageError(
                f"no lessons in {self.lessons}: python -m tools.build makes them from solutions/"
            )
        return found

    def pages(self) -> list[Path]:
        """The pages that lessons link to."""
        return sorted(self.lessons.glob("*.md"))


def find_course(start: Path | None = None) -> Course:
    """The lessons of the checkout at `start` (default: the current folder), else those of the package.

    Raises:
        UsageError: there are neither.
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
    """Whether the course is checked out into this folder."""
    if not (folder / "lessons").is_dir() and not (folder / "solutions").is_dir():
        return False
    return pyproject_table(folder).get("name") == "iocourse"


def pyproject_table(root: Path, *names: str) -> dict[str, Any]:
    """A table of pyproject.toml, [project] where no names are given; empty where there is none."""
    try:
        table: Any = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    for name in names or ("project",):
        table = table.get(name, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}


def exercise_ids(course: Course) -> tuple[str, ...]:
    """The ids of all exercises in the students' notebooks: a cell named ``ex-4B`` is exercise ``4B``."""
    notebooks = (json.loads(path.read_text(encoding="utf-8")) for path in course.notebooks())
    cells = (cell["metadata"] for notebook in notebooks for cell in notebook["cells"])
    return tuple(c["name"].removeprefix("ex-") for c in cells if "exercise" in c.get("tags", ()))
