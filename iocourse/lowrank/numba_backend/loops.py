"""Passes over the tokens of one head, compiled for the CPU by Numba: one tile of a span of tokens at a time.

A tile has C tokens, stored feature by feature. Every inner loop is over neighbouring tokens, which a compiler
can vectorise. Each function adds to a state or fills rows of its output arrays, so different threads can work
on spans of one head; none holds the GIL. The arrays are:

    steps (S, 4)   first, last, axis, source of each block of features (`monomials.FeatureBlock`)
    starts (g + 2,)  where each degree's features begin
    covariance (d, d)  of the keys, if each query row has its own polynomial; otherwise an empty array (0, 0)
    T, U (rank, d_v + 1)  the sums over keys and over queries, before weights

The file begins with the compiler options, and ends with the checks of complete arrays for the certificates.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.core import event

TILE = 256
CLIP = 0.8  # as in polynomials


class _Announcing(event.Listener):  # type: ignore[misc]
    """Listener that prints a message when Numba first compiles a loop of this package."""

    announced = False

    def on_start(self, event: Any) -> None:
        if self.announced or not event.data["dispatcher"].py_func.__module__.startswith(__package__):
            return
        self.announced = True
        print(
            "iocourse.lowrank: Numba compiles the passes for this type of numbers, which takes 10 to 30 s. "
            "The result is kept on disk where that is possible. engine='numpy' does not compile.",
            file=sys.stderr,
        )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcing())


def compiling(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `numba.njit` with these options; it caches on disk unless no cache folder is writeable."""

    def compiled(function: Callable[..., Any]) -> Any:
        shared = {"nogil": True, "error_model": "numpy"} | options
        try:
            return njit(cache=True, **shared)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache folder is writeable
            return njit(**shared)(function)

    return compiled


compiled = compiling(fastmath=True)
# Sums may be reordered, as vectorisation needs; numbers must not be assumed to be finite.
checked = compiling(fastmath={"reassoc", "contract", "nsz"})


# ---- passes of one head


@compiled
def aligned(rows, columns, like):
    """Allocate (rows, columns) numbers of the type of `like`, starting at a cache line.

    Every row starts at a line if columns is a multiple of 16. Vectors across two cache lines made the passes
    take longer, at random from call to call.
    """
    a_line = 64 // like.itemsize
    room = np.empty(rows * columns + a_line, like.dtype)
    first = (-room.ctypes.data % 64) // like.itemsize
    return room[first : first + rows * columns].reshape(rows, columns)


@compiled
def fill_monomials(F, x, steps, C):
    """Fill F (rank, C) with the monomials of x (d, C)."""
    for t in range(C):
        F[0, t] = 1
    for i in range(x.shape[0]):
        for t in range(C):
            F[1 + i, t] = x[i, t]
    for s in range(steps.shape[0]):
        first, last, axis, source = steps[s]
        for a in range(last - first):
            for t in range(C):
                F[first + a, t] = F[source + a, t] * x[axis, t]


@compiled
def features_vjp(dx, dF, F, x, steps, C):
    """Compute dx (d, C) from dF (rank, C), which is overwritten."""
    for i in range(x.shape[0]):
        for t in range(C):
            dx[i, t] = 0
    # Backwards: a feature's gradient is complete when all features made from it have passed theirs on.
    for s in range(steps.shape[0] - 1, -1, -1):
        first, last, axis, source = steps[s]
        for a in range(last - first):
            for t in range(C):
                up = dF[first + a, t]
                dx[axis, t] += up * F[source + a, t]
                dF[source + a, t] += up * x[axis, t]
    for i in range(x.shape[0]):
        for t in range(C):
            dx[i, t] += dF[1 + i, t]


