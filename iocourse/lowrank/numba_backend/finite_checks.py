"""What the guards ask of whole arrays, compiled: one pass, and numbers that are not finite are expected."""

from __future__ import annotations

import math

import numpy as np

from .compiling import compiling

# Sums may be reordered, which vector instructions need; that all numbers are finite may not be assumed.
checked = compiling(fastmath={"reassoc", "contract", "nsz"})


@checked
def squares(X):
    """The sum of the squares of X (n, m): not finite where an entry is not, or where it is too large."""
    total = X.dtype.type(0)
    for t in range(X.shape[0]):
        for i in range(X.shape[1]):
            total += X[t, i] * X[t, i]
    return total


@checked
def finite(Q, K, V):
    """Whether the squares of each of the three have a finite sum."""
    return math.isfinite(squares(Q)) and math.isfinite(squares(K)) and math.isfinite(squares(V))


@checked
def extent(X):
    """The smallest (m,) and the largest entry of each column of X (n, m)."""
    low, high = X[0].copy(), X[0].copy()
    for t in range(X.shape[0]):
        for i in range(X.shape[1]):
            low[i] = X[t, i] if X[t, i] < low[i] else low[i]
            high[i] = X[t, i] if X[t, i] > high[i] else high[i]
    return low, high


@checked
def output_fine(O, den, V, least):
    """Whether den (n,) is at least `least`, and O (n, m) finite and `guards.within` V (n_k, m)."""
    for i in range(len(den)):
        if not least <= den[i] < np.inf:
            return False
    if not math.isfinite(squares(O)):
        return False
    low, high = extent(O)
    least, most = extent(V)
    for i in range(len(low)):
        room = (most[i] - least[i]) / 2 + 1e-3 * (abs(least[i]) + abs(most[i]))
        if low[i] < least[i] - room or high[i] > most[i] + room:
            return False
    return True
