"""Three products of features and columns, compiled by Numba and written out for several columns at a time.

With features F (·, C) of C tokens, columns W (m, C) of the same tokens, and a state T (·, m):

    add_token_sums     T += F Wᵀ
    add_feature_sums   N += Tᵀ F, N (m, C)
    add_column_sums    D += T W, D (·, C)

Most of the time of the passes is spent here. Each function takes `count` rows of features: of T from row
`first` on, and of F or D from row `source` on. Every inner loop is over neighbouring tokens, which a compiler
can vectorise. The module begins with the options of the compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.core import event


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
def add_token_sums(T, first, F, source, count, W, C):
    """Add F Wᵀ to T, two features by four columns at a time."""
    m = W.shape[0]
    fours, even = m - m % 4, count - count % 2
    for a in range(0, even, 2):
        f, to = source + a, first + a
        for c in range(0, fours, 4):
            # Eight sums in registers: six loads give eight products, and T is read and written once per tile.
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = T.dtype.type(0)
            for t in range(C):
                f0, f1 = F[f, t], F[f + 1, t]
                w0, w1, w2, w3 = W[c, t], W[c + 1, t], W[c + 2, t], W[c + 3, t]
                s00 += f0 * w0
                s01 += f0 * w1
                s02 += f0 * w2
                s03 += f0 * w3
                s10 += f1 * w0
                s11 += f1 * w1
                s12 += f1 * w2
                s13 += f1 * w3
            T[to, c] += s00
            T[to, c + 1] += s01
            T[to, c + 2] += s02
            T[to, c + 3] += s03
            T[to + 1, c] += s10
            T[to + 1, c + 1] += s11
            T[to + 1, c + 2] += s12
            T[to + 1, c + 3] += s13
        for c in range(fours, m):
            s0 = s1 = T.dtype.type(0)
            for t in range(C):
                s0 += F[f, t] * W[c, t]
                s1 += F[f + 1, t] * W[c, t]
            T[to, c] += s0
            T[to + 1, c] += s1
    for a in range(even, count):
        for c in range(m):
            s0 = T.dtype.type(0)
            for t in range(C):
                s0 += F[source + a, t] * W[c, t]
            T[first + a, c] += s0


@compiled
def add_feature_sums(N, T, first, F, source, count, C):
    """Add Tᵀ F to N, eight features at a time."""
    m = N.shape[0]
    eights = count - count % 8
    # N is read and written once for eight features. As a tree, fewer additions wait for each other.
    for a in range(0, eights, 8):
        f, of = source + a, first + a
        for c in range(m):
            t0, t1, t2, t3 = T[of, c], T[of + 1, c], T[of + 2, c], T[of + 3, c]
            t4, t5, t6, t7 = T[of + 4, c], T[of + 5, c], T[of + 6, c], T[of + 7, c]
            for t in range(C):
                low = (F[f, t] * t0 + F[f + 1, t] * t1) + (F[f + 2, t] * t2 + F[f + 3, t] * t3)
                high = (F[f + 4, t] * t4 + F[f + 5, t] * t5) + (F[f + 6, t] * t6 + F[f + 7, t] * t7)
                N[c, t] += low + high
    rest = eights
    if count - eights >= 4:
        rest += 4
        f, of = source + eights, first + eights
        for c in range(m):
            t0, t1, t2, t3 = T[of, c], T[of + 1, c], T[of + 2, c], T[of + 3, c]
            for t in range(C):
                N[c, t] += (F[f, t] * t0 + F[f + 1, t] * t1) + (F[f + 2, t] * t2 + F[f + 3, t] * t3)
    for a in range(rest, count):
        for c in range(m):
            t0 = T[first + a, c]
            for t in range(C):
                N[c, t] += F[source + a, t] * t0


@compiled
def add_column_sums(D, source, T, first, count, W, C):
    """Add T W to D, two features by eight columns at a time."""
    m = W.shape[0]
    eights, fours, even = m - m % 8, m - m % 4, count - count % 2
    for pair in range(0, even, 2):
        a, of = source + pair, first + pair
        b = a + 1
        for c in range(0, eights, 8):
            s0, s1, s2, s3 = T[of, c], T[of, c + 1], T[of, c + 2], T[of, c + 3]
            s4, s5, s6, s7 = T[of, c + 4], T[of, c + 5], T[of, c + 6], T[of, c + 7]
            u0, u1, u2, u3 = T[of + 1, c], T[of + 1, c + 1], T[of + 1, c + 2], T[of + 1, c + 3]
            u4, u5, u6, u7 = T[of + 1, c + 4], T[of + 1, c + 5], T[of + 1, c + 6], T[of + 1, c + 7]
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
            s0, s1, s2, s3 = T[of, c], T[of, c + 1], T[of, c + 2], T[of, c + 3]
            u0, u1, u2, u3 = T[of + 1, c], T[of + 1, c + 1], T[of + 1, c + 2], T[of + 1, c + 3]
            for t in range(C):
                w0, w1, w2, w3 = W[c, t], W[c + 1, t], W[c + 2, t], W[c + 3, t]
                D[a, t] += (w0 * s0 + w1 * s1) + (w2 * s2 + w3 * s3)
                D[b, t] += (w0 * u0 + w1 * u1) + (w2 * u2 + w3 * u3)
        for c in range(fours, m):
            s0, u0 = T[of, c], T[of + 1, c]
            for t in range(C):
                D[a, t] += W[c, t] * s0
                D[b, t] += W[c, t] * u0
    for a in range(even, count):
        for c in range(m):
            s0 = T[first + a, c]
            for t in range(C):
                D[source + a, t] += W[c, t] * s0
