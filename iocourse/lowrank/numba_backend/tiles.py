"""Steps of a compiled pass on one tile of tokens: load rows, make features, and pull gradients back.

A tile has C tokens, stored feature by feature. Features are stored up to degree g, or only below degree g if
there are many: a feature of degree g is a coordinate times one of degree g - 1, so its products are formed
from that one, block by block. The arrays are:

    low, top (S, 4)  first, last, axis, source of each block of features (`monomials.FeatureBlock`): those
                     that are stored, and those that are not
    starts (g + 2,)  where each degree's features begin
    F, D (base, C)   stored features of the tile, and their gradient
    x, dx (d, C)     coordinates of the tile, and their gradient
    W (m, C)         columns of the tile, such as [V, 1], and `scaled`, a work array of the same shape
"""

from __future__ import annotations

from .products import add_column_sums, add_feature_sums, add_token_sums, compiled

CLIP = 0.8  # as in polynomials


@compiled
def take(x, X, at, C, factor, shift):
    """Store factor · (X - shift) of C rows from row `at` on, transposed, in x (d, C)."""
    for i in range(X.shape[1]):
        off = shift[i]
        for t in range(C):
            x[i, t] = (X[at + t, i] - off) * factor


@compiled
def take_with_ones(W, V, at, C):
    """Store [V, 1] of C rows from row `at` on, transposed, in W (d_v + 1, C)."""
    m = V.shape[1]
    for i in range(m):
        for t in range(C):
            W[i, t] = V[at + t, i]
    for t in range(C):
        W[m, t] = 1


@compiled
def take_gradient(W, O, den, dO, at, C):
    """Store [dO, -Σ dO ∘ O] / den of C rows from row `at` on, transposed, in W (d_v + 1, C)."""
    m = O.shape[1]
    for t in range(C):
        W[m, t] = 0
    for i in range(m):
        for t in range(C):
            W[i, t] = dO[at + t, i] / den[at + t]
            W[m, t] -= W[i, t] * O[at + t, i]


@compiled
def fill_monomials(F, x, low, C):
    """Fill F with the stored monomials of x."""
    for t in range(C):
        F[0, t] = 1
    for i in range(x.shape[0]):
        for t in range(C):
            F[1 + i, t] = x[i, t]
    for s in range(low.shape[0]):
        first, last, axis, source = low[s]
        for a in range(last - first):
            for t in range(C):
                F[first + a, t] = F[source + a, t] * x[axis, t]


@compiled
def add_state(T, F, x, W, scaled, low, top, C):
    """Add the products of all features with the columns W to T (rank, m): T_i += F_i (x_i W)ᵀ for a block."""
    base, m = F.shape[0], W.shape[0]
    add_token_sums(T, 0, F, 0, base, W, C)
    for s in range(top.shape[0]):
        first, last, axis, source = top[s]
        for c in range(m):
            for t in range(C):
                scaled[c, t] = W[c, t] * x[axis, t]
        add_token_sums(T, first, F, source, last - first, scaled, C)


@compiled
def store_stored_output(N, T, F, C):
    """Store Tᵀ times the stored features in N (m, C)."""
    for c in range(N.shape[0]):
        for t in range(C):
            N[c, t] = 0
    add_feature_sums(N, T, 0, F, 0, F.shape[0], C)


@compiled
def store_output(N, T, F, x, scaled, top, C):
    """Store Tᵀ times all features in N (m, C): N += x_i (T_iᵀ F_i) for a block."""
    store_stored_output(N, T, F, C)
    for s in range(top.shape[0]):
        first, last, axis, source = top[s]
        for c in range(N.shape[0]):
            for t in range(C):
                scaled[c, t] = 0
        add_feature_sums(scaled, T, first, F, source, last - first, C)
        for c in range(N.shape[0]):
            for t in range(C):
                N[c, t] += scaled[c, t] * x[axis, t]


@compiled
def store_feature_gradients(D, T, W, C):
    """Store the gradient T W of the stored features in D."""
    for a in range(D.shape[0]):
        for t in range(C):
            D[a, t] = 0
    add_column_sums(D, 0, T, 0, D.shape[0], W, C)


@compiled
def pull_back(dx, D, N, F, x, T, W, scaled, low, top, C):
    """Compute dx, the gradient of Σ W ∘ (Tᵀ features), from T and the gradient D of the stored features.

    D is overwritten. The part of Tᵀ features from the features that are not stored is added to N (m, C).
    """
    m = W.shape[0]
    for i in range(x.shape[0]):
        for t in range(C):
            dx[i, t] = 0
    for s in range(top.shape[0]):
        first, last, axis, source = top[s]
        for c in range(m):
            for t in range(C):
                scaled[c, t] = 0
        add_feature_sums(scaled, T, first, F, source, last - first, C)
        # The block's gradients are not needed one by one: their sum by x_i is a product with T_iᵀ F_i.
        for c in range(m):
            for t in range(C):
                dx[axis, t] += W[c, t] * scaled[c, t]
                N[c, t] += x[axis, t] * scaled[c, t]
                scaled[c, t] = W[c, t] * x[axis, t]
        add_column_sums(D, source, T, first, last - first, scaled, C)
    # Backwards: a feature's gradient is complete when all features made from it have passed theirs on.
    for s in range(low.shape[0] - 1, -1, -1):
        first, last, axis, source = low[s]
        for a in range(last - first):
            for t in range(C):
                up = D[first + a, t]
                dx[axis, t] += up * F[source + a, t]
                D[source + a, t] += up * x[axis, t]
    for i in range(x.shape[0]):
        for t in range(C):
            dx[i, t] += D[1 + i, t]


@compiled
def row_factors(E, half, x, covariance, C):
    """Fill E (⌊g/2⌋ + 1, C) with the series of exp(half) cut after m terms.

    half = -σ²/2, where σ² is xᵀ covariance x, clipped.
    """
    d = x.shape[0]
    for t in range(C):
        half[t] = 0
        E[0, t] = 1
    for i in range(d):
        for j in range(i + 1):
            c = covariance[i, j] / 2 if i == j else covariance[i, j]
            for t in range(C):
                half[t] -= c * x[i, t] * x[j, t]
    for t in range(C):
        half[t] = max(half[t], -CLIP / 2)
    for m in range(1, E.shape[0]):
        for t in range(C):
            power = half[t]
            for k in range(2, m + 1):
                power *= half[t] / k
            E[m, t] = E[m - 1, t] + power


@compiled
def times_row_factors(F, E, starts, most, C):
    """Multiply the stored features of degree l ≤ most by E[⌊(g - l)/2⌋]."""
    g = len(starts) - 2
    for l in range(most + 1):
        m = (g - l) // 2
        for a in range(starts[l], min(starts[l + 1], F.shape[0])):
            for t in range(C):
                F[a, t] *= E[m, t]
