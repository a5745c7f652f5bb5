"""A student's notebook: its cells, which cell of the lesson each one is, and the text it was copied from.

A copy carries in its metadata what it was copied from: the lesson, and for each cell a key and a hash of its
text. So it says by itself whether the student has changed it, wherever it lies and whatever it is called.
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
OURS = "iocourse"  # in a notebook's metadata: what it was copied from
_QUESTION = re.compile(r"""\bpredict\(\s*["']([^"']+)["']""")


def read_notebook(path: Path) -> Json:
    """The notebook at `path`.

    Raises:
        UsageError: it cannot be read, or is no notebook of format 4; the message does not name the file.
    """
    try:
        notebook: Json = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no notebook: {error}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(map(_is_cell, cells)):
        raise UsageError("it is no notebook of format 4: open and save it in JupyterLab")
    if not isinstance(notebook.get("metadata", {}), dict):
        raise UsageError("it is no notebook: its metadata are none")
    return notebook


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not isinstance(cell.get("metadata", {}), dict):
        return False
    source = cell.get("source", "")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(s, str) for s in source))


def to_text(notebook: Json) -> str:
    """The notebook as it stands on disk."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def text_of(cell: Json) -> str:
    """A cell's source, which notebooks keep as a text or as lines."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a statement of a cell binds in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return  # names of their own
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from bound_names(child)


def cell_tags(cell: Json) -> set[str]:
    """What the lesson says of a cell."""
    found = cell.get("metadata", {}).get("tags", ())
    return {tag for tag in found if isinstance(tag, str)} if isinstance(found, list) else set()


def is_student_cell(cell: Json) -> bool:
    """Whether it is for the student to write in: an exercise or a prediction."""
    return bool(cell_tags(cell) & {"exercise", "predict"})


def cell_key(cell: Json) -> str:
    """What a cell is called in every version of its lesson: exercises, predictions by name, others by id."""
    name = cell.get("metadata", {}).get("name")
    if "exercise" in cell_tags(cell) and name:
        return str(name)
    questions = _QUESTION.findall(text_of(cell)) if "predict" in cell_tags(cell) else []
    return f"predict-{'-'.join(questions)}" if questions else str(cell.get("id") or name or "")


def cell_title(cell: Json) -> str:
    """What messages call a cell of the student's."""
    return cell_key(cell).removeprefix("ex-").replace("predict-", "prediction ")


def fingerprint(cell: Json) -> str:
    """The same for cells of the same kind and text, whatever came out of them."""
    return hashlib.sha256(f"{cell.get('cell_type')}\n{text_of(cell)}".encode()).hexdigest()[:12]


def fingerprints(notebook: Json) -> list[str]:
    """One entry a cell, its hash and its key: equal for notebooks that nobody has changed."""
    return [f"{fingerprint(cell)} {cell_key(cell)}" for cell in notebook["cells"]]


def recorded_fingerprints(notebook: Json) -> list[str] | None:
    """The `fingerprints` of the text that it was copied from, None where it does not say."""
    found = _record(notebook).get("cells")
    fine = isinstance(found, list) and all(isinstance(one, str) and one[12:13] == " " for one in found)
    return found if fine else None


def lesson_of(notebook: Json, lessons: dict[str, Json]) -> str:
    """The lesson it is a copy of: as it says, or the one that has most of its cells; "" where none has."""
    said = _record(notebook).get("lesson")
    if said in lessons:
        return str(said)
    mine = set(map(cell_key, notebook["cells"])) - {"setup"}  # which every lesson has
    shared = {name: len(mine & set(map(cell_key, lesson["cells"]))) for name, lesson in lessons.items()}
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and 2 * shared[best] > len(mine) else ""


def _record(notebook: Json) -> Json:
    found = notebook.get("metadata", {}).get(OURS)
    return found if isinstance(found, dict) else {}


def as_copy(notebook: Json, lesson: str, cells: Sequence[str] = ()) -> Json:
    """The notebook with a record of what it was copied from: its own text, or what had these hashes."""
    record = {"lesson": lesson, "version": __version__, "cells": list(cells) or fingerprints(notebook)}
    return notebook | {"metadata": notebook.get("metadata", {}) | {OURS: record}}
