"""The student's answers in saved notebooks: the cells that define a launcher and its kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UsageError
from ..exercise import find
from ..grade.lesson_cells import Lesson, lesson_of_cells, read_lessons
from ..project_paths import find_course
from ..student_copies.answers import find_answers
from ..student_copies.copies import find_copies
from ..student_copies.notebook import Json, read_notebook, text_of


@dataclass(frozen=True)
class Answer:
    """The cells that define one student's launcher, in the order in which they are run."""

    function: str
    cells: list[tuple[str, str, bool]] = field(default_factory=list)
    fault: str = ""


class Notebooks:
    """The notebooks of a student: the files that are passed, or otherwise the copies in `work/`."""

    def __init__(self, files: Sequence[Path]) -> None:
        course = find_course()
        self.lessons = read_lessons(course)
        self.faults: list[str] = []
        self.found: dict[str, list[Json]] = {}  # notebooks by lesson, newest last
        self.where = ", ".join(map(str, files)) or str(course.work)
        if files:
            for path in files:
                self._add(path)
            return
        lessons = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in course.notebooks()}
        for copy in sorted(find_copies(course, lessons), key=lambda one: one.path.stat().st_mtime):
            if copy.notebook is None:
                self.faults.append(f"{copy.path}: {copy.fault}")
            else:
                self.found.setdefault(copy.lesson, []).append(copy.notebook)

    def _add(self, path: Path) -> None:
        try:
            notebook = read_notebook(path)
        except UsageError as error:
            self.faults.append(f"{path}: {error}")
            return
        lesson = lesson_of_cells(notebook["cells"], self.lessons)
        if lesson is None:
            self.faults.append(f"{path}: has no exercise of the course")
        else:
            self.found.setdefault(lesson.stem, []).append(notebook)

    def answer(self, exercise_id: str) -> Answer:
        """Return the cells of an exercise, or the reason why there are none."""
        lesson = next(
            one for one in self.lessons if exercise_id in [exercise.id for exercise in one.exercises]
        )
        function = find(exercise_id).function
        notebooks = self.found.get(lesson.stem, [])
        if not notebooks:
            return Answer(
                function, fault=f"no notebook of lesson {lesson.stem} in {self.where}; pass --file NOTEBOOK"
            )
        return _answer(lesson, exercise_id, function, notebooks[-1]["cells"])


def _answer(lesson: Lesson, exercise_id: str, function: str, cells: list[Json]) -> Answer:
    """Return the lesson's own cells and the answers up to this exercise, whose kernels it may call."""
    answers = find_answers(cells, lesson.wanted, lesson.own)
    run: list[tuple[str, str, bool]] = []
    for place in lesson.places:
        if not place.asks:
            run.append((f"<the lesson's cell {place.cell}>", place.source, True))
            continue
        own, found = place.asks == exercise_id, answers[place.asks]
        texts = {at: text_of(cells[at]) for at in found.cells}
        run += [(f"<cell {at + 1}>", text, own) for at, text in texts.items()]
        if not own:
            continue
        if found.fault:
            return Answer(function, fault=found.fault)
        if found.at is not None and texts[found.at].split() == place.source.split():
            return Answer(
                function, fault="not solved yet: its cell is as the lesson gives it (is the notebook saved?)"
            )
        break
    return Answer(function, run)
