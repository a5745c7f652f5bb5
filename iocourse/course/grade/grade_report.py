"""Output of grades: a table, a CSV file, and each student's notebook with a report below each exercise."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...console import printable, table
from ...errors import UsageError
from ...files import atomic_write
from ..points import RULE, RULE_NAME
from ..student_copies.answers import notes_of
from ..student_copies.notebook import text_of
from .batch import Grade
from .grading import Mark
from .lesson_cells import Lesson
from .old_points import COLUMN, rules_of
from .submissions import Submission

_WIDTH = 70  # characters of a reason in the table
_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def as_table(grades: Sequence[Grade], lesson: Lesson) -> str:
    """Format a table with one row per student: points, points per exercise, first reason for lost points."""
    head = [
        "student",
        _of("points", lesson),
        *(_of(one.id, one) for one in lesson.exercises),
        " reason for lost points",
    ]
    rows = [
        [g.name, _number(g.points), *(_number(m.points) for m in g.marks), _first_reason(g)] for g in grades
    ]
    return "\n".join(line.rstrip() for line in _reasons_left([head, *rows]))


def _reasons_left(rows: list[list[str]]) -> list[str]:
    numbers = table([row[:-1] for row in rows]).splitlines()
    widest = max(map(len, numbers))
    return [f"{line:<{widest}}  {row[-1].strip()}" for line, row in zip(numbers, rows, strict=True)]


def _of(name: str, asked: Any) -> str:
    exercises = asked.exercises if isinstance(asked, Lesson) else [asked]
    return f"{name}/{sum(one.importance for one in exercises)}"


def _number(points: float) -> str:
    return f"{round(points, 2):g}"


def _first_reason(grade: Grade) -> str:
    whys = [f"{mark.id} {mark.why}" for mark in grade.marks if mark.why]
    why = printable(" ".join("".join(whys[:1]).split()))
    more = f" (and {len(whys) - 1} more)" if len(whys) > 1 else ""
    return (why if len(why) <= _WIDTH else why[: _WIDTH - 1] + "…") + more


def as_csv(grades: Sequence[Grade], lesson: Lesson) -> str:
    """Format CSV, one row per student: name, lesson, points, maximum, each exercise, rule, reasons, notes."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    ids = [one.id for one in lesson.exercises]
    rows.writerow(["student", "lesson", "points", "of", *ids, COLUMN, "reasons", "notes"])
    most = sum(one.importance for one in lesson.exercises)
    for grade in grades:
        reasons = "; ".join(_reasons(grade))
        each = [_number(mark.points) for mark in grade.marks]
        row = [
            grade.name,
            lesson.stem,
            _number(grade.points),
            most,
            *each,
            RULE_NAME,
            reasons,
            printable(note_of(grade)),
        ]
        rows.writerow([_no_formula(cell) if isinstance(cell, str) else cell for cell in row])
    return written.getvalue()


def _reasons(grade: Grade) -> Iterator[str]:
    """Yield each distinct reason for lost points, preceded by the ids of its exercises."""
    whys = dict.fromkeys(mark.why for mark in grade.marks if mark.why)
    for why in whys:
        ids = ", ".join(mark.id for mark in grade.marks if mark.why == why)
        yield f"{ids} {printable(' '.join(why.split()))}"


def note_of(grade: Grade) -> str:
    """Return a line for the teacher on differences from the lesson's structure; "" if there are none."""
    return notes_of({mark.id: (mark.notes, mark.fault) for mark in grade.marks})


def notes(grades: Sequence[Grade]) -> Iterator[str]:
    """Yield a heading and a line per notebook that differs from the lesson's structure, if there are any."""
    told = [f"{grade.name}: {printable(note_of(grade))}" for grade in grades if note_of(grade)]
    yield from ["", "Notebooks to look at:", *told] if told else []


