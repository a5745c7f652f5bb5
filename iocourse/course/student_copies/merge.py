"""Merge a new text of a lesson with a student's copy of an older text.

The result contains everything that the student changed or added. Answers are in the cells of their exercises.
New cells follow the cell that they followed before. Changed examples are in their place, or after the
lesson's version if the lesson changed them too. Cells that no longer have a place are at the end. Changed
examples of a copy without a record of its source are dropped, because they may belong to an older text.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..exercise import find
from .answers import Wanted, find_answers
from .notebook import (
    Json,
    as_copy,
    cell_hash,
    cell_key,
    cell_tags,
    cell_title,
    fingerprints,
    is_student_cell,
    recorded_fingerprints,
    same_question,
    text_of,
)

HEADING = "kept-from-your-copy"  # id of the heading above the cells without a place
_TEXT = ["### Kept from your copy\n", "\n", "The lesson no longer has a place for these cells."]
_ID = re.compile("[A-Za-z0-9_-]{1,64}")  # cell ids that nbformat accepts
ADDED, GONE = -1, -2  # special places: a cell that the student added; a cell that the lesson no longer has


@dataclass
class Merged:
    """Result of a merge: the new text with the student's cells.

    Attributes:
        notebook: the merged notebook.
        answers: names of the exercises and predictions whose answers were kept.
        asked_anew: those of them whose cell in the lesson has changed.
        others: number of other kept cells of the student.
        homeless: names of the cells at the end, which no longer have a place.
    """

    notebook: Json = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    asked_anew: list[str] = field(default_factory=list)
    others: int = 0
    homeless: list[str] = field(default_factory=list)


class _Old:
    """Comparison of a student's copy with the new text: place of each cell, and changes by the student."""

    def __init__(self, mine: Json, lesson: Sequence[Json]) -> None:
        record = recorded_fingerprints(mine)
        self.known = record is not None
        self.base = {one[13:]: one[:12] for one in record or ()}  # key -> hash of the text it was copied with
        self.lesson = lesson
        self.ids = {cell["id"] for cell in lesson}
        self.by_key = {cell_key(cell): at for at, cell in enumerate(lesson)}
        self.by_print: dict[str, list[int]] = defaultdict(list)
        for at, cell in enumerate(lesson):
            self.by_print[cell_hash(cell)].append(at)

    def changed(self, cell: Json, name: str = "") -> bool:
        """Return True if the student changed the cell; without a record, if the lesson has no such text.

        Args:
            cell: a cell of the student's copy.
            name: its key in the lesson, if the cell itself may have lost it.
        """
        if not self.known:
            return cell_hash(cell) not in self.by_print
        return self.base.get(name or cell_key(cell)) != cell_hash(cell)

    def stranger(self, cell: Json) -> Json:
        """Return a cell without a place in the lesson, after removing its id if the lesson uses that id."""
        return {n: v for n, v in cell.items() if n != "id"} if cell.get("id") in self.ids else cell

    def place(self, cell: Json) -> int:
        """Return the position in the lesson of a student's cell, or ADDED or GONE.

        Cells are also found by their text, because a new paragraph shifts the ids of later cells.
        """
        name = cell_key(cell)
        if self.known and name not in self.base:
            return ADDED
        if is_student_cell(cell):
            at = self.by_key.get(name, GONE)
            return at if at < 0 or same_question(cell, self.lesson[at]) else GONE
        alike = self.by_print.get(self.base.get(name, cell_hash(cell)), [])
        at = self.by_key.get(name, GONE if self.known else ADDED)
        return alike[0] if alike and at not in alike else at


def merge_copy(mine: Json, new: Json, lesson: str) -> Merged:
    """Merge the student's copy `mine` into the `new` text of the lesson; the arguments are not modified."""
    old, merged = _Old(mine, new["cells"]), Merged()
    seats, after, homeless = _seated(mine["cells"], new["cells"], old)
    cells = [*after[ADDED]]
    for at, theirs in enumerate(new["cells"]):
        cells += [*_in_place(theirs, seats.get(at), old, merged), *after[at]]
    merged.others += sum(map(len, after.values()))
    merged.homeless = [cell_title(cell) for cell in homeless]
    cells += _at_the_end(homeless, cells)
    metadata = new["metadata"] | mine.get("metadata", {})
    whole = new | {"metadata": metadata, "cells": _with_ids(cells)}
    merged.notebook = as_copy(whole, lesson, fingerprints(new))
    return merged


