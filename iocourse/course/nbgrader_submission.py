"""Rebuild a submission for nbgrader: the cells of the lesson with the student's answers in their places.

nbgrader finds a cell only by the id in its metadata, and runs every cell of the notebook. This module finds
the answers as `iocourse grade` does and keeps only the cells that it runs, so the points are equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .exercise import find
from .student_copies.answers import AnswerCell, Wanted, find_answers, notes_of
from .student_copies.notebook import Json, text_of

SCHEMA = 3
PREFIX = "ex-"


@dataclass(frozen=True)
class AssignmentCell:
    """A cell of the assignment, as stored by nbgrader.

    Attributes:
        grade_id: nbgrader id of the cell.
        text: source of the cell in the lesson.
        locked: True if the student must not change it.
        points: maximum points; None for a cell that is not graded.
        solution: True if the student writes in it.
        checksum: nbgrader's checksum of the cell.
    """

    grade_id: str
    text: str
    locked: bool
    points: float | None
    solution: bool
    checksum: str | None


def transplanted(cells: Sequence[Json], sources: Sequence[AssignmentCell]) -> tuple[list[Json], str]:
    """Rebuild a submission: the cells of the assignment with the answers of the student.

    Other cells of the student become Markdown cells at the same position and are not run.

    Args:
        cells: all cells of the submission.
        sources: cells of the assignment, in order.

    Returns:
        The new list of cells, and a line for the teacher; "" if the notebook has the lesson's structure.
    """
    wanted = [_wanted(one) for one in sources if one.solution]
    own = {one.grade_id: one.text for one in sources if one.locked and one.points is None}
    answers = find_answers(cells, wanted, own)
    line = notes_of({name: (answer.notes, answer.fault) for name, answer in answers.items()})
    return list(_placed(cells, sources, answers)), line


def _wanted(source: AssignmentCell) -> Wanted:
    exercise = find(source.grade_id.removeprefix(PREFIX))
    return Wanted(exercise.id, exercise.function, source.grade_id, source.text)


def _placed(
    cells: Sequence[Json], sources: Sequence[AssignmentCell], answers: Mapping[str, AnswerCell]
) -> Iterator[Json]:
    """Yield the cells of the assignment, each preceded by the student's other cells above it, as text."""
    run = {at for answer in answers.values() for at in answer.cells}
    above = _text_above(cells, sources, run)
    for source in sources:
        yield from above.pop(source.grade_id, ())
        if not source.solution:
            yield _cell(source, source.text)
            continue
        answer = answers[_wanted(source).exercise]
        for at in answer.cells:
            if at == answer.at:
                yield _cell(source, text_of(cells[at]))
            else:
                yield _code(text_of(cells[at]), f"cell-{at + 1}")
        if answer.at is None:
            yield _cell(source, f"# {answer.fault}")
    yield from above.pop("", ())


def _text_above(
    cells: Sequence[Json], sources: Sequence[AssignmentCell], run: set[int]
) -> dict[str, list[Json]]:
    """Return the cells that are not run, as text, by the id of the next assignment cell ("": at the end)."""
    ids = [source.grade_id for source in sources]
    locked = {source.grade_id: source.text for source in sources if source.locked}
    texts = {text: grade_id for grade_id, text in locked.items()}
    waiting: list[Json] = []
    above: dict[str, list[Json]] = defaultdict(list)
    for at, cell in enumerate(cells):
        told = cell.get("metadata", {}).get("nbgrader")
        grade_id = told.get("grade_id") if isinstance(told, dict) else None
        grade_id = grade_id if grade_id in ids else texts.get(text_of(cell))
        if grade_id is not None:
            above[str(grade_id)] += waiting
            waiting = []
        if at not in run and grade_id not in locked:
            waiting.append(_as_text(cell, at))
    above[""] += waiting
    return above


def _as_text(cell: Json, at: int) -> Json:
    """Convert a cell to Markdown, so that it is not run."""
    text = text_of(cell)
    if cell.get("cell_type") == "code":
        text = f"*Not run, because it is not a cell of the assignment:*\n\n````python\n{text}\n````"
    return {"cell_type": "markdown", "id": f"text-{at + 1}", "metadata": {}, "source": text}


def _cell(source: AssignmentCell, text: str) -> Json:
    told = {
        "schema_version": SCHEMA,
        "grade_id": source.grade_id,
        "grade": source.points is not None,
        "solution": source.solution,
        "locked": source.locked,
        "task": False,
        "cell_type": "code",
        "checksum": source.checksum,
    } | ({} if source.points is None else {"points": source.points})
    return _code(text, source.grade_id) | {"metadata": {"name": source.grade_id, "nbgrader": told}}


def _code(text: str, name: str) -> Json:
    shape: Json = {"cell_type": "code", "id": name, "metadata": {}, "outputs": [], "execution_count": None}
    return shape | {"source": text}
