"""Polynomials that stand for exp on [-R, R], and how far off they are: max |p(s) e⁻ˢ - 1|, exactly.

Where p(s) e⁻ˢ has an extremum, p' = p: so the largest relative error is at a root of p' - p or at an end.
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
from ..solution_guard import library_solution

CLIP = 0.8  # of a row's variance: below it the Hermite polynomial of even degree is positive everywhere
LARGEST_DEGREE = 100
NAMES = ("hermite", "taylor", "chebyshev", "minimax")
LARGEST_RADIUS = {"chebyshev": 700.0, "minimax": 15.0}  # beyond, float64 cannot hold e^-R beside e^R


@dataclass(frozen=True, eq=False)
class Polynomial:
    """Coefficients (g + 1,) of sˡ, and where they are known to be positive.

    radius: R of the interval it was made for, inf where it was made for none. positive_to: it is positive for
    all |s| below; for "hermite" whatever a row's variance is. per_row: each query row has its own, see
    `hermite`; the coefficients are then those of variance 0.
    """

    name: str
    coefficients: Array
    radius: float
    positive_to: float
    per_row: bool = False

    def __post_init__(self) -> None:
        self.coefficients.flags.writeable = False  # every call with the same name and degree shares them

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1


@lru_cache(maxsize=256, typed=True)
def polynomial(name: str, g: int, R: float | None = None) -> Polynomial:
    """The polynomial of that name and degree g; "chebyshev" and "minimax" want the R of their interval [-R,
    R].

    Raises ValueError for another name, a degree below 1, and an R that is missing, not positive, not
    finite or too large for float64.
    """
    g = positive_int("degree", g)
    if g > LARGEST_DEGREE:
        raise ValueError(f"degree is {g}; it must be at most {LARGEST_DEGREE}, or 1/l! is lost in float64")
    if name not in NAMES:
        raise ValueError(f"polynomial is {name!r}; it must be one of {', '.join(NAMES)}")
    if name in ("chebyshev", "minimax"):
        if R is None or not 0 < R < np.inf:
            raise ValueError(f"radius is {R}; {name} needs a positive, finite R for its interval [-R, R]")
        if LARGEST_RADIUS[name] < R:
            raise ValueError(f"radius is {R:g}; {name} can be made up to {LARGEST_RADIUS[name]:g} in float64")
        made = (chebyshev if name == "chebyshev" else minimax)(g, R)
        return Polynomial(name, made, R, positive_to(made))
    if name == "hermite":
        return Polynomial(name, taylor(g), np.inf, np.inf if g % 2 == 0 else _hermite_to(g), per_row=True)
    return Polynomial(name, taylor(g), np.inf, positive_to(taylor(g)))


def positive_to(p: Array) -> float:
    """The largest R with p > 0 on (-R, R): the distance of the nearest real root, or inf; 0 for p(0) ≤ 0."""
    if p[0] <= 0:
        return 0.0
    return float(min(abs(_real_roots(p)), default=np.inf))


def _real_roots(p: NDArray[Any]) -> Array:
    roots = poly.polyroots(p)
    found: Array = roots.real[abs(roots.imag) < 1e-7 * (1 + abs(roots.real))]
    return found


@cache  # a number a degree
def _hermite_to(g: int) -> float:
    """Where the row-adaptive polynomial of odd degree is positive for every variance it may meet.

    At a root the polynomial of variance v is a polynomial in v too, so that its least root distance over
    0 ≤ v ≤ 0.8 is found on a fine grid; a hundredth is taken off for what lies between.
    """
    variances = np.linspace(0, CLIP, 161)
    return 0.99 * min(positive_to(column) for column in hermite(g, variances).T)


def taylor(g: int, R: float = 1.0) -> Array:
    """1/l!, the series at 0, whatever R is. (g + 1,)."""
    return np.array([1 / factorial(l) for l in range(g + 1)])


def chebyshev(g: int, R: float) -> Array:
    """The polynomial through exp at the Chebyshev nodes of [-R, R]. (g + 1,)."""
    nodes = cheb.chebpts1(g + 1)
    inside = cheb.cheb2poly(cheb.chebfit(nodes, np.exp(R * nodes), g))
    return np.pad(inside, (0, g + 1 - len(inside))) / float(R) ** np.arange(g + 1)


def minimax(g: int, R: float, rounds: int = 50) -> Array:
    """The least largest relative error on [-R, R], by Remez' exchange; positive there while that is below 1.

    p(s) e⁻ˢ = 1 ± E at g + 2 points, with signs in turn; then the points move to where the error is largest.
    Raises ValueError for R beyond 15, where rounding is all that is left of the error at -R.
    """
    if not 0 < R <= LARGEST_RADIUS["minimax"]:
        raise ValueError(f"R is {R:g}; it must be positive and at most {LARGEST_RADIUS['minimax']:g}")
    points = R * -np.cos(np.pi * np.arange(g + 2) / (g + 1))
    signs = (-1.0) ** np.arange(g + 2)
    best, least = np.ones(1), np.inf
    for _ in range(rounds):
        powers = (points[:, None] / R) ** np.arange(g + 1)
        system = np.concatenate([powers * np.exp(-points)[:, None], signs[:, None]], axis=1)
        solved = np.linalg.solve(system, np.ones(g + 2))
        scaled, level = solved[:-1] / float(R) ** np.arange(g + 1), abs(solved[-1])
        extrema = _extrema(scaled, R)
        largest = abs(relative_error_at(scaled, extrema)).max()
        if largest < least:  # in the end rounding moves the points, no longer for the better
            best, least = scaled, largest
        if len(extrema) < g + 2:  # it cannot be told from the last one
            break
        points = extrema[_alternating(relative_error_at(scaled, extrema), g + 2)]
        if abs(relative_error_at(scaled, points)).max() <= level * (1 + 1e-9):
            break
    return best


def _alternating(errors: Array, count: int) -> NDArray[np.int64]:
    """Indices of `count` neighbours whose errors have signs in turn and are largest."""
    starts = range(len(errors) - count + 1)
    best = max(starts, key=lambda at: abs(errors[at : at + count]).min())
    return np.arange(best, best + count)


def hermite(g: int, variance: Array) -> Array:
    """For each row with logits of this variance about 0 the best polynomial in the mean square. (g + 1, n).

    Coefficient of sˡ/l!: the exponential series of -σ²/2 cut after ⌊(g - l)/2⌋ terms. The factor e^(σ²/2) is
    left out, which no softmax sees; variances are clipped at 0.8, below which an even degree is positive
    everywhere.
    """
    series = cut_series(np.asarray(np.minimum(variance, CLIP), np.float64), g)
    return np.stack([series[(g - l) // 2] / factorial(l) for l in range(g + 1)])


def cut_series(variance: Array, g: int) -> Array:
    """(⌊g/2⌋ + 1, n): the exponential series of -σ²/2 cut after 0, 1, … ⌊g/2⌋ terms, for σ² of n rows."""
    terms = [(-variance / 2) ** m / factorial(m) for m in range(g // 2 + 1)]
    return np.cumsum(np.array(terms, dtype=variance.dtype), axis=0)


def relative_error_at(p: Array, s: Array) -> Array:
    """p(s) e⁻ˢ - 1."""
    found: Array = np.asarray(poly.polyval(s, p) * np.exp(-s) - 1, dtype=np.float64)
    return found


def _extrema(p: Array, R: float) -> Array:
    real = _real_roots(poly.polysub(poly.polyder(p), p))
    return np.unique(np.concatenate([[-R], real[(real > -R) & (real < R)], [R]]))


@library_solution
def largest_error(p: Array | Polynomial, R: float) -> float:
    """max |p(s) e⁻ˢ - 1| over [-R, R]: at a root of p' - p, or at an end; p by its coefficients (g + 1,)."""
    _check_interval(R)
    p = p.coefficients if isinstance(p, Polynomial) else p
    return float(abs(relative_error_at(p, _extrema(p, R))).max())


@library_solution
def smallest_degree(make: str | Callable[[int, float], Array], R: float, error: float, most: int = 64) -> int:
    """The first degree whose polynomial has at most this error on [-R, R].

    make: "taylor", "chebyshev", "minimax", or a function of (g, R). Raises ValueError where no degree up to
    `most` has, and for an R that is not positive and finite.
    """
    _check_interval(R)
    if isinstance(make, str):
        if make not in MADE:
            raise ValueError(
                f"make is {make!r}; it must be one of {', '.join(MADE)}, or a function of g and R"
            )
        make = MADE[make]
    for g in range(1, positive_int("most", most) + 1):
        if largest_error(make(g, R), R) <= error:
            return g
    raise ValueError(f"no degree up to {most} reaches an error of {error:g} on [-{R:g}, {R:g}]")


def _check_interval(R: float) -> None:
    if not 0 < R < np.inf:
        raise ValueError(f"R is {R}; the interval [-R, R] needs a positive, finite one")


MADE: dict[str, Callable[[int, float], Array]] = {
    "taylor": taylor,
    "chebyshev": chebyshev,
    "minimax": minimax,
}
