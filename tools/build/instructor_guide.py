"""`docs/exercises.md`, the instructor's guide to the exercises: made from remarks and from a record.

A remark on an exercise stands in `docs/remarks/NN.toml`, a file per lesson:

    ["4.1"]
    say = "One sentence for a student who is stuck."
    errors = [
        ["dropped-rescale", "What the student did, in the student's terms."],
    ]

An error has the name of its mutant in `tests/mutants`; which property refuses it is recorded in
`docs/mutants.json`. `python -m tests.mutation --record` writes there the scores of the exercises it ran,
`--remarks` what refuses the errors that the remarks name. What was not run stays as it was recorded before.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercise import Exercise, exercises
from iocourse.errors import UsageError
from tools.build.exercise_tables import exercises_of, minutes_of
from tools.build.percent_format import parse
from tools.build.rules.lesson_length import length_of

PAGE, REMARKS, RECORD = Path("docs") / "exercises.md", Path("docs") / "remarks", Path("docs") / "mutants.json"
Record = dict[str, dict[str, Any]]
HEAD = (
    "| lesson | minutes | exercises | their minutes | mistakes refused |",
    "| --- | ---: | ---: | ---: | ---: |",
)
INTRODUCTION = """\
# Exercise by exercise

For whoever stands in front of a class: beside each exercise a sentence that helps a student who is stuck, the
errors that students make, and the property that says so. How to plan a course is in [teaching](teaching.md).

A check prints a line for each property. Beside each error stands the one that fails with it and says most
about it, and the one that the check tells the student to read first, where that is another. So let a student
read the failing lines out to you. "runs without an error" means that the check printed Python's error, with
the student's own line.

Minutes of a lesson are computed from its words, formulas, predictions and exercises; those of an exercise are
estimates, for somebody who has read the lesson up to there. No class has been timed yet. Importance is the
weight of an exercise in a grade.

A machine has changed each solution in one place at a time, and the check was asked about each change that is
a mistake. One that it accepts would be a wrong answer with full marks. Where only some changes were tried,
drawn by hash, the line says so.

