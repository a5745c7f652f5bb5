"""Tests of lesson 18: its formulas, statements on schedules and bounds, and exercises."""

import importlib.util
import re
from math import isqrt

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import distributed, exact
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.distributed.time_model import cluster, compare_schedules

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
def test_how_far_the_ring_is_above_the_bound_and_ulysses_below_the_grid(P):
    says("18.4", r"\frac{4Nd}{\sqrt P} - \frac{4Nd}{P} - d^2", r"\frac{\sqrt P + 1}{2}")
    N, d, root = 1152 * P, 64, isqrt(P)
    least = 4 * N * d // root - 4 * N * d // P
    assert of("ring", P, N, d)[0].words / least == pytest.approx((root + 1) / 2)
    assert distributed.bounds.network(N, d, P) == least - d * d
    grid = of("grid", P, N, d, a=root, H=P)[0].words
    assert grid / of("ulysses", P, N, d, H=P)[0].words == pytest.approx(P / (root + 1), rel=2 / d)


def test_each_word_that_crosses_is_paid_once():
    """(18.1): the words charged over all ranks equal the words received and the words sent."""
    for name in ("grid", "grid_backward"):
        ledgers = of(name, 6, 60, 4, a=2)
        crossed = sum(ledger.words_received for ledger in ledgers)
        assert sum(ledger.words for ledger in ledgers) == crossed == sum(x.words_sent for x in ledgers)


def test_the_ring_creeps_up_and_its_peak_falls(lesson):
    rows = re.findall(r"^ +(\d+) +([\d,]+) +[\d,]+ +([\d,]+) +([\d,]+)$", lesson["printed"]["18.3"], re.M)
    P, gathered, words, peak = (
        [int(x.replace(",", "")) for x in column] for column in zip(*rows, strict=True)
    )
    assert P == [4, 16, 64] and gathered == words == sorted(words) and words[-1] < 2 * 131072 * 128
    assert peak == sorted(peak, reverse=True) and peak[0] == 16 * peak[-1]


def test_the_grid_stays_within_a_percent_of_the_bound_and_holds_seven_times_the_ring(lesson):
    times = [float(x) for x in re.findall(r"([\d.]+) times the bound", lesson["printed"]["18.5"])]
    assert len(times) == 3 and max(times) < 1.01
    says("18.5", "seven times as much")
    held = of("grid", 64, 131072, 128, a=8)[0].peak / of("ring", 64, 131072, 128)[0].peak
    assert round(held) == 7


def test_the_best_grid_backward_is_three_by_four(lesson):
    words = {a: of("grid_backward", 12, 122880, 128, a=a)[0].words for a in (1, 2, 3, 4, 6, 12)}
    bound = distributed.bounds.network_backward(122880, 128, 12)
    assert min(words, key=words.get) == 3 and 1 < words[3] / bound < 1.006
    rows = of("ring_backward_rows", 12, 122880, 128)[0].words
    assert 0.5 < words[3] / rows < 0.52


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


@pytest.mark.parametrize("P", [2, 3, 4, 6, 16, 64])
def test_the_ring_needs_the_least_memory_of_the_schedules_drawn_for_one_head(P):
    assert "Of the schedules drawn here for one head it needs the least memory" in SOURCE.text
    says("18.8", "the grid has the fewest words and the ring the least memory")
    drawn = compare_schedules("forward", 131072, 128, P, cluster("nvlink4"), H=1)
    of = {one.name: one for one in drawn}
    assert of["ring"].memory == min(one.memory for one in drawn)
    assert of["grid"].words == min(one.words for one in drawn)


@pytest.mark.parametrize("P", [3, 4, 64])
def test_how_much_longer_a_text_a_ring_takes(P):
    says("18.3", "from $P = 3$ on the ring takes a text $P/2$ times as long as one chip")
    N, d = 128 * P, 16
    memory = 4 * N * d // P + of("ring", P, N, d)[0].peak
    assert memory * P == 4 * N * d * 2


@pytest.mark.parametrize("P", [3, 4, 8, 16])
def test_heads_are_the_cheapest_cut_of_as_many_heads_of_keys(P):
    assert "Where $K$ and $V$ have as many heads as $Q$, heads are the cheapest cut here" in SOURCE.text
    drawn = compare_schedules("forward", 131072, 128, P, cluster("nvlink4"), H=48)
    words = {one.name: one.words for one in drawn}
    assert words["ulysses"] == min(words.values()) < min(words["ring"], words["grid"])
