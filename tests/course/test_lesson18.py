"""Tests of lesson 18: its cells, statements on schedules, and exercises. The build compares its formulas."""

import importlib.util
from math import isqrt

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import distributed, exact
from iocourse.course.checking import judge
from iocourse.course.exercise import find

SOURCE = Lesson("18_")
says = SOURCE.says
TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def lesson():
    return SOURCE.run()


def test_nothing_is_said_to_be_false(lesson):
    assert not [text for text in lesson["printed"].values() if "False" in text or "wrong" in text]
    assert lesson["printed"]["18.8"].startswith("same values" if TORCH else "torch is not installed")


def of(name, P, N, d, **options):
    return distributed.get(name).ledgers(P, N, d, **options)


@pytest.mark.parametrize("P", [4, 9, 16, 64])
def test_how_many_words_the_grid_of_18_7_moves_per_word_of_ulysses(P):
    says("18.7", r"The grid over Ulysses is $P/(\sqrt P + 1)$")
    N, d, root = 1152 * P, 64, isqrt(P)
    grid = of("grid", P, N, d, a=root, H=P)[0].words
    assert grid / of("ulysses", P, N, d, H=P)[0].words == pytest.approx(P / (root + 1), rel=2 / d)


def test_each_word_that_crosses_is_paid_once():
    """(18.1): the words charged over all ranks equal the words received and the words sent."""
    for name in ("grid", "grid_backward"):
        ledgers = of(name, 6, 60, 4, a=2)
        crossed = sum(ledger.words_received for ledger in ledgers)
        assert sum(ledger.words for ledger in ledgers) == crossed == sum(x.words_sent for x in ledgers)


def test_published_columns_and_given_ring_have_the_librarys_words(lesson):
    shapes = {name: (50, 8) for name in ("Q", "K", "V", "O", "dO")} | {"LSE": (50,)}
    for P in (1, 2, 5):
        given = distributed.run(lesson["columns_travel"], P, on="dry", **shapes)
        closed = of("ring_backward_columns", P, 50, 8)
        assert [x.words for x in given.ledgers] == [x.words for x in closed]


def test_exchanged_rows_and_columns_pass_on_a_square_alone():
    """The error that section 18.5 warns of: rows and columns exchanged."""
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, 12, 4))

    def exchanged(me, Q, K, V, *, a):
        return distributed.get("grid")(me, Q, K, V, a=me.size // a)

    for P, a, same in ((4, 2, True), (6, 2, False)):
        run = distributed.run(exchanged, P, Q=Q, K=K, V=V, a=a)
        assert np.allclose(run.O, exact.attention(Q, K, V))
        assert (list(run.ledgers) == list(of("grid", P, 12, 4, a=a))) is same


def test_two_empty_parts_merge_to_an_empty_part(lesson):
    says("18.2", r"$L_1 = L_2 = -\infty$", r"$O = 0$ and $L = -\infty$")
    Q, K, V = np.random.default_rng(0).standard_normal((3, 8, 4))
    empty, part = distributed.attend(Q, K[:0], V[:0]), distributed.attend(Q, K, V)
    o, L = lesson["merged"](*empty, *empty)
    assert (o == 0).all() and np.isneginf(L).all()
    for one, other in ((empty, part), (part, empty)):
        o, L = lesson["merged"](*one, *other)
        assert np.array_equal(o, part[0]) and np.array_equal(L, part[1])
    run = distributed.run(lesson["my_ring"], 4, Q=Q, K=K[:2], V=V[:2])  # ranks without a key
    assert exact.max_abs_error(run.O, exact.attention(Q, K[:2], V[:2])) < 1e-12


def rows_without_lse(me, Q, K, V, O, dO, LSE):
    """Send rows around with dO and D scaled by exp(-LSE): 3d + 1 words per row."""
    scale, share = Q.shape[1] ** -0.5, np.exp(-LSE)

    def part(q, do, D):
        P = np.exp(q @ K.T * scale)
        dS = P * (do @ V.T - D[:, None]) * scale
        return dS @ K, dS.T @ q, P.T @ do

    q, do, D, dq = Q, dO * share[:, None], (dO * O).sum(axis=1) * share, None
    dQ, dK, dV = part(q, do, D)
    for _ in range(1, me.size):
        q, do, D, dq = me.shift(Q=q, dO=do, D=D, dQ=dq)
        dq_here, dk, dv = part(q, do, D)
        dK, dV, dq = dK + dk, dV + dv, dq_here if dq is None else dq + dq_here
    return (dQ + me.shift(dQ=dq) if me.size > 1 else dQ), dK, dV


def test_one_number_per_row_is_enough_and_accepted():
    says("18.6", "$3d + 1$ words do")
    assert not [said for _, said in judge(find("18C"), rows_without_lse, 0) if said]
    P, N, d = 4, 16, 5
    Q, K, V, dO = np.random.default_rng(0).standard_normal((4, N, d))
    O, LSE = exact.attention(Q, K, V), exact.log_sum_exp(exact.scores(Q, K))
    run = distributed.run(rows_without_lse, P, Q=Q, K=K, V=V, O=O, dO=dO, LSE=LSE)
    assert run.words * P == (3 * d + 1) * N * (P - 1)
    wanted = exact.attention_backward(Q, K, V, dO)
    assert max(exact.max_abs_error(x, y) for x, y in zip(run.outputs, wanted, strict=True)) < 1e-12