@compiled
def add_products(T, F, W, C):
    """Add F (rank, C) Wᵀ to T (rank, m), two features by four columns at a time."""
    rank, m = T.shape
    for a in range(0, rank - 1, 2):
        for c in range(0, m - 3, 4):
            # Eight sums in registers: six loads give eight products, and T is read and written once per tile.
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = T.dtype.type(0)
            for t in range(C):
                f0, f1 = F[a, t], F[a + 1, t]
                w0, w1, w2, w3 = W[c, t], W[c + 1, t], W[c + 2, t], W[c + 3, t]
                s00 += f0 * w0
                s01 += f0 * w1
                s02 += f0 * w2
                s03 += f0 * w3
                s10 += f1 * w0
                s11 += f1 * w1
                s12 += f1 * w2
                s13 += f1 * w3
            T[a, c] += s00
            T[a, c + 1] += s01
            T[a, c + 2] += s02
            T[a, c + 3] += s03
            T[a + 1, c] += s10
            T[a + 1, c + 1] += s11
            T[a + 1, c + 2] += s12
            T[a + 1, c + 3] += s13
        for c in range(m - m % 4, m):
            s0 = s1 = T.dtype.type(0)
            for t in range(C):
                s0 += F[a, t] * W[c, t]
                s1 += F[a + 1, t] * W[c, t]
            T[a, c] += s0
            T[a + 1, c] += s1
    if rank % 2 == 1:
        for c in range(m):
            s0 = T.dtype.type(0)
            for t in range(C):
                s0 += F[rank - 1, t] * W[c, t]
            T[rank - 1, c] += s0


@compiled
def store_transposed_product(N, F, T, C):
    """Store Tᵀ F in N (m, C), eight features at a time."""
    rank, m = T.shape
    eights = rank - rank % 8
    for c in range(m):
        for t in range(C):
            N[c, t] = 0
    # N is read and written once for eight features. As a tree, fewer additions wait for each other.
    for a in range(0, eights, 8):
        for c in range(m):
            t0, t1, t2, t3 = T[a, c], T[a + 1, c], T[a + 2, c], T[a + 3, c]
            t4, t5, t6, t7 = T[a + 4, c], T[a + 5, c], T[a + 6, c], T[a + 7, c]
            for t in range(C):
                low = (F[a, t] * t0 + F[a + 1, t] * t1) + (F[a + 2, t] * t2 + F[a + 3, t] * t3)
                high = (F[a + 4, t] * t4 + F[a + 5, t] * t5) + (F[a + 6, t] * t6 + F[a + 7, t] * t7)
                N[c, t] += low + high
    for a in range(eights, rank):
        for c in range(m):
            t0 = T[a, c]
            for t in range(C):
                N[c, t] += F[a, t] * t0


@compiled
def store_product(D, T, W, C):
    """Store T W in D (rank, C), with W (m, C), two features by eight columns at a time."""
    rank, m = T.shape
    eights, fours = m - m % 8, m - m % 4
    if rank == 1:
        for t in range(C):
            D[0, t] = 0
            for c in range(m):
                D[0, t] += W[c, t] * T[0, c]
        return
    for first in range(0, rank, 2):
        a = min(first, rank - 2)  # if rank is odd, the last feature but one is computed twice
        b = a + 1
        for t in range(C):
            D[a, t] = 0
            D[b, t] = 0
        for c in range(0, eights, 8):
            s0, s1, s2, s3 = T[a, c], T[a, c + 1], T[a, c + 2], T[a, c + 3]
            s4, s5, s6, s7 = T[a, c + 4], T[a, c + 5], T[a, c + 6], T[a, c + 7]
            u0, u1, u2, u3 = T[b, c], T[b, c + 1], T[b, c + 2], T[b, c + 3]
            u4, u5, u6, u7 = T[b, c + 4], T[b, c + 5], T[b, c + 6], T[b, c + 7]
            for t in range(C):
                w0, w1, w2, w3 = W[c, t], W[c + 1, t], W[c + 2, t], W[c + 3, t]
                w4, w5, w6, w7 = W[c + 4, t], W[c + 5, t], W[c + 6, t], W[c + 7, t]
                D[a, t] += ((w0 * s0 + w1 * s1) + (w2 * s2 + w3 * s3)) + (
                    (w4 * s4 + w5 * s5) + (w6 * s6 + w7 * s7)
                )
                D[b, t] += ((w0 * u0 + w1 * u1) + (w2 * u2 + w3 * u3)) + (
                    (w4 * u4 + w5 * u5) + (w6 * u6 + w7 * u7)
                )
        for c in range(eights, fours, 4):
            s0, s1, s2, s3 = T[a, c], T[a, c + 1], T[a, c + 2], T[a, c + 3]
            u0, u1, u2, u3 = T[b, c], T[b, c + 1], T[b, c + 2], T[b, c + 3]
            for t in range(C):
                w0, w1, w2, w3 = W[c, t], W[c + 1, t], W[c + 2, t], W[c + 3, t]
                D[a, t] += (w0 * s0 + w1 * s1) + (w2 * s2 + w3 * s3)
                D[b, t] += (w0 * u0 + w1 * u1) + (w2 * u2 + w3 * u3)
        for c in range(fours, m):
            s0, u0 = T[a, c], T[b, c]
            for t in range(C):
                D[a, t] += W[c, t] * s0
                D[b, t] += W[c, t] * u0


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
def row_factors(E, half, x, covariance, C):
    """Fill E (⌊g/2⌋ + 1, C) with the series of exp(half) cut after m terms.

    half = -σ²/2, where σ² is xᵀ covariance x, clipped.
    """
    d = x.shape[0]
    for t in range(C):
        half[t] = 0
        E[0, t] = 1
    for i in range(d):
        for j in range(d):
            c = covariance[i, j] / 2
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
def times_row_factors(F, E, starts, C):
    """Multiply the features of degree l by E[⌊(g - l)/2⌋], except the two highest degrees, where it is 1."""
    g = len(starts) - 2
    for l in range(g - 1):
        m = (g - l) // 2
        for a in range(starts[l], starts[l + 1]):
            for t in range(C):
                F[a, t] *= E[m, t]


