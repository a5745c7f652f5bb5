"""What a lesson says of its exercises: the table, the boxes and the minutes, written from `Exercise` alone.

In the markdown of a source stand the markers

* ``<!-- exercises -->``, a line by itself: the table of the lesson's exercises;
* ``<!-- exercise 4.2 -->``, in the text before the exercise's cell: its number, title and box;
* ``<!-- minutes -->``: what all of them take together, or ``<!-- minutes without 2.4 -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from iocourse.course.authoring.declared import is_declaration
from iocourse.course.authoring.source import Cell, SourceError
from iocourse.course.exercise import Exercise, find

HEAD = ("| Exercise | Title | Difficulty | Importance | Minutes |", "| --- | --- | --- | --- | --- |")
_MARKER = re.compile(r"<!-- *(.*?) *-->")
_TYPED = re.compile(r"\| *Exercise *\||\*\*Exercise [\d.]+\*\*|\bdifficulty:? \d\b", re.IGNORECASE)


def announce(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """The cells with every marker filled in.

    Raises:
        SourceError: an exercise that is unknown or has no marker before its cell, a marker that is none of
            the lesson's, or facts of an exercise typed by hand.
    """
    own = {exercise.id: exercise for exercise in _exercises_of(cells, path)}
    _refuse_missing_markers(cells, path)
    return [
        replace(cell, lines=tuple(_filled(cell, own, path))) if cell.kind == "markdown" else cell
        for cell in cells
    ]


def _exercises_of(cells: Sequence[Cell], path: Path) -> Iterator[Exercise]:
    for cell in cells:
        if "exercise" in cell.tags:
            try:
                yield find(cell.name.removeprefix("ex-"))
            except ValueError as error:
                raise SourceError(path, cell.line, str(error)) from None


def _refuse_missing_markers(cells: Sequence[Cell], path: Path) -> None:
    said: set[str] = set()
    for cell in cells:
        if cell.kind == "markdown":
            said.update(_MARKER.findall("\n".join(cell.lines)))
        elif "exercise" in cell.tags:
            for marker in ("exercises", cell.name.replace("ex-", "exercise ", 1)):
                if marker not in said:
                    raise SourceError(
                        path, cell.line, f"the text before {cell.name} has no <!-- {marker} -->"
                    )


def _filled(cell: Cell, own: Mapping[str, Exercise], path: Path) -> Iterator[str]:
    for n, line in enumerate(cell.lines, 1):
        if is_declaration(line):
            yield line
            continue
        if typed := _TYPED.search(line):
            message = f"{typed[0]!r} is typed by hand; write <!-- exercises --> or <!-- exercise ID -->, and "
            raise SourceError(path, cell.line + n, message + "release fills in what the exercise says")
        try:
            yield from _MARKER.sub(lambda marker: _said(marker[1].split(), own), line).split("\n")
        except LookupError as error:
            raise SourceError(path, cell.line + n, error.args[0]) from None


def _said(words: Sequence[str], own: Mapping[str, Exercise]) -> str:
    """What stands in place of a marker of these words. Raises LookupError where there is no such marker."""
    match words:
        case ["exercises"]:
            return "\n".join([*HEAD, *(_row(exercise) for exercise in own.values())])
        case ["exercise", name] if name in own:
            return f"**Exercise {name}** {own[name].title} · {own[name].box}."
        case ["minutes"]:
            return str(sum(exercise.minutes for exercise in own.values()))
        case ["minutes", "without", *names] if own.keys() >= set(names):
            return str(sum(exercise.minutes for name, exercise in own.items() if name not in names))
    raise LookupError(
        f"<!-- {' '.join(words)} --> is none of this lesson's markers: exercises, minutes, "
        f"minutes without ID, exercise ID; with ID one of {', '.join(own) or 'none'}"
    )


def _row(e: Exercise) -> str:
    return f"| {e.id} | {e.title} | {e.difficulty} of 5 | {e.importance} of 5 | {e.minutes} |"
