"""No loop pays for where its calls stand, once it has room for their frames in one piece."""

import sys
from threading import Thread

import pytest

from iocourse.frames import in_one_piece

resource = pytest.importorskip("resource")
CALLS = 500


def calls():
    """A loop of calls, each of three frames."""
    for _ in range(CALLS):
        a(b, c)


def a(f, g):
    return f(g)


def b(g):
    return g()


def c():
    return 0


def at(depth, work):
    """`work()`, from so many frames further up."""
    return work() if depth == 0 else at(depth - 1, work)


def pages(work, depths):
    """Pages of memory that the system handed out, at each depth; in a thread, whose frames begin anew."""
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


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="frames of another Python lie elsewhere")
def test_at_no_depth_does_a_call_ask_for_memory():
    assert max(pages(lambda: in_one_piece(calls), range(300))) < CALLS / 2


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.version_info[:2] not in ((3, 11), (3, 12)),
    reason="seen on Linux, with Python 3.11 and 3.12",
)
def test_at_some_depth_every_call_does_without_it():
    """Or the room is no longer needed."""
    assert max(pages(calls, range(300))) >= CALLS


def test_what_comes_back_and_what_is_raised_is_that_of_the_work():
    assert in_one_piece(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        in_one_piece(lambda: 1 / 0)
