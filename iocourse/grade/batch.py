"""Grade all submissions of a class in parallel; each grade is kept as soon as it is made, and reused."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..console import steps
from ..errors import UsageError
from ..files import atomic_write
from .grading import Mark, grade, refuse_where_it_cannot_run
from .judge_pool import side_by_side
from .lesson_cells import Lesson
from .process_client import START
from .sandbox import Limits
from .signature import library_hash, sign
from .submissions import Submission

KEPT = ".iocourse-grades"  # folder beside the submissions


@dataclass(frozen=True)
class Grade:
    """One student's marks, one for each exercise of the lesson."""

    name: str
    marks: tuple[Mark, ...]

    @property
    def points(self) -> float:
        """What the exercises give together."""
        return sum(mark.points for mark in self.marks)


@dataclass(frozen=True)
class Task:
    """What must be the same for a kept grade to hold."""

    lesson: Lesson
    limits: Limits
    sandboxed: bool
    seed: int
    library: str = field(default_factory=library_hash)


def grade_all(
    folder: Path,
    submissions: Sequence[Submission],
    lesson: Lesson,
    limits: Limits,
    sandboxed: bool,
    jobs: int,
    done_so_far: Callable[[list[Grade]], None] | None = None,
) -> tuple[list[Grade], bool]:
    """The grades there are, and whether they are all: an interrupt ends the rest, and the next call goes on.

    Args:
        folder: where the submissions are, and where their grades are kept.
        submissions: of one lesson.
        lesson: which.
        limits: for each exercise.
        sandboxed: whether they run in bubblewrap.
        jobs: how many at once.
        done_so_far: called with the grades there are, before the first new one and after each.
    """
    _make_place(folder)
    task = Task(lesson, limits, sandboxed, _seed(folder))
    known = {one.name: _kept(folder, one, task) for one in submissions}
    missing = [one for one in submissions if known[one.name] is None]
    complete, tell = True, done_so_far or (lambda grades: None)
    if missing:
        refuse_where_it_cannot_run(lesson, limits, sandboxed)
        try:
            with tempfile.TemporaryDirectory(prefix="iocourse-", ignore_cleanup_errors=True) as scratch:
                work = partial(_grade_and_keep, folder, task)
                # More than any submission takes that ends by itself or by its limits.
                seconds = 2 * START + 3 * limits.seconds * len(lesson.exercises)
                done = side_by_side(work, missing, jobs, seconds, scratch)
                tell(_those_there_are(known))
                for _ in steps(missing, "submissions graded"):
                    one, fault = next(done)
                    known[one.name] = _zero(one, task, fault) if fault else _kept(folder, one, task)
                    tell(_those_there_are(known))
        except KeyboardInterrupt:
            complete = False
            known = {one.name: _kept(folder, one, task) for one in submissions}
    return _those_there_are(known), complete


def _those_there_are(known: Mapping[str, Grade | None]) -> list[Grade]:
    return [grade for grade in known.values() if grade]


def _zero(submission: Submission, task: Task, fault: str) -> Grade:
    """The grade of one whose judge did not come to an end. It is not kept: the next call tries again."""
    lost = replace(submission, fault=fault)
    return Grade(submission.name, tuple(grade(lost, task.lesson, task.seed, task.limits, task.sandboxed)))


def _grade_and_keep(folder: Path, task: Task, submission: Submission) -> None:
    marks = grade(submission, task.lesson, task.seed, task.limits, task.sandboxed)
    told = [asdict(mark) for mark in marks]
    done = {"signature": _signature(submission, task, told), "marks": told}
    atomic_write(_place(folder, submission), json.dumps(done, indent=1, ensure_ascii=False) + "\n")


def _kept(folder: Path, submission: Submission, task: Task) -> Grade | None:
    """The grade of these very bytes, lesson, limits and inputs, where the grader has made one."""
    try:
        stored: Any = json.loads(_place(folder, submission).read_text(encoding="utf-8"))
        if stored["signature"] != _signature(submission, task, stored["marks"]):
            return None
        return Grade(submission.name, tuple(Mark(**mark) for mark in stored["marks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(folder: Path, submission: Submission) -> Path:
    return folder / KEPT / f"{submission.name}.json"


def _signature(submission: Submission, task: Task, marks: Any) -> str:
    places = [(place.cell, place.source) for place in task.lesson.places]
    said = repr((task.library, task.lesson.stem, places, task.limits, task.sandboxed, task.seed))
    return sign(said.encode(), submission.data, json.dumps(marks).encode())


def _seed(folder: Path) -> int:
    """The seed of this folder: the same inputs for all, which nobody else can know beforehand."""
    return int(sign(str(folder.resolve()).encode("utf-8", "surrogateescape")), 16) % 10**6


def _make_place(folder: Path) -> None:
    place = folder / KEPT
    if place.is_symlink():
        raise UsageError(f"{place} is a link, and grades are kept there: take it away")
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"grades cannot be kept in {place}: {error.strerror}") from None
    for link in filter(Path.is_symlink, place.iterdir()):
        link.unlink()  # or what is kept would be written to where it leads
