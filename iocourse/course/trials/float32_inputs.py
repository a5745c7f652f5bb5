"""Float32 inputs for kernels, and exact attention in float64 to compare with.

Scores far from 0 expose a softmax without its maximum, or with one that starts too high.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact

Single = NDArray[np.float32]
# For float32 kernels compared with float64: sums of some hundred terms near 1. Wrong formulas differ by 1e-2.
TOLERANCE = 2e-5
# A score or a log-sum-exp s has a rounding error of about s · 1e-7, and e^s is wrong by that factor.
LARGE_TOLERANCE = 5e-4


def normal(rng: np.random.Generator, *shape: int) -> Single:
    """Return standard normal numbers in float32."""
    return rng.standard_normal(shape).astype(np.float32)


def attention_of(Q: Single, K: Single, V: Single, pairs: NDArray[np.bool_] | None = None) -> tuple[Any, Any]:
    """Return O (Nq, d) and LSE (Nq,) in float64; `pairs` (Nq, Nk) has the visible pairs."""
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    S = exact.scores(q, k, mask=None if pairs is None else np.where(pairs, 0.0, -np.inf))
    return exact.softmax(S) @ v, exact.log_sum_exp(S)


# ------------------------------------------------------------------ scores far from 0
FAR = "scores far from 0"  # a tag
FAR_NAME = f"{FAR} neither overflow nor vanish"
KINDS = (None, -200.0, -1e25, 200.0)  # per four queries; None: scores of ±100
# A finite replacement of -inf must be below every score: -1e6 and -1e9 are not, -1e30 is.


def far_apart(Q: Single, K: Single) -> tuple[Single, Single]:
    """Return Q (…, Nq, d) and K (…, Nk, d) with scores far from 0.

    Of every four queries, one has scores of about ±100. The scores of the others are at most -200, at most
    -1e25, and at least 200. The largest score of such a row is at least 20 above the next one, so its weight
    is 1 also in float32. It is the first in rows below 0 and the last in rows above 0, so that a maximum that
    is not carried to the next tile always gives a wrong result.
    """
    Q, K = Q.copy(), K.copy()
    d = Q.shape[-1]
    K[..., 0] = 1 + 0.1 * np.arange(K.shape[-2])
    for row in range(Q.shape[-2]):
        kind = KINDS[row % len(KINDS)]
        if kind is None:
            Q[..., row, :] *= 40
            Q[..., row, 0] = 0
        else:
            Q[..., row, :] = 0
            Q[..., row, 0] = kind * d**0.5
    return Q, K
