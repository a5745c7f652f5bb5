"""Generate `docs/exercises.md`, the instructor's guide to the exercises, from remarks and recorded scores.

The remarks on the exercises are in `docs/remarks/NN.toml`, one file per lesson:

    ["4A"]
    say = "One sentence for a student who is stuck."

    ["4A".mistakes]
    "K is read once" = "The mistake of a student that violates this property."

`docs/remarks/shared.toml` has one sentence for each property that many exercises share; a sentence of the
exercise replaces it. `python -m tests.mutation --record` records in `docs/mutants.json` how many mutants each
check rejects, and keeps the scores of exercises that it does not run.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iocourse.course.checking import COURSE_WIDE
from iocourse.course.exercise import Exercise, exercises, number_of
from iocourse.errors import UsageError
from tools.build.exercise_tables import exercises_of, minutes_of
from tools.build.percent_format import parse
from tools.build.rules.lesson_length import length_of

PAGE, REMARKS, RECORD = Path("docs") / "exercises.md", Path("docs") / "remarks", Path("docs") / "mutants.json"
SHARED = "shared.toml"  # of REMARKS
Record = dict[str, dict[str, Any]]
HEAD = (
    "| lesson | minutes | exercises | their minutes | mutants rejected |",
    "| --- | ---: | ---: | ---: | ---: |",
)
INTRODUCTION = """\
# Exercise by exercise

For instructors. Each exercise has advice for a student who is stuck, and a table with a row for each
property of its check: the line that the student's report shows, and a mistake that causes it. Ask the student
for the lines that fail, and look them up here. [Teaching](teaching.md) describes how to plan a course.

These lines can appear in the report of every exercise. An exercise has a row for them only if one mistake is
typical of it.

{course_wide}

The minutes of a lesson are computed from its words, formulas, predictions and exercises. The minutes of an
exercise are estimates for a reader who has read the lesson up to that exercise; no class has been timed yet.
Importance is the maximum of an exercise's points. Values and traffic each carry half of them, as
[How points are made](teaching.md#how-points-are-made) describes.

A program also changed each solution in one place at a time, and the check was run on each of these mutants. A
mutant that is a mistake but is accepted would be a wrong answer with full marks. If only a sample of the
mutants was run, the line gives the size of the sample.

*Written by `python -m tools.build` from the exercises, `docs/remarks/` and `docs/mutants.json`: edit those.*
"""


# ---- the sources -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remark:
    """The remark on one exercise.

    Attributes:
        file: the file that it is read from.
        say: a sentence for a student who is stuck.
        mistakes: by property, a mistake that violates it.
    """

    file: str
    say: str
    mistakes: Mapping[str, str]


@dataclass(frozen=True)
class Remarks:
    """All remarks of a checkout: by exercise, and the sentences that exercises share, by property."""

    exercises: Mapping[str, Remark]
    shared: Mapping[str, str]

    def mistake(self, exercise_id: str, name: str) -> str | None:
        """Return the sentence on this property: the exercise's own, otherwise the shared one."""
        return self.exercises[exercise_id].mistakes.get(name, self.shared.get(name))


def read_remarks(root: Path) -> Remarks:
    """Return the remarks of a checkout; they are empty if it has no folder for them.

    Raises:
        UsageError: a file is not valid TOML, an entry has another form, or a sentence is empty.
    """
    found: dict[str, Remark] = {}
    shared: dict[str, str] = {}
    for path in sorted((root / REMARKS).glob("*.toml")):
        file = (REMARKS / path.name).as_posix()
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} is not valid TOML: {error}") from None
        if path.name == SHARED:
            shared = _sentences(entries, file, "shared sentences")
        else:
            found |= {name: _remark(entry, file, name) for name, entry in entries.items()}
    return Remarks(found, shared)


def _remark(entry: Any, file: str, name: str) -> Remark:
    where = f"{file}, exercise {name}"
    if not isinstance(entry, dict) or entry.keys() != {"say", "mistakes"}:
        has = ", ".join(entry) or "nothing" if isinstance(entry, dict) else repr(entry)
        raise UsageError(
            f'{where}: found {has}; expected say = "…" and a table ["{name}".mistakes]'  # style: ok (a key)
        )
    said = _sentences({"say": entry["say"]}, where, "a sentence on one line")
    return Remark(file, said["say"], _sentences(entry["mistakes"], where, f'the table ["{name}".mistakes]'))


def _sentences(entries: Any, where: str, expected: str) -> dict[str, str]:
    """Return the entries. Raises UsageError unless each is a sentence that fits in a cell of a table."""
    if not isinstance(entries, dict):
        raise UsageError(f"{where}: found {entries!r}; expected {expected}")
    for key, text in entries.items():
        if not isinstance(text, str) or not text.strip() or "\n" in text or "|" in text:
            raise UsageError(f'{where}: "{key}" must be a sentence on one line, without "|", got {text!r}')
    return entries


def read_record(root: Path) -> Record:
    """Return the recorded scores by exercise, empty without a file. Raises UsageError for invalid JSON."""
    path = root / RECORD
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    return dict(record)


# ---- the page ----------------------------------------------------------------------------------------------


