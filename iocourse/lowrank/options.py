"""The options of low-rank attention, checked once, and the approximation of one head that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from ..monomials import Array, plan
from ..sizes import positive_int
from . import error_certificates
from . import numba_backend as fast
from .approximation import Approximation
from .polynomials import NAMES, Polynomial, polynomial

NUMBERS = (int, float, np.integer, np.floating)
LARGEST_SCALE = 1e18  # whose products with entries of float32 are still numbers
ENGINES = ("numpy", "numba", "torch")


@dataclass(frozen=True)
class Options:
    """The options of `attention`, as its docstring says."""

    degree: int
    polynomial: str = "hermite"
    scale: float | None = None
    causal: bool = False
    bound: float | None = None
    radius: float | None = None
    key_variance: float | None = None
    gradient_degree: int | None = None
    engine: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("degree", "gradient_degree", "threads"):
            if name == "degree" or getattr(self, name) is not None:
                object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        if self.polynomial not in NAMES:
            raise ValueError(f"polynomial is {self.polynomial!r}; it must be one of {', '.join(NAMES)}")
        for name in ("scale", "bound", "radius", "key_variance"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value)
            if value is not None and name != "scale" and not 0 < value < np.inf:
                raise ValueError(f"{name} is {value}; it must be positive and finite")
        if self.scale is not None and not abs(self.scale) <= LARGEST_SCALE:
            raise ValueError(f"scale is {str(self.scale)[:24]}; it must be within ±{LARGEST_SCALE:g}")
        if not isinstance(self.causal, (bool, np.bool_)):
            raise TypeError(f"causal is {self.causal!r}; it must be True or False")
        if self.engine is not None and self.engine not in ENGINES:
            raise ValueError(f"engine is {self.engine!r}; it must be one of {', '.join(ENGINES)}")
        error_certificates.check_statistics(self.causal, self.polynomial, self.key_variance, self.radius)

    def factor(self, d: int) -> float:
        """The scale of the scores, 1/√d where none is given."""
        return 1 / sqrt(d) if self.scale is None else float(self.scale)

    def make_polynomial(self, g: int, limit: Any) -> Polynomial:
        """The polynomial of degree g; limit() gives the interval of the data where none was asked for."""
        wants_interval = self.polynomial in ("chebyshev", "minimax")
        radius = max(limit(), 1e-3) if wants_interval and self.radius is None else self.radius
        return polynomial(self.polynomial, g, radius)


# typed: 2.0 == 2 and True == 1, but they are no degrees
_options = lru_cache(maxsize=256, typed=True)(Options)


def checked_options(**options: Any) -> Options:
    """`Options`, checked once for the same ones."""
    try:
        return _options(**options)
    except TypeError:  # also of what cannot be looked up: then the checks say which option it is
        return Options(**options)


def check_number(name: str, value: Any) -> None:
    """Raise TypeError for what is no real number; a truth value is none."""
    if not isinstance(value, NUMBERS) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be a number")


@lru_cache(maxsize=256)  # once for the same ones
def check_shapes(Q: tuple[int, ...], K: tuple[int, ...], V: tuple[int, ...], causal: bool) -> None:
    """Raise ValueError where the shapes (…, n, d), (…, n_k, d), (…, n_k, d_v) do not go together."""
    for name, shape in (("Q", Q), ("K", K), ("V", V)):
        if len(shape) < 2 or min(shape) < 1:
            raise ValueError(
                f"{name} has shape {tuple(shape)}; it must be (…, rows, columns), none of them 0"
            )
    if tuple(K[:-2]) != tuple(Q[:-2]) or tuple(V[:-2]) != tuple(Q[:-2]):
        raise ValueError(
            f"Q, K and V lead with {Q[:-2]}, {K[:-2]} and {V[:-2]}; heads and batch must be the same"
        )
    if K[-1] != Q[-1]:
        raise ValueError(f"K has {K[-1]} columns and Q {Q[-1]}; they must be the same")
    if V[-2] != K[-2]:
        raise ValueError(f"V has {V[-2]} rows and K {K[-2]}; they must be the same")
    if causal and Q[-2] != K[-2]:
        raise ValueError(
            f"causal is True with {Q[-2]} queries and {K[-2]} keys; they must be the same number"
        )


def check_entries(Q: Array, K: Array, V: Array, options: Options) -> None:
    """Raise ValueError that names the first row with an entry that is not finite or beyond the bound."""
    for name, X in (("Q", Q), ("K", K), ("V", V)):
        error_certificates.check_finite(name, X)
        if name != "V":
            error_certificates.check_bound(name, X, options.bound)


def looks_at_data(options: Options) -> bool:
    """Whether the polynomial is made for the interval of the data."""
    return options.polynomial in ("chebyshev", "minimax") and options.radius is None


@lru_cache(maxsize=256)
def fixed_approximation(d: int, options: Options, g: int) -> Approximation:
    """The approximation of one head as far as the options say, where no interval of the data is asked for."""
    made, variance = options.make_polynomial(g, None), options.key_variance
    covariance = variance * np.eye(d) if variance is not None and made.per_row else None
    return Approximation(plan(d, g), made, options.factor(d), None, covariance)


def head_approximation(Q: Array, K: Array, options: Options, g: int, compiled: bool) -> Approximation:
    """The approximation of one head, from its keys' mean and covariance where these may be looked at."""
    d = Q.shape[1]
    shift, covariance = (None, None) if options.causal else _moments(K, compiled)
    factor = options.factor(d)

    def limit() -> float:
        x, k = Q * Q.dtype.type(factor), K if shift is None else K - shift
        limits = error_certificates.row_limits(x, k)
        row = int(limits.argmax())
        error_certificates.check_interval(options.polynomial, float(limits[row]), row, d, g)
        return float(limits[row])

    made = options.make_polynomial(g, limit)
    if not made.per_row:
        covariance = None
    elif options.key_variance is not None:
        covariance = options.key_variance * np.eye(d)
    return Approximation(plan(d, g), made, factor, shift, covariance)


def _moments(K: Array, compiled: bool) -> tuple[Array, Array]:
    """The mean (d,) of the keys and their covariance (d, d)."""
    if compiled:
        return fast.moments(K)
    mean = K.mean(axis=0)
    rest = K - mean
    return mean, rest.T @ rest / len(K)
