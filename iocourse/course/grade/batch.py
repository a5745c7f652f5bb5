"""Grade all submissions of a class in parallel, and store each grade so that a later call can reuse it.

Each submission is judged in a separate process, so an answer can disturb only its own judge. Stored grades
carry an HMAC signature. Its key is in the user's home directory, so only the grader can write valid grades.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

from ...console import with_progress_bar
from ...errors import UsageError
from ...files import atomic_write
from ..points import RULE_NAME
from ..progress import home
from .grading import Mark, grade, require_runnable
from .lesson_cells import Lesson
from .old_points import COLUMN, keep_grades
from .sandbox import Limits, apply_limits
from .submission_process import START
from .submissions import Submission

KEPT = ".iocourse-grades"  # folder of the stored grades, inside the folder of submissions
KEY_BYTES = 32
T = TypeVar("T")


@dataclass(frozen=True)
class Grade:
    """The grade of one student: a mark for each exercise of the lesson."""

    name: str
    marks: tuple[Mark, ...]

    @property
    def points(self) -> float:
        """Total points of all exercises."""
        return sum(mark.points for mark in self.marks)


@cache
def library_hash() -> str:
    """Return a hash of the source code of `iocourse`; a stored grade is valid only for the same code."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Task:
    """The conditions of a grading run. A stored grade is reused only if all of them are unchanged."""

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
    """Grade the submissions that have no stored grade yet. After an interrupt, the next call continues.

    Args:
        folder: the folder of submissions; grades are stored in its subfolder `.iocourse-grades`.
        submissions: submissions to one lesson.
        lesson: that lesson.
        limits: resources that each submission may use.
        sandboxed: run submissions in bubblewrap.
        jobs: number of submissions graded in parallel.
        done_so_far: called with the grades available so far, before the first new one and after each.

    Returns:
        The grades available, in the order of `submissions`, and True if no submission is missing.

    Raises:
        UsageError: grades cannot be stored, or the lesson cannot be graded on this machine.
    """
    _make_place(folder)
    task = Task(lesson, limits, sandboxed, _seed(folder))
    known = {one.name: _kept(folder, one, task) for one in submissions}
    missing = [one for one in submissions if known[one.name] is None]
    complete, tell = True, done_so_far or (lambda grades: None)
    if missing:
        require_runnable(lesson, limits, sandboxed)
        if line := keep_grades(folder / KEPT):
            print(line, file=sys.stderr)
        try:
            with tempfile.TemporaryDirectory(prefix="iocourse-", ignore_cleanup_errors=True) as scratch:
                work = partial(_grade_and_keep, folder, task)
                # Longer than any submission can take that ends by itself or is stopped by its limits.
                seconds = 2 * START + 3 * limits.seconds * len(lesson.exercises)
                done = run_judges(work, missing, jobs, seconds, scratch)
                tell(_those_there_are(known))
                for _ in with_progress_bar(missing, "submissions graded"):
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
    """Return zero points for a submission whose judge failed; not stored, so the next call tries again."""
    lost = replace(submission, fault=fault)
    return Grade(submission.name, tuple(grade(lost, task.lesson, task.seed, task.limits, task.sandboxed)))


def _grade_and_keep(folder: Path, task: Task, submission: Submission) -> None:
    marks = grade(submission, task.lesson, task.seed, task.limits, task.sandboxed)
    told = [asdict(mark) for mark in marks]
    done = {"signature": _signature(submission, task, told), COLUMN: RULE_NAME, "marks": told}
    atomic_write(_place(folder, submission), json.dumps(done, indent=1, ensure_ascii=False) + "\n")


# ------------------------------------------------------------------ stored grades
def _kept(folder: Path, submission: Submission, task: Task) -> Grade | None:
    """Return the stored grade of this submission under this task; None if there is no valid one."""
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
    """Return the seed of this folder: the same inputs for all students, unpredictable without the key."""
    return int(sign(str(folder.resolve()).encode("utf-8", "surrogateescape")), 16) % 10**6


