"""Dense reference for low-rank attention: the same formula with the complete n × n score matrix, in float64.

It does not use the library. The polynomial of each query row is built from the generating function of Hermite
polynomials, e^(σx) = e^(σ²/2) Σ σˡ/l! Heₗ(x), and the gradients are derived by hand; `test_true_gradient`
compares them with finite differences.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import polynomial as poly

from iocourse import lowrank

CLIP = 0.8
NAMES = ("O", "dQ", "dK", "dV")
TILE = 64  # causal attention is exact within it


def draw(seed, heads, n, n_k, d, d_v, dtype=np.float64, size=0.7):
    """Draw Q, K, V and dO with normal entries, times `size` for Q and K; `heads` are the leading axes."""
    rng = np.random.default_rng(seed)
    shapes = ((n, d), (n_k, d), (n_k, d_v), (n, d_v))
    Q, K, V, dO = (rng.standard_normal((*heads, *shape)).astype(dtype) for shape in shapes)
    return Q * dtype(size), K * dtype(size), V, dO


def options_of(polynomial, causal=False, radius=4.0, key_variance=0.4):
    """Return the options of a call with this polynomial, with the radius or key variance only if needed."""
    options = {"polynomial": polynomial, "causal": causal}
    if polynomial in ("chebyshev", "minimax"):
        options["radius"] = radius
    if polynomial == "hermite" and causal:
        options["key_variance"] = key_variance
    return options


def hermite_values(g, s, variance):
    """Return p, p' and ∂p/∂σ² at s (n, n_k) for rows with variance (n,), including the factor e^(σ²/2).

    The derivative of σˡ Heₗ(s/σ) by σ² is -l (l - 1)/2 σˡ⁻² Heₗ₋₂(s/σ), and 0 where the variance is clipped.
    """
    v = np.minimum(variance, CLIP)[:, None]
    H = [np.ones_like(s), s]  # σˡ Heₗ(s/σ)
    for l in range(1, g):
        H.append(s * H[l] - l * v * H[l - 1])
    scaled = [np.exp(v / 2) * h / math.factorial(l) for l, h in enumerate(H[: g + 1])]
    p = sum(scaled)
    return p, sum(scaled[:g]), (p - sum(scaled[: max(g - 1, 0)])) / 2 * (variance < CLIP)[:, None]


class Dense(NamedTuple):
    """Result and gradients of one head; P (n, n_k) are the weights before normalisation."""

    O: np.ndarray
    dQ: np.ndarray
    dK: np.ndarray
    dV: np.ndarray
    P: np.ndarray


def attend(
    Q, K, V, dO, degree, polynomial="hermite", scale=None, causal=False, radius=None, key_variance=None
):
    """Return dense attention of one head with a polynomial for the exponential, and its gradient.

    The mean and the covariance of the keys are functions of the keys, as in the library.
    """
    Q, K, V, dO = (np.asarray(X, np.float64) for X in (Q, K, V, dO))
    factor = 1 / math.sqrt(Q.shape[1]) if scale is None else scale
    x, k = Q * factor, K if causal else K - K.mean(0)
    s = x @ k.T
    covariance, dvariance = np.zeros((K.shape[1],) * 2), np.zeros_like(s)
    if polynomial == "hermite":
        covariance = k.T @ k / len(k) if key_variance is None else key_variance * np.eye(K.shape[1])
        P, dP, dvariance = hermite_values(degree, s, np.einsum("ia,ab,ib->i", x, covariance, x))
    else:
        c = lowrank.polynomial(polynomial, degree, radius).coefficients
        P, dP = poly.polyval(s, c), poly.polyval(s, poly.polyder(c))
    if causal:
        i, j = np.indices(s.shape)
        near = i // TILE == j // TILE
        P, dP = (np.where(near, np.exp(s), X) * (j <= i) for X in (P, dP))
        dvariance = dvariance * ~near * (j <= i)
    den = P.sum(1, keepdims=True)
    O = P @ V / den
    weights = (dO @ V.T - (dO * O).sum(1, keepdims=True)) / den
    ds, dv = dP * weights, (dvariance * weights).sum(1, keepdims=True)
    dx, dk = ds @ k + 2 * dv * (x @ covariance), ds.T @ x
    if key_variance is None:
        dk += 2 / len(k) * k @ ((dv * x).T @ x)
    if not causal:
        dk -= dk.mean(0)
    return Dense(O, dx * factor, dk, (P / den).T @ dO, P)


def every_head(Q, K, V, dO, **options):
    """Return O, dQ, dK, dV of all heads (…, n, d) by the dense formula."""
    if Q.ndim == 2:
        return attend(Q, K, V, dO, **options)[:4]
    heads = [every_head(*head, **options) for head in zip(Q, K, V, dO, strict=True)]
    return tuple(np.stack(each) for each in zip(*heads, strict=True))


def softmax(Q, K, V, dO, scale, causal=False):
    """Return O, dQ, dK, dV of exact attention of one head."""
    P = np.exp(scale * (Q @ K.T))
    P = np.tril(P) if causal else P
    P /= P.sum(1, keepdims=True)
    ds = scale * P * (dO @ V.T - (dO * (P @ V)).sum(1, keepdims=True))
    return P @ V, ds @ K, ds.T @ Q, P.T @ dO


def agree(found, wanted, tolerance, dO):
    """Assert that O, dQ, dK, dV agree up to a relative error; small gradients are compared with dO."""
    for name, f, w in zip(NAMES, found, wanted, strict=True):
        assert f.shape == w.shape, name
        size = max(np.linalg.norm(w), 0.1 * np.linalg.norm(dO))
        assert np.linalg.norm(f - w) <= tolerance * size, (name, np.linalg.norm(f - w) / size)


def off(found, wanted):
    """Return the relative error in the Frobenius norm; the absolute error if the expected value is 0."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    return np.linalg.norm(found - wanted) / (np.linalg.norm(wanted) or 1.0)


def by(engine, Q, K, V, dO, **options):
    """Return O, dQ, dK, dV by an engine: "numpy", "numba", or "torch …" (autograd with the second engine).

    Tensors share the memory of the arrays, with its strides.
    """
    if not engine.startswith("torch"):
        return tuple(lowrank.gradient(Q, K, V, dO, engine=engine, **options))
    import torch

    q, k, v = (torch.from_numpy(X).requires_grad_() for X in (Q, K, V))
    O = lowrank.attention(q, k, v, engine=engine.split()[-1], **options)
    O.backward(torch.from_numpy(dO))
    return tuple(X.detach().numpy() for X in (O, q.grad, k.grad, v.grad))
