"""`tests/mutants/recorded.json`: for each property of each exercise a mistake that it must refuse.

`python -m tests.mutation --record-cover` writes it: a mistake is a change of the reference in one place, by
an operator of `tests.mutation`. The suite makes it again and asks the check. Where the reference has changed
so that a mistake no longer applies, the build stops.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iocourse.course.checking import COURSE_WIDE
from iocourse.course.exercise import exercises, find, lesson_of
from iocourse.errors import UsageError
from iocourse.files import atomic_write
from tools.build.percent_format import Cell, side

RECORDED = Path("tests") / "mutants" / "recorded.json"


@dataclass(frozen=True)
class RecordedMutant:
    """A change of a reference, by lines as `ast.unparse` writes them.

    Attributes:
        properties: those that are seen to refuse it here; it may fail others.
        operator: what made it, by its name in `tests.mutation`.
        line: where the change begins, from 1.
        removed: the lines of the reference that are no longer there; at least one.
        inserted: the lines in their place.
    """

    properties: tuple[str, ...]
    operator: str
    line: int
    removed: tuple[str, ...]
    inserted: tuple[str, ...]

    def made_of(self, reference: str) -> str | None:
        """The reference with the change; None where it does not apply."""
        lines, at = reference_lines(reference), self.line - 1
        after = at + len(self.removed)
        if not self.removed or tuple(lines[at:after]) != self.removed:
            return None
        return "\n".join([*lines[:at], *self.inserted, *lines[after:]])


Record = dict[str, tuple[RecordedMutant, ...]]  # by exercise


def reference_lines(reference: str) -> list[str]:
    """The lines that a record counts: without comments, each statement as Python writes it."""
    return ast.unparse(ast.parse(reference)).splitlines()


def change_between(reference: str, text: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Where `text` begins to differ, which lines it has not, and which it has in their place.

    Where it only has more lines, the line around which they stand is among both, so that a reference without
    that line is noticed.
    """
    old, new = reference_lines(reference), reference_lines(text)
    same = (n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1])
    first = next(same, min(len(old), len(new)))
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    if first + last == len(old):
        last, first = (last - 1, first) if last else (last, first - 1)
    return first + 1, tuple(old[first : len(old) - last]), tuple(new[first : len(new) - last])


def read_recorded(root: Path) -> Record:
    """What is recorded in a checkout, by exercise; nothing where there is no file.

    Raises:
        UsageError: the file is broken.
    """
    path = root / RECORDED
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        return {name: tuple(map(_recorded, rows)) for name, rows in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read ({type(error).__name__}: {error}); take it from the repository, or "
            "delete it and run python -m tests.mutation --record-cover"
        ) from None


def _recorded(row: Mapping[str, Any]) -> RecordedMutant:
    lists = {name: tuple(row[name]) for name in ("properties", "removed", "inserted")}
    return RecordedMutant(operator=str(row["operator"]), line=int(row["line"]), **lists)


def write_recorded(root: Path, record: Record) -> None:
    """Write the record, in the order of the lessons."""
    ordered = sorted(record, key=lambda name: (lesson_of(name), name))
    rows = {name: [asdict(one) for one in record[name]] for name in ordered}
    atomic_write(root / RECORDED, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def recorded_problems(root: Path, lessons: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """What is recorded of these lessons and no longer applies, a line each.

    Args:
        root: the checkout; one without a record has no problems.
        lessons: the cells of each.
    """
    references = {
        cell.name.removeprefix("ex-"): "\n".join(side(cell, solved=True))
        for cells in lessons
        for cell in cells
        if cell.name.startswith("ex-")
    }
    for name, rows in read_recorded(root).items():
        if name not in exercises():
            yield _told(name, "is no exercise")
            continue
        own = {*COURSE_WIDE, *(one.name for one in find(name).properties)}
        for row in rows:
            of = f'"{row.properties[0]}"'
            yield from (_told(name, f'has no property "{one}"') for one in row.properties if one not in own)
            if name in references and row.made_of(references[name]) is None:
                yield _told(name, f"line {row.line} has changed, which the mistake for {of} is made of")


def _told(name: str, problem: str) -> str:
    where = f"lesson {find(name).lesson:02d}, exercise {name}:" if name in exercises() else f"exercise {name}"
    return f"{RECORDED.as_posix()}: {where} {problem}: run {recording_command(name)}"


def recording_command(exercise_id: str) -> str:
    """The command that records mistakes for the properties that have none which applies."""
    return f"python -m tests.mutation --record-cover --missing --only {exercise_id}"
