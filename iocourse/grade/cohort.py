"""A class: submissions graded side by side, each kept as soon as it is done, and none graded twice."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import __version__
from ..console import steps
from ..refusal import write_whole
from .grading import Mark, fresh_seed, grade, refuse_where_it_cannot_run
from .judges import side_by_side
from .lesson import Lesson
from .session import START
from .submissions import Submission
from .walls.limits import Limits

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
    walls: bool
    seed: int


def grade_all(
    folder: Path, submissions: Sequence[Submission], lesson: Lesson, limits: Limits, walls: bool, jobs: int
) -> tuple[list[Grade], bool]:
    """The grades there are, and whether they are all: an interrupt ends the rest, and the next call goes on.

    Args:
        folder: where the submissions are, and where their grades are kept.
        submissions: of one lesson.
        lesson: which.
        limits: for each exercise.
        walls: whether they run in bubblewrap.
        jobs: how many at once.
    """
    task = Task(lesson, limits, walls, _seed(folder))
    known = {one.name: _kept(folder, one, task) for one in submissions}
    missing = [one for one in submissions if known[one.name] is None]
    complete = True
    if missing:
        refuse_where_it_cannot_run(lesson, limits, walls)
        try:
            with tempfile.TemporaryDirectory(prefix="iocourse-", ignore_cleanup_errors=True) as scratch:
                work = partial(_grade_and_keep, folder, task)
                done = side_by_side(work, missing, jobs, _seconds(task), scratch)
                for _ in steps(missing, "submissions graded"):
                    one, fault = next(done)
                    known[one.name] = _zero(one, task, fault) if fault else _kept(folder, one, task)
        except KeyboardInterrupt:
            complete = False
            known = {one.name: _kept(folder, one, task) for one in submissions}
    return [known[one.name] for one in submissions if known[one.name]], complete  # type: ignore[misc]


def _seconds(task: Task) -> float:
    """More than any submission takes that ends by itself or by its limits."""
    return 2 * START + 3 * task.limits.seconds * len(task.lesson.exercises)


def _zero(submission: Submission, task: Task, fault: str) -> Grade:
    """The grade of one whose judge did not come to an end. It is not kept: the next call tries again."""
    lost = replace(submission, fault=fault)
    return Grade(submission.name, tuple(grade(lost, task.lesson, task.seed, task.limits, task.walls)))


def _grade_and_keep(folder: Path, task: Task, submission: Submission) -> None:
    marks = grade(submission, task.lesson, task.seed, task.limits, task.walls)
    done = {"of": _fingerprint(submission, task), "marks": [asdict(mark) for mark in marks]}
    write_whole(_place(folder, submission), json.dumps(done, indent=1, ensure_ascii=False) + "\n")


def _kept(folder: Path, submission: Submission, task: Task) -> Grade | None:
    """The grade of these very bytes, lesson, limits and inputs, where there is one."""
    try:
        stored: Any = json.loads(_place(folder, submission).read_text(encoding="utf-8"))
        if stored["of"] != _fingerprint(submission, task):
            return None
        return Grade(submission.name, tuple(Mark(**mark) for mark in stored["marks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(folder: Path, submission: Submission) -> Path:
    return folder / KEPT / f"{submission.name}.json"


def _fingerprint(submission: Submission, task: Task) -> str:
    places = [(place.cell, place.source) for place in task.lesson.places]
    asked = [
        (one.id, one.importance, [(p.name, p.idle) for p in one.properties]) for one in task.lesson.exercises
    ]
    said = repr((__version__, places, asked, task.limits, task.walls, task.seed))
    return hashlib.sha256(said.encode() + submission.data).hexdigest()


def _seed(folder: Path) -> int:
    """The seed of this folder: the same inputs for all, which nobody knew beforehand."""
    place = folder / KEPT / "seed"
    try:
        return int(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        seed = fresh_seed()
        write_whole(place, f"{seed}\n")
        return seed
