"""A submission as nbgrader runs it: the cells of the lesson, with the student's answers in their places.

nbgrader looks a cell up by the id in its metadata alone, and runs every cell of the notebook. Here the
answers are found as `iocourse grade` finds them, and only the cells that it runs are run, so the points are
the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .exercise import find
from .student_copies.answers import Answer, Wanted, find_answers, notes_of
from .student_copies.notebook import Json, text_of

SCHEMA = 3
PREFIX = "ex-"


@dataclass(frozen=True)
class Source:
    """A cell of the assignment, as nbgrader has stored it.

    Attributes:
        grade_id: its id.
        text: its text in the lesson.
        locked: whether the student must not change it.
        points: what it is worth; None for a cell that is not graded.
        solution: whether the student writes in it.
        checksum: nbgrader's.
    """

    grade_id: str
    text: str
    locked: bool
    points: float | None
    solution: bool
    checksum: str | None


def transplanted(cells: Sequence[Json], sources: Sequence[Source]) -> tuple[list[Json], str]:
    """Return the cells to run, and a line for the teacher, "" if the notebook is as the lesson has it.

    Cells that are not run are kept as text where the student has them.

    Args:
        cells: all cells of the submission.
        sources: cells of the assignment, in order.
    """
    wanted = [_wanted(one) for one in sources if one.solution]
    own = {one.grade_id: one.text for one in sources if one.locked and one.points is None}
    answers = find_answers(cells, wanted, own)
    line = notes_of({name: (answer.notes, answer.fault) for name, answer in answers.items()})
    return list(_placed(cells, sources, answers)), line


def _wanted(source: Source) -> Wanted:
    exercise = find(source.grade_id.removeprefix(PREFIX))
    return Wanted(exercise.id, exercise.function, source.grade_id, source.text)


def _placed(
    cells: Sequence[Json], sources: Sequence[Source], answers: Mapping[str, Answer]
) -> Iterator[Json]:
    """The cells of the assignment, each after the text that the student has above it."""
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


def _text_above(cells: Sequence[Json], sources: Sequence[Source], run: set[int]) -> dict[str, list[Json]]:
    """What is not run, by the cell of the assignment that follows it; "" after the last."""
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
    """The cell as Markdown, which is not run."""
    text = text_of(cell)
    if cell.get("cell_type") == "code":
        text = f"*Not run, because it is not a cell of the assignment:*\n\n````python\n{text}\n````"
    return {"cell_type": "markdown", "id": f"text-{at + 1}", "metadata": {}, "source": text}


def _cell(source: Source, text: str) -> Json:
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
