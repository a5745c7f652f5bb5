"""Grade one submission: run the student's code in a separate process and judge the results in this one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import UsageError
from ..checking import RUNS, Verdict, failed_properties, judge, read_first, report
from ..exercise import Case, Exercise, NotJudged, Trial
from ..points import how_paid, points_of
from ..student_copies.answers import AnswerCell, find_answers
from ..student_copies.notebook import text_of
from .lesson_cells import Lesson, LessonCell
from .protocol import Foreign, record_class
from .sandbox import Limits
from .submission_process import START, ProcessClient, ProcessEnded
from .submissions import Submission

NO_ANSWER = "its process sent data that is not a valid answer"
_KEPT = "the lesson's own cell"


@dataclass(frozen=True)
class Mark:
    """The mark of one student for one exercise.

    Attributes:
        id: id of the exercise, such as 2A.
        points: points of the student.
        parts: how they are made, such as "values 2.5 of 2.5, traffic 0.3 of 2.5".
        of: maximum points of the exercise.
        report: the report that a check would print.
        why: the failed property to read first and its complaint, or an error; "" if all hold.
        cell: position of the graded cell in the notebook; None if no cell was graded.
        notes: notes for the teacher, if the cell was not found by the name and id that the lesson gives it.
        fault: for the teacher, the reason why no cell was graded; "" if one was.
        paid: sentences that list the properties by what they earn; "" without partial points.
    """

    id: str
    points: float
    parts: str
    of: int
    report: str
    why: str
    cell: int | None = None
    notes: Sequence[str] = ()
    fault: str = ""
    paid: str = ""


class _Stopped(NotJudged):
    """The student's function raised or was not called, so judging stops with these verdicts."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        super().__init__(RUNS, "stopped")
        self.verdicts = verdicts


def grade(submission: Submission, lesson: Lesson, seed: int, limits: Limits, sandboxed: bool) -> list[Mark]:
    """Return a mark for every exercise of the lesson, in order.

    Args:
        submission: the submission to grade.
        lesson: the lesson that it belongs to.
        seed: seed of the random inputs; the same for a class.
        limits: resources that each exercise may use.
        sandboxed: run the submission in bubblewrap.
    """
    if submission.fault:
        answers = {one.id: AnswerCell(fault=submission.fault) for one in lesson.exercises}
    else:
        answers = find_answers(submission.cells, lesson.wanted, lesson.own)
    run = _Run(lesson, submission.cells, answers, limits, sandboxed)
    try:
        return [run.mark(at, seed) for at, place in enumerate(lesson.places) if place.exercise]
    finally:
        run.drop()


def require_runnable(lesson: Lesson, limits: Limits, sandboxed: bool) -> None:
    """Run the lesson's own cells, and raise UsageError if they fail, because no student caused that."""
    own = Lesson(lesson.stem, tuple(place for place in lesson.places if not place.exercise))
    run = _Run(own, (), {}, limits, sandboxed)
    try:
        run.reach(len(own.places) - 1)
    except ProcessEnded as ended:
        needs = "Run iocourse doctor to see what is missing on this machine, and install it"
        raise UsageError(f"cannot grade {lesson.stem} here: {ended}. {needs}") from None
    finally:
        run.drop()


