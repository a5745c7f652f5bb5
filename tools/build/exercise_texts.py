"""Generate `iocourse/course/exercises.json`: titles, hints and other fields of the exercises.

Before the cell of exercise 4B, the source of its lesson has a raw cell in TOML, which is in neither notebook:

    # %% [raw] name="about-4B"
    # title = "Key blocks in the outer loop"
    # difficulty = 3
    # importance = 4
    # minutes = 15
    # hints = [
    #   "A first step.",
    #   "A smaller step.",
    #   "Nearly the complete idea, but no code.",
    # ]

Difficulty and importance are from 1 to 5. The minutes are an estimate for a student who has read the lesson
up to the exercise. The name of the student's function is read from the check cell. A field `helpers` lists
other functions of the exercise's cell that a student writes and a later exercise calls, such as ["absorb"].
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.build.percent_format import Cell, SourceError, all_cells, side

DATA = Path("iocourse") / "course" / "exercises.json"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "title": ("a non-empty string", _text),
    "difficulty": ("an integer from 1 to 5", lambda value: _whole(value) and 1 <= value <= 5),
    "importance": ("an integer from 1 to 5", lambda value: _whole(value) and 1 <= value <= 5),
    "minutes": ("an integer of at least 1", lambda value: _whole(value) and value >= 1),
    "hints": (
        "a list of three non-empty strings",
        lambda value: isinstance(value, list) and len(value) == 3 and all(map(_text, value)),
    ),
}
_OPTIONAL: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "helpers": (
        "a list of names of functions",
        lambda value: isinstance(value, list) and bool(value) and all(map(_text, value)),
    )
}


def data_text(root: Path) -> str:
    """Return the JSON text of `DATA`, computed from the sources below `root`.

    Raises:
        SourceError: an exercise has no such cell or no check, a cell has no exercise, its TOML is invalid,
            or a field is missing, unknown or invalid.
    """
    found: dict[str, Any] = {}
    for path in sorted((root / "solutions").glob("[0-9]*.py")):
        label = path.relative_to(root)
        found |= texts_of(all_cells(path.read_text(encoding="utf-8"), label), label)
    return json.dumps(dict(sorted(found.items(), key=_number)), ensure_ascii=False, indent=1) + "\n"


def _number(item: tuple[str, Any]) -> int:
    """Return the number of an id. Ids with one number stay in the order of the lessons: 11F before 11C."""
    number = re.match(r"\d*", item[0])
    return int(number[0] or 0) if number else 0


def texts_of(cells: Sequence[Cell], path: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of a lesson's exercises by id. Raises SourceError as `data_text` does."""
    about = {cell.name.removeprefix("about-"): cell for cell in cells if cell.kind == "raw"}
    asked = dict(_checks(cells))
    found = {}
    for cell in cells:
        if "exercise" in cell.tags:
            id = cell.name.removeprefix("ex-")
            if id not in about:
                raise SourceError(path, cell.line, f'exercise {id} needs a cell # %% [raw] name="about-{id}"')
            if id not in asked:
                raise SourceError(
                    path, cell.line, f'exercise {id} needs a check cell, check("{id}", function)'
                )
            found[id] = {"function": asked[id]} | _fields(about.pop(id), path)
    for name, cell in about.items():
        raise SourceError(
            path, cell.line, f"a raw cell must be about an exercise of this lesson, got {name!r}"
        )
    return found


def _checks(cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    """Yield (exercise id, name of the student's function) for each check cell."""
    for cell in cells:
        if "check" in cell.tags:
            match ast.parse("\n".join(side(cell, solved=True))).body:
                case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(id)), ast.Name(function), *_]))]:
                    yield id, function


def _fields(cell: Cell, path: Path) -> dict[str, Any]:
    try:
        fields = tomllib.loads("\n".join(cell.lines))
    except tomllib.TOMLDecodeError as error:
        raise SourceError(path, cell.line, f"{cell.name} is not valid TOML: {error}") from None
    if unknown := sorted(fields.keys() - _FORMS.keys() - _OPTIONAL.keys()):
        message = f"{cell.name}: unknown field {unknown[0]!r}; expected {', '.join(_FORMS)}"
        raise SourceError(path, cell.line, message)
    for name, (wanted, right) in (
        _FORMS | {name: _OPTIONAL[name] for name in fields if name in _OPTIONAL}
    ).items():
        if name not in fields or not right(fields[name]):
            came = repr(fields[name]) if name in fields else "nothing"
            raise SourceError(path, cell.line, f"{cell.name}: {name} must be {wanted}, got {came}")
    return {name: fields[name] for name in (*_FORMS, *_OPTIONAL) if name in fields}
