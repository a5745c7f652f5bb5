"""The cells of a lesson that are run for a grade: set-up, given helpers, and the cells of the exercises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..course.exercise import Exercise, find
from ..course.project_paths import Course
from ..course.student_copies.answers import Wanted, count_recognised
from ..course.student_copies.notebook import text_of

RUN = {"setup", "given"}


@dataclass(frozen=True)
class LessonCell:
    """A cell that is run: the lesson's own, or the place of an exercise, whose text is the student's.

    Attributes:
        cell: its id.
        source: the lesson's text.
        asks: the id of the exercise in it, "" where the lesson's text is run.
    """

    cell: str
    source: str
    asks: str = ""

    @property
    def exercise(self) -> Exercise | None:
        """What is asked in it, None where the lesson's text is run."""
        return find(self.asks) if self.asks else None


@dataclass(frozen=True)
class Lesson:
    """A lesson as it is graded: its name, and what is run, in order."""

    stem: str
    places: tuple[LessonCell, ...]

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """What is asked, in order."""
        return tuple(place.exercise for place in self.places if place.exercise)

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """The exercises as they are looked up in a notebook."""
        asked = [(place, place.exercise) for place in self.places]
        return tuple(Wanted(one.id, one.function, place.cell, place.source) for place, one in asked if one)

    @property
    def own(self) -> dict[str, str]:
        """The texts of the lesson's own cells, by id."""
        return {place.cell: place.source for place in self.places if not place.exercise}


def read_lessons(course: Course) -> list[Lesson]:
    """The lessons of the course that have exercises. Raises UsageError where there are none."""
    return [lesson for lesson in map(_lesson, course.notebooks()) if lesson.exercises]


def _lesson(path: Path) -> Lesson:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    places = (_place(cell) for cell in cells if cell["cell_type"] == "code")
    return Lesson(path.stem, tuple(place for place in places if place))


def _place(cell: dict[str, Any]) -> LessonCell | None:
    tags, metadata = set(cell["metadata"].get("tags", ())), cell["metadata"]
    if "exercise" in tags:
        return LessonCell(cell["id"], text_of(cell), metadata["name"].removeprefix("ex-"))
    if tags & RUN:
        return LessonCell(cell["id"], text_of(cell))
    return None


def lesson_of(cells: Sequence[dict[str, Any]], lessons: Sequence[Lesson]) -> Lesson | None:
    """The lesson that has the most exercises in these cells; None where none has any."""
    counts = [count_recognised(cells, one.wanted) for one in lessons]
    return lessons[counts.index(max(counts))] if max(counts, default=0) else None
