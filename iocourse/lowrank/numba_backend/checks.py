"""Compiled checks of complete arrays, whose numbers may be infinite or NaN, and the moments of the keys."""

from __future__ import annotations

import math

import numpy as np

from .products import compiled, compiling
from .tiles import take

# Sums may be reordered, as vectorisation needs; numbers must not be assumed to be finite.
checked = compiling(fastmath={"reassoc", "contract", "nsz"})

TILE = 256
LANES = 16  # rows whose columns are compared at a time


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


@checked
def sum_of_squares(flat):
    """Return the sum of the squares of (n,); it is not finite if an entry is not finite or too large."""
    total = flat.dtype.type(0)
    for t in range(len(flat)):
        total += flat[t] * flat[t]
    return total


@compiled
def extent(flat, m):
    """Return the smallest and the largest entry of each column of (n, m), passed as (n · m,): both (m,).

    All entries must be finite, so that comparisons may be vectorised.
    """
    wide = m * LANES
    low, high = np.full(wide, np.inf, flat.dtype), np.full(wide, -np.inf, flat.dtype)
    for at in range(0, len(flat), wide):
        for j in range(min(wide, len(flat) - at)):
            x = flat[at + j]
            low[j] = x if x < low[j] else low[j]
            high[j] = x if x > high[j] else high[j]
    for j in range(m, wide):
        low[j % m] = min(low[j % m], low[j])
        high[j % m] = max(high[j % m], high[j])
    return low[:m], high[:m]


@checked
def output_fine(O, den, V, m, least):
    """Return True if den (n,) is at least `least`, and O (n, m) is finite and within the range of V (n_k, m).

    O and V are passed as (n · m,) and (n_k · m,). The range is that of `error_certificates.within`.
    """
    for i in range(len(den)):
        if not least <= den[i] < np.inf:
            return False
    if not math.isfinite(sum_of_squares(O)):
        return False
    low, high = extent(O, m)
    least_of, most_of = extent(V, m)
    for i in range(m):
        room = (most_of[i] - least_of[i]) / 2 + 1e-3 * (abs(least_of[i]) + abs(most_of[i]))
        if low[i] < least_of[i] - room or high[i] > most_of[i] + room:
            return False
    return True
