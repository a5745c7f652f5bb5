"""Checks of low-rank attention: errors for invalid inputs, and for results that are not certified.

A polynomial that is negative somewhere can make a denominator 0, and then outputs and gradients can be
arbitrarily large. A denominator is certified in one of three ways, the cheapest first:

    1. The polynomial is positive everywhere (even Taylor, even Hermite with clipped variance).
    2. It is positive up to the largest possible logit of every row, |q| · max |k|.
    3. Measured: the exact denominator has a lower bound (for keys with mean 0: n, by Jensen's inequality;
       otherwise the number of keys · exp(-|q| · max |k|)), and the computed one is at least half of it.

For polynomials of both signs the output is checked in addition, see `within`.

Certified means that the denominators are positive. It does not mean that the output is accurate: positive
weights can be wrong by any factor, for example if one huge entry spreads the logits of all rows. A warning is
issued if even the best polynomial of this degree is inaccurate, see `warn_of_error`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import cache, lru_cache
from math import exp, isfinite
from typing import Any, NamedTuple

import numpy as np

from ..monomials import Array, rank_of
from .polynomials import Polynomial, minimax, smallest_degree

POSITIVE = 1e-37  # smaller than any sum of polynomials that are positive everywhere
WARNED_ERROR, WARNED_SHARE = 0.5, 0.1  # error of the weights and fraction of the rows that cause a warning
MEMORY_SHARE = 0.5  # fraction of the machine's memory that states and features may take
JOINED = 32  # rows that are joined for a pass over few columns


class Extent(NamedTuple):
    """Smallest and largest entry of each column: low (…, m) and high (…, m)."""

    low: Array
    high: Array


def extent(X: Array) -> Extent:
    """Return the smallest and largest entry of each column of X (n, m)."""
    if len(X) < JOINED:
        return Extent(X.min(axis=0), X.max(axis=0))
    rest = len(X) % JOINED
    joined = X[rest:].reshape(-1, JOINED * X.shape[1])  # because NumPy reduces few columns slowly

    def reduced(extreme: np.ufunc) -> Array:
        found: Array = extreme.reduce(joined).reshape(JOINED, -1)
        return np.asarray(extreme.reduce(np.concatenate([found, X[:rest]])))

    return Extent(reduced(np.minimum), reduced(np.maximum))


class NotCertified(ValueError):
    """A denominator may not be positive; the message has the row, its logits and a degree that would work."""


class RankTooLarge(ValueError):
    """The features of this degree do not fit in memory; the message shows the estimate."""


@cache
def machine_memory() -> int:
    """Return the bytes of memory of this machine, or an estimate if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 10**9


@lru_cache(maxsize=256)
def check_rank(d: int, g: int, d_v: int, heads: int = 1, itemsize: int = 4, memory: int | None = None) -> int:
    """Return the rank C(d + g, g). Raises `RankTooLarge` if its states do not fit in half of the memory.

    The states T and U of every head and two tiles of features of 256 tokens are needed.
    """
    rank = rank_of(d, g)
    needed = rank * itemsize * (2 * heads * (d_v + 1) + 2 * 256)
    allowed = int(MEMORY_SHARE * (machine_memory() if memory is None else memory))
    if needed > allowed:
        raise RankTooLarge(
            f"degree is {g}: at d = {d} that is {_counted(rank)} features, whose states take "
            f"{_counted(Decimal(needed) / 10**9)} GB; "
            f"at most {allowed / 1e9:,.1f} GB may be used here"
        )
    return rank


def _counted(number: int | Decimal) -> str:
    """Format a number with all digits up to 10^15, and with three digits above."""
    if number >= 10**15:
        return f"{Decimal(number):.2e}"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def sum_of_squares(X: Array) -> float:
    """Return the sum of all squares; it is not finite if an entry is not finite."""
    with np.errstate(over="ignore"):
        return float(np.dot(X.ravel(), X.ravel()))


def check_finite(name: str, X: Array) -> None:
    """Raise ValueError, with the first such row, if an entry of X (n, d) is not finite."""
    if not isfinite(sum_of_squares(X)):  # one pass; the sum may overflow although all entries are finite
        bad = ~np.isfinite(X).all(axis=1)
        if bad.any():
            raise ValueError(f"{name} has an entry that is not finite in row {int(np.argmax(bad))}")


