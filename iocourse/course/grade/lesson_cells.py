"""Cells of a lesson that the grader runs: the set-up, given helpers and the exercise cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exercise import Exercise, find
from ..project_paths import Course
from ..student_copies.answers import Wanted, count_recognised
from ..student_copies.notebook import text_of

RUN = {"setup", "given"}


@dataclass(frozen=True)
class LessonCell:
    """A cell that the grader runs: one of the lesson, or an exercise cell, which is replaced by the answer.

    Attributes:
        cell: cell id.
        source: source of the cell in the lesson.
        asks: id of its exercise; "" for a cell whose source in the lesson is run.
    """

    cell: str
    source: str
    asks: str = ""

    @property
    def exercise(self) -> Exercise | None:
        """The exercise of this cell; None if the source in the lesson is run."""
        return find(self.asks) if self.asks else None


@dataclass(frozen=True)
class Lesson:
    """A lesson for the grader: its name and the cells to run, in order."""

    stem: str
    places: tuple[LessonCell, ...]

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """The exercises of the lesson, in order."""
        return tuple(place.exercise for place in self.places if place.exercise)

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """The search keys by which each exercise cell is found in a submission."""
        asked = [(place, place.exercise) for place in self.places]
        return tuple(Wanted(one.id, one.function, place.cell, place.source) for place, one in asked if one)

    @property
    def own(self) -> dict[str, str]:
        """Source of each cell that is not an exercise, by cell id."""
        return {place.cell: place.source for place in self.places if not place.exercise}


def read_lessons(course: Course) -> list[Lesson]:
    """Return the lessons of the course with exercises. Raises UsageError if the course has no lessons."""
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


def lesson_of_cells(cells: Sequence[dict[str, Any]], lessons: Sequence[Lesson]) -> Lesson | None:
    """Return the lesson with the most exercises in these cells; None if no exercise is found."""
    counts = [count_recognised(cells, one.wanted) for one in lessons]
    return lessons[counts.index(max(counts))] if max(counts, default=0) else None
