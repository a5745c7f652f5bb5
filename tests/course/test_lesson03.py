"""Tests of lesson 03: its formulas, statements and exercises."""

import re

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs, exact, run
from iocourse.course.exercises import lesson03
from iocourse.data import real_head

LESSON = Lesson("03_online_softmax")


def defined(*names):
    """Functions defined in the lesson's cells, by name."""
    found = {"np": np}
    for name in names:
        lines = LESSON.code(f"def {name}(").split("\nfor name in")[0].split("\n")
        exec("\n".join(line for line in lines if not line.startswith(("print", "attempt"))), found)
    return [found[name] for name in names]


def scores_of(layer, head):
    h = real_head(layer, head)
    return exact.scores(h.Q.astype(float), h.K.astype(float))


@pytest.mark.parametrize(("schedule", "times"), [("three_loops", 4), ("two_loops", 3)])
def test_the_loops_move_what_the_formula_says(schedule, times):
    S = 3 * np.random.default_rng(3).standard_normal((128, 128))
    (loops,) = defined(schedule)
    done = run(loops, M=80, S=S, Bc=16)
    assert done.ledger.total == times * 128**2
    assert exact.max_abs_error(done.O, exact.softmax(S)) < 1e-12
    assert f"| {times - 1} | ${times}N^2$ |" in LESSON.text


def test_one_loop_moves_what_the_formula_says():
    assert lesson03.row_lse_cost(128, 128, Br=2, Bc=16).total == 128**2 + 128
    assert lesson03.row_lse_cost(128, 128, Br=2, Bc=16).peak == 2 * 16 + 2 * 2
    assert "$W = Nn + N$ and the footprint $B_r B_c + 2 B_r$" in LESSON.text


@pytest.mark.parametrize(("N", "n", "Br", "Bc"), [(7, 23, 3, 4), (1, 9, 2, 2), (5, 5, 8, 8), (6, 40, 1, 1)])
def test_the_budget_of_the_lse_exercise_is_exact(N, n, Br, Bc):
    (my_lse,) = defined("my_lse")
    budget = lesson03.row_lse_cost(N, n, Br=Br, Bc=Bc)
    for M in (budget.peak, 10**6):
        done = run(my_lse, M=M, S=np.random.default_rng(0).standard_normal((N, n)), Br=Br, Bc=Bc)
        assert done.ledger == budget


def test_the_naive_softmax_of_the_library_costs_two_loops():
    cost = costs.naive(128, 32, Br=16, Bc=16, Bm=8, Bn=8)
    assert cost.reads["S"] + cost.writes["P"] == 3 * 128**2


def test_the_harmonic_number():
    harmonic = sum(1 / k for k in range(1, 472))
    (expected,) = defined("expected_new_maxima")
    assert expected(471, 1) == pytest.approx(harmonic)
    assert harmonic == pytest.approx(np.log(471) + np.euler_gamma, abs=0.002)


def test_formula_3_3_is_the_mean_over_random_orders():
    new_maxima, expected = defined("new_maxima", "expected_new_maxima")
    S = np.random.default_rng(0).standard_normal((20_000, 50))
    for b in (1, 7, 50, 60):
        assert new_maxima(S, b).mean() == pytest.approx(expected(50, b), abs=0.05)


def test_neighbouring_scores_of_the_sharp_head_are_alike():
    S = scores_of(0, 2)
    assert np.corrcoef(S[:, :-1].ravel(), S[:, 1:].ravel())[0, 1] > 0.5


def test_the_numbers_worked_by_hand():
    w = np.array([2.0, 1, 8, 4, 4, 1])
    assert (w[:2].sum() / 2, w[:5].sum() / 8, w.sum() / 8) == (1.5, 2.375, 2.5)
    assert (1 * 8 + 3 * 4) / 4 == 5 and pytest.approx(9) == (8 + 4) / (1 / 3 + 1)
    assert (6 * 10 + 12 * 4) / 18 == 6 and (10 + 4) / 2 == 7


def test_digits_that_are_right():
    """The quoted digits do not depend on the order of summation."""
    (in_three_loops,) = defined("in_three_loops")
    found = {}
    for name, place in (("sharp", (0, 2)), ("broad", (0, 11))):
        S, V = scores_of(*place), real_head(*place).V.astype(float)
        want = exact.softmax(S) @ V
        for dtype in (np.float32, np.float16):
            rounded = exact.softmax(S.astype(dtype)) @ V
            got = [in_three_loops(S, V, dtype), _one_pass(S, V, dtype), rounded]
            found[name, dtype] = [-np.log10(np.sqrt(np.mean((o - want) ** 2))) for o in got]
    whole = {key: tuple(int(x) for x in value) for key, value in found.items()}
    assert (whole["sharp", np.float32], whole["broad", np.float32]) == ((7, 7, 7), (7, 7, 9))
    assert (whole["sharp", np.float16], whole["broad", np.float16]) == ((3, 3, 3), (4, 3, 5))
    assert min(x % 1 for value in found.values() for x in value) > 0.04
    assert np.spacing(np.float32(83)) / 2 == pytest.approx(4e-6, rel=0.1)  # "a few millionths"
    largest = exact.softmax(scores_of(0, 2)).max(axis=1)
    assert (largest > 0.99).mean() > 0.6  # "in most rows one key has nearly all the weight"


def _one_pass(S, V, dtype):
    (my_online_attention,) = defined("my_online_attention")
    S, V = S.astype(dtype), V.astype(dtype)
    pieces = [slice(j, j + 32) for j in range(0, S.shape[1], 32)]
    O = np.array([my_online_attention((s[p], V[p]) for p in pieces) for s in S])
    assert O.dtype == dtype
    return O


def test_every_numbered_formula_has_its_section():
    tags = re.findall(r"\\tag\{(3\.\d)\}", LESSON.text)
    assert tags == ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.8"]
    assert all(f"\\tag{{{tag}}}" in LESSON.section(tag) for tag in tags)
