"""Tests of exact attention against its definition, row by row, and gradients against differences."""

import numpy as np
import pytest
from finite_differences import wrong_entries

from iocourse import exact

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape)


def rowwise(Q, K, V, visible, scale, bias):
    """Return attention of one head by the definition, one query at a time."""
    O = np.zeros((len(Q), V.shape[1]))
    for i, q in enumerate(Q):
        weights = {
            j: np.exp(scale * q @ K[j] + bias[i, j])
            for j in range(len(K))
            if visible(i, j) and bias[i, j] > -1e300
        }
        total = sum(weights.values())
        for j, weight in weights.items():
            O[i] += weight / total * V[j]
    return O


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_is_its_definition(causal, scale):
    Q, K, V = normal(5, 3), normal(7, 3), normal(7, 2)
    bias = np.where(normal(5, 7) > 1, -np.inf, normal(5, 7))
    bias[:, 0] = 0.5  # a visible key in every row
    want = rowwise(Q, K, V, lambda i, j: j <= i or not causal, scale or 3**-0.5, bias)
    got = exact.attention(Q, K, V, causal=causal, scale=scale, mask=bias)
    assert exact.max_abs_error(got, want) < 1e-14


def test_heads_and_batches_are_independent():
    Q, K, V = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4)
    dO = normal(2, 3, 5, 4)
    whole = (exact.attention(Q, K, V), *exact.attention_backward(Q, K, V, dO))
    for b in np.ndindex(2, 3):
        alone = (exact.attention(Q[b], K[b], V[b]), *exact.attention_backward(Q[b], K[b], V[b], dO[b]))
        for part, one in zip(whole, alone, strict=True):
            assert exact.max_abs_error(part[b], one) < 1e-14


def test_a_fully_masked_row_gives_zeros_and_no_gradient():
    Q, K, V = normal(4, 3), normal(4, 3), normal(4, 3)
    mask = np.zeros((4, 4))
    mask[2] = -np.inf
    O = exact.attention(Q, K, V, mask=mask)
    assert (O[2] == 0).all() and (O[[0, 1, 3]] != 0).all()
    gradients = exact.attention_backward(Q, K, V, np.ones((4, 3)), mask=mask)
    assert (gradients.dQ[2] == 0).all()
    others = exact.attention_backward(Q[[0, 1, 3]], K, V, np.ones((3, 3)))
    assert exact.max_abs_error(gradients.dK, others.dK) < 1e-14
    assert exact.max_abs_error(gradients.dV, others.dV) < 1e-14
    assert exact.log_sum_exp(np.full((1, 3), -np.inf)) == -np.inf
    assert "zeros" in exact.attention.__doc__


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"scale": 0.7}, {"mask": normal(4, 5)}])
def test_gradients_are_those_of_finite_differences(options):
    Q, K, V, dO = normal(4, 3), normal(5, 3), normal(5, 2), normal(4, 2)
    got = exact.attention_backward(Q, K, V, dO, **options)
    loss = lambda q, k, v: float((exact.attention(q, k, v, **options) * dO).sum())  # noqa: E731
    assert wrong_entries(lambda x: loss(x, K, V), Q, got.dQ) == {}
    assert wrong_entries(lambda x: loss(Q, x, V), K, got.dK) == {}
    assert wrong_entries(lambda x: loss(Q, K, x), V, got.dV) == {}


def test_grad_x_is_that_of_finite_differences():
    n, d = 5, 3
    X, Y = normal(d, d), normal(d, d)
    A1, A2, A3, E = (normal(n, d) for _ in range(4))
    got = exact.grad_x(X, A1, A2, A3, Y, E)
    assert wrong_entries(lambda x: exact.loss_x(x, A1, A2, A3, Y, E), X, got) == {}


def test_grad_x_is_ordinary_attention_in_disguise():
    """THEORY: Q = A1 X, K = A2, V = A3 Y, dO = O - E, and dL/dX = A1ᵀ dQ."""
    n, d = 6, 2
    X, Y = normal(d, d), normal(d, d)
    A1, A2, A3, E = (normal(n, d) for _ in range(4))
    O = exact.attention(A1 @ X, A2, A3 @ Y, scale=1.0)
    dQ = exact.attention_backward(A1 @ X, A2, A3 @ Y, O - E, scale=1.0).dQ
    assert exact.max_abs_error(exact.grad_x(X, A1, A2, A3, Y, E), A1.T @ dQ) < 1e-13


