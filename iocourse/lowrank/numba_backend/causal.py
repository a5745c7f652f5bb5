"""Compiled causal passes: exact within a tile, with the state of the earlier or later tiles for the rest.

Tiles are cut by keys, TILE at a time. The queries are the last tokens: query i attends to the keys up to
first + i, so tiles before `first` have keys only. Within a tile the scores P are a matrix (row, key), and
the products of features are used for it, with tokens instead of features. If each query row has its own
polynomial, its variance comes from the given key covariance, not from the sequence. E then includes e^(σ²/2),
needed when exact and polynomial parts are added.
"""

from __future__ import annotations

import math

import numpy as np

from .products import add_column_sums, add_feature_sums, add_token_sums, aligned, compiled
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

TILE = 64  # as CAUSAL_TILE of numpy_backend
LARGEST = 80  # 2ᵏ of a larger exponent would not be a float32


@compiled
def scaled_row_factors(E, half, x, covariance, C):
    """Store `row_factors` times e^(σ²/2) in E; without a covariance E is 1."""
    if len(covariance) == 0:
        for t in range(C):
            E[0, t] = 1
        return
    row_factors(E, half, x, covariance, C)
    for t in range(C):
        half[t] = math.exp(-half[t])
    for m in range(E.shape[0]):
        for t in range(C):
            E[m, t] *= half[t]


@compiled
def times_weights(Tw, T, w):
    """Store w ∘ T in Tw."""
    for a in range(T.shape[0]):
        for c in range(T.shape[1]):
            Tw[a, c] = T[a, c] * w[a]


@compiled
def exponentials(s, C, scale, bits):
    """Replace C numbers by their exponentials; for float32 in a loop that compiles to vector instructions.

    exp(s) = 2ᵏ exp(s - k log 2), with a power series for the remainder (at most 0.35) and k written into the
    exponent bits of `scale`, whose memory `bits` views as integers. float64 numbers are computed one by one.
    """
    one = s.dtype.type(1)
    largest = s.dtype.type(0)
    for u in range(C):
        largest = max(largest, abs(s[u]))
    if s.itemsize == 8 or largest > LARGEST:
        for u in range(C):
            s[u] = math.exp(s[u])
        return
    for u in range(C):
        k = np.floor(s[u] * s.dtype.type(1.4426950408889634) + s.dtype.type(0.5))
        bits[u] = (bits.dtype.type(k) + bits.dtype.type(127)) << bits.dtype.type(23)
        # log 2 in two parts: the first has 15 bits, so its product with k is exact and no digit is lost.
        rest = (s[u] - k * s.dtype.type(0.693145751953125)) - k * s.dtype.type(1.4286068203094172e-06)
        series = rest * s.dtype.type(1 / 5040) + s.dtype.type(1 / 720)
        series = series * rest + s.dtype.type(1 / 120)
        series = series * rest + s.dtype.type(1 / 24)
        series = series * rest + s.dtype.type(1 / 6)
        series = series * rest + s.dtype.type(1 / 2)
        s[u] = (series * rest + one) * rest + one
    for u in range(C):
        s[u] *= scale[u]


@compiled
def turn(rows, x, C):
    """Transpose x (d, C) into rows (C, d)."""
    for i in range(x.shape[0]):
        for t in range(C):
            rows[t, i] = x[i, t]


@compiled
def diagonal_weights(P, q_rows, xk, before, R, C, bits):
    """Store in P (R, C) the exp of the scores of row t with the keys u ≤ before + t, 0 for later keys."""
    store_row_products(P, q_rows, xk, R, C)
    scale = bits.view(P.dtype)
    for t in range(R):
        seen = before + t + 1  # later keys must not influence the method chosen for exp
        exponentials(P[t], seen, scale, bits)
        for u in range(seen, C):
            P[t, u] = 0


