"""Attention with a polynomial for the exponential, and its whole gradient: nothing of size n × n, and of size
n × rank only one tile at a time.

    T = Σⱼ w ∘ ψ(kⱼ) [vⱼ, 1]ᵀ        (rank, d + 1)
    [Nᵢ, denᵢ] = φ(qᵢ)ᵀ T,   Oᵢ = Nᵢ / denᵢ
"""

from __future__ import annotations

import numpy as np

from ..monomials import Array, Plan, features, pull_back

TILE = 64


def _with_ones(x: Array) -> Array:
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def forward(Q: Array, K: Array, V: Array, p: Plan, coefficients: Array, tile: int = TILE) -> tuple[Array, Array, Array]:
    """O (n, d_v), denominators (n,) and the state T (rank, d_v + 1)."""
    weights = coefficients[p.degrees] * p.multiplicities
    T = np.zeros((p.rank, V.shape[1] + 1), Q.dtype)
    for j in range(0, len(K), tile):
        T += features(K[j : j + tile], p) @ _with_ones(V[j : j + tile])
    T *= weights[:, None]
    found = np.empty((len(Q), V.shape[1] + 1), Q.dtype)
    for i in range(0, len(Q), tile):
        found[i : i + tile] = features(Q[i : i + tile], p).T @ T
    return found[:, :-1] / found[:, -1:], found[:, -1], T


def backward(
    Q: Array, K: Array, V: Array, O: Array, den: Array, T: Array, dO: Array, p: Plan, coefficients: Array,
    tile: int = TILE,
) -> tuple[Array, Array, Array]:
    """dQ, dK, dV of <O, dO>."""
    weights = (coefficients[p.degrees] * p.multiplicities)[:, None]
    delta = (dO * O).sum(1, keepdims=True)
    G = np.concatenate([dO, -delta], axis=1) / den[:, None]  # (n, d_v + 1)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    U = np.zeros_like(T)
    for i in range(0, len(Q), tile):
        rows = slice(i, i + tile)
        phi = features(Q[rows], p)
        U += phi @ G[rows]
        dQ[rows] = pull_back(T @ G[rows].T, phi, Q[rows], p)
    U *= weights
    for j in range(0, len(K), tile):
        rows = slice(j, j + tile)
        psi = features(K[rows], p)
        dV[rows] = (psi.T @ U)[:, :-1]
        dK[rows] = pull_back(U @ _with_ones(V[rows]).T, psi, K[rows], p)
    return dQ, dK, dV