def test_large_logits_do_not_overflow():
    S = np.array([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4, -np.inf]])
    P = exact.softmax(S)
    assert np.isfinite(P).all() and P.sum(axis=1) == pytest.approx([1, 1])
    assert exact.log_sum_exp(S) == pytest.approx([1e4 + np.log1p(np.exp(-1)), -1e4 + np.log(2)])
    assert exact.softmax([1, 2, 3], axis=0).sum() == pytest.approx(1)


def test_inputs_are_left_as_they_were():
    Q = normal(3, 2)
    before = Q.copy()
    exact.attention(Q, Q, Q)
    exact.attention_backward(Q, Q, Q, Q)
    exact.real_array("Q", Q)[:] = 0
    assert (before == Q).all()


def test_half_precision_is_taken_as_float64():
    Q = normal(3, 2).astype(np.float16)
    assert exact.attention(Q, Q, Q).dtype == np.float64


GOOD = {"Q": normal(4, 3), "K": normal(4, 3), "V": normal(4, 3)}
BAD = [
    (
        {"Q": np.ones((4, 3), dtype=int)},
        TypeError,
        r"Q must have a floating-point dtype, got int64.*Q\.astype",
    ),
    ({"K": np.array([["a"] * 3] * 4)}, TypeError, "K must have a floating-point dtype, got"),
    ({"V": [[1.0], [1.0, 2.0]]}, ValueError, "V is not an array"),
    ({"Q": np.full((4, 3), np.nan)}, ValueError, "Q holds 12 NaN"),
    ({"V": np.where(np.eye(4, 3) > 0, np.inf, 0.0)}, ValueError, "V holds 3 NaN or infinite"),
    ({"Q": np.ones((4, 2))}, ValueError, "K has d = 3 but Q has d = 2"),
    ({"V": np.ones((5, 3))}, ValueError, "V has 5 rows but K has 4"),
    ({"Q": np.ones((0, 3))}, ValueError, r"Q has shape \(0, 3\); N and d must be at least 1"),
    ({"K": np.ones(3)}, ValueError, r"K has shape \(3,\); expected"),
    ({"K": np.ones((2, 4, 3))}, ValueError, r"K has leading axes \(2,\) but Q has \(\)"),
    (
        {"mask": np.ones((4, 4), dtype=bool)},
        TypeError,
        "mask must have a floating-point dtype, got bool",
    ),
    ({"mask": np.full((4, 4), np.nan)}, ValueError, "mask must hold finite numbers or -inf, got NaN"),
    (
        {"mask": np.full((4, 4), np.inf)},
        ValueError,
        r"mask must hold finite numbers or -inf, got NaN or \+inf",
    ),
    ({"mask": np.zeros((3, 4))}, ValueError, r"mask has shape \(3, 4\); it must broadcast"),
    ({"scale": np.nan}, ValueError, "scale must be a finite number"),
    ({"scale": "big"}, ValueError, "scale must be a finite number"),
    (
        {"Q": np.full((4, 3), 1e200), "K": np.full((4, 3), 1e200)},
        ValueError,
        "products of Q and K overflow float64",
    ),
]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("wrong", "error", "message"), BAD)
def test_bad_input_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        exact.attention(**{**GOOD, **wrong})
    with pytest.raises(error, match=message):
        exact.attention_backward(**{**GOOD, **wrong}, dO=np.ones((4, 3)))


def test_other_bad_input_is_named():
    with pytest.raises(ValueError, match=r"dO must have the shape of O, \(4, 3\), got \(4, 2\)"):
        exact.attention_backward(**GOOD, dO=np.ones((4, 2)))
    with pytest.raises(ValueError, match="S must hold finite numbers or -inf, got NaN"):
        exact.softmax([np.nan, 1.0])
    with pytest.raises(ValueError, match=r"S has shape \(3, 0\)"):
        exact.log_sum_exp(np.zeros((3, 0)))
    square, tall = np.ones((2, 2)), np.ones((3, 2))
    with pytest.raises(ValueError, match=r"E has shape \(2, 2\); with A1 of shape \(3, 2\)"):
        exact.grad_x(square, tall, tall, tall, square, square)
    with pytest.raises(ValueError, match="A1 has shape"):
        exact.loss_x(square, np.ones(3), tall, tall, square, tall)


def test_max_abs_error_is_infinite_where_nothing_can_be_compared():
    assert exact.max_abs_error([1.0, 2.5], [1.0, 2.0]) == 0.5
    assert exact.max_abs_error([1.0], [1.0, 2.0]) == float("inf")
    assert exact.max_abs_error([np.nan], [1.0]) == float("inf")
