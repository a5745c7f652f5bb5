"""What a submission's process sends is data: no code, no end without end, no more than it may."""

import io
import os
import pickle

import numpy as np
import pytest

from iocourse.course.exercise import Trial
from iocourse.grade.wire import Foreign, Unreadable, portable, read, write
from iocourse.ledger import Ledger

MOST = 1 << 20


def sent(message, most=MOST):
    stream = io.BytesIO()
    write(stream, message)
    stream.seek(0)
    return read(stream, most)


class Code:
    def __reduce__(self):
        return os.system, ("exit 1",)


CALLS = {"pickled": Code(), "in a list": [1, Code()], "os.system": os.system, "np.load": np.load}
CALLS |= {"a method": Trial.__init__, "eval": eval}


@pytest.mark.parametrize("message", CALLS.values(), ids=CALLS)
def test_what_would_run_here_is_refused(message):
    with pytest.raises(Unreadable, match="no answer"):
        sent(message)


def test_answers_arrive_as_they_are():
    whole = {"value": (np.arange(6.0).reshape(2, 3), [1, "a", None, 2.5]), "ledger": Ledger(reads={"Q": 3})}
    got = sent(("trial", Trial, whole))
    assert got[:2] == ("trial", Trial) and got[2]["ledger"] == whole["ledger"]
    np.testing.assert_array_equal(got[2]["value"][0], whole["value"][0])
    assert sent(np.float32(0.5)) == np.float32(0.5) and sent(3 + 1j) == 3 + 1j


def test_what_is_no_data_is_told_by_its_type():
    assert portable([1, (lambda: 0), (3, {"a": Code()})]) == [
        1,
        Foreign("function"),
        (3, {"a": Foreign("Code")}),
    ]


def test_too_long_and_without_end():
    with pytest.raises(Unreadable, match="more than 1,048,576 bytes"):
        sent(np.zeros(MOST, np.uint8))
    nested = [0] * 10
    for _ in range(12):
        nested = [nested] * 10
    circle = []
    circle.append(circle)
    for message in (nested, circle):
        with pytest.raises(Unreadable, match="more than 1,000,000 parts"):
            sent(message)


def test_what_stops_in_the_middle_is_an_end():
    data = pickle.dumps([1, 2, 3])
    for text in (b"", b"\0\0", len(data).to_bytes(8, "big") + data[:-1]):
        with pytest.raises(EOFError):
            read(io.BytesIO(text), MOST)