def _no_formula(cell: str) -> str:
    """Escape a cell that a spreadsheet would run as a formula, since students choose their names."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@") else cell


def require_writable(table: Path | None, feedback: Path | None, submissions: Sequence[Submission]) -> None:
    """Check that the CSV file and the feedback can be written without replacing other files.

    Args:
        table: path of the CSV file, None without one.
        feedback: folder of the feedback, None without one.
        submissions: the submissions, whose names give the file names.

    Raises:
        UsageError: a path has the wrong type, cannot be written, or belongs to another file.
    """
    if table and (table.is_dir() or table.suffix.lower() == ".ipynb"):
        raise UsageError(f"--csv must be a file name for a table, such as points.csv, got {table}")
    if table and table.is_file():
        rules_of(table)  # raises now what it would raise when the first table is written
    if feedback and feedback.exists() and not feedback.is_dir():
        raise UsageError(f"--feedback must be a folder, but {feedback} is a file")
    for target in (table and table.parent, feedback):
        # The folder itself, or the nearest existing parent folder.
        nearest = target and next(one for one in (target, *target.absolute().parents) if one.exists())
        if nearest and not os.access(nearest, os.W_OK):
            raise UsageError(f"no permission to write to {target}. Choose another location")
    for path in (feedback / f"{one.name}.ipynb" for one in submissions) if feedback else ():
        if path.exists() and not _is_feedback(path):
            raise UsageError(f"{path} is not a feedback file and would be overwritten. Choose another folder")


def _is_feedback(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["id"] == "feedback")
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return False


def write_feedback(
    folder: Path, grades: Sequence[Grade], submissions: Sequence[Submission], lesson: Lesson
) -> None:
    """Write `folder`/NAME.ipynb for each student: the submission with a report below each exercise.

    Args:
        folder: the folder of the feedback; it is created if missing.
        grades: the grades, one per student.
        submissions: the graded submissions.
        lesson: the lesson that they belong to.
    """
    by_name = {one.name: one for one in submissions}
    for grade in grades:
        notebook = _feedback(grade, by_name[grade.name], lesson)
        text = json.dumps(notebook, indent=1, ensure_ascii=True)
        atomic_write(folder / f"{grade.name}.ipynb", text + "\n")


def _feedback(grade: Grade, submission: Submission, lesson: Lesson) -> dict[str, Any]:
    names = [place.cell for place in lesson.places if place.exercise]
    marks = {mark.cell: (name, mark) for name, mark in zip(names, grade.marks, strict=True)}
    lost = [mark for mark in grade.marks if mark.cell is None]
    cells: list[dict[str, Any]] = [_note("feedback", _summary(grade, lesson))]
    for at, cell in enumerate(submission.notebook.get("cells", [])):
        name, mark = marks.get(at, ("", None))
        if mark or not str(cell.get("id")).startswith("feedback"):  # drop forged feedback cells
            cells.append(_copied(cell, name if mark else f"cell-{at}"))
        if mark:
            cells.append(_note(f"feedback-{mark.id}", _report(mark)))
    cells += [_note(f"feedback-{mark.id}", _report(mark)) for mark in lost]
    return {"cells": cells, "metadata": {"kernelspec": _KERNEL}, "nbformat": 4, "nbformat_minor": 5}


def _copied(cell: dict[str, Any], name: str) -> dict[str, Any]:
    """Copy the type and source of a cell. Everything else in a submission may be invalid, large or forged."""
    kind = cell.get("cell_type")
    made: dict[str, Any] = {
        "cell_type": kind if kind in ("code", "markdown") else "raw",
        "id": name,
        "metadata": {},
    }
    made |= {"outputs": [], "execution_count": None} if kind == "code" else {}
    return made | {"source": text_of(cell).splitlines(keepends=True)}


def _note(name: str, text: str) -> dict[str, Any]:
    where = {"cell_type": "markdown", "id": name.replace(".", "-"), "metadata": {"tags": ["feedback"]}}
    return where | {"source": text.splitlines(keepends=True)}


def _summary(grade: Grade, lesson: Lesson) -> str:
    most = sum(mark.of for mark in grade.marks)
    rows = [f"| {m.report.splitlines()[0]} | {_number(m.points)} | {m.of} | {m.parts} |" for m in grade.marks]
    head = ["| exercise | points | of | made of |", "| --- | ---: | ---: | --- |"]
    name = re.sub(r"([!-/:-@[-`{-~])", r"\\\1", grade.name)  # escape all punctuation for Markdown
    title = f"**{name}: {_number(grade.points)} of {most} points** for {lesson.stem}"
    return "\n".join([title, "", *head, *rows, *([] if grade.points == most else ["", RULE])])


def _report(mark: Mark) -> str:
    lines = "\n".join(f"    {line}" for line in mark.report.splitlines())
    paid = f"\n\n{mark.paid}" if mark.paid else ""
    return f"**{_number(mark.points)} of {mark.of} points** ({mark.parts})\n\n{lines}{paid}"
