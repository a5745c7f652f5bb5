"""Baselines with feature maps: O is the product of features of the queries and a state of keys and values."""

from __future__ import annotations

from itertools import count
from math import comb, factorial, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..monomials import features, plan

Rows = NDArray[Any]  # float32 or float64, one row per token


def linear(left: Rows, right: Rows, v: Rows) -> Rows:
    """Return (left rightᵀ)V divided by its row sums, for features (n, m) and (n_k, m), v (n_k, d_v)."""
    return means(left @ (right.T @ with_ones(v)))


def with_ones(v: Rows) -> Rows:
    """Return v (n_k, d_v) with a column of ones, (n_k, d_v + 1): its sums are the sums of the weights."""
    return np.hstack([v, np.ones((len(v), 1), v.dtype)])


def means(sums: Rows) -> Rows:
    """Return all columns but the last, divided by the last: weighted means from sums over `with_ones(v)`."""
    found: Rows = sums[:, :-1] / sums[:, -1:]
    return found


def favor(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by FAVOR+, with m positive random features with orthogonal directions, correct on average.

    E e^{w·q - |q|²/2} e^{w·k - |k|²/2} = e^{q·k} for a normal w. The largest exponent, of a query or of all
    keys, is subtracted because it cancels. Source: the Performer, 2009.14794.
    """
    W = directions(m, q.shape[1], rng).astype(q.dtype)  # (m, d)
    left, right = log_features(q, W), log_features(k, W)  # (n, m), (n_k, m)
    left = np.exp(left - left.max(axis=1, keepdims=True))
    return linear(left, np.exp(right - right.max()), v)


def log_features(x: Rows, W: Rows) -> Rows:
    """Return w·x - |x|²/2 for every row x of `x` (n, d) and w of `W` (m, d): (n, m)."""
    found: Rows = x @ W.T - (x * x).sum(axis=1, keepdims=True) / 2
    return found


def directions(m: int, d: int, rng: np.random.Generator) -> Rows:
    """Return random directions (m, d): blocks of d orthogonal rows with the lengths of normal vectors."""
    Q, R = np.linalg.qr(rng.standard_normal((-(-m // d), d, d)))
    Q = Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None]  # for a uniform distribution of directions
    lengths = np.linalg.norm(rng.standard_normal((m, d)), axis=1)
    found: Rows = Q.swapaxes(1, 2).reshape(-1, d)[:m] * lengths[:, None]
    return found


def sata(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator | None = None) -> Rows:
    """Return O by SATA: Taylor's polynomial of the largest degree with at most m features; rng is ignored.

    Source: Heinsen and Kozachkov, 2602.00294: each symmetric monomial is computed once. Reimplemented: the
    forward pass with all keys, without a shift of the keys and without certificates.
    """
    g = degree_of(m, q.shape[1])
    return linear(taylor(q, g), taylor(k, g), v)


def degree_of(m: int, d: int) -> int:
    """Return the largest g with C(d + g, g) ≤ m. Raises ValueError if m is below 1."""
    if m < 1:
        raise ValueError(f"m must be at least 1 (the constant feature), got {m}")
    return next(g for g in count() if comb(d + g + 1, d) > m)


def taylor(x: Rows, g: int) -> Rows:
    """Return features (n, C(d + g, g)) with f(q)·f(k) = Σ_{p ≤ g} (q·k)^p / p!, for x (n, d)."""
    if g == 0:
        return np.ones_like(x, shape=(len(x), 1))
    p = plan(x.shape[1], g)
    factors = np.sqrt(p.multiplicities / [factorial(degree) for degree in p.degrees])
    found: Rows = features(x, p).T * factors.astype(x.dtype)
    return found


def polysketch(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by PolySketchFormer's sketch, with non-negative weights close to (1 + q·k/4)⁴.

    A random sketch of r = ⌊√m⌋ entries approximates degree 2; the features are the r² products of two
    entries, so that weights are squares. Source: 2310.01655, which trains a model with (q·k)^p of normalised
    rows and has exact local tokens. Here 1 is added to q·k/4 for weights close to e^{q·k}, keys are minus
    their mean, nothing is trained, and no tokens are exact.
    """
    G, H = rng.standard_normal((2, q.shape[1] + 1, isqrt(m))).astype(q.dtype)
    sketches = (sketch(with_ones(x / 2), G, H) for x in (q, k - k.mean(axis=0)))
    left, right = ((s[:, :, None] * s[:, None]).reshape(len(s), -1) for s in sketches)
    return linear(left, right, v)


def sketch(x: Rows, G: Rows, H: Rows) -> Rows:
    """Return (x G) ∘ (x H)/√r, (n, r): for normal G and H the mean of s(x)·s(y) is (x·y)²."""
    found: Rows = (x @ G) * (x @ H) / np.sqrt(x.dtype.type(G.shape[1]))
    return found


def elu(q: Rows, k: Rows, v: Rows, m: int = 0, rng: np.random.Generator | None = None) -> Rows:
    """Return O with elu + 1 of each entry as features (2006.16236), a different model; m, rng are unused."""
    left, right = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    return linear(left, right, v)
