"""Move answers between copies: an answer goes to the copy of the lesson that has its exercise now.

An exercise or prediction keeps its name when it moves to another lesson. Its answer moves if its new place
has no other answer; otherwise it stays in the old copy. Only the notebooks in memory change here, as if the
cell had always been in the other copy. `update.py` then merges and writes them like all copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from .copies import Copy
from .merge import find_answer_cells, in_its_cell
from .notebook import (
    Json,
    as_copy,
    cell_hash,
    cell_key,
    cell_title,
    is_student_cell,
    recorded_fingerprints,
    same_question,
)


def keys_elsewhere(copy: Copy, lessons: Mapping[str, Json]) -> dict[str, str]:
    """Return the keys of exercises and predictions whose answers belong in another copy, and their lessons.

    They are those that another lesson has now. If the file still has a former name of its lesson, they are
    all, because a file with the present name exists.
    """
    if copy.notebook is None:
        return {}
    homes = {
        cell_key(cell): name
        for name, lesson in lessons.items()
        for cell in lesson["cells"]
        if is_student_cell(cell)
    }
    record = recorded_fingerprints(copy.notebook)
    keys = [cell_key(cell) for cell in copy.notebook["cells"]] if record is None else [n[13:] for n in record]
    here = "" if copy.has_former_name else copy.lesson
    return {key: homes[key] for key in keys if homes.get(key, here) != here}


def with_moved_answers(
    copies: Sequence[Copy], lessons: Mapping[str, Json], asked: Collection[str]
) -> list[Copy]:
    """Return the copies with each answer in the copy of the lesson that has its exercise now.

    Args:
        copies: all copies.
        lessons: the lessons by name.
        asked: names of files; only answers that leave or reach one of them are moved.
    """
    now = {copy.path.name: copy for copy in copies}
    for source in now:
        for key, home in keys_elsewhere(now[source], lessons).items():
            target = _copy_of(home, now.values())
            if target and target != source and {source, target} & set(asked):
                theirs = next(cell for cell in lessons[home]["cells"] if cell_key(cell) == key)
                now |= _after_move(now[source], now[target], theirs)
    return list(now.values())


def _copy_of(lesson: str, copies: Iterable[Copy]) -> str:
    """Return the file that gets answers to this lesson: the one with its name, or the first; "" if none."""
    names = [copy.path.name for copy in copies if copy.lesson == lesson and copy.notebook]
    present = f"{lesson}.ipynb"
    return present if present in names else next(iter(names), "")


def _after_move(source: Copy, target: Copy, theirs: Json) -> dict[str, Copy]:
    """Return both copies by file name after the move of one answer; empty if it stays where it is.

    Args:
        source: copy with the answer. It keeps the answer if it is a copy of the same lesson.
        target: copy in which the answer belongs.
        theirs: cell of the exercise or prediction in the lesson.
    """
    answer, other = _answer(source, theirs), _answer(target, theirs)
    if answer is None or (other is not None and cell_hash(other) != cell_hash(answer)):
        return {}
    title, moved = cell_title(theirs), {}
    if source.lesson != target.lesson:
        cells = [cell for cell in _cells(source) if cell is not answer]
        given = {**source.given, title: target.path.name}
        moved[source.path.name] = replace(source, notebook=_with_cells(source, cells), given=given)
    if other is None:
        received = {**target.received, title: source.path.name}
        moved[target.path.name] = replace(
            target, notebook=_with(target, answer, theirs, source), received=received
        )
    return moved


def answers_of(copy: Copy, lesson: Json) -> list[str]:
    """Return the names of the exercises and predictions of the lesson that are answered in this copy."""
    asked = [cell for cell in lesson["cells"] if is_student_cell(cell)]
    return [cell_title(cell) for cell in asked if _answer(copy, cell) is not None]


def _cells(copy: Copy) -> list[Json]:
    return list(copy.notebook["cells"]) if copy.notebook else []


def _with_cells(copy: Copy, cells: list[Json]) -> Json:
    return {**(copy.notebook or {}), "cells": cells}


def _base(copy: Copy) -> dict[str, str]:
    """Return the hash of each cell of the text that the file was copied from, by key; empty if unknown."""
    return {line[13:]: line[:12] for line in recorded_fingerprints(copy.notebook or {}) or ()}


def _answer(copy: Copy, theirs: Json) -> Json | None:
    """Return the student's cell for a cell of a lesson; None if it is missing or has no answer.

    An answer that was found by its function does not count if it is in another cell of the lesson.
    """
    cells, key, base = _cells(copy), cell_key(theirs), _base(copy)
    others = {*base, *(cell_key(cell) for cell in cells if is_student_cell(cell))} - {key}
    found = [cells[n] for n in find_answer_cells(cells, [theirs])]
    found = [cell for cell in found if cell_key(cell) not in others]
    named = [cell for cell in cells if cell_key(cell) == key and same_question(cell, theirs)]
    cell = next(iter([*found, *named]), None)
    blank = {cell_hash(theirs), base.get(key)}
    return None if cell is None or cell_hash(cell) in blank else cell


def _with(target: Copy, answer: Json, theirs: Json, source: Copy) -> Json:
    """Return the notebook of `target` with an answer from `source` in the cell, or at the end without one."""
    key, cell = cell_key(theirs), in_its_cell(answer, theirs)
    cells = _cells(target)
    at = next((n for n, one in enumerate(cells) if cell_key(one) == key), len(cells))
    notebook = _with_cells(target, [*cells[:at], cell, *cells[at + 1 :]])
    if recorded_fingerprints(notebook) is None:
        return notebook
    base = _base(target) | {key: _base(source).get(key, cell_hash(theirs))}
    return as_copy(notebook, target.lesson, [f"{text} {name}" for name, text in base.items()])
