"""Causal attention by tiles, in NumPy: exact within a tile, a polynomial of all earlier tiles outside.

The state T of the tiles before is a prefix sum; the gradient of K and V needs the state U of the tiles after,
a suffix sum. Nothing of a sequence's future, nor any statistic of it, reaches a row.
"""

from __future__ import annotations

import numpy as np

from ..guard import library_answer
from ..monomials import Array, features, pull_back
from .passes import Forward, Gradients, over_denominators, with_ones
from .setting import Setting

TILE = 64


def _inside(q: Array, k: Array) -> Array:
    """exp of the scores within a tile, 0 where a key lies after the query."""
    return np.tril(np.exp(q @ k.T))


@library_answer
def forward(Q: Array, K: Array, V: Array, s: Setting, tile: int = TILE) -> Forward:
    """Causal attention of Q, K (n, d), V (n, d_v); T is the state of all keys."""
    T = np.zeros((s.plan.rank, V.shape[1] + 1), Q.dtype)
    found = np.empty((len(Q), V.shape[1] + 1), Q.dtype)
    for at in range(0, len(Q), tile):
        rows = slice(at, at + tile)
        x, k, values = s.queries(Q[rows]), s.keys(K[rows]), with_ones(V[rows])
        phi = features(x, s.plan) * s.row_factors(x, true_scale=True)
        found[rows] = phi.T @ T + _inside(x, k) @ values
        T += s.weights(Q) * (features(k, s.plan) @ values)
    return Forward(found[:, :-1] / found[:, -1:], found[:, -1].copy(), T)


@library_answer
def backward(Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Setting, tile: int = TILE) -> Gradients:
    """The gradient of Σ dO ∘ O: queries in their order, with the state of keys before; keys from the last one
    on, with the state of queries after.
    """
    G = over_denominators(dO, f.O, f.den)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    starts = range(0, len(Q), tile)
    T = np.zeros_like(f.T)
    for at in starts:
        rows = slice(at, at + tile)
        x, k, values = s.queries(Q[rows]), s.keys(K[rows]), with_ones(V[rows])
        far = T @ G[rows].T * s.row_factors(x, true_scale=True)
        near = _inside(x, k) * (G[rows] @ values.T)
        dQ[rows] = (pull_back(far, features(x, s.plan), x, s.plan) + near @ k) * s.factor
        T += s.weights(Q) * (features(k, s.plan) @ values)
    U = np.zeros_like(T)
    for at in reversed(starts):
        rows = slice(at, at + tile)
        x, k, values = s.queries(Q[rows]), s.keys(K[rows]), with_ones(V[rows])
        near, psi = _inside(x, k), features(k, s.plan)
        dV[rows] = (psi.T @ U + near.T @ G[rows])[:, :-1]
        dK[rows] = pull_back(U @ values.T, psi, k, s.plan) + (near * (G[rows] @ values.T)).T @ x
        U += s.weights(Q) * ((features(x, s.plan) * s.row_factors(x, true_scale=True)) @ G[rows])
    return Gradients(dQ, dK, dV)
