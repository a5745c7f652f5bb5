"""What a lesson says of its exercises: the table, the boxes and the minutes, written from `Exercise` alone.

In the markdown of a source stand the markers

* ``<!-- exercises -->``, a line by itself: the table of the lesson's exercises;
* ``<!-- exercise 4B -->``, in the text before the exercise's cell: its number, title and box;
* ``<!-- minutes -->``: what the lesson takes, in two numbers; ``<!-- minutes without 2D -->`` leaves out what
  is optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iocourse.course.exercise import Exercise, find
from tools.build.rules.declared import is_declaration
from tools.build.rules.evening import evening_of
from tools.build.source import Cell, SourceError

HEAD = ("| Exercise | Title | Difficulty | Importance | Minutes |", "| --- | --- | --- | --- | --- |")
_MARKER = re.compile(r"<!-- *(.*?) *-->")
_TYPED = re.compile(r"\| *Exercise *\||\*\*Exercise \d+[A-Z]\*\*|\bdifficulty:? \d\b", re.IGNORECASE)


def announce(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """The cells with every marker filled in.

    Raises:
        SourceError: an exercise that is unknown or has no marker before its cell, a marker that is none of
            the lesson's, or facts of an exercise typed by hand.
    """
    own = {exercise.id: exercise for exercise in _exercises_of(cells, path)}
    _refuse_missing_markers(cells, path)
    lesson = _Announced(own, evening_of(cells).reading)
    return [
        replace(cell, lines=tuple(_filled(cell, lesson, path))) if cell.kind == "markdown" else cell
        for cell in cells
    ]


def minutes_of(cells: Sequence[Cell], path: Path) -> int:
    """The minutes of the exercises that are not optional. Raises SourceError as `announce` does."""
    text = "\n".join(line for cell in cells if cell.kind == "markdown" for line in cell.lines)
    optional = {name for marker in _MARKER.findall(text) for name in _optional(marker.split())}
    return sum(one.minutes for one in _exercises_of(cells, path) if one.id not in optional)


def _optional(words: Sequence[str]) -> Sequence[str]:
    return words[2:] if words[:2] == ["minutes", "without"] else ()


@dataclass(frozen=True)
class _Announced:
    exercises: Mapping[str, Exercise]
    reading: int


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


def _filled(cell: Cell, lesson: _Announced, path: Path) -> Iterator[str]:
    for n, line in enumerate(cell.lines, 1):
        if is_declaration(line):
            yield line
            continue
        if typed := _TYPED.search(line):
            message = f"{typed[0]!r} is typed by hand; write <!-- exercises --> or <!-- exercise ID -->, and "
            raise SourceError(path, cell.line + n, message + "release fills in what the exercise says")
        try:
            yield from _MARKER.sub(lambda marker: _said(marker[1].split(), lesson), line).split("\n")
        except LookupError as error:
            raise SourceError(path, cell.line + n, error.args[0]) from None


def _said(words: Sequence[str], lesson: _Announced) -> str:
    """What stands in place of a marker of these words. Raises LookupError where there is no such marker."""
    own = lesson.exercises
    match words:
        case ["exercises"]:
            return "\n".join([*HEAD, *(_row(exercise) for exercise in own.values())])
        case ["exercise", name] if name in own:
            return f"**Exercise {name}** {own[name].title} · {own[name].box}."
        case ["minutes"]:
            return _minutes(lesson, ())
        case ["minutes", "without", *names] if names and own.keys() >= set(names):
            return _minutes(lesson, names)
    raise LookupError(
        f"<!-- {' '.join(words)} --> is none of this lesson's markers: exercises, minutes, "
        f"minutes without ID, exercise ID; with ID one of {', '.join(own) or 'none'}"
    )


def _minutes(lesson: _Announced, optional: Sequence[str]) -> str:
    kept = [one for one in lesson.exercises.values() if one.id not in optional]
    if kept:
        exercises = sum(one.minutes for one in kept)
        told = f"{lesson.reading + exercises}: {lesson.reading} to read and predict"
        told += f", {exercises} for {_named([one.id for one in kept])}"
    else:
        told = f"{lesson.reading}, all to read and predict"
    if not optional:
        return told
    more = sum(lesson.exercises[name].minutes for name in optional)
    return f"{told}. Optional and not counted: {_named(optional)}, {more} minutes"


def _named(ids: Sequence[str]) -> str:
    """Exercises by name: "exercise 4A", "exercises 4A, 4B and 4C"."""
    *rest, last = ids
    return f"exercises {', '.join(rest)} and {last}" if rest else f"exercise {last}"


def _row(e: Exercise) -> str:
    return f"| {e.id} | {e.title} | {e.difficulty} of 5 | {e.importance} of 5 | {e.minutes} |"
