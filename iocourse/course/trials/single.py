"""Float32 inputs for kernels, and attention in float64 as their yardstick."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import Property
from ..judging import Where, part

Single = NDArray[np.float32]
# float32 kernels against float64: sums of some hundred terms near 1. Wrong formulas are off by 1e-2 and more.
TOLERANCE = 2e-5
# A score or a log-sum-exp s has a rounding error of about s · 1e-7, and e^s is wrong by that factor.
LARGE_TOLERANCE = 5e-4
RESULTS = ("O", "LSE")


def normal(rng: np.random.Generator, *shape: int) -> Single:
    """Standard normal numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def attention_of(Q: Single, K: Single, V: Single, pairs: NDArray[np.bool_] | None = None) -> tuple[Any, Any]:
    """O (Nq, d) and LSE (Nq,) in float64; `pairs` (Nq, Nk) says which query sees which key."""
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    S = exact.scores(q, k, mask=None if pairs is None else np.where(pairs, 0.0, -np.inf))
    return exact.softmax(S) @ v, exact.log_sum_exp(S)


def output(name: str, where: Where = "", tolerance: float = TOLERANCE) -> Property:
    """O, the first of two results, is right in some of the cases."""
    return part(name, RESULTS, 0, where, tolerance)


def log_sums(name: str, where: Where = "", tolerance: float = TOLERANCE) -> Property:
    """LSE, the second of two results, is right in some of the cases."""
    return part(name, RESULTS, 1, where, tolerance)
