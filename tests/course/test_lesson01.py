"""Tests of lesson 01: its formulas and the reports of its checks."""

import numpy as np
import pytest

from iocourse import distributed, exact
from iocourse.course import attempt, check, exercise
from iocourse.course.checking import OWN, judge
from iocourse.course.exercise import find
from iocourse.data import real_head


def test_no_count_of_rows_hangs_on_the_last_digit():
    """Rows that overflow float16 are counted; no row is so close to the limit that rounding matters."""
    Q, K = (part.astype(float) for part in (real_head(1, 8).Q, real_head(1, 8).K))
    E = np.exp(exact.scores(Q, K).astype(np.float16).astype(float))
    limit = 65520  # from here on float16 rounds to infinity
    for values in (E.max(axis=1), E.sum(axis=1)):
        assert np.abs(values / limit - 1).min() > 0.005


def test_formulas_1_5_and_1_9():
    rng = np.random.default_rng(0)
    p, step = exact.softmax(rng.standard_normal(6)), 1e-6 * np.eye(6)
    s = np.log(p)
    slopes = np.array([(exact.softmax(s + e) - exact.softmax(s - e)) / 2e-6 for e in step]).T
    assert np.allclose(slopes, np.diag(p) - np.outer(p, p), atol=1e-8)
    P, V, dO = exact.softmax(rng.standard_normal((6, 6))), *rng.standard_normal((2, 6, 3))
    assert np.allclose((P * (dO @ V.T)).sum(axis=1), (dO * (P @ V)).sum(axis=1))


# ---------------------------------------------------------------------- an earlier exercise still unsolved
def my_softmax(S):
    raise NotImplementedError


def my_attention(Q, K, V, causal=False):
    return my_softmax(Q @ K.T) @ V


