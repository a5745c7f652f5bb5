"""Compiled causal passes: exact within a tile, with the state of the earlier or later tiles for the rest.

Within a tile the scores P are a matrix (row, key), and the three products of `loops` are used for it, with
tokens instead of features. If each query row has its own polynomial, its variance comes from the given key
covariance, not from the sequence. E then includes e^(σ²/2), needed when exact and polynomial parts are added.
"""

from __future__ import annotations

import math

import numpy as np

from .loops import (
    add_products,
    aligned,
    compiled,
    features_vjp,
    fill_monomials,
    row_factors,
    store_product,
    store_transposed_product,
    take,
    take_gradient,
    take_with_ones,
)

TILE = 64
LARGEST = 80  # 2ᵏ of a larger exponent would not be a float32


@compiled
def scaled_row_factors(E, half, x, covariance, C):
    """Store `row_factors` times e^(σ²/2) in E."""
    row_factors(E, half, x, covariance, C)
    for t in range(C):
        half[t] = math.exp(-half[t])
    for m in range(E.shape[0]):
        for t in range(C):
            E[m, t] *= half[t]


@compiled
def times_every_factor(F, E, starts, C):
    """Multiply the features of degree l by E[⌊(g - l)/2⌋], including the two highest degrees."""
    g = len(starts) - 2
    for l in range(g + 1):
        m = (g - l) // 2
        for a in range(starts[l], starts[l + 1]):
            for t in range(C):
                F[a, t] *= E[m, t]


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
def diagonal_weights(P, q_rows, xk, C, bits):
    """Store in P (C, C) the exp of the scores of row t with the keys u ≤ t of its tile, 0 for u > t."""
    store_product(P[:C], q_rows[:C], xk, C)
    scale = bits.view(P.dtype)
    for t in range(C):
        exponentials(P[t], t + 1, scale, bits)  # later keys must not influence the method chosen for exp
        for u in range(t + 1, C):
            P[t, u] = 0


@compiled
def diagonal_score_gradients(S, P, g_rows, W, C):
    """Store P ∘ (Gᵀ W) in S (C, C)."""
    store_product(S[:C], g_rows[:C], W, C)
    for t in range(C):
        for u in range(C):
            S[t, u] *= P[t, u]


