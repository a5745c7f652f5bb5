"""The student's answers in saved notebooks: the cells that define a launcher and its kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ..grade.lesson_cells import Lesson, lesson_of_cells, read_lessons
from ..project_paths import find_course
from ..student_copies.answers import find_answers
from ..student_copies.copies import find_copies
from ..student_copies.notebook import Json, read_notebook, text_of
from .timed_problems import PROBLEMS

Cell = tuple[str, str, bool]  # name, source, and whether an error in it matters


class NoAnswer(Exception):
    """There is no answer to run; the message is the reason, and what to do."""


class SavedAnswers:
    """The answers in the notebooks that are passed, or otherwise in the copies in `work/`.

    Attributes:
        where: the notebooks, for messages.
        faults: why a notebook was not read, by file.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        course = find_course()
        every = read_lessons(course)
        self._lessons = [one for one in every if {exercise.id for exercise in one.exercises} & {*PROBLEMS}]
        self._cells: dict[str, list[Json]] = {}  # by lesson; of several notebooks the last
        self.where, self.faults = ", ".join(map(str, files)) or str(course.work), dict[str, str]()
        self._broken: dict[str, str] = {}  # the lesson of a copy in `faults`
        if files:
            for path in files:
                self._add(path)
            return
        lessons = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in course.notebooks()}
        stems = {lesson.stem for lesson in self._lessons}
        copies = [one for one in find_copies(course, lessons) if one.lesson in stems]
        for copy in sorted(copies, key=lambda one: one.path.stat().st_mtime):
            if copy.notebook is None:
                self.faults[str(copy.path)] = copy.fault
                self._broken[str(copy.path)] = copy.lesson
            else:
                self._cells[copy.lesson] = copy.notebook["cells"]

    def _add(self, path: Path) -> None:
        try:
            cells = read_notebook(path)["cells"]
        except UsageError as error:
            self.faults[str(path)] = str(error)
            return
        lesson = lesson_of_cells(cells, self._lessons)
        if lesson is None:
            self.faults[str(path)] = "no exercise that can be timed is in the notebook"
        else:
            self._cells[lesson.stem] = cells

    @property
    def found(self) -> bool:
        """True if the notebook of a lesson was read."""
        return bool(self._cells)

    def concerns(self, file: str, exercises: Sequence[str]) -> bool:
        """Return False if a file in `faults` is the copy of a lesson with none of these exercises."""
        ids = {
            one.id
            for lesson in self._lessons
            if lesson.stem == self._broken.get(file)
            for one in lesson.exercises
        }
        return not ids or bool(ids & {*exercises})

    def cells_of(self, exercise_id: str) -> list[Cell]:
        """Return the cells to run for an exercise, in order. Raises NoAnswer if it is not solved."""
        lesson = {one.id: lesson for lesson in self._lessons for one in lesson.exercises}[exercise_id]
        if lesson.stem not in self._cells:
            raise NoAnswer(f"no notebook of lesson {lesson.stem} in {self.where}; pass it with --file")
        return _cells_up_to(exercise_id, lesson, self._cells[lesson.stem])


def _cells_up_to(exercise_id: str, lesson: Lesson, cells: list[Json]) -> list[Cell]:
    """Return the lesson's own cells and the answers up to this exercise, which may call their kernels."""
    answers = find_answers(cells, lesson.wanted, lesson.own)
    run: list[Cell] = []
    for place in lesson.places:
        if not place.asks:
            run.append((f"the lesson's cell {place.cell}", place.source, True))
            continue
        own, answer = place.asks == exercise_id, answers[place.asks]
        run += [(f"cell {at + 1}", text_of(cells[at]), own) for at in answer.cells]
        if own:
            if answer.at is None:
                raise NoAnswer(answer.fault.partition(";")[0])
            if text_of(cells[answer.at]).split() == place.source.split():
                raise NoAnswer("not solved: its cell is unchanged. Is the notebook saved?")
            break
    return run
