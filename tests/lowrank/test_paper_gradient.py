"""Gradient in the paper's form: three equivalent computations, its notation, and its accuracy by degree."""

from math import factorial

import numpy as np
import pytest
from dense_attention import attend, draw, off, softmax
from finite_differences import slope
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import lowrank
from iocourse.lowrank import numpy_backend, paper_gradient
from iocourse.lowrank.approximation import Approximation
from iocourse.monomials import plan


def setting(K, g, name="hermite"):
    """Return the approximation for keys K, with their mean and, for "hermite", their covariance."""
    rest = K - K.mean(0)
    covariance = rest.T @ rest / len(K) if name == "hermite" else None
    return Approximation(plan(K.shape[1], g), lowrank.polynomial(name, g), 0.6, K.mean(0), covariance)


def close(found, wanted, tolerance=1e-11):
    for f, w in zip(found, wanted, strict=True):
        assert np.linalg.norm(f - w) <= tolerance * max(np.linalg.norm(w), 1.0)


sizes = st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 5), st.integers(1, 5))


@given(sizes, st.integers(1, 4), st.sampled_from(["hermite", "taylor"]), st.integers(0, 10**6))
@settings(max_examples=60)
def test_kronecker_and_associative_are_the_jacobian_form_of_one_degree_more(shape, g, name, seed):
    """The paper's dQ and dK at degree g use the state of degree g + 1, and O and denominators of degree g."""
    Q, K, V, dO = draw(seed, (), *shape, size=0.5)
    s, more = setting(K, g, name), setting(K, g + 1, name)
    found = paper_gradient.kronecker(Q, K, V, dO, s)
    close(found, paper_gradient.associative(Q, K, V, dO, s))
    f, T = numpy_backend.forward(Q, K, V, s), numpy_backend.forward(Q, K, V, more).T
    mixed = numpy_backend.backward(Q, K, V, numpy_backend.Forward(f.O, f.den, T), dO, more)
    close(found, (mixed.dQ, mixed.dK, numpy_backend.backward(Q, K, V, f, dO, s).dV))


def test_the_row_wise_kronecker_product():
    A, B = np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(2, 2) + 10
    wanted = np.stack([np.kron(a, b) for a, b in zip(A, B, strict=True)])
    np.testing.assert_array_equal(paper_gradient.row_wise_kronecker(A, B), wanted)


@given(sizes, st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=40)
def test_factors_give_f_and_p(shape, g, seed):
    """f = Φ Ψᵀ, the rows sum to 1, and p = f ∘ (G hᵀ - δ 1ᵀ) is the product of the two Kronecker products."""
    Q, K, V, G = draw(seed, (), *shape, size=0.5)
    s = setting(K, g, "taylor")
    made = paper_gradient.kronecker_factors(Q, K, V, G, s)
    dense_P = attend(Q, K, V, G, degree=g, polynomial="taylor", scale=0.6).P
    f = made.Phi @ made.Psi.T
    wanted = dense_P / dense_P.sum(1, keepdims=True)
    close((f, f.sum(1)), (wanted, np.ones(len(Q))))
    p1 = wanted * (G @ V.T)
    p2 = p1.sum(1, keepdims=True) * wanted
    left = paper_gradient.row_wise_kronecker(made.Phi, made.Ge)
    right = paper_gradient.row_wise_kronecker(made.Psi, made.Ve)
    assert left.shape == (len(Q), s.plan.rank * (V.shape[1] + 1))
    close((left @ right.T,), (p1 - p2,))


def problem(seed, n=24, d_x=5, d_v=3, size=0.35):
    rng = np.random.default_rng(seed)
    X, W, W_V = (rng.standard_normal(shape) for shape in ((n, d_x), (d_x, d_x), (d_x, d_v)))
    X -= X.mean(0)  # then nothing is subtracted from the keys, and X is all there is
    return X * size, W, W_V, rng.standard_normal((n, d_v))


def taylor(g):
    return Approximation(plan(5, g), lowrank.polynomial("taylor", g))


def five_terms(X, W, W_V, G, P, dP):
    """Return dX, dW, dW_V of the paper, with p₁ and p₂ separate; P are the weights, dP their derivatives."""
    den = P.sum(1, keepdims=True)
    f, slope = P / den, dP / den
    q = G @ (X @ W_V).T
    p1 = slope * q
    p2 = (f * q).sum(1, keepdims=True) * slope
    dW = X.T @ p1 @ X - X.T @ p2 @ X
    dX = p1 @ X @ W.T - p2 @ X @ W.T + p1.T @ X @ W - p2.T @ X @ W + f.T @ G @ W_V.T
    return dX, dW, X.T @ f.T @ G


@pytest.mark.parametrize("g", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_in_paper_notation_is_the_five_terms_of_the_polynomial(g, seed):
    X, W, W_V, G = problem(seed)
    S = X @ W @ X.T
    P, dP = (sum(S**l / factorial(l) for l in range(m + 1)) for m in (g, g - 1))
    close(paper_gradient.in_paper_notation(X, W, W_V, G, taylor(g)), five_terms(X, W, W_V, G, P, dP))


@pytest.mark.parametrize("g", [2, 3])
def test_finite_differences_of_a_loss(g):
    """Test a loss that is not quadratic: Σ tanh O."""
    X, W, W_V, _ = problem(6, n=9)
    s = taylor(g)

    def loss(X, W, W_V):
        return np.tanh(numpy_backend.forward(X @ W, X, X @ W_V, s).O).sum()

    G = 1 - np.tanh(numpy_backend.forward(X @ W, X, X @ W_V, s).O) ** 2
    rng = np.random.default_rng(0)
    for at, gradient in enumerate(paper_gradient.in_paper_notation(X, W, W_V, G, s)):
        step = rng.standard_normal((X, W, W_V)[at].shape)

        def moved(t, at=at, step=step):
            arguments = [X, W, W_V]
            arguments[at] = arguments[at] + t * step
            return loss(*arguments)

        wanted, error = slope(moved)
        assert abs((gradient * step).sum() - wanted) <= error


def test_a_gradient_is_one_degree_less_accurate():
    """dQ of degree g + 1 has about the error of O of degree g; of the same degree its error is larger."""
    Q, K, V, dO = draw(7, (), 300, 300, 6, 6, size=0.8)
    O, exact_dQ, *_ = softmax(Q, K, V, dO, scale=6**-0.5)
    found = {g: lowrank.gradient(Q, K, V, dO, degree=g) for g in (3, 4)}
    of_O = off(found[3].O, O)
    assert off(found[3].dQ, exact_dQ) > 2.5 * of_O
    assert off(found[4].dQ, exact_dQ) < 2 * of_O
