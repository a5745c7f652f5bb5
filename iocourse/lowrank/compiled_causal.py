"""The causal passes, compiled: exact within a tile, the state of the tiles before or after outside.

Where each query row has its own polynomial, its variance is that of given key covariance, never of the
sequence: E then holds the true scale e^(σ²/2) too, since near (exact) and far (polynomial) parts are added.
"""

from __future__ import annotations

import math

import numpy as np

from .compiled import (
    CAUSAL_TILE,
    CLIP,
    add_products,
    compiled,
    fill_monomials,
    gather,
    pull_back,
    row_factors,
    spread,
    take,
    take_gradient,
    take_with_ones,
)


@compiled
def scaled_row_factors(E, x, covariance, C):
    """`row_factors` times e^(σ²/2)."""
    row_factors(E, x, covariance, C)
    for t in range(C):
        variance = x.dtype.type(0)
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                variance += covariance[i, j] * x[i, t] * x[j, t]
        true_scale = math.exp(min(variance, CLIP) / 2)
        for m in range(E.shape[0]):
            E[m, t] *= true_scale


@compiled
def times_every_factor(F, E, starts, C):
    """Features of degree l times E[⌊(g - l)/2⌋], the two highest degrees too."""
    g = len(starts) - 2
    for l in range(g + 1):
        m = (g - l) // 2
        for a in range(starts[l], starts[l + 1]):
            for t in range(C):
                F[a, t] *= E[m, t]


@compiled
def times_weights(Tw, T, w):
    """Tw = w ∘ T."""
    for a in range(T.shape[0]):
        for c in range(T.shape[1]):
            Tw[a, c] = T[a, c] * w[a]


@compiled
def inside(P, xq, xk, C):
    """P (C, C): exp of the scores of row t with the keys u ≤ t of its tile, 0 after."""
    for t in range(C):
        for u in range(C):
            P[t, u] = 0
        for i in range(xq.shape[0]):
            q = xq[i, t]
            for u in range(t + 1):
                P[t, u] += q * xk[i, u]
        for u in range(t + 1):
            P[t, u] = math.exp(P[t, u])


@compiled
def inside_gradient(S, P, G, W, C):
    """S (C, C) = P ∘ (Gᵀ W)."""
    for t in range(C):
        for u in range(C):
            S[t, u] = 0
        for c in range(G.shape[0]):
            g = G[c, t]
            for u in range(t + 1):
                S[t, u] += g * W[c, u]
        for u in range(t + 1):
            S[t, u] *= P[t, u]


@compiled
def add_rows(N, P, W, C):
    """N (m, C) += W Pᵀ: row t of P (C, C) weighs the columns of W."""
    for t in range(C):
        for c in range(W.shape[0]):
            s = N.dtype.type(0)
            for u in range(t + 1):
                s += P[t, u] * W[c, u]
            N[c, t] += s


@compiled
def add_columns(N, P, W, C):
    """N (m, C) += W P: row t of P weighs column t of W."""
    for t in range(C):
        for c in range(W.shape[0]):
            w = W[c, t]
            for u in range(t + 1):
                N[c, u] += P[t, u] * w


