"""Attention with a polynomial for the exponential, and its whole gradient, in NumPy: nothing of size n × n,
and of size n × rank only one tile at a time.

    T = Σⱼ w ∘ ψ(kⱼ) [vⱼ, 1]ᵀ        (rank, d_v + 1)
    [Nᵢ, denᵢ] = φ(qᵢ)ᵀ T,   Oᵢ = Nᵢ / denᵢ
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..guard import library_answer
from ..monomials import Array, features, pull_back
from .setting import Setting

TILE = 256


class Forward(NamedTuple):
    """O (n, d_v), the denominators den (n,), and the weighted state T (rank, d_v + 1)."""

    O: Array
    den: Array
    T: Array


class Gradients(NamedTuple):
    """dQ (n, d), dK (n_k, d), dV (n_k, d_v)."""

    dQ: Array
    dK: Array
    dV: Array


def with_ones(x: Array) -> Array:
    """[x, 1] (n, d + 1)."""
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def over_denominators(dO: Array, O: Array, den: Array) -> Array:
    """[dO, -δ] / den (n, d_v + 1), with δ = Σ dO ∘ O along a row."""
    return np.concatenate([dO, -(dO * O).sum(1, keepdims=True)], axis=1) / den[:, None]


@library_answer
def forward(Q: Array, K: Array, V: Array, s: Setting, tile: int = TILE) -> Forward:
    """Attention of Q (n, d), K (n_k, d), V (n_k, d_v)."""
    T = np.zeros((s.plan.rank, V.shape[1] + 1), Q.dtype)
    for j in range(0, len(K), tile):
        T += features(s.keys(K[j : j + tile]), s.plan) @ with_ones(V[j : j + tile])
    T *= s.weights(Q)
    found = np.empty((len(Q), V.shape[1] + 1), Q.dtype)
    for i in range(0, len(Q), tile):
        x = s.queries(Q[i : i + tile])
        found[i : i + tile] = (features(x, s.plan) * s.row_factors(x)).T @ T
    return Forward(found[:, :-1] / found[:, -1:], found[:, -1].copy(), T)


@library_answer
def backward(Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Setting, tile: int = TILE) -> Gradients:
    """The gradient of Σ dO ∘ O; shift and covariance count as constants."""
    G = over_denominators(dO, f.O, f.den)  # (n, d_v + 1)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    U = np.zeros_like(f.T)
    for i in range(0, len(Q), tile):
        rows = slice(i, i + tile)
        x = s.queries(Q[rows])
        phi, factors = features(x, s.plan), s.row_factors(x)
        U += (phi * factors) @ G[rows]
        dQ[rows] = pull_back(f.T @ G[rows].T * factors, phi, x, s.plan) * s.factor
    U *= s.weights(Q)
    for j in range(0, len(K), tile):
        rows = slice(j, j + tile)
        x = s.keys(K[rows])
        psi = features(x, s.plan)
        dV[rows] = (psi.T @ U)[:, :-1]
        dK[rows] = pull_back(U @ with_ones(V[rows]).T, psi, x, s.plan)
    return Gradients(dQ, dK, dV)