@compiled
def forward_of_head(O, den, Q, K, V, factor, covariance, steps, starts, w, bits):
    """Compute O and den of one head."""
    n, d, m, rank = Q.shape[0], Q.shape[1], V.shape[1], len(w)
    T, Tw = np.zeros((rank, m + 1), Q.dtype), np.zeros((rank, m + 1), Q.dtype)
    F = aligned(rank, TILE, Q)
    xq, xk, q_rows = aligned(d, TILE, Q), aligned(d, TILE, Q), np.empty((TILE, d), Q.dtype)
    W, N = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q)
    P, near = aligned(TILE, TILE, Q), np.empty((TILE, m + 1), Q.dtype)
    E, half = np.empty(((len(starts) - 2) // 2 + 1, TILE), Q.dtype), np.empty(TILE, Q.dtype)
    zero = np.zeros(d, Q.dtype)
    for at in range(0, n, TILE):
        C = min(TILE, n - at)
        take(xq, Q, at, C, factor, zero)
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        fill_monomials(F, xq, steps, C)
        if len(covariance) > 0:
            scaled_row_factors(E, half, xq, covariance, C)
            times_every_factor(F, E, starts, C)
        # A copy with weights: T itself is a sum to which the next tile is added.
        times_weights(Tw, T, w)
        store_transposed_product(N, F, Tw, C)
        turn(q_rows, xq, C)
        diagonal_weights(P, q_rows, xk, C, bits)
        near[:] = 0
        add_products(near[:C], P[:C], W, C)
        for t in range(C):
            den[at + t] = N[m, t] + near[t, m]
            for i in range(m):
                O[at + t, i] = (N[i, t] + near[t, i]) / den[at + t]
        fill_monomials(F, xk, steps, C)
        # After the rows of this tile, which use the exact weights of `diagonal_weights` for it.
        add_products(T, F, W, C)


@compiled
def queries_backward(dQ, Q, K, V, O, den, dO, factor, covariance, steps, starts, w, bits):
    """Compute dQ of one head, from the first tile to the last."""
    n, d, m, rank = Q.shape[0], Q.shape[1], V.shape[1], len(w)
    T, Tw = np.zeros((rank, m + 1), Q.dtype), np.zeros((rank, m + 1), Q.dtype)
    F, dF = aligned(rank, TILE, Q), aligned(rank, TILE, Q)
    xq, xk, q_rows = aligned(d, TILE, Q), aligned(d, TILE, Q), np.empty((TILE, d), Q.dtype)
    dx, near = aligned(d, TILE, Q), np.empty((TILE, d), Q.dtype)
    W, G = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q)
    g_rows = np.empty((TILE, m + 1), Q.dtype)
    P, S = aligned(TILE, TILE, Q), aligned(TILE, TILE, Q)
    E, half = np.empty(((len(starts) - 2) // 2 + 1, TILE), Q.dtype), np.empty(TILE, Q.dtype)
    zero = np.zeros(d, Q.dtype)
    for at in range(0, n, TILE):
        C = min(TILE, n - at)
        take(xq, Q, at, C, factor, zero)
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        take_gradient(G, O, den, dO, at, C)
        fill_monomials(F, xq, steps, C)
        times_weights(Tw, T, w)
        store_product(dF, Tw, G, C)
        if len(covariance) > 0:
            scaled_row_factors(E, half, xq, covariance, C)
            times_every_factor(dF, E, starts, C)
        features_vjp(dx, dF, F, xq, steps, C)
        turn(q_rows, xq, C)
        turn(g_rows, G, C)
        diagonal_weights(P, q_rows, xk, C, bits)
        diagonal_score_gradients(S, P, g_rows, W, C)
        near[:] = 0
        add_products(near[:C], S[:C], xk, C)
        for t in range(C):
            for i in range(d):
                dQ[at + t, i] = (dx[i, t] + near[t, i]) * factor
        fill_monomials(F, xk, steps, C)
        add_products(T, F, W, C)


@compiled
def keys_backward(dK, dV, Q, K, V, O, den, dO, factor, covariance, steps, starts, w, bits):
    """Compute dK and dV of one head, from the last tile to the first."""
    n, d, m, rank = Q.shape[0], Q.shape[1], V.shape[1], len(w)
    U, Uw = np.zeros((rank, m + 1), Q.dtype), np.zeros((rank, m + 1), Q.dtype)
    F, dF = aligned(rank, TILE, Q), aligned(rank, TILE, Q)
    xq, xk, q_rows = aligned(d, TILE, Q), aligned(d, TILE, Q), np.empty((TILE, d), Q.dtype)
    dx, near_k = aligned(d, TILE, Q), aligned(d, TILE, Q)
    N, near_v = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q)
    W, G = aligned(m + 1, TILE, Q), aligned(m + 1, TILE, Q)
    g_rows = np.empty((TILE, m + 1), Q.dtype)
    P, S = aligned(TILE, TILE, Q), aligned(TILE, TILE, Q)
    E, half = np.empty(((len(starts) - 2) // 2 + 1, TILE), Q.dtype), np.empty(TILE, Q.dtype)
    zero = np.zeros(d, Q.dtype)
    # The same tiles as in the forward pass, from the last, because keys need the later queries.
    for at in range((n - 1) // TILE * TILE, -1, -TILE):
        C = min(TILE, n - at)
        take(xq, Q, at, C, factor, zero)
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        take_gradient(G, O, den, dO, at, C)
        turn(q_rows, xq, C)
        turn(g_rows, G, C)
        diagonal_weights(P, q_rows, xk, C, bits)
        diagonal_score_gradients(S, P, g_rows, W, C)
        fill_monomials(F, xk, steps, C)
        times_weights(Uw, U, w)
        store_transposed_product(N, F, Uw, C)
        store_transposed_product(near_v, P, g_rows[:C], C)
        for i in range(m):
            for t in range(C):
                dV[at + t, i] = N[i, t] + near_v[i, t]
        store_product(dF, Uw, W, C)
        features_vjp(dx, dF, F, xk, steps, C)
        store_transposed_product(near_k, S, q_rows[:C], C)
        for i in range(d):
            for t in range(C):
                dK[at + t, i] = dx[i, t] + near_k[i, t]
        fill_monomials(F, xq, steps, C)
        if len(covariance) > 0:
            scaled_row_factors(E, half, xq, covariance, C)
            times_every_factor(F, E, starts, C)
        add_products(U, F, G, C)
