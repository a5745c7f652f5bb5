"""Merge a new text of a lesson with what the student wrote in a copy of the old one.

Everything that the student changed or added is in the result: an answer in its exercise's cell; a cell of
the student's own after the one it followed; a changed example in its place or, if the lesson changed it too,
after the lesson's; and at the end what no longer has a place. A copy that has no record of what it was copied
from keeps no changed examples, because they cannot be distinguished from older ones.
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
    cell_key,
    cell_tags,
    cell_title,
    fingerprint,
    fingerprints,
    is_student_cell,
    recorded_fingerprints,
    text_of,
)

HEADING = "kept-from-your-copy"  # the id of the cell above what has no place
_TEXT = ["### Kept from your copy\n", "\n", "The lesson has no place for these cells any more."]
_ID = re.compile("[A-Za-z0-9_-]{1,64}")  # what nbformat allows
ADDED, GONE = -1, -2  # places of cells: none, for it is the student's own; none any more


@dataclass
class Merged:
    """A new text with the student's cells.

    Attributes:
        notebook: the whole.
        answers: exercises and predictions that were kept in their places.
        asked_anew: those of them whose cell has another text in the lesson now.
        others: how many other cells of the student's stand in it.
        homeless: what stands at its end.
    """

    notebook: Json = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    asked_anew: list[str] = field(default_factory=list)
    others: int = 0
    homeless: list[str] = field(default_factory=list)


class _Old:
    """The student's cells beside the new text: where each belongs, and whether the student changed it."""

    def __init__(self, mine: Json, lesson: Sequence[Json]) -> None:
        record = recorded_fingerprints(mine)
        self.known = record is not None
        self.base = {one[13:]: one[:12] for one in record or ()}  # key -> hash of the text it was copied with
        self.ids = {cell["id"] for cell in lesson}
        self.by_key = {cell_key(cell): at for at, cell in enumerate(lesson)}
        self.by_print: dict[str, list[int]] = defaultdict(list)
        for at, cell in enumerate(lesson):
            self.by_print[fingerprint(cell)].append(at)

    def changed(self, cell: Json, name: str = "") -> bool:
        """Whether the student wrote in it; where nothing is recorded, whether the lesson has no such text.

        `name` is its key in the lesson, where it may have lost its own.
        """
        if not self.known:
            return fingerprint(cell) not in self.by_print
        return self.base.get(name or cell_key(cell)) != fingerprint(cell)

    def stranger(self, cell: Json) -> Json:
        """A cell that takes no place of the lesson, and so none of its ids."""
        return {n: v for n, v in cell.items() if n != "id"} if cell.get("id") in self.ids else cell

    def place(self, cell: Json) -> int:
        """The place in the lesson of what is this cell there: a new paragraph moves the ids behind it."""
        name = cell_key(cell)
        if self.known and name not in self.base:
            return ADDED
        if is_student_cell(cell):
            return self.by_key.get(name, GONE)
        alike = self.by_print.get(self.base.get(name, fingerprint(cell)), [])
        at = self.by_key.get(name, GONE if self.known else ADDED)
        return alike[0] if alike and at not in alike else at


def merge(mine: Json, new: Json, lesson: str) -> Merged:
    """The `new` text of the lesson of this name with what the student wrote in `mine`; neither is changed."""
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
    """Who takes each place of the lesson, who follows it, and who has no place any more."""
    places = [old.place(cell) for cell in mine]
    answers = _answers(mine, lesson)
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


def _answers(mine: Sequence[Json], lesson: Sequence[Json]) -> dict[int, int]:
    """Places of the cells that hold answers to the lesson's exercises, found as `iocourse grade` does."""
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
    """What is looked up for an exercise; nothing for one that this version of the course lacks."""
    try:
        exercise = find(name)
    except ValueError:
        return []
    return [Wanted(exercise.id, exercise.function, cell["id"], text_of(cell))]


def _owners(
    mine: Sequence[Json], lesson: Sequence[Json], places: Sequence[int], answers: Mapping[int, int]
) -> dict[int, int]:
    """Which of the student's cells takes a place: an answer that was found; of a cell and its copies the one
    with the lesson's id.
    """
    owners = {place: n for n, place in answers.items()}
    for n, place in enumerate(places):
        if place in answers.values():
            continue
        if place >= 0 and (place not in owners or mine[n].get("id") == lesson[place]["id"]):
            owners[place] = n
    return owners


def _in_place(theirs: Json, cell: Json | None, old: _Old, merged: Merged) -> Iterator[Json]:
    """What stands in a place of the lesson that has `theirs`, and the student's copy had `cell`."""
    if cell is None:
        yield theirs
    elif fingerprint(cell) == fingerprint(theirs):
        yield theirs | {name: cell[name] for name in ("outputs", "execution_count") if name in cell}
    elif not old.changed(cell, cell_key(theirs) if is_student_cell(theirs) else ""):
        yield theirs
    elif is_student_cell(theirs):
        merged.answers.append(cell_title(theirs))
        if old.known and old.base.get(cell_key(theirs)) != fingerprint(theirs):
            merged.asked_anew.append(cell_title(theirs))
        yield _in_its_cell(cell, theirs)
    elif old.known and old.base[cell_key(cell)] == fingerprint(theirs):
        merged.others += 1
        yield _in_its_cell(cell, theirs)
    else:
        yield theirs
        if old.known:
            merged.others += 1
            yield old.stranger(_on_its_own(cell))


def _in_its_cell(cell: Json, theirs: Json) -> Json:
    metadata = cell.get("metadata", {}) | theirs["metadata"]
    return cell | {"id": theirs["id"], "metadata": metadata}


def _on_its_own(cell: Json) -> Json:
    """The cell as one of the student's: nothing of what the lesson or nbgrader said of it."""
    metadata = {n: v for n, v in cell.get("metadata", {}).items() if n not in ("tags", "name", "nbgrader")}
    return cell | {"metadata": metadata}


def _at_the_end(homeless: Sequence[Json], cells: Sequence[Json]) -> list[Json]:
    """Under a heading, unless an earlier update has written one."""
    heading = {"cell_type": "markdown", "id": HEADING, "metadata": {}, "source": _TEXT}
    headed = not homeless or any(cell.get("id") == HEADING for cell in cells)
    return [*([] if headed else [heading]), *map(_on_its_own, homeless)]


def _with_ids(cells: Sequence[Json]) -> list[Json]:
    """The cells, each with an id of its own: of two the first keeps it."""
    used: list[str] = []
    for cell in cells:
        given = str(cell.get("id", ""))
        fine = _ID.fullmatch(given) and given not in used
        used.append(given if fine else _new_id(fingerprint(cell), used))
    return [cell | {"id": name} for cell, name in zip(cells, used, strict=True)]


def _new_id(seed: str, used: Sequence[str]) -> str:
    made = hashlib.sha256(seed.encode()).hexdigest()[:16]
    return made if made not in used else _new_id(made, used)
