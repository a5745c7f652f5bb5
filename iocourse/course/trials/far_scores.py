"""Queries and keys whose scores lie far from 0: they tell where a maximum is left out, or starts too high."""

from __future__ import annotations

import numpy as np

from ..exercise import Case
from .single import Single

FAR = "scores far from 0"  # in the label of a case
FAR_NAME = f"{FAR} neither overflow nor vanish"
KINDS = (None, -200.0, -30_000.0, 200.0)  # of every four queries; None: scores of ±100 in one row


def near(case: Case) -> bool:
    """A case whose scores are of ordinary size."""
    return FAR not in case.label


def far_apart(rng: np.random.Generator, Q: Single, K: Single) -> tuple[Single, Single]:
    """Q (…, Nq, d) and K (…, Nk, d) anew. Of every four queries one has scores of some ±100; the scores of
    the others all lie at -200 and below, at -30,000 and below, and at 200 and above.

    The largest score of such a row is at least 20 above the next: its weight is 1, which no rounding of
    float32 moves.
    """
    Q, K = Q.copy(), K.copy()
    d = Q.shape[-1]
    K[..., 0] = 1 + 0.1 * rng.permutation(K.shape[-2])
    for row in range(Q.shape[-2]):
        kind = KINDS[row % len(KINDS)]
        if kind is None:
            Q[..., row, :] *= 40
            Q[..., row, 0] = 0
        else:
            Q[..., row, :] = 0
            Q[..., row, 0] = kind * d**0.5
    return Q, K
