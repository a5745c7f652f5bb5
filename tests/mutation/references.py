"""Exercises as in their lesson: the source of the cell, and its function in the notebook's namespace."""

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

# Lessons, without letters, whose kernels run in Triton's interpreter, a thousand times slower.
INTERPRETED = ("10", "11", "12", "13", "14")


def sources_of(lesson: str) -> list[Path]:
    """Return the source files of a lesson and its other parts: for 05 or 05b the files 05_* and 05b_*."""
    return sorted((find_checkout() / "solutions").glob(f"{lesson[:2]}*_*.py"))


@functools.cache
def _cells(path: Path) -> list[Cell]:
    return parse(path.read_text(encoding="utf-8"), path)


def _cells_around(exercise_id: str) -> list[Cell]:
    """The cells of the notebook that contains the exercise."""
    name = f"ex-{exercise_id}"
    notebooks = map(_cells, sources_of(find(exercise_id).lesson))
    return next(cells for cells in notebooks if any(cell.name == name for cell in cells))


def exercise_source(exercise_id: str, *, solved: bool) -> str:
    """The source of the exercise's cell: the solution, or the stub that a student gets."""
    cell = next(c for c in _cells_around(exercise_id) if c.name == f"ex-{exercise_id}")
    return "\n".join(side(cell, solved=solved))


def _preamble(exercise_id: str) -> str:
    """The code that an exercise's cell may use: imports of the lesson, its kernels and their launchers, given
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
    """The imports of a cell without an exercise, `try` included, and with `functions` its functions."""
    kinds = (ast.Import, ast.ImportFrom) + ((ast.FunctionDef,) if functions else ())
    kept = (node for node in ast.parse(text).body if isinstance(node, kinds) or _tries_an_import(node))
    return "\n".join(map(ast.unparse, kept))


def _tries_an_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Try) and isinstance(node.body[0], ast.ImportFrom)


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Run `source` as a file called `name` and register its text, which triton.jit looks up."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)


@functools.cache
def before(exercise_id: str) -> dict[str, Any]:
    """The notebook's namespace before the exercise. The code runs once; callers must copy the result."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    _execute(_preamble(exercise_id), f"<before {exercise_id}>", namespace)
    return namespace


def build(exercise_id: str, source: str) -> Callable[..., Any]:
    """Run `source` in the notebook's namespace and return the function of the exercise."""
    namespace = dict(before(exercise_id))
    _execute(source, f"<exercise {exercise_id}>", namespace)
    function: Callable[..., Any] = namespace[find(exercise_id).function]
    return function
