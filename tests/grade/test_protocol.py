"""Tests of the message protocol: answers of a submission's process are data, finite and limited in size."""

import io
import json
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from iocourse import distributed
from iocourse.course import exercises  # noqa: F401 - its records are sent by name
from iocourse.course.exercise import Trial
from iocourse.course.grade import protocol
from iocourse.course.grade.protocol import (
    Foreign,
    Unreadable,
    name_of,
    read_answer,
    record_class,
    write_answer,
)
from iocourse.course.properties import difference
from iocourse.ledger import Ledger, Move
from iocourse.machine import FastMemoryFull

MOST = 1 << 20


def sent(message, most=MOST):
    stream = io.BytesIO()
    write_answer(stream, message)
    stream.seek(0)
    return read_answer(stream, most)


def received(data):
    """Read bytes that were not written by `write_answer`."""
    return read_answer(io.BytesIO(len(data).to_bytes(8, "big") + data), MOST)


class Code:
    def __reduce__(self):
        return os.system, ("exit 1",)


# Data that a process may write to its end of the pipe without `write_answer`.
FORGED = {
    "a pickle": pickle.dumps([1, 2]),
    "a pickle of code": pickle.dumps(Code()),
    "a function": ["os:system", "exit 1"],
    "a method": ["iocourse.course.exercise:Trial.__init__", 1],
    "a class that is not a record": ["iocourse.machine.machine:Machine", 64],
    "a record in a module that is not imported": ["iocourse.course.nowhere:Record"],
    "no such fields": ["iocourse.ledger:PhaseTotal", 1, 2, 3],
    "addresses": ["array", "|O", [1], "AAAAAAAAAAA="],
    "addresses in a record": ["array", "|V8", [1], "AAAAAAAAAAA="],
    "a dtype with fields": ["array", "i4,O", [1], "AAAAAAAAAAA="],
    "fewer bytes than its shape": ["array", "<f8", [2], "AAAAAAAAAAA="],
    "an invalid shape": ["array", "<f8", [-1], "AAAAAAAAAAA="],
    "an endless shape": ["array", "<f8", [2**62, 2**62], ""],
    "one element of thousands of bytes": ["array", "<U1000000000", [0], ""],
    "keys that cannot be keys": ["dict", ["list"], 1],
    "a key without a value": ["dict", 1],
    "an object": {"a": 1},
    "nothing": [],
    "a kind that is not a string": [[], 1],
}


@pytest.mark.parametrize("message", FORGED.values(), ids=FORGED)
def test_what_is_no_answer_is_refused(message):
    with pytest.raises(Unreadable, match="not a valid answer"):
        received(message if isinstance(message, bytes) else json.dumps(message).encode())


def test_what_nests_without_end_is_refused():
    for data in (b"[" * 500_000, b'["list",' * 60 + b"1" + b"]" * 60, b"9" * 10_000):
        with pytest.raises(Unreadable, match="not a valid answer"):
            received(data)


WHOLE = [
    None, True, "a", 2.5, -7, 10**300, 3 + 1j, Fraction(1, 3), float("inf"), (1, [2, (3,)]),
    {"a": 1, (1, 2): None}, {1, 2}, frozenset("ab"), Foreign("function"), Ledger(reads={"Q": 3}, peak=5),
    [Move("load", "Q", (0, 1), None, 4, 4)],
]  # fmt: skip


@pytest.mark.parametrize("message", WHOLE, ids=lambda one: type(one).__name__)
def test_answers_arrive_as_they_are(message):
    got = sent(message)
    assert got == message
    assert type(got) is type(message) or isinstance(
        message, Foreign
    )  # the class of a Foreign is named after it


SIMPLE = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers(allow_nan=False)
)


@given(st.recursive(SIMPLE, lambda part: st.lists(part) | st.tuples(part) | st.dictionaries(st.text(), part)))
def test_any_data_arrives_as_it_is(message):
    assert repr(sent(message)) == repr(message)


@given(arrays.arrays(arrays.scalar_dtypes().filter(lambda one: one.kind in "biufcSU"), arrays.array_shapes()))
def test_any_numbers_arrive_as_they_are(message):
    for one in (message, message.T, message[..., ::-1], message.flat[0]):
        got = sent(one)
        assert type(got) is type(one) and got.dtype == one.dtype
        np.testing.assert_array_equal(got, one)


def test_objects_in_an_array_are_told_one_by_one():
    got = sent(np.array([[1, None], [Fraction(1, 2), len]], object))
    assert got.tolist() == [[1, None], [Fraction(1, 2), Foreign("builtin_function_or_method")]]


def test_a_full_memory_arrives_with_what_it_says():
    got = sent(FastMemoryFull("too much", 3, "a tile"))
    assert (str(got), got.short, got.asked) == ("too much", 3, "a tile")


def test_the_ledgers_of_ranks_arrive_as_they_are():
    ledgers = distributed.get("grid").dry(4, 20, 3, a=2).ledgers
    assert sent(ledgers) == ledgers
    assert [one.exchanges for one in sent(ledgers)] == [one.exchanges for one in ledgers]


def test_kinds_of_trials_go_by_name():
    assert record_class(name_of(Trial)) is Trial
    assert record_class("iocourse.course.exercise:find") is record_class("os:system") is None


def test_what_is_no_data_is_told_by_its_type():
    class Sub(np.ndarray):
        """An array subclass, which could override its methods."""

    sent_whole = sent([1, (lambda: 0), (3, {"a": Code()}), np.zeros(2).view(Sub), np.zeros(1, "i4,i4")])
    assert sent_whole[:3] == [1, Foreign("function"), (3, {"a": Foreign("Code")})]
    assert sent_whole[3:] == [Foreign("Sub"), Foreign("ndarray")]


def test_too_long_and_without_end(monkeypatch):
    with pytest.raises(Unreadable, match="more than 1,048,576 bytes"):
        sent(np.zeros(MOST, np.uint8))
    monkeypatch.setattr(protocol, "PARTS", 1000)
    nested = [0] * 10
    for _ in range(12):
        nested = [nested] * 10
    with pytest.raises(Unreadable, match="more than 1,000 parts"):
        sent(nested)
    with pytest.raises(Unreadable, match="more than 1,000 parts"):
        received(json.dumps(["list", *range(1000)]).encode())
    circle = []
    circle.append(circle)
    assert "Foreign" not in repr(circle) and "a list" in repr(sent(circle))


def test_what_stops_in_the_middle_is_an_end():
    data = json.dumps(["list", 1, 2]).encode()
    for text in (b"", b"\0\0", len(data).to_bytes(8, "big") + data[:-1]):
        with pytest.raises(EOFError):
            read_answer(io.BytesIO(text), MOST)


def test_a_complaint_about_what_is_no_data_tells_its_type():
    complaint = difference(sent(iter([1])), np.zeros(2))
    assert complaint.startswith("got a list_iterator, expected an array of numbers")
    assert sent(type("Solved.\n  holds", (), {})()).kind == "Solved.?  holds"