def check_bound(name: str, X: Array, bound: float | None) -> None:
    """Raise ValueError, naming the row of the largest entry, if an entry of X (n, d) exceeds `bound`."""
    if bound is None:
        return
    largest = abs(X).max(axis=1, initial=0.0)
    if not largest.max(initial=0.0) <= bound:
        row = int(np.argmax(largest))
        raise ValueError(f"{name} has an entry of size {largest[row]:.4g} in row {row}; bound is {bound:g}")


def check_statistics(causal: bool, name: str, key_variance: float | None, radius: float | None) -> None:
    """Raise ValueError if a number is missing that is not taken from the data."""
    if causal and name == "hermite" and key_variance is None:
        raise ValueError(
            "polynomial='hermite' with causal=True needs key_variance, because the covariance of all keys "
            "includes later ones. Pass key_variance, a number known beforehand (1/d for keys of length 1), "
            "or polynomial='taylor'"
        )
    if name in ("chebyshev", "minimax") and radius is None:
        raise ValueError(
            f"polynomial={name!r} needs radius, because it approximates exp on [-radius, radius] and nowhere "
            "else. Pass radius, a bound of the scaled logits known beforehand; lowrank.advise(Q, K) has one "
            "as logit_limit. It is not taken from the data, because it would then depend on Q and K, and in "
            "causal attention on later keys"
        )


def check_denominators(
    p: Polynomial, rows: Callable[[], tuple[Array, Array]], den: Array, keys: Array | int, centred: bool
) -> None:
    """Raise `NotCertified` if a denominator of den (n,) is not certified.

    rows: returns Q (n, d) times the scale and K (n_k, d) minus its shift, called only if needed. keys: number
    of keys that each row attends to. centred: True if these have mean 0.
    """
    least: Array | float
    if centred:  # Jensen's inequality holds for p too, if it is convex and positive everywhere: p(0) ≥ 0.6
        least = keys / 2
    elif p.positive_to == np.inf:
        least = POSITIVE
    else:
        least = keys * np.exp(-row_limits(*rows())) / 2
    fine = (den >= least) & (den < np.inf)
    if fine.all():
        return
    Q, K = rows()
    limits, row = row_limits(Q, K), int(np.argmin(fine))
    if den[row] < np.inf and limits.max() < p.positive_to < np.inf:
        return
    raise NotCertified(_refusal(p, Q.shape[1], row, float(limits[row]), float(den[row])))


def within(O: Extent, V: Extent) -> Any:
    """Return True if each output column is within the range of the values, extended by half on both sides.

    Weights of a softmax are positive and sum to 1. Certified denominators alone do not keep an output within
    this range: a polynomial of both signs gives weights of both signs, and huge logits lose all digits. The
    result is a Boolean of NumPy, or of torch if the extents are tensors.
    """
    room = (V.high - V.low) / 2 + 1e-3 * (abs(V.low) + abs(V.high))  # for rounding
    return ((O.low >= V.low - room) & (O.high <= V.high + room)).all()


def refuse_output(p: Polynomial, finite: bool) -> None:
    """Raise the error for an output that is not finite, or that is outside the range of the values."""
    if not finite:
        raise ValueError(
            "V has entries whose weighted sums are not finite in this type. Divide V by a number"
        )
    raise NotCertified(
        f"the output leaves the range of V's columns: {_of_both_signs(p)}"  # style: ok (recorded text)
    )


@cache
def largest_variance(g: int) -> float:
    """Return the variance σ² of a row's logits at which the best polynomial of degree g has WARNED_ERROR.

    The error is √P[Poisson(σ²) > g] for normal logits.
    """
    low, high = 0.0, 2.0 * g + 5
    # Bisection, because the probability grows with the variance.
    for _ in range(40):
        variance = (low + high) / 2
        term = below = exp(-variance)
        for m in range(1, g + 1):
            term *= variance / m
            below += term
        low, high = (low, variance) if 1 - below >= WARNED_ERROR**2 else (variance, high)
    return high


def is_accurate(mean_variance: Any, g: int) -> Any:
    """Return True if, by Markov's inequality, fewer than WARNED_SHARE of the rows exceed `largest_variance`.

    mean_variance: mean over all rows. The result is a Boolean of Python, or of torch for tensors.
    """
    return mean_variance < WARNED_SHARE * largest_variance(g)


