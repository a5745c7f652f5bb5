"""What is refused, and when: before anything is computed, or before a wrong number is handed back.

A polynomial that is negative somewhere can make a denominator 0, and then outputs and gradients are of any
size. A denominator is certified in one of three ways, the cheapest first:

    1. the polynomial is positive everywhere (even Taylor, even Hermite with clipped variance);
    2. every row's largest possible logit, |q| · max |k|, is where it is positive;
    3. measured: the exact denominator has a least value (keys less their mean: n, by Jensen's inequality;
       else its number of keys · exp(-|q| · max |k|)), and the computed one is at least half of that.

What polynomials of both signs leave open is then closed at the output, see `within`.

Certified means that denominators are positive. It does not mean that the output is accurate: weights of one
sign can be wrong by any factor, for instance where one huge entry spreads the logits of all rows. There is a
warning where even the best polynomial of this degree is far off, see `warn_of_error`.
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
from .polynomials import LARGEST_RADIUS, Polynomial, minimax, smallest_degree

POSITIVE = 1e-37  # less than any sum of polynomials that are positive everywhere
WARNED_ERROR, WARNED_SHARE = 0.5, 0.1  # of weights, and of rows, from which on there is a warning
MEMORY_SHARE = 0.5  # of the machine's memory that states and features may take


class Extent(NamedTuple):
    """The smallest and the largest entry of each column: low (…, m) and high (…, m)."""

    low: Array
    high: Array


def extent(X: Array) -> Extent:
    """Of X (n, m)."""
    return Extent(X.min(axis=0), X.max(axis=0))


class NotCertified(ValueError):
    """A denominator could turn out not positive; the message names the row, its logits and what would do."""


class RankTooLarge(ValueError):
    """The features of this degree do not fit in memory; the message shows the estimate."""


@cache
def machine_memory() -> int:
    """Bytes of memory this machine has, 8 GB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 10**9