@compiled
def moments(K):
    """Return the mean (d,) of the rows of K and their covariance (d, d).

    Sums are taken about the mean of the first tile; sums about 0 would cancel if all keys share an offset.
    """
    n, d = K.shape
    about = np.zeros(d, K.dtype)
    for t in range(min(TILE, n)):
        for i in range(d):
            about[i] += K[t, i] / min(TILE, n)
    mean, second = np.zeros(d, np.float64), np.zeros((d, d), np.float64)
    x = np.empty((d, TILE), K.dtype)
    for at in range(0, n, TILE):
        C = min(TILE, n - at)
        take(x, K, at, C, K.dtype.type(1), about)
        for i in range(d):
            s = K.dtype.type(0)
            for t in range(C):
                s += x[i, t]
            mean[i] += s
            for j in range(i + 1):
                s = K.dtype.type(0)
                for t in range(C):
                    s += x[i, t] * x[j, t]
                second[i, j] += s
    mean /= n
    for i in range(d):
        for j in range(i + 1):
            second[i, j] = second[i, j] / n - mean[i] * mean[j]
            second[j, i] = second[i, j]
    return (mean + about).astype(K.dtype), second.astype(K.dtype)


@compiled
def keys_forward(T, K, V, start, stop, shift, steps):
    """Add Σ ψ(k - shift) [v, 1]ᵀ over the span to T."""
    C0 = min(TILE, stop - start)
    F = aligned(T.shape[0], C0, K)
    x, W = aligned(K.shape[1], C0, K), aligned(T.shape[1], C0, K)
    for at in range(start, stop, TILE):
        C = min(TILE, stop - at)
        take(x, K, at, C, K.dtype.type(1), shift)
        take_with_ones(W, V, at, C)
        fill_monomials(F, x, steps, C)
        add_products(T, F, W, C)


