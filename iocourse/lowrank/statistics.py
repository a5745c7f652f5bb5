"""Statistics of the data in low-rank attention: their part of the gradient, and an offset of V.

The backward passes treat the mean key m and the variances σᵢ² = xᵢᵀ C xᵢ (C: covariance of the keys) as
constants. But the output depends on the data through them too, so their part of the gradient is added here:

    mean key   dK loses the mean of its rows. Its columns then sum to 0, as those of softmax do.
    variance   ∂p/∂σ² = -p″/2, and p″ is the row-adaptive polynomial of degree g - 2 with the same variance.

With [Nᵢ, denᵢ] of degree g - 2 in place of degree g, row i has the slope -Gᵢ·[Nᵢ, denᵢ] / 2 by its variance,
G = [dO, -δ] / den. The same holds for causal attention, whose near pairs are exact: there the factor e^(σ²/2)
of the polynomial has a slope too, and a row's sum Gᵢ·[Nᵢ, denᵢ] of degree g is 0.

The functions take one head as arrays, (n, d) and so on, or H heads as tensors, (H, n, d).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ..monomials import plan
from .numpy_backend import CAUSAL_TILE
from .polynomials import CLIP, Polynomial, taylor

SAMPLE = 1024  # rows of V whose mean is near enough to that of all
FIRST = CAUSAL_TILE  # rows of the first tile of causal attention
ROWS = 4096  # rows of the temporary arrays


@cache
def second_derivative(g: int) -> Polynomial:
    """Return the row-adaptive polynomial of degree g - 2, stored with degree 1 or more as plans need it."""
    coefficients = np.zeros(max(g - 2, 1) + 1)
    coefficients[: g - 1] = taylor(g - 2)
    return Polynomial("hermite", coefficients, np.inf, np.inf, per_row=True)


def of_second_derivative(s: Any) -> Any:
    """Return the approximation s with `second_derivative` for its polynomial and the same statistics."""
    p = second_derivative(s.plan.g)
    return replace(s, plan=plan(s.plan.d, p.degree), polynomial=p)


def add_gradient(dQ: Any, dK: Any, Q: Any, K: Any, dO: Any, f: Any, low: Any, s: Any) -> None:
    """Add the gradient through the statistics of s to dQ and dK, in place.

    f: the forward pass, with O and den. low: [N, den] (…, n, d_v + 1) of degree g - 2; None if all rows
    share one polynomial.
    """
    if low is not None:
        moment = 0  # Σᵢ slopeᵢ xᵢᵀxᵢ, (…, d, d)
        for part in _parts(Q):
            x = Q[part] * s.factor
            spread = x @ s.covariance
            out, given = low[part], dO[part]
            slopes = _row_dots(given, f.O[part]) * out[..., -1] - _row_dots(given, out[..., :-1])
            slopes /= f.den[part[:-1]]  # 2 dL/dσ²
            slopes = (slopes * (_row_dots(spread, x) < CLIP))[..., None]  # a clipped variance is a constant
            dQ[part] += s.factor * slopes * spread
            moment = moment + (x * slopes).swapaxes(-1, -2) @ x
        if s.fitted:
            for part in _parts(K):
                dK[part] += s.keys(K[part]) @ (moment / K.shape[-2])
    if s.shift is not None:
        dK -= dK.mean(-2, keepdims=True)


def _parts(X: Any) -> Iterator[Any]:
    """Yield the index of some rows of X (…, n, d) after another, so that temporary arrays stay small."""
    for start in range(0, X.shape[-2], ROWS):
        yield ..., slice(start, start + ROWS), slice(None)


def _row_dots(a: Any, b: Any) -> Any:
    """Return the scalar products of the rows, by einsum, because the last axis is short."""
    return np.einsum("ij,ij->i", a, b) if isinstance(a, np.ndarray) else (a * b).sum(-1)


def value_offset(V: Any, causal: bool) -> Any:
    """Return the row (…, 1, d_v) that is taken off V and added to O: near the mean of V, or 0.

    It is 0 in columns whose mean is at most their spread. Sums of large equal values would lose the digits in
    which rows differ. With a causal mask only the first tile is looked at.
    """
    some = V[..., :FIRST, :] if causal else V[..., :: max(1, V.shape[-2] // SAMPLE), :]
    mean = some.mean(-2, keepdims=True)
    return mean * (mean**2 > ((some - mean) ** 2).mean(-2, keepdims=True))
