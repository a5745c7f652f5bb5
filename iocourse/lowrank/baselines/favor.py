"""FAVOR+: positive random features, right on average, with orthogonal directions.

E e^{w·q - |q|²/2} e^{w·k - |k|²/2} = e^{q·k} for a normal w. Source: the Performer, 2009.14794.
"""

from __future__ import annotations

import numpy as np

from .linear_attention import Rows, linear


def favor(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """O with m random features. The largest exponent, of a query or of all keys, is taken off: it cancels."""
    W = directions(m, q.shape[1], rng).astype(q.dtype)  # (m, d)
    left, right = log_features(q, W), log_features(k, W)  # (n, m)
    left = np.exp(left - left.max(axis=1, keepdims=True))
    return linear(left, np.exp(right - right.max()), v)


def log_features(x: Rows, W: Rows) -> Rows:
    """w·x - |x|²/2 for every row of x (n, d) and of W (m, d): (n, m)."""
    found: Rows = x @ W.T - (x * x).sum(axis=1, keepdims=True) / 2
    return found


def directions(m: int, d: int, rng: np.random.Generator) -> Rows:
    """(m, d): blocks of d orthogonal rows, each as long as a normal vector would be."""
    Q, R = np.linalg.qr(rng.standard_normal((-(-m // d), d, d)))
    Q = Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None]  # else one direction is likelier than another
    lengths = np.linalg.norm(rng.standard_normal((m, d)), axis=1)
    found: Rows = Q.swapaxes(1, 2).reshape(-1, d)[:m] * lengths[:, None]
    return found
