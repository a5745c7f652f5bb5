"""Fill in the facts of exercises in a lesson's text: the table, the boxes and the minutes.

The facts come from `Exercise`. The markdown of a source has these markers:

* ``<!-- exercises -->``, on a separate line, is replaced by the table of the lesson's exercises;
* ``<!-- exercise 4B -->``, in the text before the exercise's cell, by its number, title and box;
* ``<!-- minutes -->`` by the minutes of reading and of exercises; ``<!-- minutes without 2D -->`` does not
  count optional exercises;
* ``<!-- algorithm flash2 -->`` is removed: it names the schedule of the algorithm box below it, which
  `tests/notebooks/test_algorithm_boxes.py` compares with the closed form and with a run;
* ``<!-- next -->`` by the sentences on the lessons that follow this one, from the map of the course.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from iocourse.course.course_map import Lesson
from iocourse.course.exercise import Exercise, find
from iocourse.schedules.registry import REGISTRY
from tools.build.lesson_tables import what_comes_next
from tools.build.percent_format import Cell, SourceError, is_declaration
from tools.build.rules.lesson_length import length_of

HEAD = ("| Exercise | Title | Difficulty | Importance | Minutes |", "| --- | --- | --- | --- | --- |")
_MARKER = re.compile(r"<!-- *(.*?) *-->")
_TYPED = re.compile(r"\| *Exercise *\||\*\*Exercise \d+[A-Z]\*\*|\bdifficulty:? \d\b", re.IGNORECASE)


def announce(
    cells: Sequence[Cell], path: Path, lessons: Mapping[str, Lesson] = MappingProxyType({})
) -> list[Cell]:
    """Return the cells with every marker replaced by its text; `lessons` is the map of the course.

    Raises:
        SourceError: an exercise is unknown or has no marker before its cell, a marker is unknown, or facts
            of an exercise are typed by hand.
    """
    own = exercises_of(cells, path)
    reading = length_of(cells).reading
    number = path.stem.partition("_")[0]
    onward = what_comes_next(number, lessons) if number in lessons else ""  # a missing entry is reported
    markers: set[str] = set()
    filled: list[Cell] = []
    for cell in cells:
        if cell.kind == "markdown":
            markers.update(_MARKER.findall("\n".join(cell.lines)))
            cell = replace(cell, lines=tuple(_filled(cell, own, reading, onward, path)))
        elif "exercise" in cell.tags:
            for marker in ("exercises", cell.name.replace("ex-", "exercise ", 1)):
                if marker not in markers:
                    message = f"the text before {cell.name} has no <!-- {marker} -->: add it"
                    raise SourceError(path, cell.line, message)
        filled.append(cell)
    return filled


def exercises_of(cells: Sequence[Cell], path: Path) -> dict[str, Exercise]:
    """Return the exercises of these cells by id. Raises SourceError for an unknown exercise."""
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
    """Return the total minutes of the exercises that are not optional. Raises as `exercises_of`."""
    text = "\n".join(line for cell in cells if cell.kind == "markdown" for line in cell.lines)
    markers = [marker.split() for marker in _MARKER.findall(text)]
    optional = {name for words in markers if words[:2] == ["minutes", "without"] for name in words[2:]}
    return sum(one.minutes for one in exercises_of(cells, path).values() if one.id not in optional)


def _filled(cell: Cell, own: Mapping[str, Exercise], reading: int, onward: str, path: Path) -> Iterator[str]:
    """Yield the lines of a markdown cell with every marker replaced by its text."""
    for n, line in enumerate(cell.lines, cell.line + 1):
        if is_declaration(line):
            yield line
            continue
        if typed := _TYPED.search(line):
            message = f"{typed[0]!r} is typed by hand; write <!-- exercises --> or <!-- exercise ID -->, and "
            raise SourceError(path, n, message + "the build fills in the facts")
        try:
            yield from _MARKER.sub(lambda marker: _said(marker[1].split(), own, reading, onward), line).split(
                "\n"
            )
        except LookupError as error:
            raise SourceError(path, n, error.args[0]) from None


def _said(words: Sequence[str], own: Mapping[str, Exercise], reading: int, onward: str) -> str:
    """Return the text that replaces a marker of these words. Raises LookupError for an unknown marker."""
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
        case ["algorithm", name] if name in REGISTRY:
            return ""
        case ["next"]:
            return onward
    raise LookupError(
        f"<!-- {' '.join(words)} --> is not a marker of this lesson; expected exercises, minutes, "
        f"next, minutes without ID or exercise ID, with one of the IDs {', '.join(own) or 'none'}, or "
        "algorithm NAME, with the name of a schedule"
    )


def _minutes(own: Mapping[str, Exercise], optional: Sequence[str], reading: int) -> str:
    """Return the text on the minutes: reading plus exercises, then the optional exercises."""
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
    """Return a list of exercises in words: "exercise 4A", "exercises 4A, 4B and 4C"."""
    *rest, last = ids
    return f"exercises {', '.join(rest)} and {last}" if rest else f"exercise {last}"