def test_a_check_names_the_unsolved_exercise_that_was_called(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("1B", my_attention, seed=0)
    assert "it calls my_softmax, which is not written yet: solve 1A first" in capsys.readouterr().out
    check("1A", my_softmax, seed=0)
    assert "not written yet\n" in capsys.readouterr().out


def test_an_attempt_names_it_too(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    Q = np.eye(2)
    assert str(attempt(my_attention, Q, Q, Q)) == "solve 1A first"
    assert str(attempt(lambda f: f(Q), my_softmax)) == "solve 1A first"
    capsys.readouterr()


def test_of_exercises_that_share_a_function_the_lesson_checked_last_has_its_own_named(monkeypatch, capsys):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    monkeypatch.setattr(exercise, "_checked_last", [])
    assert exercise.exercises_asking_for("my_tile") == "2C or 10A"  # ambiguous
    for checked, named in (("2A", "2C"), ("10B", "10A"), ("2C", "2C"), ("0A", "2C or 10A")):
        check(checked, my_softmax, seed=0)
        assert exercise.exercises_asking_for("my_tile") == named
    assert (
        exercise.exercises_asking_for("my_softmax") == "1A" and exercise.exercises_asking_for("nobody") == ""
    )
    capsys.readouterr()


def partial_attention(Q, K, V, causal=False):
    rows = np.arange(len(Q)) if causal else None
    return distributed.attend(Q, K, V, rows=rows, cols=np.arange(len(K)) if causal else None)[0]


def softmax_by_attention(S):
    return distributed.attend(S, np.eye(S.shape[-1]), np.eye(S.shape[-1]), scale=1.0)[0]


@pytest.mark.parametrize(("name", "answer"), [("1A", softmax_by_attention), ("1B", partial_attention)])
def test_the_attention_of_ranks_is_no_answer(name, answer):
    """It is not guarded, because lessons 18 and 19 use it."""
    ((property, said),) = [(name, said) for name, said in judge(find(name), answer, 0) if said is not None]
    assert property == OWN and "iocourse.distributed.partial_attention.attend already has" in said


# ---------------------------------------------------------------------- three gradients, in their order
def my_backward_in_another_order(Q, K, V, dO, causal=False):
    scale = Q.shape[1] ** -0.5
    S = scale * (Q @ K.T)
    S = np.where(np.tri(len(S)) > 0, S, -np.inf) if causal else S
    E = np.exp(S - S.max(axis=1, keepdims=True))
    P = E / E.sum(axis=1, keepdims=True)
    dS = P * (dO @ V.T - (dO * (P @ V)).sum(axis=1, keepdims=True))
    return P.T @ dO, scale * dS.T @ Q, scale * dS @ K


def test_a_swapped_gradient_is_named(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("1D", my_backward_in_another_order, seed=0)
    said = capsys.readouterr().out
    assert "dQ equals the exact gradient: got dV; return dQ, dK, dV in this order" in said
    assert "dV equals the exact gradient: got dQ" in said and "holds  dK equals" in said


def test_one_gradient_alone_is_refused_before_any_property_reads_it(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("1D", lambda *inputs: my_backward_in_another_order(*inputs)[2], seed=0)
    said = capsys.readouterr().out
    assert "your function returned one ndarray, expected the three arrays dQ, dK, dV" in said
    assert said.count("FAILS") == 1


def test_a_softmax_in_single_precision_is_told_so_and_not_that_its_rows_sum_to_1():
    def single(S):
        E = np.exp((S - S.max(axis=1, keepdims=True)).astype(np.float32))
        return E / E.sum(axis=1, keepdims=True)

    said = dict(judge(find("1A"), single, 0))
    sums = said["every row sums to one"]
    assert (
        "your result is float32, which has 6 digits; compute in float64" in sums and "sums to 1 " not in sums
    )
    assert "your result is float32" in said["values equal exact softmax"]


# ---------------------------------------------------------------------- a sentinel, and weights that get lost
def weights(S, sentinel=-np.inf, least=0.0):
    S = np.maximum(S, sentinel)
    E = np.exp(S - S.max(axis=1, keepdims=True))
    P = E / E.sum(axis=1, keepdims=True)
    return np.where(least > P, 0.0, P)


def gradients(Q, K, V, dO, causal=False, least=0.0):
    scale = Q.shape[1] ** -0.5
    P = weights(
        np.where(np.tri(len(Q)) > 0, scale * Q @ K.T, -np.inf) if causal else scale * Q @ K.T, least=least
    )
    dS = P * (dO @ V.T - (dO * (P @ V)).sum(axis=1, keepdims=True))
    return scale * dS @ K, scale * dS.T @ Q, P.T @ dO


@pytest.mark.parametrize(
    ("exercise_id", "answer", "fails"),
    [
        ("1A", lambda S: weights(S, -1e9), "gives a score of -inf the weight 0"),
        ("1A", lambda S: weights(S, -1e4), "gives a score of -inf the weight 0"),
        ("1A", lambda S: weights(S, least=1e-12), "values equal exact softmax"),
        (
            "1B",
            lambda Q, K, V, causal=False: attention_with(1e-12, Q, K, V, causal),
            "divides the scores by √d",
        ),
        ("1D", lambda *given: gradients(*given, least=1e-12), "dV equals the exact gradient"),
    ],
)
def test_a_sentinel_and_lost_weights_are_refused_on_every_seed(exercise_id, answer, fails):
    for seed in range(20):
        assert dict(judge(find(exercise_id), answer, seed))[fails]


def attention_with(least, Q, K, V, causal):
    S = Q @ K.T / Q.shape[1] ** 0.5
    return weights(np.where(np.tri(len(S)) > 0, S, -np.inf) if causal else S, least=least) @ V


def test_the_same_functions_without_sentinel_and_loss_are_right():
    for exercise_id, answer in (("1A", weights), ("1D", gradients)):
        assert not any(said for _, said in judge(find(exercise_id), answer, 0))
    assert not any(
        said
        for _, said in judge(find("1B"), lambda Q, K, V, causal=False: attention_with(0, Q, K, V, causal), 0)
    )
