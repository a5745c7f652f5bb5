"""What a lesson says of its exercises: the table, the boxes and the minutes, written from `Exercise` alone.

The markdown of a source has the markers

* ``<!-- exercises -->``, a line by itself: the table of the lesson's exercises;
* ``<!-- exercise 4B -->``, in the text before the exercise's cell: its number, title and box;
* ``<!-- minutes -->``: what the lesson takes, in two numbers; ``<!-- minutes without 2D -->`` leaves out what
  is optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from iocourse.course.exercise import Exercise, find
from tools.build.percent_format import Cell, SourceError, is_declaration
from tools.build.rules.lesson_length import length_of

HEAD = ("| Exercise | Title | Difficulty | Importance | Minutes |", "| --- | --- | --- | --- | --- |")
_MARKER = re.compile(r"<!-- *(.*?) *-->")
_TYPED = re.compile(r"\| *Exercise *\||\*\*Exercise \d+[A-Z]\*\*|\bdifficulty:? \d\b", re.IGNORECASE)


def announce(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """The cells with every marker filled in.

    Raises:
        SourceError: an exercise that is unknown or has no marker before its cell, a marker that is none of
            the lesson's, or facts of an exercise typed by hand.
    """
    own = exercises_of(cells, path)
    reading = length_of(cells).reading
    markers: set[str] = set()
    filled: list[Cell] = []
    for cell in cells:
        if cell.kind == "markdown":
            markers.update(_MARKER.findall("\n".join(cell.lines)))
            cell = replace(cell, lines=tuple(_filled(cell, own, reading, path)))
        elif "exercise" in cell.tags:
            for marker in ("exercises", cell.name.replace("ex-", "exercise ", 1)):
                if marker not in markers:
                    message = f"the text before {cell.name} has no <!-- {marker} -->"
                    raise SourceError(path, cell.line, message)
        filled.append(cell)
    return filled


def exercises_of(cells: Sequence[Cell], path: Path) -> dict[str, Exercise]:
    """The exercises whose cells these are, by id. Raises SourceError where there is no such exercise."""
    own: dict[str, Exercise] = {}
    for cell in cells:
        if "exercise" in cell.tags:
            try:
                exercise = find(cell.name.removeprefix("ex-"))
            except ValueError as error:
                raise SourceError(path, cell.line, str(error)) from None
            own[exercise.id] = exercise
    return own


def minutes_of(cells: Sequence[Cell], path: Path) -> int:
    """The minutes of the exercises that are not optional. Raises SourceError as `exercises_of` does."""
    text = "\n".join(line for cell in cells if cell.kind == "markdown" for line in cell.lines)
    markers = [marker.split() for marker in _MARKER.findall(text)]
    optional = {name for words in markers if words[:2] == ["minutes", "without"] for name in words[2:]}
    return sum(one.minutes for one in exercises_of(cells, path).values() if one.id not in optional)


def _filled(cell: Cell, own: Mapping[str, Exercise], reading: int, path: Path) -> Iterator[str]:
    """The lines of a markdown cell with its markers filled in."""
    for n, line in enumerate(cell.lines, cell.line + 1):
        if is_declaration(line):
            yield line
            continue
        if typed := _TYPED.search(line):
            message = f"{typed[0]!r} is typed by hand; write <!-- exercises --> or <!-- exercise ID -->, and "
            raise SourceError(path, n, message + "the build fills in what the exercise says")
        try:
            yield from _MARKER.sub(lambda marker: _said(marker[1].split(), own, reading), line).split("\n")
        except LookupError as error:
            raise SourceError(path, n, error.args[0]) from None


def _said(words: Sequence[str], own: Mapping[str, Exercise], reading: int) -> str:
    """The text in place of a marker of these words. Raises LookupError where there is no such marker."""
    match words:
        case ["exercises"]:
            rows = (
                f"| {e.id} | {e.title} | {e.difficulty} of 5 | {e.importance} of 5 | {e.minutes} |"
                for e in own.values()
            )
            return "\n".join([*HEAD, *rows])
        case ["exercise", name] if name in own:
            return f"**Exercise {name}** {own[name].title} · {own[name].box}."
        case ["minutes"]:
            return _minutes(own, (), reading)
        case ["minutes", "without", *names] if names and own.keys() >= set(names):
            return _minutes(own, names, reading)
    raise LookupError(
        f"<!-- {' '.join(words)} --> is none of this lesson's markers: exercises, minutes, "
        f"minutes without ID, exercise ID; with ID one of {', '.join(own) or 'none'}"
    )


def _minutes(own: Mapping[str, Exercise], optional: Sequence[str], reading: int) -> str:
    """Minutes of reading and of exercises, and those of the optional ones apart."""
    if kept := [one for one in own.values() if one.id not in optional]:
        exercises = sum(one.minutes for one in kept)
        told = f"{reading + exercises}: {reading} to read and predict"
        told += f", {exercises} for {_named([one.id for one in kept])}"
    else:
        told = f"{reading}, all to read and predict"
    if not optional:
        return told
    more = sum(own[name].minutes for name in optional)
    return f"{told}. Optional and not counted: {_named(optional)}, {more} minutes"


def _named(ids: Sequence[str]) -> str:
    """Exercises by name: "exercise 4A", "exercises 4A, 4B and 4C"."""
    *rest, last = ids
    return f"exercises {', '.join(rest)} and {last}" if rest else f"exercise {last}"