def guide_page(root: Path) -> str | None:
    """Return the current text of the page, or None if remarks or scores are missing.

    Raises:
        UsageError: the remarks or the record cannot be read.
    """
    remarks, record = read_remarks(root), read_record(root)
    if not remarks.exercises or any(_faults(remarks, record)):
        return None
    rows, parts = [], []
    for path in sorted((root / "solutions").glob("[0-9]*.py")):
        cells = parse(path.read_text(encoding="utf-8"), path)
        if own := exercises_of(cells, path):
            title = cells[0].lines[0].removeprefix("# ")
            reading = length_of(cells).reading + minutes_of(cells, path)
            minutes = sum(one.minutes for one in own.values())
            rejected = _rejected([record[name]["by machine"] for name in own])
            rows.append(f"| {title} | {reading} | {len(own)} | {minutes} | {rejected} |")
            parts.append(f"## {title}\n")
            parts += [_part(one, remarks, record[name]["by machine"]) for name, one in own.items()]
    made = {record[name]["by machine"]["run"] for name in exercises()}
    course_wide = "\n".join(f"- *{name}*: {remarks.shared[name]}" for name in COURSE_WIDE)
    introduction = INTRODUCTION.format(course_wide=course_wide)
    return "\n".join([introduction, *HEAD, *rows, "", f"Recorded {'; '.join(sorted(made))}.\n", *parts])


def guide_problems(root: Path) -> Iterator[str]:
    """Yield one message for each fault of the sources, or one if the page is stale.

    A checkout without remarks has no page and no problems.
    """
    remarks, record = read_remarks(root), read_record(root)
    if not remarks.exercises:
        return
    faults = list(_faults(remarks, record))
    yield from faults
    if not faults:
        path = root / PAGE
        if not path.exists() or path.read_text(encoding="utf-8") != guide_page(root):
            yield f"{PAGE.as_posix()} is stale: run python -m tools.build"


def _faults(remarks: Remarks, record: Record) -> Iterator[str]:
    """Yield one message for each missing or superfluous entry of the remarks and the record."""
    known = exercises()
    for name, remark in remarks.exercises.items():
        if name not in known:
            yield f"{remark.file}: {name} is not an exercise; correct its id or delete its entry"
    for name, exercise in known.items():
        file = f"{REMARKS.as_posix()}/{number_of(name):02d}.toml"
        if name not in remarks.exercises:
            yield f'{file}: exercise {name} has no entry; add ["{name}"] and ["{name}".mistakes]'
            continue
        if (found := remarks.exercises[name].file) != file:
            yield f"{found}: {name} is an exercise of another lesson; move it to {file}"
        yield from _faults_of(exercise, remarks)
        if "by machine" not in record.get(name, {}):
            yield (
                f"{RECORD.as_posix()}: exercise {name} has no score; "
                f"run python -m tests.mutation --only {name} --record"
            )
    needed = set(COURSE_WIDE)
    for name in remarks.exercises.keys() & known.keys():
        needed |= {prop.name for prop in known[name].properties} - remarks.exercises[name].mistakes.keys()
    shared = f"{REMARKS.as_posix()}/{SHARED}"
    for name in remarks.shared.keys() - needed:
        yield f'{shared}: no exercise needs the sentence on "{name}"; correct the key or delete it'
    for name in COURSE_WIDE:
        if name not in remarks.shared:
            yield f'{shared}: "{name}" has no sentence; write which mistake of a student violates it'


def _faults_of(exercise: Exercise, remarks: Remarks) -> Iterator[str]:
    remark, names = remarks.exercises[exercise.id], [prop.name for prop in exercise.properties]
    where = f"{remark.file}, exercise {exercise.id}"
    for name in remark.mistakes:
        if name not in (*COURSE_WIDE, *names):
            yield (
                f'{where}: "{name}" is not one of its properties; '
                f"correct the key or delete it (properties: {'; '.join(names)})"
            )
    for name in names:
        if remarks.mistake(exercise.id, name) is None:
            yield (
                f'{where}: property "{name}" has no sentence; write under ["{exercise.id}".mistakes], '
                f"or in {SHARED} if many exercises have it, which mistake of a student violates it"
            )


def _rejected(runs: Sequence[Mapping[str, Any]]) -> str:
    rejected = sum(run["refused"] for run in runs)
    mistakes = rejected + sum(run["open"] + run["accepted"] for run in runs)
    most = max(run["of"] for run in runs)
    tried = f", 1 in {most} run" if most > 1 else ""
    return f"{rejected:,} of {mistakes:,} ({percent(rejected, mistakes)}{tried})" if mistakes else "none run"


def percent(part: int, whole: int) -> str:
    """Return a share in percent, rounded down, so that only the complete share gives 100 %."""
    return f"{1000 * part // whole / 10 if whole else 100.0:.1f} %"


def _part(exercise: Exercise, remarks: Remarks, run: Mapping[str, Any]) -> str:
    """Return the section of the page on one exercise."""
    remark = remarks.exercises[exercise.id]
    own = [prop.name for prop in exercise.properties]
    names = [*(name for name in COURSE_WIDE if name in remark.mistakes and name not in own), *own]
    others = run["no mistakes"]
    equal = f"; {others} more {'was' if others == 1 else 'were'} equivalent." if others else "."
    known = "".join(f" Known to pass: {why}." for why in run.get("known to pass", ()))
    lines = [
        f"### {exercise.id} {exercise.title}",
        "",
        f"{exercise.box.capitalize()}.",
        "",
        f"**If a student is stuck:** {remark.say}",
        "",
        "| line that fails | a mistake that causes it |",
        "| --- | --- |",
        *(f"| {name} | {remarks.mistake(exercise.id, name)} |" for name in names),
        "",
        f"Mutants rejected: {_rejected([run])}{equal}{known}",
        "",
    ]
    return "\n".join(lines)