@compiled
def store_row_products(P, rows, W, R, C):
    """Store the products of R rows (R, m) with the columns W (m, C) in P (R, C)."""
    for t in range(R):
        for u in range(C):
            P[t, u] = 0
    add_column_sums(P, 0, rows, 0, R, W, C)


@compiled
def score_gradients(S, P, g_rows, W, R, C):
    """Store P ∘ (G W) in S (R, C)."""
    store_row_products(S, g_rows, W, R, C)
    for t in range(R):
        for u in range(C):
            S[t, u] *= P[t, u]


@compiled
def add_complete_tile(T, F, x, W, scaled, low, top, C):
    """Add the keys of a tile to the state; those of an incomplete tile are attended to exactly instead."""
    if C == TILE:
        fill_monomials(F, x, low, C)
        add_state(T, F, x, W, scaled, low, top, C)


@compiled
def forward_of_head(O, den, T, Q, K, V, first, factor, covariance, starts, w, base, low, top, bits):
    """Compute O and den of one head, and add its complete tiles to the state T, which has no weights."""
    n_k, d, m, rank = K.shape[0], K.shape[1], V.shape[1], len(w)
    Tw, E, half = (
        np.empty((rank, m + 1), Q.dtype),
        aligned(len(starts) // 2, TILE, Q),
        np.empty(TILE, Q.dtype),
    )
    F, xq, xk = aligned(base, TILE, Q), aligned(d, TILE, Q), aligned(d, TILE, Q)
    W, N, scaled = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q)
    P, near, q_rows = aligned(TILE, TILE, Q), np.empty((TILE, m + 1), Q.dtype), np.empty((TILE, d), Q.dtype)
    zero = np.zeros(d, Q.dtype)
    for at in range(0, n_k, TILE):
        C, begin = min(TILE, n_k - at), max(at, first)
        row, R = (
            begin - first,
            at + min(TILE, n_k - at) - begin,
        )  # the first query of the tile, and their number
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        if R > 0:
            take(xq, Q, row, R, factor, zero)
            fill_monomials(F, xq, low, R)
            if len(covariance) > 0:
                scaled_row_factors(E, half, xq, covariance, R)
                times_row_factors(F, E, starts, len(starts) - 2, R)
            # A copy with weights: T itself is a sum to which the next tile is added.
            times_weights(Tw, T, w)
            store_output(N, Tw, F, xq, scaled, top, R)
            turn(q_rows, xq, R)
            diagonal_weights(P, q_rows, xk, begin - at, R, C, bits)
            near[:] = 0
            add_token_sums(near, 0, P, 0, R, W, C)
            for t in range(R):
                den[row + t] = N[m, t] + near[t, m]
                for i in range(m):
                    O[row + t, i] = (N[i, t] + near[t, i]) / den[row + t]
        # After the rows of this tile, which use the exact weights of `diagonal_weights` for it.
        add_complete_tile(T, F, xk, W, scaled, low, top, C)