*Written by `python -m tools.build` from the exercises, `docs/remarks/` and `docs/mutants.json`: edit those.*
"""


# ---- what it is made of ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remark:
    """What is said of an exercise.

    Attributes:
        say: what to tell a student who is stuck.
        errors: common errors: a mutant's name, and what the student did.
    """

    say: str
    errors: tuple[tuple[str, str], ...]


def read_remarks(root: Path) -> dict[str, Remark]:
    """The remarks of a checkout, by exercise; none where it has no folder for them.

    Raises:
        UsageError: a file is no TOML, or an entry has another form.
    """
    found: dict[str, Remark] = {}
    for path in sorted((root / REMARKS).glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is no TOML: {error}") from None
        found |= {name: _remark(entry, f"{path}, {name}") for name, entry in entries.items()}
    return found


def _remark(entry: Any, where: str) -> Remark:
    facts: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    say, errors = facts.get("say"), facts.get("errors")
    pairs = isinstance(errors, list) and all(isinstance(e, list) and len(e) == 2 for e in errors)
    texts = pairs and all(isinstance(text, str) and text for error in errors or () for text in error)
    if not (isinstance(say, str) and say and errors and texts) or len(facts) > 2:
        raise UsageError(
            f'{where}: expected say = "…" and errors = [["name of a mutant", "what was done"], …]'
        )
    return Remark(say, tuple((error[0], error[1]) for error in errors or ()))


def read_record(root: Path) -> Record:
    """What is recorded, by exercise; nothing where there is no file. Raises UsageError where it is broken."""
    path = root / RECORD
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    return dict(record)


# ---- the page ----------------------------------------------------------------------------------------------


def guide_page(root: Path) -> str | None:
    """The page as it must be; None where remarks are missing, or what they need was not recorded.

    Raises:
        UsageError: remarks or record cannot be read.
    """
    remarks, record = read_remarks(root), read_record(root)
    if not remarks or any(_lacking(remarks, record)):
        return None
    rows, parts = [], []
    for path in sorted((root / "solutions").glob("[0-9]*.py")):
        cells = parse(path.read_text(encoding="utf-8"), path)
        if own := exercises_of(cells, path):
            title = cells[0].lines[0].removeprefix("# ")
            reading = length_of(cells).reading + minutes_of(cells, path)
            minutes = sum(one.minutes for one in own.values())
            refused = _refused([record[name]["by machine"] for name in own])
            rows.append(f"| {title} | {reading} | {len(own)} | {minutes} | {refused} |")
            parts.append(f"## {title}\n")
            parts += [_told(one, remarks[name], record[name]) for name, one in own.items()]
    made = {facts["run"] for name in exercises() for facts in record[name].values()}
    return "\n".join([INTRODUCTION, *HEAD, *rows, "", f"Recorded {'; '.join(sorted(made))}.\n", *parts])


def guide_problems(root: Path) -> Iterator[str]:
    """Why the page is not what it is made of says, a line each; nothing in a checkout without remarks."""
    remarks, record = read_remarks(root), read_record(root)
    if not remarks:
        return
    lacking = list(_lacking(remarks, record))
    yield from lacking
    if not lacking:
        path = root / PAGE
        if not path.exists() or path.read_text(encoding="utf-8") != guide_page(root):
            yield f"{PAGE.as_posix()} is stale: run python -m tools.build"


def _lacking(remarks: Mapping[str, Remark], record: Record) -> Iterator[str]:
    known = exercises()
    for name in remarks.keys() - known.keys():
        yield f"{REMARKS.as_posix()} speaks of {name}, which is no exercise"
    for name, exercise in known.items():
        if name not in remarks:
            yield f"{REMARKS.as_posix()}/{exercise.lesson:02d}.toml says nothing of exercise {name}"
        elif fault := _not_of(exercise, remarks[name], record.get(name, {})):
            yield f"{RECORD.as_posix()}: {fault}"


def _not_of(exercise: Exercise, remark: Remark, facts: Mapping[str, Any]) -> str:
    """What the record of an exercise lacks, and how it gets it."""
    name = exercise.id
    if "by machine" not in facts:
        return f"no score of {name}: run python -m tests.mutation --only {name} --record"
    errors = facts.get("by hand", {}).get("errors", {})
    refusing = {name for refusal in errors.values() for name in refusal.values()}
    known = refusing <= {RUNS, OWN, *(prop.name for prop in exercise.properties)}
    if known and list(errors) == [error for error, _ in remark.errors]:
        return ""
    return f"the errors of {name} are out of date: run python -m tests.mutation --only {name} --remarks"


def _refused(runs: Sequence[Mapping[str, Any]]) -> str:
    refused = sum(run["refused"] for run in runs)
    mistakes = refused + sum(run["open"] + run["accepted"] for run in runs)
    most = max(run["of"] for run in runs)
    tried = f", 1 in {most} tried" if most > 1 else ""
    return f"{refused:,} of {mistakes:,} ({percent(refused, mistakes)}{tried})" if mistakes else "none tried"


def percent(part: int, whole: int) -> str:
    """A share, rounded down: only all of them are 100 %."""
    return f"{1000 * part // whole / 10 if whole else 100.0:.1f} %"


def _told(exercise: Exercise, remark: Remark, facts: Mapping[str, Any]) -> str:
    """The part of the page on one exercise."""
    rows = []
    for name, what in remark.errors:
        refusal = facts["by hand"]["errors"][name]
        named, first = refusal["named by"], refusal["read first"]
        rows.append(f"| {what} | {named} | {first if first != named else ''} |")
    run = facts["by machine"]
    others = run["no mistakes"]
    changes = "1 more change was no mistake" if others == 1 else f"{others} more changes were no mistakes"
    refused = _refused([run]) + (f"; {changes}." if others else ".")
    refused += "".join(f" Known to pass: {why}." for why in run.get("known to pass", ()))
    lines = [
        f"### {exercise.id} {exercise.title}",
        "",
        f"{exercise.box.capitalize()}.",
        "",
        f"**Say:** {remark.say}",
        "",
        "| common error | the property that names it | read first, where that is another |",
        "| --- | --- | --- |",
        *rows,
        "",
        f"Properties: {'; '.join(prop.name for prop in exercise.properties)}.",
        "",
        f"Mistakes that a machine made, and the check refused: {refused}",
        "",
    ]
    return "\n".join(lines)
