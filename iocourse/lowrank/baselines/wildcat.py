"""WildCat: attention over a small weighted coreset of the keys, picked by randomly pivoted Cholesky.

exp(QKᵀ) ≈ exp(QK_Sᵀ) W, where W solves exp(K_S K_Sᵀ/τ²) W = exp(K_S Kᵀ/τ²): the best weights for the keys S
at a temperature τ. Source: Schröder and Mackey, 2602.10056, its project page and public code, written anew:
keys less their mean, the temperature of the code, results clipped to the range of the values. Ours: float64,
one bin, and an end where nothing is left to pick.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from .linear_attention import Rows

LEFT = 1e-12  # of the kernel's diagonal: less is rounding


def wildcat(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """O over m weighted keys, or fewer where they say it all."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)
    picked, W = coreset(k, m, rng)
    scores = q @ k[picked].T  # (n, m)
    left = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Rows = (left @ (W @ v)) / (left @ W.sum(axis=1))[:, None]
    return found.clip(v.min(axis=0), v.max(axis=0))


def coreset(k: Rows, m: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Rows]:
    """The places of at most m keys, and their weights (m, n) for all keys (n, d)."""
    x = k / temperature(float(np.linalg.norm(k, axis=1).max()), len(k))
    half = (x * x).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    picked, factor = cholesky(x, half, m, rng)
    weights = np.linalg.solve(factor[:, picked], factor)  # of the Gaussian kernel
    return picked, weights * np.exp(half - half[picked, None])


def cholesky(x: Rows, half: Rows, m: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Rows]:
    """Places and factor F (m, n): FᵀF is the Gaussian kernel on the rows and columns that were picked.

    A key is picked with a chance in proportion to what the factor leaves of e^{x·x}.
    """
    factor, left = np.zeros((min(m, len(x)), len(x))), np.ones(len(x))
    picked: list[int] = []
    for step in range(len(factor)):
        if left.max() < LEFT:
            break
        chances = left * np.exp(2 * (half - half.max()))
        at = int(rng.choice(len(x), p=chances / chances.sum()))
        row = np.exp(x @ x[at] - half - half[at]) - factor[:step, at] @ factor[:step]
        factor[step] = row / sqrt(row[at])
        left = (left - factor[step] ** 2).clip(min=0)
        left[at] = 0
        picked.append(at)
    return np.array(picked, np.intp), factor[: len(picked)]


def temperature(radius: float, n: int) -> float:
    """τ of n keys no longer than this: sqrt(b / 2W(b/2ρ)), b = log n / radius² + 2, W(y) e^{W(y)} = y."""
    b = log(n) / radius**2 + 2
    return sqrt(b / (2 * lambert(b / TWICE_RHO)))


def lambert(y: float) -> float:
    """The w with w e^w = y, y > 0: Newton's steps from log(1 + y), which is no smaller."""
    w = log(1 + y)
    for _ in range(50):
        w -= (w - y * exp(-w)) / (1 + w)
    return w


TWICE_RHO = 2 * sqrt(1 + exp(lambert(2 / exp(2)) + 2))  # 6.383…, as the code has it
