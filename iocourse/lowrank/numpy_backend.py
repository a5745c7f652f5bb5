"""Attention with a polynomial for the exponential, and its gradient, in NumPy.

No n × n array is formed, and n × rank features exist for one tile at a time (`feature_tiles`):

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

from ..monomials import Array
from .approximation import Approximation
from .causal_groups import CausalGroups
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
    T, added = np.zeros((s.plan.rank, m), K.dtype), np.empty((1, s.plan.rank, m), K.dtype)
    size = columns_of(s, m, len(K))
    k = FeatureTile(s, m, tile_memory(s, m, size, K, tiles=1)[0], queries=False)
    for rows in slices(len(K), size):
        k.load(K[rows])
        k.values(with_ones(V[rows]))
        k.sums(added)
        T += added[0]
    # Once for the state and not for each key, because the weights belong to the features.
    T *= s.weights(K)
    return T


def _products(Q: Array, T: Array, s: Approximation) -> Iterator[tuple[slice, Array]]:
    """Yield the rows of each tile and its [N, den] as columns, (d_v + 1, rows)."""
    if s.plan.g == 1:  # the features are 1 and the row, and their factors are 1; T may have the first only
        yield slice(0, len(Q)), (T[:1] + s.queries(Q)[:, : len(T) - 1] @ T[1:]).T
        return
    m, size = T.shape[1], columns_of(s, T.shape[1], len(Q))
    q = FeatureTile(s, m, tile_memory(s, m, size, Q, tiles=1)[0], queries=True)
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
    U, added = np.zeros_like(f.T), np.empty((1, *f.T.shape), Q.dtype)
    m, size = f.T.shape[1], columns_of(s, f.T.shape[1], max(len(Q), len(K)))
    memory = tile_memory(s, m, size, Q, tiles=1)[0]
    q, k = FeatureTile(s, m, memory, queries=True), FeatureTile(s, m, memory, queries=False)  # one at a time
    for rows in slices(len(Q), size):
        q.load(Q[rows])
        q.values(over_denominators(dO[rows], f.O[rows], f.den[rows]))
        dQ[rows] = q.gradient(f.T).T
        q.sums(added)
        U += added[0]
    dQ *= s.factor
    U *= s.weights(Q)
    for rows in slices(len(K), size):
        k.load(K[rows])
        k.values(with_ones(V[rows]))
        dV[rows] = k.product(U)[:-1].T
        dK[rows] = k.gradient(U, multiplied=True).T
    return Gradients(dQ, dK, dV)


def causal_forward(
    Q: Array, K: Array, V: Array, s: Approximation, tile: int = CAUSAL_TILE, first: int = 0,
    T: Array | None = None,
) -> Forward:  # fmt: skip
    """Return approximate causal attention of Q (n, d), K (n_k, d), V (n_k, d_v), where n = n_k - first.

    Row i of Q is that of token first + i. T (rank, d_v + 1): weighted state of tokens before those of K, in
    complete tiles; None if there are none. The T of the result has the complete tiles of K added.
    """
    groups = CausalGroups(Q, K, V, s, tile, first)
    if T is not None:
        groups.state = T
    O, den = np.empty((len(Q), V.shape[1]), Q.dtype), np.empty(len(Q), Q.dtype)
    for span in groups.spans:
        groups.load(*span)
        earlier = groups.states_before()
        if groups.has_queries:
            N = groups.q.product(earlier)
            # Within a tile, attention is exact.
            groups.q.in_parts(N)[...] += groups.in_tiles(groups.values).mT @ groups.inside()
            groups.store(N[:-1] / N[-1], O, first)
            groups.store(N[-1:], den[:, None], first)
    return Forward(O, den, groups.state)


def causal_backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation, tile: int = CAUSAL_TILE,
    first: int = 0,
) -> Gradients:  # fmt: skip
    """Return the gradient of Σ dO ∘ O of causal attention, without a state before the keys.

    dQ is computed in increasing order with the state of the earlier keys; dK and dV in decreasing order with
    the state of the later queries.
    """
    G = over_denominators(dO, f.O, f.den)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    groups = CausalGroups(Q, K, V, s, tile, first)
    q, k = groups.q, groups.k
    for span in groups.spans:
        groups.load(*span)
        earlier = groups.states_before()
        if groups.has_queries:
            g = groups.rows(G, first)
            q.values(g)
            dx = q.gradient(earlier)
            near = groups.score_gradient(groups.inside(), g)
            q.in_parts(dx)[...] += k.in_parts(k.x) @ near
            groups.store(dx, dQ, first)
    dQ *= s.factor
    groups.state = np.zeros_like(groups.state)
    # Backwards, because keys get their gradient from later queries: their state is a suffix sum.
    for span in reversed(groups.spans):
        groups.load(*span)
        g = groups.rows(G, first)
        later = groups.states_after(g)
        dv, dk = k.product(later), k.gradient(later, multiplied=True)
        if groups.has_queries:
            inside = groups.inside()
            near = groups.score_gradient(inside, g)
            k.in_parts(dv)[...] += groups.in_tiles(g).mT @ inside.mT
            k.in_parts(dk)[...] += q.in_parts(q.x) @ near.mT
        groups.store(dv[:-1], dV)
        groups.store(dk, dK)
    return Gradients(dQ, dK, dV)
