"""What was measured for each prediction, as the solved notebooks show it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^(\w+): (.+?) measured, ", re.MULTILINE)


@cache
def right_answers(root: Path) -> Mapping[tuple[str, str], str]:
    """Question and name -> the number that came out, as `measured` prints it.

    What the solved notebooks of the checkout do not show is not there.
    """
    cells = [cell for path in sorted((root / "solutions").glob("[0-9]*.ipynb")) for cell in _code(path)]
    asked = {key for cell in cells for key in _predicted("".join(cell["source"]))}
    found: dict[tuple[str, str], str] = {}
    for cell in cells:
        questions = _calls("".join(cell["source"]), "measured")
        for name, value in _LINE.findall(_printed(cell)):
            found |= {(q, name): value for q, _ in questions if (q, name) in asked}
    return found


def _code(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _printed(cell: Mapping[str, Any]) -> str:
    return "".join("".join(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream")


def _predicted(source: str) -> Iterator[tuple[str, str]]:
    for question, names in _calls(source, "predict"):
        yield from ((question, name) for name in names)


def _calls(source: str, function: str) -> list[tuple[str, list[str]]]:
    """Question and names of each call of this function."""
    if f"{function}(" not in source or source.lstrip().startswith("%"):
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        (str(call.args[0].value), [keyword.arg for keyword in call.keywords if keyword.arg])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == function
        if call.args and isinstance(call.args[0], ast.Constant)
    ]
