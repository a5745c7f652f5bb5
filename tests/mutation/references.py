"""An exercise as its lesson has it: the text of its cell, and its function in the notebook's namespace."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iocourse.course.exercise import find
from iocourse.course.project_paths import find_checkout
from tools.build.percent_format import Cell, parse, side

INTERPRETED = range(10, 15)  # lessons whose kernels run in Triton's interpreter, a thousand times slower


def sources_of(lesson: int) -> list[Path]:
    """The files of a lesson: of lesson 5 those that start with 05_ and, for its second evening, 05b_."""
    return sorted((find_checkout() / "solutions").glob(f"{lesson:02d}*_*.py"))


@functools.cache
def _cells(path: Path) -> list[Cell]:
    return parse(path.read_text(encoding="utf-8"), path)


def _cells_around(exercise_id: str) -> list[Cell]:
    """The cells of the notebook that has the exercise."""
    name = f"ex-{exercise_id}"
    notebooks = map(_cells, sources_of(find(exercise_id).lesson))
    return next(cells for cells in notebooks if any(cell.name == name for cell in cells))


def exercise_source(exercise_id: str, *, solved: bool) -> str:
    """The text of the exercise's cell, as solved or as the student finds it."""
    cell = next(c for c in _cells_around(exercise_id) if c.name == f"ex-{exercise_id}")
    return "\n".join(side(cell, solved=solved))


def _preamble(exercise_id: str) -> str:
    """What an exercise's cell may rely on: the lesson's imports, its kernels with what launches them, given
    functions, and the solved exercises before this one.
    """
    lines: list[str] = []
    for cell in _cells_around(exercise_id):
        if cell.name == f"ex-{exercise_id}":
            break
        if cell.kind == "code":
            text = "\n".join(side(cell, solved=True))
            given = "given" in cell.tags or "@triton.jit" in text
            lines.append(text if "exercise" in cell.tags else _kept(text, given))
    return "\n".join(lines)


def _kept(text: str, functions: bool) -> str:
    """The imports of a cell that is no exercise, also tried ones, and where it is asked for its functions."""
    kinds = (ast.Import, ast.ImportFrom) + ((ast.FunctionDef,) if functions else ())
    kept = (node for node in ast.parse(text).body if isinstance(node, kinds) or _tries_an_import(node))
    return "\n".join(map(ast.unparse, kept))


def _tries_an_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Try) and isinstance(node.body[0], ast.ImportFrom)


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Run `source` as a file called `name` whose text can be looked up, as triton.jit does."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)


@functools.cache
def before(exercise_id: str) -> dict[str, Any]:
    """What the notebook knows when it comes to the exercise: run once, and copied for whoever adds to it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    _execute(_preamble(exercise_id), f"<before {exercise_id}>", namespace)
    return namespace


def build(exercise_id: str, source: str) -> Callable[..., Any]:
    """The function that `source` defines, in the namespace it has in the notebook."""
    namespace = dict(before(exercise_id))
    _execute(source, f"<exercise {exercise_id}>", namespace)
    function: Callable[..., Any] = namespace[find(exercise_id).function]
    return function