def warn_of_error(variances: Array, g: int) -> None:
    """Warn if the logit variance exceeds `largest_variance` in at least WARNED_SHARE of the rows.

    The percentage is rounded to tens, so that a loop does not repeat the warning with other numbers.
    """
    share = 1 - np.count_nonzero(variances < largest_variance(g)) / variances.size  # NaN counts as too large
    if share >= WARNED_SHARE:
        warnings.warn(
            f"degree {g} is too low for these logits. In about {round(share, 1):.0%} of the rows of Q their "
            f"variance is {largest_variance(g):.2f} or more, and there the weights of any polynomial of this "
            f"degree are off by {WARNED_ERROR:.0%} or more (if logits are normal). Denominators are "
            "positive, but the output is not accurate. Use a higher degree, a smaller scale or exact "
            "attention; lowrank.advise(Q, K) measures the error.",
            RuntimeWarning,
            stacklevel=2,
        )


def check_gradient(p: Polynomial, name: str, of: float, sizes: tuple[float, float] | None = None) -> None:
    """Raise `NotCertified` if a gradient is not finite, or larger than is possible with softmax weights.

    of: the sum of its squares. sizes: sums of |dV| and of |dO|; the first is at most the second if the
    weights are positive and sum to 1.
    """
    if not isfinite(of):
        raise NotCertified(
            f"{name} is not finite in this type with the polynomial {p.name!r}, degree {p.degree}"
        )
    if sizes is not None and p.positive_to < np.inf and not sizes[0] <= 2 * sizes[1]:
        raise NotCertified(
            f"the absolute values of {name} sum to {sizes[0]:.3g}, but those of dO to {sizes[1]:.3g}: "
            f"{_of_both_signs(p)}"
        )


def _of_both_signs(p: Polynomial) -> str:
    if p.positive_to == np.inf:
        return (
            f"powers of these logits lose all digits at degree {p.degree} in this type; use exact attention"
        )
    even, R = p.degree + 2 - p.degree % 2, f"{p.positive_to:.3g}"
    return (
        f"the polynomial {p.name!r} of degree {p.degree} is positive for |s| < {R}, and beyond it gave "
        f"weights of both signs. 'taylor' and 'hermite' of degree {even} are positive everywhere."
    )


def row_limits(Q: Array, K: Array) -> Array:
    """Return the upper bound of the logits of each row, |q| times the largest |k|: (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max(initial=0.0)
    found[np.isnan(found)] = np.inf  # one square overflowed and the other became 0; inf is a valid bound
    return found


def _refusal(p: Polynomial, d: int, row: int, limit: float, den: float) -> str:
    found = (
        f"row {row} of Q has the denominator {den:.3g} with the polynomial {p.name!r} of degree {p.degree}: "
        f"its logits can reach ±{limit:.3g} (|q| times the largest |k|)"
    )
    if not isfinite(den):
        return f"{found}, whose powers are not finite in this type. Take a smaller scale, or exact attention."
    if p.positive_to == np.inf:
        return (
            f"{found}, and all of them are so far below 0 that the sum is lost. Take an offset known "
            "beforehand off every key, or use exact attention."
        )
    return f"{found}, and it is positive for |s| < {p.positive_to:.3g}. {what_would_do(d, p.degree, limit)}"


def accurate_degree(limit: float, error: float) -> int | None:
    """Return the smallest degree with at most `error` on [-limit, limit]; None if it is larger than 40."""
    try:
        return smallest_degree(minimax, max(limit, 1e-3), error, most=40)
    except (ValueError, np.linalg.LinAlgError):
        return None


def what_would_do(d: int, g: int, limit: float) -> str:
    """Name a degree that is positive everywhere, and one accurate to 1 % on [-limit, limit], with ranks."""
    # <!-- 1 as definition -->
    even = g + 1 if g % 2 else g + 2
    text = f"Degree {even} (rank {rank_of(d, even):,}) of 'taylor' or 'hermite' is positive everywhere; "
    interval = f"[-{limit:.3g}, {limit:.3g}]"
    accurate = accurate_degree(limit, 0.01)
    if accurate is None:
        return (
            text + f"none that float64 can evaluate is within 1 % of exp on {interval}: use exact attention."
        )
    rank = rank_of(d, accurate)
    return text + f"'minimax' of degree {accurate} (rank {rank:,}) is within 1 % of exp on {interval}."
