"""Nyström's method: everything is compared with a few landmarks.

exp(QKᵀ) ≈ exp(QLᵀ) exp(LLᵀ)⁺ exp(LKᵀ). Source: the Nyströmformer, 2102.03902. Three things are ours: its
landmarks are means of neighbouring tokens, and here they are keys by lot, for means of independent tokens
are all alike; the exponential is approximated before its rows are divided, as everybody's is here; and what
is inverted is the Gaussian kernel of the landmarks, whose diagonal is 1, the lengths being multiplied in.
"""

from __future__ import annotations

import numpy as np

from .linear_attention import Rows, linear

CUT = 1e-10  # of the largest singular value: smaller ones are left out of the inverse


def nystrom(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """O by m landmarks, all keys at most. In float64: in float32 the inverse would be the error."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)  # softmax does not see it
    L = k[rng.permutation(len(k))[:m]]  # (m, d)
    half = (L * L).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    middle = np.linalg.pinv(np.exp(L @ L.T - half - half[:, None]), rcond=CUT, hermitian=True)
    scores = q @ L.T - half  # (n, m)
    left = np.exp(scores - scores.max(axis=1, keepdims=True))
    return linear(left @ middle, np.exp(k @ L.T - half), v)
