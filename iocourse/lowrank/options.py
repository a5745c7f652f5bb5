"""Options of low-rank attention, their checks, and the approximation of one head that follows from them."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
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
LARGEST_SCALE = 1e18  # products of a larger scale with float32 entries may overflow
ENGINES = ("numpy", "numba", "torch")
MANY_HEADS, FEW_TOKENS = 128, 16  # a layer with as many heads, and as few tokens, is rare


@dataclass(frozen=True)
class Options:
    """Checked options of `attention`; see its docstring."""

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
            raise ValueError(f"polynomial must be one of {', '.join(NAMES)}, got {self.polynomial!r}")
        for name in ("scale", "bound", "radius", "key_variance"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value)
            if value is not None and name != "scale" and not 0 < value < np.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if self.scale is not None and not abs(self.scale) <= LARGEST_SCALE:
            raise ValueError(f"scale must be within ±{LARGEST_SCALE:g}, got {str(self.scale)[:24]}")
        if not isinstance(self.causal, (bool, np.bool_)):
            raise TypeError(f"causal must be True or False, got {self.causal!r}")
        if self.engine is not None and self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")
        error_certificates.check_statistics(self.causal, self.polynomial, self.key_variance, self.radius)

    def factor(self, d: int) -> float:
        """Return the scale of the scores, 1/√d if it is None."""
        return 1 / sqrt(d) if self.scale is None else float(self.scale)

    def make_polynomial(self, g: int) -> Polynomial:
        """Return the polynomial of degree g."""
        return polynomial(self.polynomial, g, self.radius)


# typed: 2.0 == 2 and True == 1, but they are not valid degrees
_options = lru_cache(maxsize=256, typed=True)(Options)


def checked_options(**options: Any) -> Options:
    """Return `Options`; equal options are checked once."""
    try:
        return _options(**options)
    except TypeError:  # also for unhashable values: then the checks report the option
        return Options(**options)


def check_number(name: str, value: Any) -> None:
    """Raise TypeError unless the value is a real number; a Boolean is not."""
    if not isinstance(value, NUMBERS) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")


@lru_cache(maxsize=256)  # equal shapes are checked once
def check_shapes(Q: tuple[int, ...], K: tuple[int, ...], V: tuple[int, ...], causal: bool) -> None:
    """Raise ValueError unless the shapes are (…, n, d), (…, n_k, d), (…, n_k, d_v) with equal sizes."""
    for name, shape in (("Q", Q), ("K", K), ("V", V)):
        if len(shape) < 2 or min(shape) < 1:
            raise ValueError(f"{name} must have shape (…, rows, columns) without zeros, got {tuple(shape)}")
    # Query heads may share key heads in groups of equal size, along the last of the leading axes.
    grouped = len(Q) == len(K) > 2 and Q[:-3] == K[:-3] and Q[-3] % K[-3] == 0
    if K[:-2] != V[:-2] or not (K[:-2] == Q[:-2] or grouped):
        raise ValueError(
            f"Q, K and V must have the same heads and batch, got {Q[:-2]}, {K[:-2]} and {V[:-2]}. Only Q may "
            "have more heads, a multiple of those of K and V"
        )
    if K[-1] != Q[-1]:
        raise ValueError(f"K must have as many columns as Q, got {K[-1]} and {Q[-1]}")
    if V[-2] != K[-2]:
        raise ValueError(f"V must have as many rows as K, got {V[-2]} and {K[-2]}")
    if causal and Q[-2] > K[-2]:
        raise ValueError(
            "causal=True needs at least as many keys as queries, which are the last tokens, got "
            f"{Q[-2]} queries and {K[-2]} keys"
        )


def warn_of_layout(Q: tuple[int, ...], K: tuple[int, ...]) -> None:
    """Warn the caller of this package if the arrays may be (n, H, d): many heads of a few tokens."""
    heads, n = Q[-3] if len(Q) > 2 else 1, Q[-2]
    if heads >= MANY_HEADS and heads == K[-3] and 1 < n <= FEW_TOKENS and n % K[-2] == 0:
        level = next(
            at for at in count(1) if not sys._getframe(at).f_globals["__name__"].startswith(__package__)
        )
        warnings.warn(
            f"Q is read as (…, H, n, d): {heads} heads of {n} tokens. If it is (…, n, H, d), pass "
            "Q.swapaxes(-3, -2), or if it has many short sequences Q[..., None, :, :]. The same for K and V.",
            stacklevel=level,
        )


def check_output_gradient(dO: tuple[int, ...], Q: tuple[int, ...], V: tuple[int, ...]) -> None:
    """Raise ValueError unless the shape of dO is that of O, (…, n, d_v)."""
    wanted = (*Q[:-1], V[-1])
    if tuple(dO) != wanted:
        raise ValueError(f"dO must have the shape of O, {wanted}, got {tuple(dO)}")


def check_entries(Q: Array, K: Array, V: Array, options: Options) -> None:
    """Raise ValueError, naming a row, if an entry is not finite or, in Q or K, above `options.bound`."""
    for name, X in (("Q", Q), ("K", K), ("V", V)):
        error_certificates.check_finite(name, X)
        if name != "V":
            error_certificates.check_bound(name, X, options.bound)


def head_approximation(K: Array, options: Options, g: int, compiled: bool) -> Approximation:
    """Return the approximation of one head, with the mean and covariance of its keys unless causal."""
    d = K.shape[1]
    shift, covariance = (None, None) if options.causal else _moments(K, compiled)
    made = options.make_polynomial(g)
    if not made.per_row:
        covariance = None
    elif options.key_variance is not None:
        covariance = options.key_variance * np.eye(d)
    fitted = covariance is not None and options.key_variance is None
    return Approximation(plan(d, g), made, options.factor(d), shift, covariance, fitted)


def _moments(K: Array, compiled: bool) -> tuple[Array, Array]:
    """Return the mean (d,) of the keys and their covariance (d, d)."""
    if compiled:
        return fast.moments(K)
    mean = K.mean(axis=0)
    rest = K - mean
    return mean, rest.T @ rest / len(K)
