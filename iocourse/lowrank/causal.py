"""Causal attention by tiles: exact within a tile, a polynomial of all earlier tiles outside.

The state T of the tiles before is a prefix sum; the gradient of K and V needs the state U of the tiles after,
a suffix sum. Nothing of a sequence's future, nor any statistic of it, reaches a row.
"""

from __future__ import annotations

import numpy as np

from .attention import TILE
from ..monomials import Array, Plan, features, pull_back


def _with_ones(x: Array) -> Array:
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def _inside(q: Array, k: Array) -> Array:
    """exp of the scores within a tile, 0 where a key lies after the query."""
    return np.tril(np.exp(q @ k.T))


def forward(Q: Array, K: Array, V: Array, p: Plan, coefficients: Array, tile: int = TILE) -> tuple[Array, Array]:
    """O (n, d_v) and denominators (n,)."""
    weights = (coefficients[p.degrees] * p.multiplicities)[:, None]
    T = np.zeros((p.rank, V.shape[1] + 1), Q.dtype)
    found = np.empty((len(Q), V.shape[1] + 1), Q.dtype)
    for at in range(0, len(Q), tile):
        rows = slice(at, at + tile)
        values = _with_ones(V[rows])
        found[rows] = features(Q[rows], p).T @ T + _inside(Q[rows], K[rows]) @ values
        T += weights * (features(K[rows], p) @ values)
    return found[:, :-1] / found[:, -1:], found[:, -1]


def backward(
    Q: Array, K: Array, V: Array, O: Array, den: Array, dO: Array, p: Plan, coefficients: Array, tile: int = TILE
) -> tuple[Array, Array, Array]:
    """dQ, dK, dV of <O, dO>: queries in their order, with the state of keys before; keys from the last one on,
    with the state of queries after.
    """
    weights = (coefficients[p.degrees] * p.multiplicities)[:, None]
    G = np.concatenate([dO, -(dO * O).sum(1, keepdims=True)], axis=1) / den[:, None]
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    starts = range(0, len(Q), tile)
    T = np.zeros((p.rank, V.shape[1] + 1), Q.dtype)
    for at in starts:
        rows = slice(at, at + tile)
        values = _with_ones(V[rows])
        inside = _inside(Q[rows], K[rows]) * (G[rows] @ values.T)
        dQ[rows] = pull_back(T @ G[rows].T, features(Q[rows], p), Q[rows], p) + inside @ K[rows]
        T += weights * (features(K[rows], p) @ values)
    U = np.zeros_like(T)
    for at in reversed(starts):
        rows = slice(at, at + tile)
        values, e, psi = _with_ones(V[rows]), _inside(Q[rows], K[rows]), features(K[rows], p)
        dV[rows] = (psi.T @ U + e.T @ G[rows])[:, :-1]
        dK[rows] = pull_back(U @ values.T, psi, K[rows], p) + (e * (G[rows] @ values.T)).T @ Q[rows]
        U += weights * (features(Q[rows], p) @ G[rows])
    return dQ, dK, dV
