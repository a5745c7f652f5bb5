"""Tests of rows that arrive in pieces: only the memory of the student's function is counted."""

import threading

import numpy as np
import pytest

from iocourse.course.exercise import Case
from iocourse.course.trials.operation_count import run_counted
from iocourse.course.trials.streamed_rows import LONG, ONE_PASS, HeldTrial, least_held, run_streamed


def long_row(pieces):
    row = np.random.default_rng(0).standard_normal(64 * pieces)
    return Case("", {"row": row, "sizes": [64] * pieces}, tags=frozenset({LONG}))


def one_pass(student):
    """Return the complaints of the two properties on rows of 40 and of 160 pieces."""
    trials = [run_streamed(student, long_row(pieces)) for pieces in (40, 160)]
    assert not any(trial.error for trial in trials)
    return [prop.judge(trials) for prop in ONE_PASS]


def largest(pieces):
    return max(piece.max() for piece in pieces)


def kept_by_the_stack(pieces, top=-np.inf):
    piece = next(pieces, None)
    return top if piece is None else max(kept_by_the_stack(pieces, max(top, piece.max())), piece.min())


@pytest.mark.parametrize("size", [1_500, 100_000])
def test_what_other_threads_hold_is_not_the_students(size):
    """Another thread allocates memory only while the longer row is read."""
    asked, ready, over = threading.Event(), threading.Event(), threading.Event()

    def other():
        asked.wait()
        memory = bytearray(size)
        ready.set()
        over.wait()
        del memory

    def student(pieces):
        top = -np.inf
        for number, piece in enumerate(pieces):
            top = max(top, piece.max())
            if number == 60:
                asked.set()
                ready.wait()
        return top

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert one_pass(student) == [None, None]
        assert ready.is_set()
    finally:
        asked.set()
        over.set()
        thread.join()


@pytest.mark.parametrize(
    "student",
    [
        lambda pieces: np.concatenate(list(pieces)).max(),
        lambda pieces: max(list(pieces)[-1]),
        kept_by_the_stack,
    ],
)
def test_who_keeps_the_row_is_told(student):
    once, kept = one_pass(student)
    assert once is None and kept.endswith("words of a row of 10,240 scores in 160 pieces are held")
    assert one_pass(largest) == [None, None]


def test_a_second_loop_is_told():
    def twice(pieces):
        top = largest(pieces)
        return top + sum(piece.sum() for piece in pieces)

    assert one_pass(twice) == [
        "a piece was requested after the last one; a second loop finds none ()",
        None,
    ]


def test_the_least_count_that_comes_twice():
    counts = iter([900, 5000, 100, 700, 101, 50])
    assert least_held(lambda: HeldTrial(Case("", {}), held=next(counts))).held == 100
    assert next(counts) == 50
    rising = iter(range(100, 10**6, 100))
    assert least_held(lambda: HeldTrial(Case("", {}), held=next(rising))).held == 100
    assert next(rising) == 600, "five counts, no two of them alike"


def test_what_a_first_call_keeps_for_later_is_not_counted():
    cache = []

    def filled_once(a):
        cache.extend([bytes(10**6)] if not cache else [])
        return a + 1

    case = Case("", {"a": np.ones(300)}, tags=frozenset({LONG}))
    trial = run_counted(filled_once, case, watched=LONG)
    assert 300 * 8 <= trial.held < 10_000
    assert run_counted(lambda a: bytes(10**6) and a, case, watched=LONG).held > 10**6
