"""Attention with a polynomial for the exponential, and its gradient, in NumPy.

No n × n array is formed, and features exist for one tile at a time (`feature_tiles`):

    T = Σⱼ w ∘ ψ(kⱼ) [vⱼ, 1]ᵀ        (rank, d_v + 1)
    [Nᵢ, denᵢ] = φ(qᵢ)ᵀ T,   Oᵢ = Nᵢ / denᵢ

Causal attention is exact within a tile, and uses the polynomial for all earlier tiles, whose state T is a
prefix sum. The gradient of K and V needs the state U of the later tiles, a suffix sum. A row does not depend
on later tokens or on statistics of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..monomials import Array, features, features_vjp
from .approximation import Approximation
from .feature_tiles import FeatureTile, columns_of, tile_memory

CAUSAL_TILE = 64


class Forward(NamedTuple):
    """Result of a forward pass: O (n, d_v), denominators den (n,), and weighted state T (rank, d_v + 1)."""

    O: Array
    den: Array
    T: Array


class Gradients(NamedTuple):
    """Result of a backward pass: dQ (n, d), dK (n_k, d), dV (n_k, d_v)."""

    dQ: Array
    dK: Array
    dV: Array


def with_ones(x: Array) -> Array:
    """Return [x, 1], (n, d + 1)."""
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def over_denominators(dO: Array, O: Array, den: Array) -> Array:
    """Return [dO, -δ] / den, (n, d_v + 1), with δ = Σ dO ∘ O along a row."""
    delta = np.einsum("nd,nd->n", dO, O)  # faster than a sum along a short axis
    return np.concatenate([dO, -delta[:, None]], axis=1) / den[:, None]


def slices(n: int, tile: int) -> list[slice]:
    """Return the slices that cut 0 … n - 1 into tiles."""
    return [slice(at, at + tile) for at in range(0, n, tile)]


def forward(Q: Array, K: Array, V: Array, s: Approximation) -> Forward:
    """Return approximate attention of Q (n, d), K (n_k, d), V (n_k, d_v), with denominators and state."""
    T, O, den = _state(K, V, s), np.empty((len(Q), V.shape[1]), Q.dtype), np.empty(len(Q), Q.dtype)
    for rows, N in _products(Q, T, s):
        O[rows], den[rows] = (N[:-1] / N[-1]).T, N[-1]
    return Forward(O, den, T)


def _state(K: Array, V: Array, s: Approximation) -> Array:
    """Return the weighted state T of all keys."""
    m = V.shape[1] + 1
    T, added = np.zeros((s.plan.rank, m), K.dtype), np.empty((s.plan.rank, m), K.dtype)
    size = columns_of(s, m, len(K))
    k = FeatureTile(s, m, tile_memory(s, m, size, K), queries=False)
    for rows in slices(len(K), size):
        k.load(K[rows])
        k.values(with_ones(V[rows]))
        k.sums(added)
        T += added
    # Once for the state and not for each key, because the weights belong to the features.
    T *= s.weights(K)
    return T


def _products(Q: Array, T: Array, s: Approximation) -> Iterator[tuple[slice, Array]]:
    """Yield the rows of each tile and its [N, den] as columns, (d_v + 1, rows)."""
    if s.plan.g == 1:  # the features are 1 and the row, and their factors are 1; T may have the first only
        yield slice(0, len(Q)), (T[:1] + s.queries(Q)[:, : len(T) - 1] @ T[1:]).T
        return
    m, size = T.shape[1], columns_of(s, T.shape[1], len(Q))
    q = FeatureTile(s, m, tile_memory(s, m, size, Q), queries=True)
    for rows in slices(len(Q), size):
        q.load(Q[rows])
        yield rows, q.product(T)


def from_state(Q: Array, T: Array, s: Approximation) -> Array:
    """Return [N, den] (n, d_v + 1) from the weighted state T, which may have fewer features than s."""
    found = np.empty((len(Q), T.shape[1]), Q.dtype)
    for rows, N in _products(Q, T, s):
        found[rows] = N.T
    return found


def backward(Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation) -> Gradients:
    """Return the gradient of Σ dO ∘ O without the part through shift and covariance, see `statistics`."""
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    U, added = np.zeros_like(f.T), np.empty_like(f.T)
    m, size = f.T.shape[1], columns_of(s, f.T.shape[1], max(len(Q), len(K)))
    memory = tile_memory(s, m, size, Q)
    q, k = FeatureTile(s, m, memory, queries=True), FeatureTile(s, m, memory, queries=False)  # one at a time
    for rows in slices(len(Q), size):
        q.load(Q[rows])
        q.values(over_denominators(dO[rows], f.O[rows], f.den[rows]))
        dQ[rows] = q.gradient(f.T).T
        q.sums(added)
        U += added
    dQ *= s.factor
    U *= s.weights(Q)
    for rows in slices(len(K), size):
        k.load(K[rows])
        k.values(with_ones(V[rows]))
        dV[rows] = k.product(U)[:-1].T
        dK[rows] = k.gradient(U, multiplied=True).T
    return Gradients(dQ, dK, dV)


def _causal_tiles(n: int, n_k: int) -> list[tuple[slice, slice, int]]:
    """Return, for each tile of keys, its rows of Q and of K, and its number of keys before its first query.

    The queries are the last n of n_k tokens, so the first tiles may have none.
    """
    first = n_k - n
    begins = [(at, max(at, first), min(at + CAUSAL_TILE, n_k)) for at in range(0, n_k, CAUSAL_TILE)]
    return [(slice(b - first, max(b, end) - first), slice(at, end), b - at) for at, b, end in begins]


def _inside(q: Array, k: Array, before: int) -> Array:
    """Return exp of the scores within a tile, and 0 where the key is after the query."""
    return np.tril(np.exp(q @ k.T), before)


def causal_forward(Q: Array, K: Array, V: Array, s: Approximation, T: Array | None = None) -> Forward:
    """Return approximate causal attention of Q (n, d), the last n ≤ n_k tokens, K (n_k, d), V (n_k, d_v).

    T: state of earlier tokens, sums of complete tiles without weights. That of the result includes the
    complete tiles of K.
    """
    T = np.zeros((s.plan.rank, V.shape[1] + 1), Q.dtype) if T is None else T.copy()
    found = np.empty((len(Q), V.shape[1] + 1), Q.dtype)
    for rows, keys, before in _causal_tiles(len(Q), len(K)):
        x, k, values = s.queries(Q[rows]), s.keys(K[keys]), with_ones(V[keys])
        if len(x):
            phi = features(x, s.plan) * (s.weights(Q) * s.row_factors(x, true_scale=True))
            found[rows] = phi.T @ T + _inside(x, k, before) @ values
        # Only after this tile's rows: within a tile, attention is exact.
        if len(k) == CAUSAL_TILE:
            T += features(k, s.plan) @ values
    # A copy, because a view of the last column would keep all of `found` alive.
    return Forward(found[:, :-1] / found[:, -1:], found[:, -1].copy(), T)


def causal_backward(Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation) -> Gradients:
    """Return the gradient of Σ dO ∘ O of causal attention.

    dQ is computed in increasing order with the state of the earlier keys; dK and dV in decreasing order with
    the state of the later queries.
    """
    G = over_denominators(dO, f.O, f.den)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    T, U = np.zeros_like(f.T), np.zeros_like(f.T)
    tiles = _causal_tiles(len(Q), len(K))
    for rows, keys, before in tiles:
        x, k, values = s.queries(Q[rows]), s.keys(K[keys]), with_ones(V[keys])
        far = T @ G[rows].T * s.row_factors(x, true_scale=True)
        near = _inside(x, k, before) * (G[rows] @ values.T)
        dQ[rows] = (features_vjp(far, features(x, s.plan), x, s.plan) + near @ k) * s.factor
        T += s.weights(Q) * (features(k, s.plan) @ values)
    # Backwards, because keys get their gradient from later queries: U is a suffix sum.
    for rows, keys, before in reversed(tiles):
        x, k, values = s.queries(Q[rows]), s.keys(K[keys]), with_ones(V[keys])
        near, psi = _inside(x, k, before), features(k, s.plan)
        dV[keys] = (psi.T @ U + near.T @ G[rows])[:, :-1]
        dK[keys] = features_vjp(U @ values.T, psi, k, s.plan) + (near * (G[rows] @ values.T)).T @ x
        U += s.weights(Q) * ((features(x, s.plan) * s.row_factors(x, true_scale=True)) @ G[rows])
    return Gradients(dQ, dK, dV)
