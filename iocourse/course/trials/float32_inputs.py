"""Float32 inputs for kernels, and attention in float64 as their yardstick.

Scores that lie far from 0 tell where a maximum is left out, or starts too high.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact

Single = NDArray[np.float32]
# float32 kernels against float64: sums of some hundred terms near 1. Wrong formulas are off by 1e-2 and more.
TOLERANCE = 2e-5
# A score or a log-sum-exp s has a rounding error of about s · 1e-7, and e^s is wrong by that factor.
LARGE_TOLERANCE = 5e-4


def normal(rng: np.random.Generator, *shape: int) -> Single:
    """Standard normal numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def attention_of(Q: Single, K: Single, V: Single, pairs: NDArray[np.bool_] | None = None) -> tuple[Any, Any]:
    """O (Nq, d) and LSE (Nq,) in float64; `pairs` (Nq, Nk) says which query sees which key."""
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    S = exact.scores(q, k, mask=None if pairs is None else np.where(pairs, 0.0, -np.inf))
    return exact.softmax(S) @ v, exact.log_sum_exp(S)


# ------------------------------------------------------------------ scores far from 0
FAR = "scores far from 0"  # in the label of a case
FAR_NAME = f"{FAR} neither overflow nor vanish"
KINDS = (None, -200.0, -1e25, 200.0)  # of every four queries; None: scores of ±100 in one row
# What stands in for minus infinity must lie below every score: -1e6 and -1e9 do not, -1e30 does.


def far_apart(Q: Single, K: Single) -> tuple[Single, Single]:
    """Q (…, Nq, d) and K (…, Nk, d) anew. Of every four queries one has scores of some ±100; the scores of
    the others all lie at -200 and below, at -1e25 and below, and at 200 and above.

    The largest score of such a row is at least 20 above the next: its weight is 1, which no rounding of
    float32 moves. Rows below 0 have their largest score first, and rows above 0 last: what a maximum that
    is not carried on does wrong does not depend on chance.
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
