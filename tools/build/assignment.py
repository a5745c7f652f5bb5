"""The student's notebook as an nbgrader assignment: what nbgrader must know of its cells.

Exercise cells are solutions, check cells are grades with the exercise's importance as their points, and
set-up and given cells are locked, as `iocourse grade` takes them from the lesson too. The metadata, schema 3
of nbgrader's, shows nowhere where there is no nbgrader. A check cell imports for itself what the set-up
brought: nbgrader restores its text, and nothing that has taken the name `check` in between may stand for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from iocourse.course.exercise import Exercise, find
from tools.build.source import Cell, SourceError, side

SCHEMA = 3
GIVEN = {"setup", "given"}


def brought(cells: Sequence[Cell]) -> dict[str, str]:
    """What the set-up imports `from` somewhere: for each name the line that does."""
    lines = [line for cell in cells if "setup" in cell.tags for line in cell.lines]
    return dict(_imports(ast.parse("\n".join(lines))))


def _imports(code: ast.Module) -> Iterator[tuple[str, str]]:
    for node in code.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                line = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
                yield alias.asname or alias.name, line


def standing_alone(cell: Cell, imports: Mapping[str, str]) -> Cell:
    """A check cell with those of the imports at its head that it uses; any other cell as it is."""
    if "check" not in cell.tags:
        return cell
    used = {node.id for node in ast.walk(_code(cell)) if isinstance(node, ast.Name)}
    lines = [line for name, line in imports.items() if name in used]
    return replace(cell, lines=(*lines, "", *cell.lines)) if lines else cell


def metadata(cell: Cell, cell_id: str, path: Path) -> dict[str, Any] | None:
    """What nbgrader must know of a cell; None where that is nothing.

    Args:
        cell: of a lesson's source.
        cell_id: in the notebook.
        path: of the source, for messages.

    Raises:
        SourceError: a check cell that is not one check of an exercise.
    """
    tags = set(cell.tags)
    if "check" in tags:
        exercise = _checked(cell, path)
        name = f"check-{exercise.id.replace('.', '-')}"
        return _told(name, grade=True, locked=True) | {"points": exercise.importance}
    if "exercise" in tags:
        return _told(cell_id, solution=True)
    return _told(cell_id, locked=True) if tags & GIVEN else None


def _told(
    grade_id: str, *, grade: bool = False, solution: bool = False, locked: bool = False
) -> dict[str, Any]:
    flags = {"grade": grade, "solution": solution, "locked": locked, "task": False}
    return {"schema_version": SCHEMA, "grade_id": grade_id, **flags}


def _checked(cell: Cell, path: Path) -> Exercise:
    """The exercise that a check cell asks about, and nothing else: its value is the points."""
    match _code(cell).body:
        case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(name)), *_]))]:
            try:
                return find(name)
            except ValueError as error:
                raise SourceError(path, cell.line, str(error)) from None
    raise SourceError(path, cell.line, 'a check cell is check("ID", function) alone: its value is the points')


def _code(cell: Cell) -> ast.Module:
    return ast.parse("\n".join(side(cell, solved=False)))
