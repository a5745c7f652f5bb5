"""Polynomial approximations of exp on [-R, R], and their exact largest relative error, max |p(s) e⁻ˢ - 1|.

At an extremum of p(s) e⁻ˢ, p' = p. So the largest relative error is at a root of p' - p, or at ±R.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import factorial
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev as cheb
from numpy.polynomial import polynomial as poly
from numpy.typing import NDArray

from ..monomials import Array
from ..sizes import positive_int

CLIP = 0.8  # upper limit of a row's variance: below it the even Hermite polynomials are positive everywhere
LARGEST_DEGREE = 100
NAMES = ("hermite", "taylor", "chebyshev", "minimax")
LARGEST_RADIUS = {"chebyshev": 700.0, "minimax": 15.0}  # float64 cannot resolve e^-R next to e^R beyond it


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A polynomial: its coefficients (g + 1,) of sˡ, and the interval on which it is known to be positive.

    radius: R of its interval, inf if it has none. positive_to: it is positive for all |s| below this; for
    "hermite" for every variance of a row. per_row: each query row has its own polynomial, see `hermite`; the
    coefficients are then those for variance 0.
    """

    name: str
    coefficients: Array
    radius: float
    positive_to: float
    per_row: bool = False

    def __post_init__(self) -> None:
        self.coefficients.flags.writeable = False  # shared by all calls with the same name and degree

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1


@lru_cache(maxsize=256, typed=True)
def polynomial(name: str, g: int, R: float | None = None) -> Polynomial:
    """Return the polynomial `name` of degree g; "chebyshev" and "minimax" need an interval [-R, R].

    Raises ValueError for an unknown name, a degree below 1 or above 100, and an R that is missing, not
    positive, not finite or too large for float64.
    """
    g = positive_int("degree", g)
    if g > LARGEST_DEGREE:
        raise ValueError(f"degree must be at most {LARGEST_DEGREE}, because 1/l! underflows, got {g}")
    if name not in NAMES:
        raise ValueError(f"polynomial must be one of {', '.join(NAMES)}, got {name!r}")
    if name in ("chebyshev", "minimax"):
        if R is None or not 0 < R < np.inf:
            raise ValueError(f"radius must be positive and finite for {name} (interval [-R, R]), got {R}")
        if LARGEST_RADIUS[name] < R:
            raise ValueError(
                f"radius must be at most {LARGEST_RADIUS[name]:g} for {name} in float64, got {R:g}"
            )
        made = (chebyshev if name == "chebyshev" else minimax)(g, R)
        return Polynomial(name, made, R, positive_to(made))
    if name == "hermite":
        return Polynomial(name, taylor(g), np.inf, np.inf if g % 2 == 0 else _hermite_to(g), per_row=True)
    return Polynomial(name, taylor(g), np.inf, positive_to(taylor(g)))


def positive_to(p: Array) -> float:
    """Return the largest R with p > 0 on (-R, R): the smallest size of a real root, or inf; 0 if p(0) ≤ 0."""
    if p[0] <= 0:
        return 0.0
    return float(min(abs(_real_roots(p)), default=np.inf))


def _real_roots(p: NDArray[Any]) -> Array:
    roots = poly.polyroots(p)
    found: Array = roots.real[abs(roots.imag) < 1e-7 * (1 + abs(roots.real))]
    return found


@cache  # one number per degree
def _hermite_to(g: int) -> float:
    """Return an R with the row-adaptive polynomial of odd degree positive on (-R, R) for all variances.

    The polynomial is also a polynomial in the variance v. The minimum of its root distance over 0 ≤ v ≤ 0.8
    is searched on a fine grid, and reduced by 1 % for values between grid points.
    """
    # <!-- 1 as definition -->
    variances = np.linspace(0, CLIP, 161)
    return 0.99 * min(positive_to(column) for column in hermite(g, variances).T)


def taylor(g: int, R: float = 1.0) -> Array:
    """Return the coefficients 1/l! of the Taylor series at 0, (g + 1,); R is ignored."""
    return np.array([1 / factorial(l) for l in range(g + 1)])


def chebyshev(g: int, R: float) -> Array:
    """Return the coefficients (g + 1,) that interpolate exp at the Chebyshev nodes of [-R, R]."""
    nodes = cheb.chebpts1(g + 1)
    # Fitted on [-1, 1] in Chebyshev's basis, and then rescaled to powers of s.
    inside = cheb.cheb2poly(cheb.chebfit(nodes, np.exp(R * nodes), g))
    return np.pad(inside, (0, g + 1 - len(inside))) / float(R) ** np.arange(g + 1)