@lru_cache(maxsize=256)
def check_rank(d: int, g: int, d_v: int, heads: int = 1, itemsize: int = 4, memory: int | None = None) -> int:
    """The rank C(d + g, g), or `RankTooLarge` where its states do not fit in half of the memory.

    Needed are the two states T and U of every head and two tiles of features of 256 tokens.
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
    """All digits of what a person can read, three of the rest."""
    if number >= 10**15:
        return f"{Decimal(number):.2e}"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def squares(X: Array) -> float:
    """The sum of all squares, not finite where an entry is not."""
    with np.errstate(over="ignore"):
        return float(np.dot(X.ravel(), X.ravel()))


def check_finite(name: str, X: Array) -> None:
    """Raise ValueError that names the first row of X (n, d) with an entry that is not finite."""
    if not isfinite(squares(X)):  # one pass; the sum may overflow where no entry does
        bad = ~np.isfinite(X).all(axis=1)
        if bad.any():
            raise ValueError(f"{name} has an entry that is not finite in row {int(np.argmax(bad))}")


def check_bound(name: str, X: Array, bound: float | None) -> None:
    """Raise ValueError where an entry of X (n, d) is larger than the bound that was promised."""
    if bound is None:
        return
    largest = abs(X).max(axis=1, initial=0.0)
    if not largest.max(initial=0.0) <= bound:
        row = int(np.argmax(largest))
        raise ValueError(f"{name} has an entry of size {largest[row]:.4g} in row {row}; bound is {bound:g}")


def check_statistics(causal: bool, name: str, key_variance: float | None, radius: float | None) -> None:
    """Raise ValueError where causal attention would look at statistics of the whole sequence."""
    if causal and name == "hermite" and key_variance is None:
        raise ValueError(
            "polynomial is 'hermite' with causal=True and key_variance=None: it would take the covariance of "
            "all keys, also of those that come later; give key_variance, a number known beforehand (1/d for "
            "keys of length 1), or polynomial='taylor'"
        )
    if causal and name in ("chebyshev", "minimax") and radius is None:
        raise ValueError(
            f"polynomial is {name!r} with causal=True and radius=None: its interval would be that of all "
            "keys, also of those that come later; give radius, a bound of the logits known beforehand"
        )


def check_denominators(
    p: Polynomial, rows: Callable[[], tuple[Array, Array]], den: Array, keys: Array | int, centred: bool
) -> None:
    """Raise `NotCertified` where a denominator of den (n,) is not certified.

    rows: gives Q (n, d) times the scale and K (n_k, d) less its shift, what the features were made of; asked
    for only where they are needed. keys: how many keys each row sees. centred: whether those have mean 0.
    """
    least: Array | float
    if centred:  # by Jensen's inequality p, convex where it is positive everywhere, keeps it too: p(0) ≥ 0.6
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
    """Whether every column of the output is within that of the values, or beyond by half of their spread.

    Weights of a softmax are positive and sum to 1. Certified denominators alone do not keep an output within
    its values: a polynomial of both signs makes weights of both signs, and huge logits lose all digits. A
    truth value of NumPy, or of torch for extents that are tensors.
    """
    room = (V.high - V.low) / 2 + 1e-3 * (abs(V.low) + abs(V.high))  # and what rounding does
    return ((O.low >= V.low - room) & (O.high <= V.high + room)).all()


def refuse_output(p: Polynomial, finite: bool) -> None:
    """Raise for an output that is not finite, or that leaves the range of the values."""
    if not finite:
        raise ValueError(
            "V has entries whose weighted sums are not finite in this type; divide V by a number"
        )
    raise NotCertified(f"the output leaves the range of V's columns: {_of_both_signs(p)}")


@cache
def largest_variance(g: int) -> float:
    """The σ² of a row's logits from which on the best polynomial of degree g has an error of WARNED_ERROR.

    The error is √P[Poisson(σ²) > g] for normal logits.
    """
    low, high = 0.0, 2.0 * g + 5
    for _ in range(40):
        variance = (low + high) / 2
        term = below = exp(-variance)
        for m in range(1, g + 1):
            term *= variance / m
            below += term
        low, high = (low, variance) if 1 - below >= WARNED_ERROR**2 else (variance, high)
    return high


def is_accurate(mean_variance: Any, g: int) -> Any:
    """Whether fewer than WARNED_SHARE of the rows can be beyond `largest_variance`, by Markov's inequality.

    mean_variance: over all rows. A truth value of Python, or of torch for tensors.
    """
    return mean_variance < WARNED_SHARE * largest_variance(g)


def warn_of_error(variances: Array, g: int) -> None:
    """Warn where WARNED_SHARE of the rows or more have logits of a variance beyond `largest_variance`.

    The share is rounded to tens of percent, so that a loop does not say the same with other numbers.
    """
    share = (
        1 - np.count_nonzero(variances < largest_variance(g)) / variances.size
    )  # one that is no number is beyond
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
    """Raise where a gradient is not finite, or larger than weights of a softmax can make it.

    of: the sum of its squares. sizes: sums of |dV| and of |dO|, of which the first is at most the second for
    weights that are positive and sum to 1.
    """
    if not isfinite(of):
        raise NotCertified(
            f"{name} is not finite in this type with the polynomial {p.name!r}, degree {p.degree}"
        )
    if sizes is not None and p.positive_to < np.inf and not sizes[0] <= 2 * sizes[1]:
        raise NotCertified(
            f"the entries of {name} sum to {sizes[0]:.3g} in size, those of dO to {sizes[1]:.3g}: "
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


def check_interval(name: str, limit: float, row: int, d: int, g: int) -> None:
    """Raise `NotCertified` where the logits' interval [-limit, limit] is too large for this polynomial."""
    if not limit <= LARGEST_RADIUS[name]:
        raise NotCertified(
            f"row {row} of Q has logits that can reach ±{limit:.3g} (|q| times the largest |k|); {name!r} "
            f"can be made up to ±{LARGEST_RADIUS[name]:g} in float64. " + what_would_do(d, g, limit)
        )


def row_limits(Q: Array, K: Array) -> Array:
    """(n,): |q| times the largest |k|, beyond which no logit of that row can be."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max(initial=0.0)
    found[np.isnan(found)] = np.inf  # one square overflowed and the other became 0; inf is a limit too
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
    """The least degree within `error` of exp on [-limit, limit]; None where none up to 40 will do."""
    try:
        return smallest_degree(minimax, max(limit, 1e-3), error, most=40)
    except (ValueError, np.linalg.LinAlgError):
        return None


def what_would_do(d: int, g: int, limit: float) -> str:
    """Which degree is safe, and which is accurate to 1 % on [-limit, limit], each with its rank."""
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