def _seated(
    mine: Sequence[Json], lesson: Sequence[Json], old: _Old
) -> tuple[dict[int, Json], dict[int, list[Json]], list[Json]]:
    """Assign the student's cells to the lesson.

    Returns:
        The cell at each position of the lesson, the added cells after each position, and the cells that no
        longer have a place.
    """
    places = [old.place(cell) for cell in mine]
    answers = find_answer_cells(mine, lesson)
    for n, place in answers.items():
        places[n] = place
    owners = _owners(mine, lesson, places, answers)
    after: dict[int, list[Json]] = defaultdict(list)
    homeless: list[Json] = []
    at = ADDED  # before the first cell
    for n, (cell, place) in enumerate(zip(mine, places, strict=True)):
        if owners.get(place) == n:
            at = place
        elif old.changed(cell):
            (homeless if place == GONE else after[at]).append(old.stranger(cell))
    return {place: mine[n] for place, n in owners.items()}, after, homeless


def find_answer_cells(mine: Sequence[Json], lesson: Sequence[Json]) -> dict[int, int]:
    """Return the lesson position of each cell with an answer, by cell; found as in `iocourse grade`."""
    places = {
        cell_key(cell).removeprefix("ex-"): at
        for at, cell in enumerate(lesson)
        if "exercise" in cell_tags(cell)
    }
    wanted = [one for name, at in places.items() for one in _wanted(name, lesson[at])]
    found = find_answers(mine, wanted)
    taken = [answer.at for answer in found.values()]
    return {
        answer.at: places[name]
        for name, answer in found.items()
        if answer.at is not None and taken.count(answer.at) == 1
    }


def _wanted(name: str, cell: Json) -> list[Wanted]:
    """Return the search key of an exercise; empty if this version of the course lacks the exercise."""
    try:
        exercise = find(name)
    except ValueError:
        return []
    return [Wanted(exercise.id, exercise.function, cell["id"], text_of(cell))]


def _owners(
    mine: Sequence[Json], lesson: Sequence[Json], places: Sequence[int], answers: Mapping[int, int]
) -> dict[int, int]:
    """Return the student's cell for each position of the lesson.

    This is the answer that was found; of a cell and its copies, the one with the lesson's id.
    """
    owners = {place: n for n, place in answers.items()}
    for n, place in enumerate(places):
        if place in answers.values():
            continue
        if place >= 0 and (place not in owners or mine[n].get("id") == lesson[place]["id"]):
            owners[place] = n
    return owners


def _in_place(theirs: Json, cell: Json | None, old: _Old, merged: Merged) -> Iterator[Json]:
    """Yield the merged cells for one position: `theirs` in the lesson, `cell` in the student's copy."""
    if cell is None:
        yield theirs
    elif cell_hash(cell) == cell_hash(theirs):
        yield theirs | {name: cell[name] for name in ("outputs", "execution_count") if name in cell}
    elif not old.changed(cell, cell_key(theirs) if is_student_cell(theirs) else ""):
        yield theirs
    elif is_student_cell(theirs):
        merged.answers.append(cell_title(theirs))
        if old.known and old.base.get(cell_key(theirs)) != cell_hash(theirs):
            merged.asked_anew.append(cell_title(theirs))
        yield in_its_cell(cell, theirs)
    elif old.known and old.base[cell_key(cell)] == cell_hash(theirs):
        merged.others += 1
        yield in_its_cell(cell, theirs)
    else:
        yield theirs
        if old.known:
            merged.others += 1
            yield old.stranger(_on_its_own(cell))


def in_its_cell(cell: Json, theirs: Json) -> Json:
    """Return the student's cell with the id and metadata of the lesson's cell."""
    metadata = cell.get("metadata", {}) | theirs["metadata"]
    return cell | {"id": theirs["id"], "metadata": metadata}


def _on_its_own(cell: Json) -> Json:
    """Return the cell as an added cell of the student, without the metadata of the lesson and of nbgrader."""
    metadata = {n: v for n, v in cell.get("metadata", {}).items() if n not in ("tags", "name", "nbgrader")}
    return cell | {"metadata": metadata}


def _at_the_end(homeless: Sequence[Json], cells: Sequence[Json]) -> list[Json]:
    """Return the cells for the end, after a heading unless an earlier update has written one."""
    heading = {"cell_type": "markdown", "id": HEADING, "metadata": {}, "source": _TEXT}
    headed = not homeless or any(cell.get("id") == HEADING for cell in cells)
    return [*([] if headed else [heading]), *map(_on_its_own, homeless)]


def _with_ids(cells: Sequence[Json]) -> list[Json]:
    """Return the cells with unique ids; of two cells with the same id the first keeps it."""
    used: list[str] = []
    for cell in cells:
        given = str(cell.get("id", ""))
        fine = _ID.fullmatch(given) and given not in used
        used.append(given if fine else _new_id(cell_hash(cell), used))
    return [cell | {"id": name} for cell, name in zip(cells, used, strict=True)]


def _new_id(seed: str, used: Sequence[str]) -> str:
    made = hashlib.sha256(seed.encode()).hexdigest()[:16]
    return made if made not in used else _new_id(made, used)
