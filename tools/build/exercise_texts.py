"""`iocourse/data/exercises.json`: what the lessons' sources say of their exercises, as the library reads it.

Before the cell of exercise 4B its lesson's source has a cell in TOML, which no notebook shows:

    # %% [raw] name="about-4B"
    # title = "Keys stay: FlashAttention-1's loop order"
    # difficulty = 3
    # importance = 4
    # minutes = 15
    # hints = [
    #   "A nudge.",
    #   "The way.",
    #   "Nearly the whole idea, never the code of the answer.",
    # ]

Difficulty and importance are from 1 to 5; minutes are those of somebody who has read the lesson up to there.
The function's name is the one that the exercise's check cell asks for.
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

DATA = Path("iocourse") / "data" / "exercises.json"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "title": ("a text", _text),
    "difficulty": ("a whole number from 1 to 5", lambda value: _whole(value) and 1 <= value <= 5),
    "importance": ("a whole number from 1 to 5", lambda value: _whole(value) and 1 <= value <= 5),
    "minutes": ("a whole number from 1", lambda value: _whole(value) and value >= 1),
    "hints": (
        "three texts",
        lambda value: isinstance(value, list) and len(value) == 3 and all(map(_text, value)),
    ),
}


def data_text(root: Path) -> str:
    """Return the text of `DATA` as the sources below `root` have it.

    Raises:
        SourceError: an exercise without such a cell or a check, such a cell without an exercise, faulty TOML,
            or a field that is missing, unknown or of another form.
    """
    found: dict[str, Any] = {}
    for path in sorted((root / "solutions").glob("[0-9]*.py")):
        label = path.relative_to(root)
        found |= texts_of(all_cells(path.read_text(encoding="utf-8"), label), label)
    return json.dumps(dict(sorted(found.items(), key=_in_order)), ensure_ascii=False, indent=1) + "\n"


def _in_order(item: tuple[str, Any]) -> tuple[int, str]:
    number = re.match(r"\d*", item[0])
    return int(number[0] or 0) if number else 0, item[0]


def texts_of(cells: Sequence[Cell], path: Path) -> dict[str, dict[str, Any]]:
    """The texts of a lesson's exercises by id. Raises SourceError as `data_text` does."""
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
    """(exercise, name of the student's function) of each check cell."""
    for cell in cells:
        if "check" in cell.tags:
            match ast.parse("\n".join(side(cell, solved=True))).body:
                case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(id)), ast.Name(function), *_]))]:
                    yield id, function


def _fields(cell: Cell, path: Path) -> dict[str, Any]:
    try:
        fields = tomllib.loads("\n".join(cell.lines))
    except tomllib.TOMLDecodeError as error:
        raise SourceError(path, cell.line, f"{cell.name} is not TOML: {error}") from None
    if unknown := sorted(fields.keys() - _FORMS.keys()):
        message = f"{cell.name}: {unknown[0]!r} is unknown; allowed: {', '.join(_FORMS)}"
        raise SourceError(path, cell.line, message)
    for name, (wanted, right) in _FORMS.items():
        if name not in fields or not right(fields[name]):
            came = repr(fields[name]) if name in fields else "nothing"
            raise SourceError(path, cell.line, f"{cell.name}: {name} must be {wanted}, got {came}")
    return {name: fields[name] for name in _FORMS}
