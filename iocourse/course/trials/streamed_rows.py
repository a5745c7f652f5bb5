"""Rows of scores that are passed in pieces, once: run the function and measure the memory that it keeps."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import error_text
from ..exercise import Case, NotReached, Property, Trial, snapshot, student_call
from ..properties import as_traffic, each, only_where, same_answer_from

LONG = "long"  # the tag of a row for which the kept memory is measured
Array = NDArray[np.float64]
Piece = Array | tuple[Array, Array]


@dataclass(frozen=True)
class HeldTrial(Trial):
    """A trial with the most bytes held at the same time."""

    held: int = 0


@dataclass(frozen=True)
class RowTrial(HeldTrial):
    """A trial with flags: every piece was read, and a second loop was tried."""

    read_all: bool = True
    asked_again: bool = False


def of_kind(name: str, kinds: Sequence[str], judge: Callable[[Trial], str | None]) -> Property:
    """Return a property that is tested on rows with one of these tags only."""
    return only_where(name, lambda case: any(map(case.has, kinds)), judge)


class SecondPass(RuntimeError):
    """An error in a function that looped over the pieces a second time."""


class Pieces(Iterator[Any]):
    """An iterator over the pieces without length or index; it records a second loop, which finds no pieces.

    `over` is true if the function has read every piece. `held` is the most bytes that it held when it
    requested a piece, that is, the memory kept between pieces. It is measured in a `_stacks_kept` block,
    whenever the memory of the process has doubled since the last measurement, and after the last piece.
    """

    def __init__(self, source: Iterable[Any], watched: bool = False) -> None:
        self._source = iter(source)
        self.over = False
        self._watched = watched
        self._seen = 0
        self.asked_again = False
        self.held = 0

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> Any:
        self.asked_again |= self.over
        self._look()
        for piece in self._source:
            return piece
        self.over = True
        self._look()
        raise StopIteration

    def _look(self) -> None:
        if not self._watched:
            return
        of_all = tracemalloc.get_traced_memory()[0]
        if self.over or of_all > 2 * self._seen:
            self._seen, self.held = of_all, max(self.held, _bytes_below())

    def _refuse(self, *args: Any) -> NoReturn:
        raise TypeError("pieces can only be read in one loop; they have no length and no index")

    __getitem__ = __len__ = _refuse


def _pieces(case: Case) -> Iterator[Piece]:
    """Yield each piece as a fresh copy, so that a function that keeps a piece keeps its bytes."""
    start = 0
    for size in case.inputs["sizes"]:
        part = slice(start, start + size)
        s = case.inputs["row"][part].copy()
        yield (s, case.inputs["V"][part].copy()) if "V" in case.inputs else s
        start += size


def run_streamed(student: Callable[..., Any], case: Case) -> Trial:
    """Pass the pieces one by one; on a long row also measure the bytes kept between them."""
    watched = _is_long(case)
    pieces = Pieces(_pieces(case), watched)
    try:
        with student_call(), _stacks_kept(watched):
            value = snapshot(student(pieces))
        return RowTrial(case, value, held=pieces.held, read_all=pieces.over, asked_again=pieces.asked_again)
    except Exception as error:
        if not pieces.asked_again:
            return RowTrial(case, error=error)
        # The second loop is the cause; an error such as a division by its empty sum is only the consequence.
        said = f"a second loop over the pieces finds none; it led to {error_text(error)}"
        return RowTrial(case, error=SecondPass(said))


def _is_long(case: Case) -> bool:
    return case.has(LONG)


SAME = 1.02  # two measurements within this factor count as equal
FRAMES = 50  # of each stack; stacks of threads that only send output are not deeper


@contextmanager
def _stacks_kept(watched: bool) -> Iterator[None]:
    """Let tracemalloc record the stack of each allocation within the block."""
    if not watched:
        yield
        return
    limit = tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0
    tracemalloc.stop()
    tracemalloc.start(FRAMES)
    _bytes_below()  # fills caches
    tracemalloc.clear_traces()
    try:
        yield
    finally:
        tracemalloc.stop()
        if limit:  # tracing was active before
            tracemalloc.start(limit)


def _bytes_below() -> int:
    """Return the bytes held now that the student's function has allocated (below a call from this file).

    The process may hold more, for example for threads of the notebook that send its output.
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
    """Yield a function that returns the most bytes Python and NumPy held within the block."""
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
TRIES = 5  # largest number of measured calls


def least_held(attempt: Callable[[], H]) -> H:
    """Return the first of several trials of one case with the fewest bytes that any of them held.

    `memory_watch` also measures other threads of the process, and caches that a first call fills. Both only
    add to the bytes of the student's function. Trials are therefore repeated until the smallest measurement
    has occurred twice, at most TRIES times.
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
        return "a piece was requested after the last one; a second loop finds none"
    return _left_over(trial)


def _left_over(trial: Trial) -> NotReached | None:
    """Return a message if the function ended before it had read every piece."""
    stopped = isinstance(trial, RowTrial) and not trial.read_all
    return NotReached("your function ends before it has read every piece") if stopped else None


SPARE = 1024  # bytes that the longer row may hold in addition to the shorter one, for Python objects


def _keeps_no_more(trials: Sequence[Trial]) -> str | None:
    """Compare the memory kept for a long row with that for a row of a quarter of its length."""
    watched = [t for t in trials if isinstance(t, RowTrial) and _is_long(t.case)]
    short, long = sorted(watched, key=lambda trial: trial.case.inputs["row"].size)
    complaint = _keeps_little(long)
    if complaint or long.held <= short.held + SPARE:
        return complaint or _left_over(long)
    return f"{_held(short)} are held, and {_held(long)}"


def _keeps_little(trial: RowTrial) -> str | None:
    """Allow a quarter of the row, which is more than one piece and its temporaries need."""
    row = trial.case.inputs["row"]
    if 4 * trial.held <= row.nbytes:
        return None
    pieces = len(trial.case.inputs["sizes"])
    return f"{_held(trial)} in {pieces} pieces are held"


def _held(trial: RowTrial) -> str:
    row = trial.case.inputs["row"]
    return f"{trial.held // row.itemsize:,} words of a row of {row.size:,} scores"


ONE_PASS = (
    as_traffic(each("reads each piece once", _visited_once)),
    as_traffic(Property("memory use does not grow with the length of the row", _keeps_no_more)),
)
SAME_ROW = same_answer_from("row", "the result does not depend on the size of the pieces")
