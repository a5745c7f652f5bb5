"""Compiled passes over the tokens of one head in which every query attends to every key.

Each function adds to a state, or fills rows of its output arrays, for a span of tokens, tile by tile.
Different threads can work on spans of one head; none holds the GIL. For the arrays see `tiles`. A state T or
U (rank, d_v + 1) has the sums over keys or over queries, multiplied by the weights of the features when it is
read. covariance (d, d) is that of the keys, if each query row has its own polynomial; otherwise (0, 0).
"""

from __future__ import annotations

import numpy as np

from .products import aligned, compiled
from .tiles import (
    add_state,
    fill_monomials,
    pull_back,
    row_factors,
    store_feature_gradients,
    store_output,
    store_stored_output,
    take,
    take_gradient,
    take_with_ones,
    times_row_factors,
)


@compiled
def keys_forward(T, K, V, start, stop, shift, base, low, top, tile):
    """Add Σ ψ(k - shift) [v, 1]ᵀ over the span to T."""
    d, m = K.shape[1], T.shape[1]
    F, x, W, scaled = aligned(base, tile, K), aligned(d, tile, K), aligned(m, tile, K), aligned(m, tile, K)
    for at in range(start, stop, tile):
        C = min(tile, stop - at)
        take(x, K, at, C, K.dtype.type(1), shift)
        take_with_ones(W, V, at, C)
        fill_monomials(F, x, low, C)
        add_state(T, F, x, W, scaled, low, top, C)


@compiled
def queries_forward(O, den, T, Q, start, stop, factor, covariance, starts, base, low, top, tile):
    """Compute O and den of the span from the weighted state T."""
    d, m, g = Q.shape[1], O.shape[1], len(starts) - 2
    F, x = aligned(base, tile, Q), aligned(d, tile, Q)
    N, scaled = aligned(m + 1, tile, Q), aligned(m + 1, tile, Q)
    E, half = aligned(g // 2 + 1, tile, Q), np.empty(tile, Q.dtype)
    zero = np.zeros(d, Q.dtype)
    for at in range(start, stop, tile):
        C = min(tile, stop - at)
        take(x, Q, at, C, factor, zero)
        fill_monomials(F, x, low, C)
        if len(covariance) > 0:
            row_factors(E, half, x, covariance, C)
            times_row_factors(F, E, starts, g - 2, C)
        store_output(N, T, F, x, scaled, top, C)
        for t in range(C):
            den[at + t] = N[m, t]
            half[t] = 1 / N[m, t]
        for i in range(m):
            for t in range(C):
                O[at + t, i] = N[i, t] * half[t]


@compiled
def queries_backward(dQ, U, T, Q, O, den, dO, start, stop, factor, covariance, starts, base, low, top, tile):
    """Compute dQ of the span from the weighted state T, and add Σ φ(q) [dO, -Σ dO ∘ O]ᵀ / den to U."""
    d, m, g = Q.shape[1], T.shape[1], len(starts) - 2
    F, D, x, dx = aligned(base, tile, Q), aligned(base, tile, Q), aligned(d, tile, Q), aligned(d, tile, Q)
    G, N, scaled = aligned(m, tile, Q), aligned(m, tile, Q), aligned(m, tile, Q)
    E, half = aligned(g // 2 + 1, tile, Q), np.empty(tile, Q.dtype)
    zero = np.zeros(d, Q.dtype)
    for at in range(start, stop, tile):
        C = min(tile, stop - at)
        take(x, Q, at, C, factor, zero)
        take_gradient(G, O, den, dO, at, C)
        fill_monomials(F, x, low, C)
        store_feature_gradients(D, T, G, C)
        if len(covariance) > 0:
            row_factors(E, half, x, covariance, C)
            times_row_factors(D, E, starts, g - 2, C)
        pull_back(dx, D, N, F, x, T, G, scaled, low, top, C)
        # Only now, because pull_back needs the monomials without these factors.
        if len(covariance) > 0:
            times_row_factors(F, E, starts, g - 2, C)
        add_state(U, F, x, G, scaled, low, top, C)
        for i in range(d):
            for t in range(C):
                dQ[at + t, i] = dx[i, t] * factor


@compiled
def keys_backward(dK, dV, U, K, V, start, stop, shift, base, low, top, tile):
    """Compute dK and dV of the span from the weighted state U."""
    d, m = K.shape[1], U.shape[1]
    F, D, x, dx = aligned(base, tile, K), aligned(base, tile, K), aligned(d, tile, K), aligned(d, tile, K)
    W, N, scaled = aligned(m, tile, K), aligned(m, tile, K), aligned(m, tile, K)
    for at in range(start, stop, tile):
        C = min(tile, stop - at)
        take(x, K, at, C, K.dtype.type(1), shift)
        fill_monomials(F, x, low, C)
        take_with_ones(W, V, at, C)
        store_stored_output(N, U, F, C)
        store_feature_gradients(D, U, W, C)
        pull_back(dx, D, N, F, x, U, W, scaled, low, top, C)
        for i in range(d):
            for t in range(C):
                dK[at + t, i] = dx[i, t]
        for i in range(m - 1):
            for t in range(C):
                dV[at + t, i] = N[i, t]
