"""Rows of scores that arrive in pieces: handed over once, judged by what is right and by what is kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import error_text
from ..exercise import Case, Property, Trial, snapshot, student_call
from ..properties import each, idle, only_where, same_answer_from

LONG = "long"  # the tag of a row that is measured for what is kept of it
Array = NDArray[np.float64]
Piece = Array | tuple[Array, Array]


@dataclass(frozen=True)
class HeldTrial(Trial):
    """A trial that also knows the most bytes held at once."""

    held: int = 0


@dataclass(frozen=True)
class RowTrial(HeldTrial):
    """A trial that also saw whether the pieces were visited a second time."""

    asked_again: bool = False


def of_kind(name: str, kinds: Sequence[str], judge: Callable[[Trial], str | None]) -> Property:
    """A property that only rows with one of these tags are asked for."""
    return only_where(name, lambda case: any(map(case.has, kinds)), judge)


class SecondPass(RuntimeError):
    """An error in a function that had asked for the pieces a second time."""


class Pieces(Iterator[Any]):
    """Pieces that come by once: no length, no index; a second loop finds nothing and is noted.

    `held` is the most bytes that the student's function was seen to have where it asked for a piece: what is
    kept from piece to piece. It is looked at where the whole process holds twice as much as when it was
    last looked at, and after the last piece; in a `_stacks_kept` block alone.
    """

    def __init__(self, source: Iterable[Any], watched: bool = False) -> None:
        self._source = iter(source)
        self._over = False
        self._watched = watched
        self._seen = 0
        self.asked_again = False
        self.held = 0

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> Any:
        self.asked_again |= self._over
        self._look()
        for piece in self._source:
            return piece
        self._over = True
        self._look()
        raise StopIteration

    def _look(self) -> None:
        if not self._watched:
            return
        of_all = tracemalloc.get_traced_memory()[0]
        if self._over or of_all > 2 * self._seen:
            self._seen, self.held = of_all, max(self.held, _bytes_below())

    def _refuse(self, *args: Any) -> NoReturn:
        raise TypeError("pieces arrive one at a time: loop over them once; they have no length and no index")

    __getitem__ = __len__ = _refuse


def _pieces(case: Case) -> Iterator[Piece]:
    """Fresh copies, made when they are asked for: whoever keeps a piece keeps its bytes."""
    start = 0
    for size in case.inputs["sizes"]:
        part = slice(start, start + size)
        s = case.inputs["row"][part].copy()
        yield (s, case.inputs["V"][part].copy()) if "V" in case.inputs else s
        start += size


def run_streamed(student: Callable[..., Any], case: Case) -> Trial:
    """Hand the pieces over one by one; on a long row also measure how many bytes are kept between them."""
    watched = _is_long(case)
    pieces = Pieces(_pieces(case), watched)
    try:
        with student_call(), _stacks_kept(watched):
            value = snapshot(student(pieces))
        return RowTrial(case, value, asked_again=pieces.asked_again, held=pieces.held)
    except Exception as error:
        if not pieces.asked_again:
            return RowTrial(case, error=error)
        # A division by the sum of an empty second pass is no news; that there was a second pass is.
        said = f"a second loop over the pieces finds none, and led to {error_text(error)}"
        return RowTrial(case, error=SecondPass(said))


def _is_long(case: Case) -> bool:
    return case.has(LONG)


SAME = 1.02  # twice as much memory within this factor is the same
FRAMES = 50  # of each stack; one that is deeper is no thread's that only sends output


@contextmanager
def _stacks_kept(watched: bool) -> Iterator[None]:
    """In this block tracemalloc keeps the calls that led to each allocation."""
    if not watched:
        yield
        return
    limit = tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0
    tracemalloc.stop()
    tracemalloc.start(FRAMES)
    _bytes_below()  # it fills caches
    tracemalloc.clear_traces()
    try:
        yield
    finally:
        tracemalloc.stop()
        if limit:  # somebody else was tracing
            tracemalloc.start(limit)


def _bytes_below() -> int:
    """What is held now of all that was allocated below a call from this file, by the student's function.

    The process as a whole may hold more: the threads of a notebook, which send its output, come and go.
    """
    stacks = ((trace.size, trace.traceback) for trace in tracemalloc.take_snapshot().traces)
    return sum(size for size, stack in stacks if _is_below(stack))


def _is_below(stack: tracemalloc.Traceback) -> bool:
    for frame in reversed(stack):  # the latest call first
        if frame.filename in (__file__, tracemalloc.__file__):
            return frame.filename == __file__
    return (stack.total_nframe or 0) > len(stack)


@contextmanager
def memory_watch(watched: bool) -> Iterator[Callable[[], int]]:
    """Yields a function that tells, inside or after, the most bytes Python and NumPy held inside at once."""
    peak = 0
    if not watched:
        yield lambda: peak
        return
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: peak
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        if ours:
            tracemalloc.stop()


H = TypeVar("H", bound=HeldTrial)
TRIES = 5  # calls that are watched at most


def least_held(attempt: Callable[[], H]) -> H:
    """The first of several trials of one case, with the least bytes that any of them held.

    `memory_watch` sees all threads of the process, a notebook's own too, and the caches that a first call
    fills. Both only add to what the student's function holds. So trials are repeated until their least count
    has come twice, at most TRIES times.
    """
    first = attempt()
    least = first.held
    for _ in range(TRIES - 1 if first.error is None else 0):
        again = attempt()
        if again.error is not None:
            return again
        same, least = least / SAME <= again.held <= SAME * least, min(least, again.held)
        if same:
            break
    return replace(first, held=least)


def _visited_once(trial: Trial) -> str | None:
    if isinstance(trial, RowTrial) and trial.asked_again:
        return "your function asked for pieces after the last one; a second loop finds none"
    return None


SPARE = 1024  # bytes: what the longer of two rows may hold beyond the shorter one, for Python's own numbers


def _keeps_no_more(trials: Sequence[Trial]) -> str | None:
    """The longest row is not kept in large part, and takes no more room than one of a quarter of it."""
    watched = [t for t in trials if isinstance(t, RowTrial) and _is_long(t.case)]
    short, long = sorted(watched, key=lambda trial: trial.case.inputs["row"].size)
    complaint = _keeps_little(long)
    if complaint or long.held <= short.held + SPARE:
        return complaint
    return f"yours held {_held(short)}, and {_held(long)}"


def _keeps_little(trial: RowTrial) -> str | None:
    """A quarter of the row is allowed: far more than one piece and its temporaries, far less than the row."""
    row = trial.case.inputs["row"]
    if 4 * trial.held <= row.nbytes:
        return None
    pieces = len(trial.case.inputs["sizes"])
    return f"yours held {_held(trial)} in {pieces} pieces"


def _held(trial: RowTrial) -> str:
    row = trial.case.inputs["row"]
    return f"{trial.held // row.itemsize:,} words at once of {row.size:,} scores"


ONE_PASS = (
    idle(each("reads each piece once", _visited_once)),
    Property("memory use does not grow with the length of the row", _keeps_no_more, idle=True),
)
SAME_ROW = same_answer_from("row", "the result does not depend on the size of the pieces")