class _Run:
    """The process of a submission. It is restarted after an exercise that ended it."""

    def __init__(
        self,
        lesson: Lesson,
        cells: Sequence[dict[str, Any]],
        answers: Mapping[str, AnswerCell],
        limits: Limits,
        sandboxed: bool,
    ) -> None:
        self.lesson, self.cells, self.answers = lesson, cells, answers
        self.limits, self.sandboxed = limits, sandboxed
        self.session: ProcessClient | None = None
        self.ran = 0  # number of places that the current process has run
        self.raised: dict[str, str] = {}  # error text by cell id
        self.deadly: dict[str, str] = {}  # reason by cell id, for cells that ended the process; not run again

    def mark(self, at: int, seed: int) -> Mark:
        """Grade the exercise at position `at` of the lesson's places."""
        exercise = self.lesson.places[at].exercise
        assert exercise is not None
        answer = self.answers[exercise.id]
        fault = answer.fault
        verdicts = [(RUNS, fault)] if fault else self._verdicts(at, exercise, seed)
        text = report(exercise, verdicts, seed)
        failed = failed_properties(verdicts)
        first = read_first(exercise, failed) if failed else ""
        why = failed[first] if first == RUNS else f'"{first}" fails: {failed[first]}' if failed else ""
        points = points_of(exercise, verdicts)
        paid = how_paid(exercise) if 0 < points.total < exercise.importance else ""
        text, why, fault = map(_writable, (text, why, fault))
        notes = [*map(_writable, answer.notes)]
        most = exercise.importance
        return Mark(exercise.id, points.total, str(points), most, text, why, answer.at, notes, fault, paid)

    def _verdicts(self, at: int, exercise: Exercise, seed: int) -> list[Verdict]:
        try:
            session = self.reach(at)
            session.allow(self.limits.seconds)
            return _judged(session, exercise, seed, self.raised.get(self.lesson.places[at].cell, ""))
        except _Stopped as stopped:
            return stopped.verdicts
        except ProcessEnded as ended:
            self.drop()
            return [(RUNS, str(ended))]
        finally:
            if self.session is not None and self.session.ended:  # in a further call
                self.drop()

    def reach(self, at: int) -> ProcessClient:
        """Return a process that has run every cell up to and including position `at`."""
        while True:
            if self.session is None:
                self.session, self.ran = ProcessClient(self.limits, self.sandboxed), 0
            try:
                while self.ran <= at:
                    self._run_next(self.session)
                return self.session
            except ProcessEnded as ended:
                place = self.lesson.places[self.ran]
                self.drop()
                if place.exercise is None or place.cell in self.deadly:
                    raise ProcessEnded(f"{_KEPT} {place.cell} failed ({ended})") from None
                self.deadly[place.cell] = str(ended)
                if place is self.lesson.places[at]:
                    raise

    def _run_next(self, session: ProcessClient) -> None:
        place = self.lesson.places[self.ran]
        for name, text in self._texts(place):
            session.allow(self.limits.seconds if place.exercise else START)
            error = session.ask("run cell", name, text)
            if not isinstance(error, str | None):
                raise ProcessEnded(NO_ANSWER)
            if error and place.exercise is None:
                raise ProcessEnded(f"raises {error}")
            if error:
                self.raised[place.cell] = error
        self.ran += 1

    def _texts(self, place: LessonCell) -> Iterator[tuple[str, str]]:
        """Yield (name, text) of each cell to run: the lesson's, or the answer and its helper cells."""
        if place.exercise is None:
            yield f"<{place.cell}>", place.source
        elif place.cell not in self.deadly:
            answer = self.answers[place.asks]
            for at in answer.cells:
                yield f"<{place.cell if at == answer.at else f'cell-{at + 1}'}>", text_of(self.cells[at])

    def drop(self) -> None:
        """End the process, if one is running."""
        if self.session is not None:
            self.session.close()
        self.session = None


def _judged(session: ProcessClient, exercise: Exercise, seed: int, raised: str) -> list[Verdict]:
    """Return the verdicts of the judge. It calls the student's function in the process of the submission."""
    refusal = _verdict_list(session.ask("refusal", exercise.id))
    if refusal:
        raise _Stopped([(RUNS, f"its cell raises {raised}")] if raised else refusal)

    drawn: list[Case] = []
    calls = itertools.count(1)

    def draw(rng: np.random.Generator) -> list[Case]:
        drawn.extend(exercise.cases(rng))
        return drawn

    def run_case(_: Any, case: Case) -> Trial:
        number = next(calls)
        further = number > len(drawn)  # after all cases, to see on which inputs a wrong result depends
        try:
            told = session.ask("run case", exercise.id, replace(case, expected=None, budget=None))
        except ProcessEnded:
            if further:
                raise _Stopped([]) from None  # all trials were complete, so the verdicts on them count
            raise
        return _trial(told, case, lambda name, *given: session.ask("call", number - 1, name, given))

    def submitted() -> None:
        """Placeholder for the student's function, which exists only in the other process."""

    submitted.__module__, submitted.__name__ = "__main__", exercise.function
    return judge(replace(exercise, cases=draw, run_case=run_case), submitted, seed)


def _trial(told: Any, case: Case, call: Callable[..., Any]) -> Trial:
    """Return the trial described by a message of the process.

    A function in a field of the trial stays in the process; `call` calls it there by the name of the field.

    Raises:
        _Stopped: the function raised, so that the other properties are not judged.
        ProcessEnded: the message is not a trial.
    """
    try:
        what, first, second = told
        if what == "stopped":
            raise _Stopped(_verdict_list(first) or [(RUNS, "stopped")])
        kind: Any = record_class(first) if what == "trial" else None
        if issubclass(kind, Trial):
            functions = {name for name, value in second.items() if _is_function(value)}
            known = second | {name: _called(name, case, call) for name in functions}
            return kind(case=case, **known)  # type: ignore[no-any-return]
    except (TypeError, ValueError, AttributeError):
        pass
    raise ProcessEnded(NO_ANSWER)


def _is_function(value: Any) -> bool:
    return isinstance(value, Foreign) and value.kind == "function"


def _called(name: str, case: Case, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls the one of this name in the process, and returns a trial or data."""

    def called(*given: Any) -> Any:
        told = call(name, *given)
        return _trial(told, case, call) if isinstance(told, tuple) else told

    return called


def _verdict_list(told: Any) -> list[Verdict]:
    """Return the failed properties that the process reports. A message that a property holds is rejected."""
    pairs: list[Any] = told if isinstance(told, list) else [None]
    if not all(isinstance(pair, tuple) and [*map(type, pair)] == [str, str] for pair in pairs):
        raise ProcessEnded(NO_ANSWER)
    return [(name[:200], complaint[:2000]) for name, complaint in pairs]


def _writable(text: str) -> str:
    """Return the text with "?" in place of each lone surrogate, which cannot be encoded in UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