@compiled
def queries_forward(O, den, T, Q, start, stop, factor, covariance, steps, starts):
    """Compute O and den of the span from the weighted state T."""
    C0 = min(TILE, stop - start)
    F = aligned(T.shape[0], C0, Q)
    x, N = aligned(Q.shape[1], C0, Q), aligned(T.shape[1], C0, Q)
    E, half = np.empty(((len(starts) - 2) // 2 + 1, C0), Q.dtype), np.empty(C0, Q.dtype)
    zero = np.zeros(Q.shape[1], Q.dtype)
    m = O.shape[1]
    for at in range(start, stop, TILE):
        C = min(TILE, stop - at)
        take(x, Q, at, C, factor, zero)
        fill_monomials(F, x, steps, C)
        if len(covariance) > 0:
            row_factors(E, half, x, covariance, C)
            times_row_factors(F, E, starts, C)
        store_transposed_product(N, F, T, C)
        for t in range(C):
            den[at + t] = N[m, t]
        for i in range(m):
            for t in range(C):
                O[at + t, i] = N[i, t] / N[m, t]


@compiled
def queries_backward(dQ, U, T, Q, O, den, dO, start, stop, factor, covariance, steps, starts):
    """Compute dQ of the span from the weighted state T, and add Σ φ(q) [dO, -Σ dO ∘ O]ᵀ / den to U."""
    C0 = min(TILE, stop - start)
    F, dF = aligned(T.shape[0], C0, Q), aligned(T.shape[0], C0, Q)
    x, dx = aligned(Q.shape[1], C0, Q), aligned(Q.shape[1], C0, Q)
    G = aligned(T.shape[1], C0, Q)
    E, half = np.empty(((len(starts) - 2) // 2 + 1, C0), Q.dtype), np.empty(C0, Q.dtype)
    zero = np.zeros(Q.shape[1], Q.dtype)
    for at in range(start, stop, TILE):
        C = min(TILE, stop - at)
        take(x, Q, at, C, factor, zero)
        take_gradient(G, O, den, dO, at, C)
        fill_monomials(F, x, steps, C)
        store_product(dF, T, G, C)
        if len(covariance) > 0:
            row_factors(E, half, x, covariance, C)
            times_row_factors(dF, E, starts, C)
        features_vjp(dx, dF, F, x, steps, C)
        # Only now, because features_vjp needs the monomials without these factors.
        if len(covariance) > 0:
            times_row_factors(F, E, starts, C)
        add_products(U, F, G, C)
        for i in range(Q.shape[1]):
            for t in range(C):
                dQ[at + t, i] = dx[i, t] * factor


@compiled
def keys_backward(dK, dV, U, K, V, start, stop, shift, steps):
    """Compute dK and dV of the span from the weighted state U."""
    C0 = min(TILE, stop - start)
    F, dF = aligned(U.shape[0], C0, K), aligned(U.shape[0], C0, K)
    x, dx = aligned(K.shape[1], C0, K), aligned(K.shape[1], C0, K)
    W = aligned(U.shape[1], C0, K)
    for at in range(start, stop, TILE):
        C = min(TILE, stop - at)
        take(x, K, at, C, K.dtype.type(1), shift)
        fill_monomials(F, x, steps, C)
        store_transposed_product(W, F, U, C)
        for i in range(V.shape[1]):
            for t in range(C):
                dV[at + t, i] = W[i, t]
        take_with_ones(W, V, at, C)
        store_product(dF, U, W, C)
        features_vjp(dx, dF, F, x, steps, C)
        for i in range(K.shape[1]):
            for t in range(C):
                dK[at + t, i] = dx[i, t]


# ---- complete arrays, which may contain numbers that are not finite


@checked
def sum_of_squares(X):
    """Return the sum of the squares of X (n, m); it is not finite if an entry is not finite or too large."""
    total = X.dtype.type(0)
    for t in range(X.shape[0]):
        for i in range(X.shape[1]):
            total += X[t, i] * X[t, i]
    return total


@checked
def finite(Q, K, V):
    """Return True if the squares of each of the three arrays have a finite sum."""
    return (
        math.isfinite(sum_of_squares(Q))
        and math.isfinite(sum_of_squares(K))
        and math.isfinite(sum_of_squares(V))
    )


@checked
def extent(X):
    """Return the smallest and the largest entry of each column of X (n, m), both (m,)."""
    low, high = X[0].copy(), X[0].copy()
    for t in range(X.shape[0]):
        for i in range(X.shape[1]):
            low[i] = X[t, i] if X[t, i] < low[i] else low[i]
            high[i] = X[t, i] if X[t, i] > high[i] else high[i]
    return low, high


@checked
def output_fine(O, den, V, least):
    """Return True if den (n,) is at least `least`, and O (n, m) is finite and within the range of V (n_k, m).

    The range is that of `error_certificates.within`.
    """
    for i in range(len(den)):
        if not least <= den[i] < np.inf:
            return False
    if not math.isfinite(sum_of_squares(O)):
        return False
    low, high = extent(O)
    least, most = extent(V)
    for i in range(len(low)):
        room = (most[i] - least[i]) / 2 + 1e-3 * (abs(least[i]) + abs(most[i]))
        if low[i] < least[i] - room or high[i] > most[i] + room:
            return False
    return True
