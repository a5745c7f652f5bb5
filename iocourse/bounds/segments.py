"""Cut a run into segments of T moves: how many products fit into one, and how many segments there are.

All bounds proved in the course have one shape. With M words at its start and T that come, a segment works
with at most R = M + T words; these allow at most F(R) products; so a run that needs x·F(R) products has
⌊x⌋ full segments and moves T⌊x⌋ words. Every T gives a true bound.

The quotients are whole-number arithmetic, and what is irrational in F is rounded up: a bound may come out a
little too small, never too large.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from ..sizes import check_sizes, positive_int
from ..solution_guard import library_solution

SCALE = 2**32  # steps a word is divided into where a square root is needed
UNIT = 16 * SCALE**4  # what products are counted in where F_b is rounded up
PARTS = 16  # segment lengths are tried in sixteenths of the best one for large sizes


@library_solution
def products_per_segment(R: int, d: int) -> float:
    """F(R) of Theorem A: the most products p·v that R words of Q, K, V, O and scores allow."""
    R, d = check_sizes(R=R, d=d)
    if 3 * d * d <= R:
        return float((R + d * d) ** 2 / (16 * d))
    return float((R / 3) ** 1.5)


@library_solution
def all_products_per_segment(R: int, d: int) -> float:
    """F_b(R) = max over c of (R - c)²/16d + √c(R - c)/2, of Theorems B' and C, rounded up by less than 1e-8.

    c is the number of pairs with a score at hand: the first term counts products whose pair has none, the
    second those whose pair has one.
    """
    R, d = check_sizes(R=R, d=d)
    return float(_most_products(R, d, 1) / (16 * d * SCALE**4)) * (1 + 1e-15)


@library_solution
def segments_A(products: int, R: int, d: int) -> int:
    """⌊products / F(R)⌋ with F of Theorem A, exactly."""
    if 3 * d * d <= R:
        return products * 16 * d // (R + d * d) ** 2
    return segments_B(products, R)


@library_solution
def segments_B(products: int, R: int) -> int:
    """⌊products / (R/3)^{3/2}⌋, exactly."""
    return isqrt(27 * products**2 // R**3)


@library_solution
def segments_C(products: int, R: int, d: int | Fraction, square: int = 0) -> int:
    """⌊(products + √square) / F_b(R)⌋, or one less where F_b had to be rounded up.

    Bounds whose first term has another constant than 1/16d say so by a `d` of their own, a fraction.
    """
    unit = d.numerator * UNIT
    most = _most_products(R, d.numerator, d.denominator)
    return (products * unit + (isqrt(square * unit**2) if square else 0)) // most


@lru_cache(maxsize=4096)
def _most_products(R: int, n: int, m: int) -> int:
    """An upper bound on 16n·SCALE⁴·F_b(R) for d = n/m, whole.

    With u = √c, 16d·F_b is the maximum of (R - u²)(R - u² + 8du), which rises to the one zero in (0, √R) of
    u³ - 6du² - Ru + 2dR and falls after it. With the zero between a and b, the first factor is at most
    R - a², and the second at most R - a² + 8db.
    """
    a = _below_zero(R, n, m)
    left = R * SCALE**2 - a * a
    return left * (m * left + 8 * n * SCALE * (a + 1))


def _below_zero(R: int, n: int, m: int) -> int:
    """The largest whole a with a/SCALE at or before the zero, by Newton's steps.

    The cubic is below 0 at √R and at 2d, and between the zero and the smaller of them it falls and bends
    downwards: so a step from there, rounded up, stays behind the zero.
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


@library_solution
def best_segment(words: Callable[[int], int], near: int, T: int | None) -> int:
    """`words(T)` for the T given, or the largest over the sixteenths of `near` from its half to its double.

    Near the best T a bound falls slowly, so the grid costs little; it wins back what the floor takes away.
    """
    if T is not None:
        return words(positive_int("T", T))
    lengths = {max(1, k * near // PARTS) for k in range(PARTS // 2, 2 * PARTS + 1)}
    return max(words(length) for length in lengths)