def _make_place(folder: Path) -> None:
    place = folder / KEPT
    if place.is_symlink():
        raise UsageError(f"{place} is a symbolic link, but grades are stored there: remove the link")
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot store grades in {place}: {error.strerror}") from None
    for link in filter(Path.is_symlink, place.iterdir()):
        link.unlink()  # otherwise a grade would be written to the target of the link


def sign(*parts: bytes) -> str:
    """Return the HMAC-SHA256 signature of these parts, in hexadecimal."""
    told = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(_key(), told, hashlib.sha256).hexdigest()


def _key() -> bytes:
    place = home() / "grading-key"
    if not place.exists():
        _make(place)
    try:
        key = bytes.fromhex(place.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"{place} is damaged. Delete it; the next run creates a new key and grades all again"
        )
    return key


def _make(place: Path) -> None:
    """Write a new key, unless another run has written one. Readers never find a partial key."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")  # readable only by its owner
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES))
        try:
            os.link(name, place)
        except OSError:  # another run was first, or this file system has no hard links
            if not place.exists():
                os.replace(name, place)
    finally:
        Path(name).unlink(missing_ok=True)


# ------------------------------------------------------------------ judges, each in a separate process
_REFUSED, _FAILED = b"refused ", b"failed "


@dataclass(frozen=True)
class _Judge(Generic[T]):
    item: T
    process: BaseProcess
    heard: Connection  # receives the reason of a failure, nothing after success
    due: float  # deadline on the monotonic clock, in seconds

    def verdict(self, ended: bool) -> str:
        """Return "" after success, otherwise the reason of the failure.

        Raises:
            UsageError: the judge raised it, so the cause is not the submission.
        """
        if not ended:
            self.end()
            return "judging its answers took too long"
        self.process.join()
        try:
            said = self.heard.recv_bytes()
        except (EOFError, OSError):  # the process ended without sending a reason
            said = b""
        if said.startswith(_REFUSED):
            raise UsageError(said.removeprefix(_REFUSED).decode())
        if said:
            return f"its answers cannot be judged: {said.removeprefix(_FAILED).decode()}"
        code = self.process.exitcode
        return f"its answers terminated the judge process (exit code {code})" if code else ""

    def end(self) -> None:
        """Kill the judge process; the process of the submission ends with it."""
        self.process.kill()
        self.process.join()


def run_judges(
    work: Callable[[T], None], items: Sequence[T], jobs: int, seconds: float, scratch: str
) -> Iterator[tuple[T, str]]:
    """Run `work` on each item in a separate process; yield (item, "" or the reason of its failure) when done.

    Args:
        work: function that processes one item.
        items: items, started in this order.
        jobs: number of processes that run in parallel.
        seconds: time limit of one process.
        scratch: folder for temporary files; the caller removes it.

    Raises:
        UsageError: `work` raised it.
    """
    waiting, judges = list(reversed(items)), dict[int, _Judge[T]]()
    try:
        while waiting or judges:
            while waiting and len(judges) < jobs:
                judge = _begun(work, waiting.pop(), seconds, scratch)
                judges[judge.process.sentinel] = judge
            left = min(judge.due for judge in judges.values()) - monotonic()
            ended = wait([judge.process.sentinel for judge in judges.values()], max(0.0, left))
            for key, judge in list(judges.items()):
                if key in ended or judge.due <= monotonic():
                    del judges[key]
                    yield judge.item, judge.verdict(key in ended)
    finally:
        for judge in judges.values():
            judge.end()


def _begun(work: Callable[[T], None], item: T, seconds: float, scratch: str) -> _Judge[T]:
    heard, told = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_work, args=(work, item, scratch, told))
    process.start()
    told.close()
    return _Judge(item, process, heard, monotonic() + seconds)


def _work(work: Callable[[T], None], item: T, scratch: str, told: Connection) -> None:
    """Run `work` in the judge process, with the memory limit of a submission, and send its error if it fails.

    Interrupts are ignored here, because the parent process handles them and removes `scratch`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = scratch
    apply_limits(Limits())
    try:
        work(item)
    except UsageError as refused:
        told.send_bytes(_REFUSED + str(refused).encode())
    except Exception as error:
        told.send_bytes(_FAILED + f"{type(error).__name__}: {error}"[:200].encode("utf-8", "replace"))