@compiled
def forward(O, den, Q, K, V, factor, covariance, steps, starts, w):
    """O and den of one head."""
    n, d, m, rank = Q.shape[0], Q.shape[1], V.shape[1], len(w)
    T, Tw = np.zeros((rank, m + 1), Q.dtype), np.zeros((rank, m + 1), Q.dtype)
    F = np.empty((rank, CAUSAL_TILE), Q.dtype)
    xq, xk = np.empty((d, CAUSAL_TILE), Q.dtype), np.empty((d, CAUSAL_TILE), Q.dtype)
    W, N = np.empty((m + 1, CAUSAL_TILE), Q.dtype), np.empty((m + 1, CAUSAL_TILE), Q.dtype)
    P = np.empty((CAUSAL_TILE, CAUSAL_TILE), Q.dtype)
    E, zero = np.empty(((len(starts) - 2) // 2 + 1, CAUSAL_TILE), Q.dtype), np.zeros(d, Q.dtype)
    for at in range(0, n, CAUSAL_TILE):
        C = min(CAUSAL_TILE, n - at)
        take(xq, Q, at, C, factor, zero)
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        fill_monomials(F, xq, steps, C)
        if len(covariance) > 0:
            scaled_row_factors(E, xq, covariance, C)
            times_every_factor(F, E, starts, C)
        times_weights(Tw, T, w)
        gather(N, F, Tw, C)
        inside(P, xq, xk, C)
        add_rows(N, P, W, C)
        for t in range(C):
            den[at + t] = N[m, t]
        for i in range(m):
            for t in range(C):
                O[at + t, i] = N[i, t] / N[m, t]
        fill_monomials(F, xk, steps, C)
        add_products(T, F, W, C)


@compiled
def queries_backward(dQ, Q, K, V, O, den, dO, factor, covariance, steps, starts, w):
    """dQ of one head, in the order of the tokens."""
    n, d, m, rank = Q.shape[0], Q.shape[1], V.shape[1], len(w)
    T, Tw = np.zeros((rank, m + 1), Q.dtype), np.zeros((rank, m + 1), Q.dtype)
    F, dF = np.empty((rank, CAUSAL_TILE), Q.dtype), np.empty((rank, CAUSAL_TILE), Q.dtype)
    xq, xk = np.empty((d, CAUSAL_TILE), Q.dtype), np.empty((d, CAUSAL_TILE), Q.dtype)
    dx = np.empty((d, CAUSAL_TILE), Q.dtype)
    W, G = np.empty((m + 1, CAUSAL_TILE), Q.dtype), np.empty((m + 1, CAUSAL_TILE), Q.dtype)
    P, S = np.empty((CAUSAL_TILE, CAUSAL_TILE), Q.dtype), np.empty((CAUSAL_TILE, CAUSAL_TILE), Q.dtype)
    E, zero = np.empty(((len(starts) - 2) // 2 + 1, CAUSAL_TILE), Q.dtype), np.zeros(d, Q.dtype)
    for at in range(0, n, CAUSAL_TILE):
        C = min(CAUSAL_TILE, n - at)
        take(xq, Q, at, C, factor, zero)
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        take_gradient(G, O, den, dO, at, C)
        fill_monomials(F, xq, steps, C)
        times_weights(Tw, T, w)
        spread(dF, Tw, G, C)
        if len(covariance) > 0:
            scaled_row_factors(E, xq, covariance, C)
            times_every_factor(dF, E, starts, C)
        pull_back(dx, dF, F, xq, steps, C)
        inside(P, xq, xk, C)
        inside_gradient(S, P, G, W, C)
        add_rows(dx, S, xk, C)
        for i in range(d):
            for t in range(C):
                dQ[at + t, i] = dx[i, t] * factor
        fill_monomials(F, xk, steps, C)
        add_products(T, F, W, C)


@compiled
def keys_backward(dK, dV, Q, K, V, O, den, dO, factor, covariance, steps, starts, w):
    """dK and dV of one head, from the last token on."""
    n, d, m, rank = Q.shape[0], Q.shape[1], V.shape[1], len(w)
    U, Uw = np.zeros((rank, m + 1), Q.dtype), np.zeros((rank, m + 1), Q.dtype)
    F, dF = np.empty((rank, CAUSAL_TILE), Q.dtype), np.empty((rank, CAUSAL_TILE), Q.dtype)
    xq, xk = np.empty((d, CAUSAL_TILE), Q.dtype), np.empty((d, CAUSAL_TILE), Q.dtype)
    dx, N = np.empty((d, CAUSAL_TILE), Q.dtype), np.empty((m + 1, CAUSAL_TILE), Q.dtype)
    W, G = np.empty((m + 1, CAUSAL_TILE), Q.dtype), np.empty((m + 1, CAUSAL_TILE), Q.dtype)
    P, S = np.empty((CAUSAL_TILE, CAUSAL_TILE), Q.dtype), np.empty((CAUSAL_TILE, CAUSAL_TILE), Q.dtype)
    E, zero = np.empty(((len(starts) - 2) // 2 + 1, CAUSAL_TILE), Q.dtype), np.zeros(d, Q.dtype)
    for at in range((n - 1) // CAUSAL_TILE * CAUSAL_TILE, -1, -CAUSAL_TILE):
        C = min(CAUSAL_TILE, n - at)
        take(xq, Q, at, C, factor, zero)
        take(xk, K, at, C, Q.dtype.type(1), zero)
        take_with_ones(W, V, at, C)
        take_gradient(G, O, den, dO, at, C)
        inside(P, xq, xk, C)
        inside_gradient(S, P, G, W, C)
        fill_monomials(F, xk, steps, C)
        times_weights(Uw, U, w)
        gather(N, F, Uw, C)
        add_columns(N, P, G, C)
        for i in range(m):
            for t in range(C):
                dV[at + t, i] = N[i, t]
        spread(dF, Uw, W, C)
        pull_back(dx, dF, F, xk, steps, C)
        add_columns(dx, S, xq, C)
        for i in range(d):
            for t in range(C):
                dK[at + t, i] = dx[i, t]
        fill_monomials(F, xq, steps, C)
        if len(covariance) > 0:
            scaled_row_factors(E, xq, covariance, C)
            times_every_factor(F, E, starts, C)
        add_products(U, F, G, C)
