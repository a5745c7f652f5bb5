"""Read and write `tests/mutants/recorded.json`: one mistake for each property that must reject it.

`python -m tests.mutation --record-cover` writes the file. A mistake is a change of the reference solution in
one place, by an operator of `tests.mutation`. The tests repeat the change and run the check on it. The build
stops if the reference has changed so that a recorded mistake no longer applies.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iocourse.course.checking import COURSE_WIDE
from iocourse.course.exercise import exercises, find, number_of
from iocourse.errors import UsageError
from iocourse.files import atomic_write
from tools.build.percent_format import Cell, side

RECORDED = Path("tests") / "mutants" / "recorded.json"


@dataclass(frozen=True)
class RecordedMutant:
    """A change of a reference solution, in lines as `ast.unparse` writes them.

    Attributes:
        properties: properties that reject it; others may reject it too.
        operator: name of the operator of `tests.mutation` that made the change.
        line: first changed line, from 1.
        removed: the removed lines of the reference, at least one.
        inserted: the lines that replace them.
    """

    properties: tuple[str, ...]
    operator: str
    line: int
    removed: tuple[str, ...]
    inserted: tuple[str, ...]

    def made_of(self, reference: str) -> str | None:
        """Return the reference with this change, or None if the change does not apply."""
        lines, at = reference_lines(reference), self.line - 1
        after = at + len(self.removed)
        if not self.removed or tuple(lines[at:after]) != self.removed:
            return None
        return "\n".join([*lines[:at], *self.inserted, *lines[after:]])


Record = dict[str, tuple[RecordedMutant, ...]]  # by exercise


def reference_lines(reference: str) -> list[str]:
    """Return the lines of a reference as a record counts them: unparsed, without comments."""
    return ast.unparse(ast.parse(reference)).splitlines()


def change_between(reference: str, text: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return the first line in which `text` differs, the removed lines, and the inserted lines.

    If lines were only inserted, an adjacent line is part of both: a reference without it is then detected.
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
    """Return the recorded mistakes of a checkout by exercise, empty without a file.

    Raises:
        UsageError: the file is not valid.
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
    ordered = sorted(record, key=lambda name: (number_of(name), name))
    rows = {name: [asdict(one) for one in record[name]] for name in ordered}
    atomic_write(root / RECORDED, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def recorded_problems(root: Path, lessons: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield one message for each recorded mistake of these lessons that no longer applies.

    Args:
        root: the checkout; without a record there are no problems.
        lessons: the cells of each lesson.
    """
    references = {
        cell.name.removeprefix("ex-"): "\n".join(side(cell, solved=True))
        for cells in lessons
        for cell in cells
        if cell.name.startswith("ex-")
    }
    for name, rows in read_recorded(root).items():
        if name not in exercises():
            yield _told(name, "is not an exercise")
            continue
        own = {*COURSE_WIDE, *(one.name for one in find(name).properties)}
        for row in rows:
            of = f'"{row.properties[0]}"'
            yield from (_told(name, f'has no property "{one}"') for one in row.properties if one not in own)
            if name in references and row.made_of(references[name]) is None:
                yield _told(name, f"the mistake for {of} changes line {row.line}, which is different now")


def _told(name: str, problem: str) -> str:
    where = f"lesson {find(name).lesson}, exercise {name}:" if name in exercises() else f"exercise {name}"
    return f"{RECORDED.as_posix()}: {where} {problem}: run {recording_command(name)}"


def recording_command(exercise_id: str) -> str:
    """Return the command that records mistakes for the properties without an applicable one."""
    return f"python -m tests.mutation --record-cover --missing --only {exercise_id}"
