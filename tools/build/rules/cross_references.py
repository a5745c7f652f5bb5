"""References within the course: each section, formula and lesson that a text names must exist."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tools.build.percent_format import Cell, is_declaration

PAGES = ("README.md", "lessons/notation.md", "docs/teaching.md", "docs/guide/*.md")
Fault = tuple[int, str]  # line of the text, counted from 1, and what is wrong there
_LABEL, _LESSON = r"\d{1,2}\.[1-9]\d?", r"\d\d[a-z]?"


def _several(word: str, one: str) -> re.Pattern[str]:
    """Return the pattern of "section 4.3" or "sections 4.3, 4.4 and 4.6"; its group has the numbers."""
    return re.compile(
        rf"\b[{word[0].upper()}{word[0]}]{word[1:]}s? ({one}(?:(?:, and|,| and| to| or) {one})*)\b"
    )


_SECTIONS, _LESSONS = _several("section", _LABEL), _several("lesson", _LESSON)
_EXERCISES = re.compile(rf"\b[Ee]xercises? ({_LABEL})")
_HEADING, _TAG = re.compile(rf"^## ({_LABEL})\b"), re.compile(rf"\\tag\{{({_LABEL})\}}")
_FORMULAS = re.compile(rf"\(({_LABEL})\)")


class Targets(NamedTuple):
    """Numbers that a text can name: of sections, of formulas, and of lessons (not checked if empty)."""

    sections: Collection[str]
    formulas: Collection[str]
    lessons: Collection[str]


def targets(sources: Iterable[Sequence[Cell]], lessons: Collection[str]) -> Targets:
    """Return the numbers that these sources define, with the numbers of the lessons."""
    cells = chain.from_iterable(sources)
    lines = [line for cell in cells if cell.kind == "markdown" for line in cell.lines]
    sections, formulas = (
        {one for line in lines for one in found.findall(line)} for found in (_HEADING, _TAG)
    )
    return Targets(sections, formulas, lessons)


def problems(cells: Sequence[Cell], source: Path, known: Targets) -> Iterator[str]:
    """Yield ``file:line: message`` for each reference of a lesson that has no target.

    Args:
        cells: the lesson as written.
        source: name of its file in messages.
        known: the targets of the whole course.
    """
    for cell in cells:
        if cell.kind == "markdown":
            for line, fault in missing_targets(cell.lines, known):
                yield f"{source.as_posix()}:{cell.line + line}: {fault}"


def page_problems(root: Path, known: Targets) -> Iterator[str]:
    """Yield ``file:line: message`` for each reference of README and of the guide that has no target."""
    for path in (path for pattern in PAGES for path in sorted(root.glob(pattern))):
        for line, fault in missing_targets(path.read_text(encoding="utf-8").splitlines(), known):
            yield f"{path.relative_to(root).as_posix()}:{line}: {fault}"


def missing_targets(lines: Sequence[str], known: Targets) -> Iterator[Fault]:
    """Yield each reference of these lines to a section, formula, exercise or lesson that is missing."""
    for number, line in enumerate(lines, 1):
        if is_declaration(line):
            continue
        for label in chain.from_iterable(re.findall(_LABEL, group) for group in _SECTIONS.findall(line)):
            if label not in known.sections:
                yield number, f"section {label} does not exist: write the number of a section"
        for label in _FORMULAS.findall(line):
            if label not in known.formulas and label not in known.sections:
                yield number, f"({label}) is not a formula or a section: write the number of one"
        for label in _EXERCISES.findall(line):
            yield number, f"exercise {label} is not the id of an exercise: write its letter, as in 4B"
        for one in chain.from_iterable(re.findall(_LESSON, group) for group in _LESSONS.findall(line)):
            if known.lessons and one not in known.lessons:
                yield number, f"lesson {one} is not in the map of the course: write the number of a lesson"


def repeated_labels(lessons: Iterable[tuple[Path, Sequence[Cell]]]) -> Iterator[str]:
    """Yield ``file:line: message`` for each section and formula whose number an earlier one has."""
    first: dict[tuple[str, str], str] = {}
    for source, cells in lessons:
        for cell in cells:
            for number, line in enumerate(cell.lines if cell.kind == "markdown" else (), cell.line + 1):
                place = f"{source.as_posix()}:{number}"
                for what, pattern in (("section", _HEADING), ("formula", _TAG)):
                    for label in pattern.findall(line):
                        if (before := first.setdefault((what, label), place)) != place:
                            yield f"{place}: the {what} in {before} is {label} too: write another number"
