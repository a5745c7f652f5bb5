"""Segment argument of the lower bounds: maximum products per segment of T moves, and number of segments.

All bounds proved in the course have the same form. A run is cut into segments of T moves. With M words at its
start and T loaded words, a segment uses at most R = M + T words, which allow at most F(R) products. So a run
that needs x·F(R) products has ⌊x⌋ full segments and moves at least T⌊x⌋ words. Every T gives a valid bound.

The quotients use integer arithmetic, and irrational parts of F are rounded up, so a computed bound may be
slightly too small but never too large.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from ..sizes import check_sizes, positive_int

__all__ = ["all_products_per_segment", "products_per_segment"]

SCALE = 2**32  # resolution of square roots: fractions of a word
UNIT = 16 * SCALE**4  # unit of products if F_b is rounded up
PARTS = 16  # segment lengths are tried in steps of 1/16 of the best one for large sizes


def products_per_segment(R: int, d: int) -> float:
    """Return F(R) of Theorem A: the maximum number of products p·v with R words of Q, K, V, O and scores."""
    R, d = check_sizes(R=R, d=d)
    if 3 * d * d <= R:
        return float((R + d * d) ** 2 / (16 * d))
    return float((R / 3) ** 1.5)


def all_products_per_segment(R: int, d: int) -> float:
    """Return F_b(R) of Theorems B' and C, max over c of (R - c)²/16d + √c(R - c)/2, rounded up by < 1e-8.

    c is the number of pairs whose score is in fast memory. The first term counts products of pairs without
    such a score, the second those of pairs with one.
    """
    R, d = check_sizes(R=R, d=d)
    return float(_most_products(R, d, 1) / (16 * d * SCALE**4)) * (1 + 1e-15)


def segments_A(products: int, R: int, d: int) -> int:
    """Return ⌊products / F(R)⌋ with F of Theorem A, exactly."""
    if 3 * d * d <= R:
        return products * 16 * d // (R + d * d) ** 2
    return segments_B(products, R)


def segments_B(products: int, R: int) -> int:
    """Return ⌊products / (R/3)^{3/2}⌋, exactly."""
    return isqrt(27 * products**2 // R**3)


def segments_C(products: int, R: int, d: int | Fraction, square: int = 0) -> int:
    """Return ⌊(products + √square) / F_b(R)⌋, or one less if F_b had to be rounded up.

    Bounds whose first term has a constant other than 1/16d pass an adjusted `d`, a fraction.
    """
    unit = d.numerator * UNIT
    most = _most_products(R, d.numerator, d.denominator)
    return (products * unit + (isqrt(square * unit**2) if square else 0)) // most


@lru_cache(maxsize=4096)
def _most_products(R: int, n: int, m: int) -> int:
    """Return an integer upper bound on 16n·SCALE⁴·F_b(R) for d = n/m.

    With u = √c, 16d·F_b is the maximum of (R - u²)(R - u² + 8du). This function increases up to the only zero
    of u³ - 6du² - Ru + 2dR in (0, √R) and decreases after it. If the zero is between a and b, the first
    factor is at most R - a², and the second at most R - a² + 8db.
    """
    a = _below_zero(R, n, m)
    left = R * SCALE**2 - a * a
    return left * (m * left + 8 * n * SCALE * (a + 1))


def _below_zero(R: int, n: int, m: int) -> int:
    """Return the largest integer a with a/SCALE at most the zero, by Newton's method.

    The cubic is negative at √R and at 2d. Between the zero and the smaller of them it is decreasing and
    concave, so Newton's steps from there, rounded up, do not pass the zero.
    """

    def cubic(u: int) -> int:
        return ((m * u - 6 * n * SCALE) * u - m * R * SCALE**2) * u + 2 * n * R * SCALE**3

    u, step = 1 + min(isqrt(R * SCALE**2), 2 * n * SCALE // m), 1
    while step > 0:
        slope = (3 * m * u - 12 * n * SCALE) * u - m * R * SCALE**2
        step = cubic(u) // slope
        u -= step
    while cubic(u) < 0:
        u -= 1
    return u


def best_segment(words: Callable[[int], int], near: int, T: int | None) -> int:
    """Return words(T) for the given T, or its maximum over multiples of near/16 from near/2 to 2·near.

    Near the best T a bound is flat, so the grid loses little; it compensates the effect of rounding down.
    """
    if T is not None:
        return words(positive_int("T", T))
    lengths = {max(1, k * near // PARTS) for k in range(PARTS // 2, 2 * PARTS + 1)}
    return max(words(length) for length in lengths)
