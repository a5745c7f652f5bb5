"""`docs/exercises.md`: what an instructor needs of each exercise, from the remarks and the record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercise import Exercise, exercises
from tools.build.announcements import minutes_of
from tools.build.guide.record import FILE, Record, read_record
from tools.build.guide.remarks import FOLDER, Remark, read_remarks
from tools.build.rules.evening import evening_of
from tools.build.source import parse

PAGE = Path("docs") / "exercises.md"
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
_TITLE = re.compile(r"\A# %% \[markdown\]\n# # (.+)")


@dataclass(frozen=True)
class _Lesson:
    title: str
    minutes: int
    exercises: tuple[Exercise, ...]


def guide_page(root: Path) -> str | None:
    """The page as it must be; None where remarks are missing, or what they need was not recorded.

    Raises:
        Refused: remarks or record cannot be read.
    """
    remarks, record = read_remarks(root), read_record(root)
    if not remarks or any(_lacking(remarks, record)):
        return None
    lessons = list(_lessons(root))
    parts = [INTRODUCTION, _overview(lessons, record), _runs(record)]
    for lesson in lessons:
        parts.append(f"## {lesson.title}\n")
        parts += [_told(one, remarks[one.id], record[one.id]) for one in lesson.exercises]
    return "\n".join(parts)


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
        yield f"{FOLDER.as_posix()} speaks of {name}, which is no exercise"
    for name, exercise in known.items():
        if name not in remarks:
            yield f"{FOLDER.as_posix()}/{exercise.lesson:02d}.toml says nothing of exercise {name}"
        elif fault := _not_of(exercise, remarks[name], record.get(name, {})):
            yield f"{FILE.as_posix()}: {fault}"


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


def _lessons(root: Path) -> Iterator[_Lesson]:
    for path in sorted((root / "solutions").glob("[0-9]*.py")):
        text = path.read_text(encoding="utf-8")
        title, cells = _TITLE.search(text), parse(text, path)
        own = tuple(one for name, one in exercises().items() if f'name="ex-{name}"' in text)
        if title and own:
            yield _Lesson(title[1], evening_of(cells).reading + minutes_of(cells, path), own)


def _overview(lessons: Iterable[_Lesson], record: Record) -> str:
    lines = [
        "| lesson | minutes | exercises | their minutes | mistakes refused |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for lesson in lessons:
        runs = [record[one.id]["by machine"] for one in lesson.exercises]
        minutes = sum(one.minutes for one in lesson.exercises)
        lines.append(
            f"| {lesson.title} | {lesson.minutes} | {len(lesson.exercises)} | {minutes} | {_refused(runs)} |"
        )
    return "\n".join(lines) + "\n"


def _refused(runs: Sequence[Mapping[str, Any]]) -> str:
    refused = sum(run["refused"] for run in runs)
    mistakes = refused + sum(run["open"] + run["accepted"] for run in runs)
    most = max(run["of"] for run in runs)
    tried = f", 1 in {most} tried" if most > 1 else ""
    return f"{refused:,} of {mistakes:,} ({percent(refused, mistakes)}{tried})" if mistakes else "none tried"


def percent(part: int, whole: int) -> str:
    """A share, rounded down: only all of them are 100 %."""
    return f"{1000 * part // whole / 10 if whole else 100.0:.1f} %"


def _runs(record: Record) -> str:
    """When and with what the record was made."""
    made = {facts["run"] for name in exercises() for facts in record[name].values()}
    return f"Recorded {'; '.join(sorted(made))}.\n"


def _told(exercise: Exercise, remark: Remark, facts: Mapping[str, Any]) -> str:
    """The part of the page on one exercise."""
    errors = facts["by hand"]["errors"]
    lines = [
        f"### {exercise.id} {exercise.title}",
        "",
        f"{exercise.box.capitalize()}.",
        "",
        f"**Say:** {remark.say}",
        "",
        "| common error | the property that names it | read first, where that is another |",
        "| --- | --- | --- |",
        *(f"| {what} | {_named(errors[name])} |" for name, what in remark.errors),
        "",
        f"Properties: {'; '.join(prop.name for prop in exercise.properties)}.",
        "",
        f"Mistakes that a machine made, and the check refused: {_machine(facts['by machine'])}",
        "",
    ]
    return "\n".join(lines)


def _named(refusal: Mapping[str, str]) -> str:
    named, first = refusal["named by"], refusal["read first"]
    return f"{named} | {first if first != named else ''}"


def _machine(run: Mapping[str, Any]) -> str:
    others = run["no mistakes"]
    changes = "1 more change was no mistake" if others == 1 else f"{others} more changes were no mistakes"
    passing = "".join(f" Known to pass: {why}." for why in run.get("known to pass", ()))
    return _refused([run]) + (f"; {changes}." if others else ".") + passing
