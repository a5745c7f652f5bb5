"""Tests of the operation count: NumPy operations on counted arrays, and their results."""

import numpy as np
import pytest

from iocourse.course.exercise import Case
from iocourse.course.trials.operation_count import ONCE, TWICE, CountedArray, linear_work, run_counted

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 5))


def work_of(function, *arrays):
    trial = run_counted(function, Case("", {f"x{n}": array for n, array in enumerate(arrays)}))
    assert trial.error is None, trial.error
    return trial.work, trial.value


@pytest.mark.parametrize(
    ("function", "arrays", "work"),
    [
        (lambda a, b: a @ b, (A, B), 3 * 4 * 5),
        (lambda a, b: np.dot(a, b), (A, B), 3 * 4 * 5),
        (lambda a, b: a.T[1:3] @ a, (A, B), 2 * 3 * 4),
        (lambda a, b: a.dot(b), (A, B), 3 * 4 * 5),
        (lambda a, b: a.dot(b, out=np.empty((3, 5))), (A, B), 3 * 4 * 5),
        (lambda a, b: np.matmul(a[None], b), (A, B), 3 * 4 * 5),
        (lambda a: a + 1, (A,), 12),
        (lambda a: np.exp(a) * a, (A,), 24),
        (lambda a: a.sum(axis=0), (A,), 12),
        (lambda a: np.sum(a), (A,), 12),
        (lambda a: np.hstack([a, np.ones((3, 1))]), (A,), 15),
        (lambda a, b: np.einsum("ij,jk->ik", a, b), (A, B), 60),
        (lambda a, b: np.einsum("ij,jk->i", a, b), (A, B), 60),
        (lambda a, b: np.tensordot(a, b, 1), (A, B), 60),
        (lambda a, b: np.ones((2, 3)) @ a, (A, B), 2 * 3 * 4),
        (lambda a: np.tril(np.ones((3, 3)) * a[:, :3]), (A,), 18),
        (lambda a: a[0, 0] + 1, (A,), 0),
    ],
)
def test_an_operation_is_counted_with_its_length(function, arrays, work):
    counted, value = work_of(function, *arrays)
    assert counted == work
    assert np.array_equal(value, function(*arrays))


def test_results_views_and_updates_in_place_go_on_counting():
    def steps(a):
        total = np.zeros((3, 4))
        total += a  # 12 operations on an array that is not counted
        a *= 2  # 12
        b = a[1:] - 1  # 8
        b += 1  # 8
        np.multiply(b, 2, out=b)  # 8
        return [total, a, b]

    counted, value = work_of(steps, A)
    assert counted == 48
    assert all(np.array_equal(got, want) for got, want in zip(value, steps(A.copy()), strict=True))
    assert not any(isinstance(part, CountedArray) for part in value)


def test_the_inputs_stay_as_they_are_and_errors_are_kept():
    given = A.copy()
    work_of(lambda a: a.fill(0), given)
    assert (given == A).all()
    assert isinstance(run_counted(lambda a: 1 / 0, Case("", {"a": A})).error, ZeroDivisionError)


def test_what_is_held_is_measured():
    case = Case("", {"a": np.ones(300)}, tags=frozenset({"many"}))
    trial = run_counted(lambda a: (a[:, None] * a[None, :]).sum(), case, watched="many")
    assert 300 * 300 * 8 <= trial.held < 1.5 * 300 * 300 * 8


def complaint_about(function):
    """Return the complaint on the operation counts for N and 2N tokens."""
    trials = [
        run_counted(function, Case(name, {"a": np.ones((n, 3))}, tags=frozenset([name])))
        for name, n in ((ONCE, 50), (TWICE, 100))
    ]
    return linear_work("linear").judge(trials)


def test_twice_the_tokens():
    assert complaint_about(lambda a: a.T @ a) is None
    assert (
        complaint_about(lambda a: a @ a.T)
        == "twice the tokens take 4.0 times the operations, expected about 2"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.asarray(a) @ np.asarray(a).T,
        lambda a: np.array(a) @ np.array(a).T,
        lambda a: [sum(x * y for y in a[:, 0]) for x in a[:, 0]],
    ],
)
def test_work_that_goes_past_the_counter_is_told(function):
    assert complaint_about(function).startswith("only 0 operations were counted for 300 input elements")