def minimax(g: int, R: float, rounds: int = 50) -> Array:
    """Return the coefficients (g + 1,) with the smallest largest relative error on [-R, R] (Remez exchange).

    The polynomial is positive there if that error is below 1. Each iteration solves p(s) e⁻ˢ = 1 ± E at g + 2
    points with alternating signs, and then moves the points to the largest errors. Raises ValueError for
    R > 15, where the error at -R consists of rounding only.
    """
    if not 0 < R <= LARGEST_RADIUS["minimax"]:
        raise ValueError(f"R must be positive and at most {LARGEST_RADIUS['minimax']:g}, got {R:g}")
    # A start: the final points for a small R are close to these extrema of a Chebyshev polynomial.
    points = R * -np.cos(np.pi * np.arange(g + 2) / (g + 1))
    signs = (-1.0) ** np.arange(g + 2)
    best, least = np.ones(1), np.inf
    for _ in range(rounds):
        # In s/R, because powers of s up to R = 15 would make the system ill-conditioned.
        powers = (points[:, None] / R) ** np.arange(g + 1)
        system = np.concatenate([powers * np.exp(-points)[:, None], signs[:, None]], axis=1)
        solved = np.linalg.solve(system, np.ones(g + 2))
        scaled, level = solved[:-1] / float(R) ** np.arange(g + 1), abs(solved[-1])
        extrema = _extrema(scaled, R)
        largest = abs(relative_error_at(scaled, extrema)).max()
        if largest < least:  # the last iterations move the points by rounding only, without improvement
            best, least = scaled, largest
        if len(extrema) < g + 2:  # no difference from the previous polynomial remains
            break
        points = extrema[_alternating(relative_error_at(scaled, extrema), g + 2)]
        if abs(relative_error_at(scaled, points)).max() <= level * (1 + 1e-9):
            break
    return best


def _alternating(errors: Array, count: int) -> NDArray[np.int64]:
    """Return the indices of `count` neighbouring extrema (with alternating signs) with the largest errors."""
    starts = range(len(errors) - count + 1)
    best = max(starts, key=lambda at: abs(errors[at : at + count]).min())
    return np.arange(best, best + count)


def hermite(g: int, variance: Array) -> Array:
    """Return the coefficients (g + 1, n) of each row's best mean-square polynomial, given its logit variance.

    The logits have mean 0. The coefficient of sˡ/l! is the exponential series of -σ²/2 cut after ⌊(g - l)/2⌋
    terms. The factor e^(σ²/2) is omitted, because it cancels in the softmax. Variances are clipped at 0.8,
    below which an even degree is positive everywhere.
    """
    series = cut_series(np.asarray(np.minimum(variance, CLIP), np.float64), g)
    return np.stack([series[(g - l) // 2] / factorial(l) for l in range(g + 1)])


def cut_series(variance: Array, g: int) -> Array:
    """Return the exponential series of -σ²/2 cut after 0, 1, … ⌊g/2⌋ terms, (⌊g/2⌋ + 1, n), for n rows."""
    terms = [(-variance / 2) ** m / factorial(m) for m in range(g // 2 + 1)]
    return np.cumsum(np.array(terms, dtype=variance.dtype), axis=0)


def relative_error_at(p: Array, s: Array) -> Array:
    """Return the relative error p(s) e⁻ˢ - 1 at the points s."""
    found: Array = np.asarray(poly.polyval(s, p) * np.exp(-s) - 1, dtype=np.float64)
    return found


def _extrema(p: Array, R: float) -> Array:
    real = _real_roots(poly.polysub(poly.polyder(p), p))
    return np.unique(np.concatenate([[-R], real[(real > -R) & (real < R)], [R]]))


def largest_error(p: Array | Polynomial, R: float) -> float:
    """Return max |p(s) e⁻ˢ - 1| over [-R, R]; p is a Polynomial or its coefficients (g + 1,).

    The maximum is at a root of p' - p or at an end. Raises ValueError if R is not positive and finite.
    """
    _check_interval(R)
    p = p.coefficients if isinstance(p, Polynomial) else p
    return float(abs(relative_error_at(p, _extrema(p, R))).max())


def smallest_degree(make: str | Callable[[int, float], Array], R: float, error: float, most: int = 64) -> int:
    """Return the smallest degree whose polynomial has at most this error on [-R, R].

    make: "taylor", "chebyshev", "minimax", or a function of (g, R). Raises ValueError if no degree up to
    `most` is sufficient, and if R is not positive and finite.
    """
    _check_interval(R)
    if isinstance(make, str):
        if make not in MADE:
            raise ValueError(f"make must be one of {', '.join(MADE)}, or a function of g and R, got {make!r}")
        make = MADE[make]
    for g in range(1, positive_int("most", most) + 1):
        if largest_error(make(g, R), R) <= error:
            return g
    raise ValueError(f"no degree up to {most} reaches an error of {error:g} on [-{R:g}, {R:g}]")


def _check_interval(R: float) -> None:
    if not 0 < R < np.inf:
        raise ValueError(f"R must be positive and finite (interval [-R, R]), got {R}")


MADE: dict[str, Callable[[int, float], Array]] = {
    "taylor": taylor,
    "chebyshev": chebyshev,
    "minimax": minimax,
}
