"""What one head's attention is approximated with: the monomials, their weights, and each query row's own
factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..monomials import Array, Plan
from .polynomials import CLIP, Polynomial, cut_series


@lru_cache(maxsize=64)
def weights_of(plan: Plan, polynomial: Polynomial, kind: np.dtype[np.floating]) -> Array:
    """(rank, 1): what each monomial weighs in the polynomial, its coefficient times l!/a!."""
    found = (polynomial.coefficients[plan.degrees] * plan.multiplicities)[:, None].astype(kind)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class Approximation:
    """One head's approximation of exp(factor · q · (k - shift)).

    plan: the monomials. polynomial: what stands for exp. factor: the scale of the scores, multiplied into q.
    shift (d,): subtracted from every key, None for 0; softmax does not see it. covariance (d, d): of the
    keys, where every query row has its own Hermite polynomial; None where all rows share the coefficients.
    """

    plan: Plan
    polynomial: Polynomial
    factor: float = 1.0
    shift: Array | None = None
    covariance: Array | None = None

    def weights(self, like: Array) -> Array:
        """(rank, 1): what each monomial weighs, in the type of `like`."""
        return weights_of(self.plan, self.polynomial, like.dtype)

    def queries(self, Q: Array) -> Array:
        """Q times the scale of the scores."""
        return Q * Q.dtype.type(self.factor)

    def keys(self, K: Array) -> Array:
        """K without its shift."""
        return K if self.shift is None else K - self.shift.astype(K.dtype)

    def row_factors(self, x: Array, true_scale: bool = False) -> Array | float:
        """(rank, n): what each feature of the scaled query rows x (n, d) is multiplied with; 1.0 for shared
        ones.

        Degree l takes the exponential series of -σ²/2 cut after ⌊(g - l)/2⌋ terms, where σ² = xᵀ covariance
        x, clipped. true_scale: times e^(σ²/2) too, which matters only where something exact is added.
        """
        if self.covariance is None:
            return 1.0
        variance = np.minimum(((x @ self.covariance.astype(x.dtype)) * x).sum(1), CLIP)
        found = cut_series(variance, self.plan.g)[(self.plan.g - self.plan.degrees) // 2]
        return found * np.exp(variance / 2) if true_scale else found
