"""Build both notebooks of a lesson from its source, without outputs and without the first cell.

The student's notebook is an assignment for nbgrader. Its exercise cells are solutions, and its check cells
are grades whose points are the importance of the exercise. Its set-up and given cells are locked, because
`iocourse grade` also takes them from the lesson. A check cell repeats the imports that it needs. nbgrader
restores the text of this cell, so a name that the student has bound in between cannot replace `check`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iocourse.course.course_map import Lesson as Entry
from iocourse.course.exercise import Exercise, find
from iocourse.errors import UsageError
from tools.build.exercise_tables import announce, minutes_of
from tools.build.lesson_tables import lessons_of_map
from tools.build.percent_format import Cell, SourceError, cell_ids, parse, shown, side
from tools.build.project import Project
from tools.build.rules.lesson_length import LessonLength, length_of

Json = dict[str, Any]
NOTATION = re.compile(r"\]\((?:\./)?notation\.md")
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class Lesson:
    """A source with its two notebooks.

    Attributes:
        stem: the name of its files, such as ``04_flash_forward``.
        project: source of the address in its links.
        cells: the source, with the facts of its exercises filled in.
        solved: the solved notebook, without outputs.
        student: the student's notebook, without outputs.
        length: words, formulas, predictions and cells that a student reads.
        exercises: minutes of the exercises that are not optional.
    """

    stem: str
    project: Project
    cells: tuple[Cell, ...]
    solved: Json
    student: Json
    length: LessonLength
    exercises: int


def read_lessons(root: Path, project: Project, only: Sequence[str] = ()) -> list[Lesson]:
    """Build both notebooks of every source in `root`/solutions whose name starts with an entry of `only`.

    Raises:
        SourceError: a source cannot be read.
        UsageError: there is no source, or no source of this name.
    """
    paths = sorted((root / "solutions").glob("[0-9]*.py"))
    chosen = [path for path in paths if not only or path.stem.startswith(tuple(only))]
    if not chosen:
        have = ", ".join(path.stem for path in paths) or "none"
        wanted = " or ".join(only) or "[0-9]*.py"
        raise UsageError(f"no source {wanted} in {root / 'solutions'}; the sources are: {have}")
    return [build(path, path.relative_to(root), project) for path in chosen]


def build(path: Path, label: Path, project: Project) -> Lesson:
    """Return the lesson of one source with both notebooks; `label` is the file's name in messages."""
    written = parse(path.read_text(encoding="utf-8"), label)
    lessons = lessons_of_map(path.resolve().parents[1])
    cells = announce(written, label, lessons)
    _name_setup(cells, label)
    ids = cell_ids(cells, _stem_of_ids(path.stem, lessons), label)
    if project.claimed:
        cells[0] = _with_links_to_colab(cells[0], path.stem, project)
    imports = _imports(cells)
    named = list(zip(cells, ids, strict=True))
    solved = [_as_json(cell, one, solved=True) for cell, one in named if shown(cell, solved=True)]
    student = [_handed_out(cell, one, imports, label) for cell, one in named if shown(cell, solved=False)]
    size = length_of(written), minutes_of(written, label)
    return Lesson(path.stem, project, tuple(cells), _notebook(solved), _notebook(student), *size)


def _stem_of_ids(stem: str, lessons: Mapping[str, Entry]) -> str:
    """Return the first name of the lesson's file, so that a new name leaves the ids of cells as they are."""
    return next((one.stem_of_ids for one in lessons.values() if one.file == stem), stem)


def _name_setup(cells: list[Cell], label: Path) -> None:
    """Name the cell tagged setup, which must be the first code cell; the first cell must be the title."""
    if not cells or cells[0].kind != "markdown" or not "".join(cells[0].lines[:1]).startswith("# "):
        raise SourceError(label, 1, "the first cell must be the title: markdown that starts with '# # Title'")
    first = next((n for n, cell in enumerate(cells) if cell.kind == "code"), None)
    for n, cell in enumerate(cells):
        if "setup" in cell.tags:
            if n != first:
                message = "the cell tagged setup must be the first code cell, and the only one"
                raise SourceError(label, cell.line, message)
            cells[n] = replace(cell, name="setup")


def _with_links_to_colab(title: Cell, stem: str, project: Project) -> Cell:
    """Return the title cell with links to both notebooks in Colab, as text and not as a badge of a server."""
    exercises, solutions = (project.colab(f"{folder}/{stem}.ipynb") for folder in ("lessons", "solutions"))
    line = f"Open in Colab: [exercises]({exercises}) · [solutions]({solutions})"
    return replace(title, lines=(title.lines[0], "", line, *title.lines[1:]))


def _as_json(cell: Cell, cell_id: str, *, solved: bool) -> Json:
    text = "\n".join(side(cell, solved=solved))
    if solved and cell.kind == "markdown":  # the notation page is in the folder of the student's notebooks
        text = NOTATION.sub("](../lessons/notation.md", text)
    metadata: Json = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.name:
        metadata["name"] = cell.name
    made: Json = {"cell_type": cell.kind, "id": cell_id, "metadata": metadata}
    made["source"] = text.splitlines(keepends=True)
    return made | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {})


def _notebook(cells: list[Json]) -> Json:
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


# ---- the student's notebook as an assignment for nbgrader --------------------------------------------------


def _handed_out(cell: Cell, cell_id: str, imports: Mapping[str, str], label: Path) -> Json:
    """Return a cell of the student's notebook as nbformat JSON, with the metadata that nbgrader needs."""
    told: Json = {"schema_version": 3, "grade_id": cell_id}
    told |= {"grade": False, "solution": False, "locked": False, "task": False}
    if "check" in cell.tags:
        code = ast.parse("\n".join(side(cell, solved=False)))
        exercise = _checked(code, cell, label)
        name = f"check-{exercise.id.replace('.', '-')}"
        told |= {"grade_id": name, "grade": True, "locked": True, "points": exercise.importance}
        used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        if lines := [line for name, line in imports.items() if name in used]:
            cell = replace(cell, lines=(*lines, "", *cell.lines))
    elif "exercise" in cell.tags:
        told["solution"] = True
    elif {"setup", "given"} & set(cell.tags):
        told["locked"] = True
    else:
        return _as_json(cell, cell_id, solved=False)
    made = _as_json(cell, cell_id, solved=False)
    made["metadata"]["nbgrader"] = told
    return made


def _imports(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the import line of each name that the set-up cell imports with `from … import`."""
    lines = [line for cell in cells if "setup" in cell.tags for line in cell.lines]
    return {
        alias.asname or alias.name: ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
        for node in ast.parse("\n".join(lines)).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _checked(code: ast.Module, cell: Cell, label: Path) -> Exercise:
    """Return the exercise of a check cell.

    Raises:
        SourceError: the cell is not a single call of `check`, or there is no such exercise.
    """
    match code.body:
        case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(name)), *_]))]:
            try:
                return find(name)
            except ValueError as error:
                raise SourceError(label, cell.line, str(error)) from None
    raise SourceError(
        label, cell.line, 'a check cell must be only check("ID", function), because its value is the points'
    )
