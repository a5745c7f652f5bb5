"""Compiled causal passes: exact within a tile, with the polynomial for the earlier tiles.

Tiles of TILE keys are processed `group` keys at a time, because products of features with few tokens take
longer. The state has the keys of earlier groups. Within a group the weights P are a matrix (row, key): exp of
the scores in the row's own tile, and the same polynomial, evaluated at the scores, in earlier ones. The
products of features are used for it, with tokens instead of features. The queries are the last tokens: query
i attends to the keys up to first + i, so groups before `first` have keys only. If each query row has its own
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
        E[:] = 1
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
def store_row_products(P, rows, W, before, R, C):
    """Store the products of R rows (R, m) and columns W (m, C) in P: of each row up to the end of its tile.

    before: number of the group's keys before the key of row 0.
    """
    for begin in range(0, before + R, TILE):
        t, stop, end = max(begin - before, 0), begin + TILE - before, min(begin + TILE, C)
        count = min(stop, R) - t
        for at in range(t, t + count):
            for u in range(end):
                P[at, u] = 0
        if count > 0:
            add_column_sums(P, t, rows, t, count, W, end)


@compiled
def store_polynomials(p, slopes, scores, count, E, coefficients):
    """Store the polynomial of one row at `count` scores in p, and its derivative in slopes, by Horner's rule.

    E (⌊g/2⌋ + 1,): the row's factors.
    """
    g = len(coefficients) - 1
    for u in range(count):
        scores[u] = p[u]
        p[u] = coefficients[g] * E[0]
        slopes[u] = 0
    for l in range(g - 1, -1, -1):
        coefficient = coefficients[l] * E[(g - l) // 2]
        for u in range(count):
            slopes[u] = slopes[u] * scores[u] + p[u]
            p[u] = p[u] * scores[u] + coefficient


@compiled
def store_weights(P, slopes, q_rows, xk, before, R, C, E, coefficients, bits):
    """Store the weights of R rows in P (R, C), and their derivatives by the scores in slopes (R, C)."""
    store_row_products(P, q_rows, xk, before, R, C)
    scale, scores = bits.view(P.dtype), np.empty(P.shape[1], P.dtype)
    for t in range(R):
        seen = before + t + 1
        own = (seen - 1) // TILE * TILE
        store_polynomials(P[t], slopes[t], scores, own, E[:, t], coefficients)
        exponentials(P[t, own:], seen - own, scale, bits)  # later keys must not influence the method chosen
        for u in range(own, seen):
            slopes[t, u] = P[t, u]
        for u in range(seen, C):
            P[t, u] = 0
            slopes[t, u] = 0


@compiled
def store_score_gradients(S, slopes, g_rows, W, before, R, C):
    """Store slopes ∘ (G W) in S (R, C)."""
    store_row_products(S, g_rows, W, before, R, C)
    for t in range(R):
        seen = before + t + 1
        for u in range(seen):
            S[t, u] *= slopes[t, u]
        for u in range(seen, C):
            S[t, u] = 0


@compiled
def add_complete_tiles(T, F, x, W, scaled, low, top, C):
    """Add the keys of a group to the state, except those of an incomplete tile, which has no later tile."""
    complete = C - C % TILE
    if complete > 0:
        fill_monomials(F, x, low, complete)
        add_state(T, F, x, W, scaled, low, top, complete)


@compiled
def forward_of_head(
    O, den, T, Q, K, V, first, factor, covariance, starts, w, coefficients, base, low, top, group, bits
):
    """Compute O and den of one head, and add the complete tiles to the state T, which has no weights."""
    n_k, d, m, rank = K.shape[0], K.shape[1], V.shape[1], len(w)
    Tw = np.empty((rank, m + 1), Q.dtype)
    E, half = aligned(len(starts) // 2, group, Q), np.empty(group, Q.dtype)
    F, xq, xk = aligned(base, group, Q), aligned(d, group, Q), aligned(d, group, Q)
    W, N, scaled = aligned(m + 1, group, Q), aligned(m + 1, group, Q), aligned(m + 1, group, Q)
    P, slopes = aligned(group, group, Q), aligned(group, group, Q)
    near, q_rows = np.empty((group, m + 1), Q.dtype), np.empty((group, d), Q.dtype)
    zero = np.zeros(d, Q.dtype)
    for at in range(0, n_k, group):
        C, begin = min(group, n_k - at), max(at, first)
        row, R = begin - first, at + C - begin  # the first query of the group, and their number
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        if R > 0:
            take(xq, Q, row, R, factor, zero)
            fill_monomials(F, xq, low, R)
            scaled_row_factors(E, half, xq, covariance, R)
            if len(covariance) > 0:
                times_row_factors(F, E, starts, len(starts) - 2, R)
            # A copy with weights: T itself is a sum to which the next group is added.
            times_weights(Tw, T, w)
            store_output(N, Tw, F, xq, scaled, top, R)
            turn(q_rows, xq, R)
            store_weights(P, slopes, q_rows, xk, begin - at, R, C, E, coefficients, bits)
            near[:] = 0
            add_token_sums(near, 0, P, 0, R, W, C)
            for t in range(R):
                den[row + t] = N[m, t] + near[t, m]
                for i in range(m):
                    O[row + t, i] = (N[i, t] + near[t, i]) / den[row + t]
        # After the rows of this group, which use the weights of `store_weights` for it.
        add_complete_tiles(T, F, xk, W, scaled, low, top, C)


@compiled
def queries_backward(
    dQ, Q, K, V, O, den, dO, first, factor, covariance, starts, w, coefficients, base, low, top, group, bits
):
    """Compute dQ of one head, from the first group to the last."""
    n_k, d, m, rank = K.shape[0], K.shape[1], V.shape[1], len(w)
    T, Tw = np.zeros((rank, m + 1), Q.dtype), np.empty((rank, m + 1), Q.dtype)
    E, half = aligned(len(starts) // 2, group, Q), np.empty(group, Q.dtype)
    F, D = aligned(base, group, Q), aligned(base, group, Q)
    xq, xk = aligned(d, group, Q), aligned(d, group, Q)
    dx, near, q_rows = aligned(d, group, Q), np.empty((group, d), Q.dtype), np.empty((group, d), Q.dtype)
    W, G, far = aligned(m + 1, group, Q), aligned(m + 1, group, Q), aligned(m + 1, group, Q)
    N, scaled, g_rows = aligned(m + 1, group, Q), aligned(m + 1, group, Q), np.empty((group, m + 1), Q.dtype)
    P, slopes, S = aligned(group, group, Q), aligned(group, group, Q), aligned(group, group, Q)
    zero = np.zeros(d, Q.dtype)
    for at in range(0, n_k, group):
        C, begin = min(group, n_k - at), max(at, first)
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
            store_weights(P, slopes, q_rows, xk, begin - at, R, C, E, coefficients, bits)
            store_score_gradients(S, slopes, g_rows, W, begin - at, R, C)
            near[:] = 0
            add_token_sums(near, 0, S, 0, R, xk, C)
            for t in range(R):
                for i in range(d):
                    dQ[row + t, i] = (dx[i, t] + near[t, i]) * factor
        add_complete_tiles(T, F, xk, W, scaled, low, top, C)


@compiled
def keys_backward(
    dK,
    dV,
    Q,
    K,
    V,
    O,
    den,
    dO,
    first,
    factor,
    covariance,
    starts,
    w,
    coefficients,
    base,
    low,
    top,
    group,
    bits,
):
    """Compute dK and dV of one head, from the last group to the first."""
    n_k, d, m, rank = K.shape[0], K.shape[1], V.shape[1], len(w)
    U, Uw = np.zeros((rank, m + 1), Q.dtype), np.empty((rank, m + 1), Q.dtype)
    E, half = aligned(len(starts) // 2, group, Q), np.empty(group, Q.dtype)
    F, D = aligned(base, group, Q), aligned(base, group, Q)
    xq, xk = aligned(d, group, Q), aligned(d, group, Q)
    dx, q_rows = aligned(d, group, Q), np.empty((group, d), Q.dtype)
    g_rows = np.empty((group, m + 1), Q.dtype)
    W, G = aligned(m + 1, group, Q), aligned(m + 1, group, Q)
    N, scaled = aligned(m + 1, group, Q), aligned(m + 1, group, Q)
    P, slopes, S = aligned(group, group, Q), aligned(group, group, Q), aligned(group, group, Q)
    zero = np.zeros(d, Q.dtype)
    # The same groups as in the forward pass, from the last, because keys need the later queries.
    for at in range((n_k - 1) // group * group, -1, -group):
        C, begin = min(group, n_k - at), max(at, first)
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
            scaled_row_factors(E, half, xq, covariance, R)
            store_weights(P, slopes, q_rows, xk, begin - at, R, C, E, coefficients, bits)
            store_score_gradients(S, slopes, g_rows, W, begin - at, R, C)
            add_feature_sums(N, g_rows, 0, P, 0, R, C)
            add_feature_sums(dx, q_rows, 0, S, 0, R, C)
            fill_monomials(F, xq, low, R)
            if len(covariance) > 0:
                times_row_factors(F, E, starts, len(starts) - 2, R)
            add_state(U, F, xq, G, scaled, low, top, R)
        for i in range(m):
            for t in range(C):
                dV[at + t, i] = N[i, t]
        for i in range(d):
            for t in range(C):
                dK[at + t, i] = dx[i, t]
