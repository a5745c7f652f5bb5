"""Read a student's notebook, identify its cells, and detect changes since it was copied.

The metadata of a copy record its source: the name of the lesson, and a key and a hash for each cell. A copy
and its changes can therefore be recognised at any location and under any file name.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import UsageError

Json = dict[str, Any]
OURS = "iocourse"  # key in the metadata of a notebook: record of the source of the copy
_QUESTION = re.compile(r"""\bpredict\(\s*["']([^"']+)["']""")


def read_notebook(path: Path) -> Json:
    """Return the notebook at `path` as JSON data.

    Raises:
        UsageError: it cannot be read or is not a notebook of format 4. The message does not name the file.
    """
    try:
        notebook: Json = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read the file: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not a valid notebook: {error}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(map(_is_cell, cells)):
        raise UsageError("not a notebook of format 4: open it in JupyterLab and save it")
    if not isinstance(notebook.get("metadata", {}), dict):
        raise UsageError("not a valid notebook: its metadata must be a JSON object")
    return notebook


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not isinstance(cell.get("metadata", {}), dict):
        return False
    source = cell.get("source", "")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(s, str) for s in source))


def to_text(notebook: Json) -> str:
    """Return the content of the notebook's file."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def text_of(cell: Json) -> str:
    """Return the source of a cell as one string; notebooks store a string or a list of lines."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return  # these have their own scope
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from bound_names(child)


def cell_tags(cell: Json) -> set[str]:
    """Return the tags of a cell, such as "exercise"."""
    found = cell.get("metadata", {}).get("tags", ())
    return {tag for tag in found if isinstance(tag, str)} if isinstance(found, list) else set()


def is_student_cell(cell: Json) -> bool:
    """Return True if the student writes in this cell: an exercise or a prediction."""
    return bool(cell_tags(cell) & {"exercise", "predict"})


def cell_key(cell: Json) -> str:
    """Return a key that is the same in every version of the lesson.

    It is the name of an exercise or prediction, and the id of any other cell.
    """
    name = cell.get("metadata", {}).get("name")
    if "exercise" in cell_tags(cell) and name:
        return str(name)
    questions = _QUESTION.findall(text_of(cell)) if "predict" in cell_tags(cell) else []
    return f"predict-{'-'.join(questions)}" if questions else str(cell.get("id") or name or "")


def same_question(mine: Json, theirs: Json) -> bool:
    """Return False if two cells with the same key predict numbers of different names.

    A lesson may use the number of an earlier prediction for another question; exercises keep their names.
    """
    before, now = _predicted_names(mine), _predicted_names(theirs)
    return before is None or now is None or before == now


def _predicted_names(cell: Json) -> set[str] | None:
    """Return the names of the numbers in a cell's calls of `predict`; None if there are none to read."""
    if "predict" not in cell_tags(cell):
        return None
    try:
        code = ast.parse(text_of(cell))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = (node for node in ast.walk(code) if isinstance(node, ast.Call))
    found = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id == "predict"]
    return {one.arg for call in found for one in call.keywords if one.arg} or None


def cell_title(cell: Json) -> str:
    """Return the name of a student's cell in messages, such as "4B" or "prediction 4.5"."""
    return cell_key(cell).removeprefix("ex-").replace("predict-", "prediction ")


def cell_hash(cell: Json) -> str:
    """Return a hash of the type and source of a cell; outputs do not count."""
    return hashlib.sha256(f"{cell.get('cell_type')}\n{text_of(cell)}".encode()).hexdigest()[:12]


def fingerprints(notebook: Json) -> list[str]:
    """Return one "hash key" entry per cell. Unchanged copies of the same text have equal lists."""
    return [f"{cell_hash(cell)} {cell_key(cell)}" for cell in notebook["cells"]]


def recorded_fingerprints(notebook: Json) -> list[str] | None:
    """Return the recorded `fingerprints` of the text that the notebook was copied from, or None."""
    found = _record(notebook).get("cells")
    fine = isinstance(found, list) and all(isinstance(one, str) and one[12:13] == " " for one in found)
    return found if fine else None


def recorded_lesson(notebook: Json) -> str:
    """Return the name that the lesson had when the notebook was copied; "" without a record."""
    return str(_record(notebook).get("lesson", ""))


def _record(notebook: Json) -> Json:
    found = notebook.get("metadata", {}).get(OURS)
    return found if isinstance(found, dict) else {}


def as_copy(notebook: Json, lesson: str, cells: Sequence[str] = ()) -> Json:
    """Return the notebook with a record of its source in the metadata.

    Args:
        notebook: notebook JSON; it is not modified.
        lesson: name of the lesson.
        cells: `fingerprints` of the source text; default: those of the notebook itself.
    """
    record = {"lesson": lesson, "version": __version__, "cells": list(cells) or fingerprints(notebook)}
    return notebook | {"metadata": notebook.get("metadata", {}) | {OURS: record}}
