"""Approximation of one head's attention: the monomials, their weights, and the factors of each query row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..monomials import Array, Plan
from .polynomials import CLIP, Polynomial, cut_series


@lru_cache(maxsize=64)
def weights_of(plan: Plan, polynomial: Polynomial, kind: np.dtype[np.floating]) -> Array:
    """Return the weight of each monomial in the polynomial, its coefficient times l!/a!, (rank, 1)."""
    found = (polynomial.coefficients[plan.degrees] * plan.multiplicities)[:, None].astype(kind)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class Approximation:
    """Approximation of exp(factor · q · (k - shift)) for one head.

    plan: the monomials. polynomial: the approximation of exp. factor: the scale of the scores, multiplied
    into q. shift (d,): subtracted from every key, which does not change the softmax; None is 0. covariance
    (d, d): covariance of the keys, if every query row has its own Hermite polynomial; otherwise None. fitted:
    True if the covariance is that of these keys, False if it was given.
    """

    plan: Plan
    polynomial: Polynomial
    factor: float = 1.0
    shift: Array | None = None
    covariance: Array | None = None
    fitted: bool = False

    def weights(self, like: Array) -> Array:
        """Return the weight of each monomial, (rank, 1), in the type of `like`."""
        return weights_of(self.plan, self.polynomial, like.dtype)

    def queries(self, Q: Array) -> Array:
        """Return Q times the scale of the scores."""
        return Q * Q.dtype.type(self.factor)

    def keys(self, K: Array) -> Array:
        """Return K minus the shift."""
        return K if self.shift is None else K - self.shift.astype(K.dtype)

    def row_factors(self, x: Array, true_scale: bool = False) -> Array | float:
        """Return the factor of each feature of the scaled queries x (n, d): (rank, n), or 1.0 if shared.

        true_scale: multiply also by e^(σ²/2), which is needed to add exact terms.
        """
        if self.covariance is None:
            return 1.0
        factors, scale = self.series(x.T)
        found = factors[(self.plan.g - self.plan.degrees) // 2]
        return found * scale if true_scale else found

    def series(self, x: Array) -> tuple[Array, Array]:
        """Return the factors of the scaled queries x (d, n) by degree, (⌊g/2⌋ + 1, n), and e^(σ²/2), (n,).

        Row ⌊(g - l)/2⌋ belongs to degree l: the exponential series of -σ²/2 cut after that many terms, where
        σ² is xᵀ covariance x, clipped.
        """
        covariance = np.asarray(self.covariance, x.dtype)
        variance = np.minimum(((covariance @ x) * x).sum(0), CLIP)
        return cut_series(variance, self.plan.g), np.exp(variance / 2)