@compiled
def queries_backward(dQ, Q, K, V, O, den, dO, first, factor, covariance, starts, w, base, low, top, bits):
    """Compute dQ of one head, from the first tile to the last."""
    n_k, d, m, rank = K.shape[0], K.shape[1], V.shape[1], len(w)
    T, Tw = np.zeros((rank, m + 1), Q.dtype), np.empty((rank, m + 1), Q.dtype)
    E, half = aligned(len(starts) // 2, TILE, Q), np.empty(TILE, Q.dtype)
    F, D, xq, xk = aligned(base, TILE, Q), aligned(base, TILE, Q), aligned(d, TILE, Q), aligned(d, TILE, Q)
    dx, near, q_rows = aligned(d, TILE, Q), np.empty((TILE, d), Q.dtype), np.empty((TILE, d), Q.dtype)
    W, G, far = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q)
    N, scaled, g_rows = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q), np.empty((TILE, m + 1), Q.dtype)
    P, S = aligned(TILE, TILE, Q), aligned(TILE, TILE, Q)
    zero = np.zeros(d, Q.dtype)
    for at in range(0, n_k, TILE):
        C, begin = min(TILE, n_k - at), max(at, first)
        row, R = begin - first, at + C - begin
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        if R > 0:
            take(xq, Q, row, R, factor, zero)
            take_gradient(G, O, den, dO, row, R)
            fill_monomials(F, xq, low, R)
            times_weights(Tw, T, w)
            store_feature_gradients(D, Tw, G, R)
            scaled_row_factors(E, half, xq, covariance, R)
            if len(covariance) > 0:
                times_row_factors(D, E, starts, len(starts) - 2, R)
            for c in range(m + 1):  # features of degree g, which are not stored, have the factor E[0]
                for t in range(R):
                    far[c, t] = G[c, t] * E[0, t]
            pull_back(dx, D, N, F, xq, Tw, far, scaled, low, top, R)
            turn(q_rows, xq, R)
            turn(g_rows, G, R)
            diagonal_weights(P, q_rows, xk, begin - at, R, C, bits)
            score_gradients(S, P, g_rows, W, R, C)
            near[:] = 0
            add_token_sums(near, 0, S, 0, R, xk, C)
            for t in range(R):
                for i in range(d):
                    dQ[row + t, i] = (dx[i, t] + near[t, i]) * factor
        add_complete_tile(T, F, xk, W, scaled, low, top, C)


@compiled
def keys_backward(dK, dV, Q, K, V, O, den, dO, first, factor, covariance, starts, w, base, low, top, bits):
    """Compute dK and dV of one head, from the last tile to the first."""
    n_k, d, m, rank = K.shape[0], K.shape[1], V.shape[1], len(w)
    U, Uw = np.zeros((rank, m + 1), Q.dtype), np.empty((rank, m + 1), Q.dtype)
    E, half = aligned(len(starts) // 2, TILE, Q), np.empty(TILE, Q.dtype)
    F, D, xq, xk = aligned(base, TILE, Q), aligned(base, TILE, Q), aligned(d, TILE, Q), aligned(d, TILE, Q)
    dx, q_rows, g_rows = aligned(d, TILE, Q), np.empty((TILE, d), Q.dtype), np.empty((TILE, m + 1), Q.dtype)
    W, G, N, scaled = (
        aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q),
    )  # fmt: skip
    P, S = aligned(TILE, TILE, Q), aligned(TILE, TILE, Q)
    zero = np.zeros(d, Q.dtype)
    # The same tiles as in the forward pass, from the last, because keys need the later queries.
    for at in range((n_k - 1) // TILE * TILE, -1, -TILE):
        C, begin = min(TILE, n_k - at), max(at, first)
        row, R = begin - first, at + C - begin
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        fill_monomials(F, xk, low, C)
        times_weights(Uw, U, w)
        store_stored_output(N, Uw, F, C)
        store_feature_gradients(D, Uw, W, C)
        pull_back(dx, D, N, F, xk, Uw, W, scaled, low, top, C)
        if R > 0:
            take(xq, Q, row, R, factor, zero)
            take_gradient(G, O, den, dO, row, R)
            turn(q_rows, xq, R)
            turn(g_rows, G, R)
            diagonal_weights(P, q_rows, xk, begin - at, R, C, bits)
            score_gradients(S, P, g_rows, W, R, C)
            add_feature_sums(N, g_rows, 0, P, 0, R, C)
            add_feature_sums(dx, q_rows, 0, S, 0, R, C)
            fill_monomials(F, xq, low, R)
            if len(covariance) > 0:
                scaled_row_factors(E, half, xq, covariance, R)
                times_row_factors(F, E, starts, len(starts) - 2, R)
            add_state(U, F, xq, G, scaled, low, top, R)
        for i in range(m):
            for t in range(C):
                dV[at + t, i] = N[i, t]
        for i in range(d):
            for t in range(C):
                dK[at + t, i] = dx[i, t]
