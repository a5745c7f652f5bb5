"""Grade all submissions of a class in parallel; each grade is kept as soon as it is made, and reused.

A judge has a process of its own, so an answer can disturb only its own judge. A kept grade carries a
signature (HMAC) that only the grader can write, with a key in the user's home.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import multiprocessing
import os
import secrets
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

from ..console import steps
from ..course.progress import home
from ..errors import UsageError
from ..files import atomic_write
from .grading import Mark, grade, require_runnable
from .lesson_cells import Lesson
from .sandbox import Limits, apply_limits
from .submission_process import START
from .submissions import Submission

KEPT = ".iocourse-grades"  # folder beside the submissions
KEY_BYTES = 32
T = TypeVar("T")


@dataclass(frozen=True)
class Grade:
    """One student's marks, one for each exercise of the lesson."""

    name: str
    marks: tuple[Mark, ...]

    @property
    def points(self) -> float:
        """What the exercises give together."""
        return sum(mark.points for mark in self.marks)


@cache
def library_hash() -> str:
    """A short name for the source of `iocourse` as it is: grades hold for what judged them."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


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
        require_runnable(lesson, limits, sandboxed)
        try:
            with tempfile.TemporaryDirectory(prefix="iocourse-", ignore_cleanup_errors=True) as scratch:
                work = partial(_grade_and_keep, folder, task)
                # More than any submission takes that ends by itself or by its limits.
                seconds = 2 * START + 3 * limits.seconds * len(lesson.exercises)
                done = run_judges(work, missing, jobs, seconds, scratch)
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


# ------------------------------------------------------------------ grades that are kept
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


def sign(*parts: bytes) -> str:
    """The signature of these parts, as text."""
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
        raise UsageError(f"{place} is damaged: delete it, and grades are made anew")
    return key


def _make(place: Path) -> None:
    """Write a key, unless another run was first: a reader finds a whole one, and all runs find the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")  # for its owner alone
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES))
        try:
            os.link(name, place)
        except OSError:  # another run was first, or this file system has no links
            if not place.exists():
                os.replace(name, place)
    finally:
        Path(name).unlink(missing_ok=True)


# ------------------------------------------------------------------ judges, each in a process of its own
_REFUSED, _FAILED = b"refused ", b"failed "


@dataclass(frozen=True)
class _Judge(Generic[T]):
    item: T
    process: BaseProcess
    heard: Connection  # nothing where all went well, else why not
    due: float  # on the monotonic clock

    def verdict(self, ended: bool) -> str:
        """Why there is no result, "" where there is one. Raises UsageError where no answer is at fault."""
        if not ended:
            self.end()
            return "judging its answers took too long"
        self.process.join()
        try:
            said = self.heard.recv_bytes()
        except (EOFError, OSError):  # it has ended without a word
            said = b""
        if said.startswith(_REFUSED):
            raise UsageError(said.removeprefix(_REFUSED).decode())
        if said:
            return f"its answers cannot be judged: {said.removeprefix(_FAILED).decode()}"
        code = self.process.exitcode
        return f"its answers ended the judge (exit code {code})" if code else ""

    def end(self) -> None:
        """End the process, and with it that of the submission."""
        self.process.kill()
        self.process.join()


def run_judges(
    work: Callable[[T], None], items: Sequence[T], jobs: int, seconds: float, scratch: str
) -> Iterator[tuple[T, str]]:
    """Each item as it is done, with "" or the reason why `work` did not end well on it.

    Args:
        work: what is done with an item, in a process of its own.
        items: in the order in which they are begun.
        jobs: how many at once.
        seconds: after which a process is ended.
        scratch: folder for temporary files, which the caller clears away.

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
    """Interrupts are for the first process, which clears away what is left in `scratch`; and no answer makes
    the judge take more memory than a submission may.
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
