"""Tests of with_preallocated_frames: no loop allocates memory for stack frames, at any depth of calls."""

import sys
from functools import partial
from threading import Thread

import numpy as np
import pytest

from iocourse.machine import run
from iocourse.machine.run import with_preallocated_frames

resource = pytest.importorskip("resource")
CALLS = 500
needs_cpython = pytest.mark.skipif(
    sys.implementation.name != "cpython", reason="another Python keeps its frames elsewhere"
)


def calls(*_):
    """Run a loop of calls, each of three frames."""
    for _ in range(CALLS):
        a(b, c)


def a(f, g):
    return f(g)


def b(g):
    return g()


def c():
    return 0


def at(depth, work):
    """Return work(), called `depth` frames deeper."""
    return work() if depth == 0 else at(depth - 1, work)


def pages(work, depths):
    """Return the page faults of work() at each depth, measured in a new thread, whose stack starts empty."""
    found = []

    def count():
        for depth in depths:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            at(depth, work)
            found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

    thread = Thread(target=count)
    thread.start()
    thread.join()
    return found


@needs_cpython
def test_at_no_depth_does_a_call_ask_for_memory():
    assert max(pages(lambda: with_preallocated_frames(calls), range(300))) < CALLS / 2


@needs_cpython
def test_a_schedule_runs_in_one_piece():
    def schedule(m, X):
        Y = m.new("Y", (1, 1))
        (i,) = m.blocks(1, 1)
        with m.load(X, i) as x:
            m.store(x, Y, i)
        calls()
        return Y

    work = partial(run, schedule, M=4, X=np.ones((1, 1)))
    assert max(pages(work, range(300))) < CALLS / 2


@needs_cpython
def test_a_launch_in_the_interpreter_runs_in_one_piece():
    pytest.importorskip("triton")
    from iocourse.doctor.fast_interpreter import _with_room

    assert max(pages(_with_room(calls), range(300))) < CALLS / 2


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.version_info[:2] not in ((3, 11), (3, 12)),
    reason="seen on Linux, with Python 3.11 and 3.12",
)
def test_at_some_depth_every_call_does_without_it():
    """If this fails, with_preallocated_frames is no longer needed."""
    assert max(pages(calls, range(300))) >= CALLS


def test_what_comes_back_and_what_is_raised_is_that_of_the_work():
    assert with_preallocated_frames(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        with_preallocated_frames(lambda: 1 / 0)
