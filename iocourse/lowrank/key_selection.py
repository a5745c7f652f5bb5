"""Baselines with the exponential itself: at fewer keys, or at some pairs and a polynomial for the others.

`baselines` lists them and describes their arguments.
"""

from __future__ import annotations

from math import comb, exp, factorial, log, sqrt

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .feature_maps import Rows, degree_of, linear, means, taylor, with_ones

CUT = 1e-10  # relative to the largest singular value: smaller ones are omitted in Nyström's inverse
LEFT = 1e-12  # of the diagonal of WildCat's kernel: smaller remainders are rounding errors
ROUNDS = 3  # of k-means; more did not reduce the errors on the stored heads
BITS = 8  # of HyperAttention's hash, one random hyperplane each


def attend(q: Rows, k: Rows, v: Rows, log_counts: Rows | float = 0.0) -> Rows:
    """Return softmax(QKᵀ + log_counts)V: a key takes part as often as its count."""
    found: Rows = weights(q, k, log_counts) @ v
    return found


def weights(q: Rows, k: Rows, log_counts: Rows | float = 0.0) -> Rows:
    """Return softmax(QKᵀ + log_counts), (n, n_k), in the type of q."""
    scores = q @ k.T + np.asarray(log_counts, q.dtype)
    found: Rows = np.exp(scores - scores.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    return found


def centroids(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O over at most m clusters of keys: mean keys and mean values, weighted by the numbers of keys.

    k-means, with the sum of (q·(k - k'))² over the queries as squared distance: keys of a cluster have
    similar logits. Multipole semantic attention, 2509.10406, also clusters the queries and adds dipoles.
    """
    x = k @ np.asarray(np.linalg.qr(q, mode="r")).T  # |x - x'|² is the sum of (q·(k - k'))²
    rows, d = np.hstack([x, k, v]), x.shape[1]
    centres = rows[rng.permutation(len(k))[:m]]
    for _ in range(ROUNDS):
        c = centres[:, :d]
        labels = (x @ c.T - (c * c).sum(axis=1) / 2).argmax(axis=1)
        _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        centres = np.zeros_like(rows, shape=(len(sizes), rows.shape[1]))  # only clusters with keys are kept
        np.add.at(centres, labels, rows)
        centres /= sizes[:, None]
    _, keys, values = np.split(centres, [d, d + k.shape[1]], axis=1)
    return attend(q, keys, values, np.log(sizes))


def kdeformer(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O over m keys drawn with chances proportional to the column norms of the softmax weights.

    A drawn key counts 1/chance times. Source: KDEformer, 2302.02451, with fast kernel density estimates of
    norms and row sums. Here the norms are those of m random queries, the row sums those of the drawn keys.
    """
    some = rng.permutation(len(q))[:m]
    norms = np.linalg.norm(weights(q[some], k).astype(np.float64), axis=0)
    chances = norms / norms.sum()
    picked = rng.choice(len(k), size=m, p=chances)
    return attend(q, k[picked], v[picked], -np.log(chances[picked]))


def hyperattention(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by HyperAttention: about m/2 keys of similar hash exactly, a sample of m/2 for all others.

    Queries and keys are sorted by hash; block i of the queries attends to block i of the keys exactly. One
    uniform sample stands for all other keys, in numerator and row sum. Source: 2310.05869, here without the
    recursion for causal attention.
    """
    size = max(m // 2, 1)
    blocks, sample = max(len(k) // size, 1), rng.permutation(len(k))[: m - size]
    planes = rng.standard_normal((q.shape[1], BITS)).astype(q.dtype)
    rows, columns = (np.array_split(hashes(x @ planes).argsort(), blocks) for x in (q, k))
    out = np.zeros_like(v, shape=(len(q), v.shape[1]))
    for row, column in zip(rows, columns, strict=True):
        counts = np.where(np.isin(sample, column), -np.inf, log(len(k) / max(len(sample), 1)))
        keys = np.r_[column, sample]
        out[row] = attend(q[row], k[keys], v[keys], np.r_[np.zeros(len(column)), counts])
    return out


def hashes(x: Rows) -> NDArray[np.int64]:
    """Return the place of each row's signs in the Gray code: neighbouring places differ in one sign."""
    found: NDArray[np.int64] = np.bitwise_xor.accumulate(x > 0, axis=1) @ (1 << np.arange(BITS)[::-1])
    return found


def linformer(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return softmax(Q(EK)ᵀ)EV for a random projection E (m, n_k) along the sequence.

    Source: Linformer, 2006.04768, whose projections are trained with the model, for one length. Untrained it
    is not an approximation of softmax: its weights do not sum to 1.
    """
    E = (rng.standard_normal((m, len(k))) / sqrt(m)).astype(q.dtype)
    return attend(q, E @ k, E @ v)


def based(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator | None = None) -> Rows:
    """Return O with the exponential for keys at positions i - h to i + h, Taylor's polynomial for others.

    Source: Based, 2402.18668, a causal model with layers of the polynomial, of trained projections to few
    columns, and layers of sliding-window attention. Here both are one attention, degree and h depend on m by
    `split`, the window is symmetrical, and keys are minus their mean.
    """
    if len(q) != len(k):
        raise ValueError(f"q and k must have the same number of rows for a window, got {len(q)} and {len(k)}")
    g, _, exactly = split(m, q.shape[1])
    k, v1, h = k - k.mean(axis=0), with_ones(v), min(max(exactly - 1, 0) // 2, len(k) - 1)
    padded = (np.pad(x, ((h, h), (0, 0))) for x in (k, v1))  # rows beyond the ends have weight 0 in v1
    near, near_v1 = (sliding_window_view(x, 2 * h + 1, axis=0) for x in padded)
    scores = (q[:, None] @ near)[:, 0]  # (n, 2h + 1)
    top = scores.max(axis=1, initial=0, keepdims=True)
    polynomial = sum(scores**p / factorial(p) for p in range(g + 1))
    extra = np.exp(scores - top) - np.exp(-top) * polynomial
    others = taylor(q, g) @ (taylor(k, g).T @ v1)
    return means(np.exp(-top) * others + (near_v1 @ extra[:, :, None])[:, :, 0])


def split(m: int, d: int) -> tuple[int, int, int]:
    """Return the degree g, at most 2, its C(d + g, g) features, and how many of m remain for exact pairs."""
    g = min(2, degree_of(m, d))
    features = comb(d + g, g)
    return g, features, m - features


def support_basis(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator | None = None) -> Rows:
    """Return O with the exponential for pairs with a large query or key, Taylor's polynomial for others.

    A row is large if an entry is above a threshold, here such that `split` fixes how many queries and keys
    are large. Source: 2510.01643, with one threshold, here without sketches and with keys minus their mean.
    """
    g, _, exactly = split(m, q.shape[1])
    k, v1 = k - k.mean(axis=0), with_ones(v)
    rows, keys = (np.abs(x).max(axis=1).argsort()[::-1] for x in (q, k))  # large ones first
    large, small, most = keys[:exactly], keys[exactly:], q[rows[exactly:]]
    scores = most @ k[large].T
    top = scores.max(axis=1, initial=0, keepdims=True)
    others = taylor(most, g) @ (taylor(k[small], g).T @ v1[small])
    out = np.zeros_like(v, shape=(len(q), v.shape[1]))
    out[rows[:exactly]] = attend(q[rows[:exactly]], k, v)
    out[rows[exactly:]] = means(np.exp(scores - top) @ v1[large] + np.exp(-top) * others)
    return out


def nystrom(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by Nyström's method with m landmarks, at most all keys.

    exp(QKᵀ) ≈ exp(QLᵀ) exp(LLᵀ)⁺ exp(LKᵀ). The computation is in float64, because in float32 the error of the
    inverse would dominate. Source: the Nyströmformer, 2102.03902. Differences: landmarks are drawn keys, not
    means of neighbouring tokens (those of independent tokens are all similar); the exponential, not the
    softmax, is approximated; the inverted matrix is the Gaussian kernel, whose diagonal is 1.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)  # this does not change the softmax
    L = k[rng.permutation(len(k))[:m]]  # (m, d)
    half = (L * L).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    middle = np.linalg.pinv(np.exp(L @ L.T - half - half[:, None]), rcond=CUT, hermitian=True)
    return linear(weights(q, L, -half) @ middle, np.exp(k @ L.T - half), v)


def wildcat(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by WildCat, over at most m weighted keys selected by randomly pivoted Cholesky.

    exp(QKᵀ) ≈ exp(QK_Sᵀ) W, where W solves exp(K_S K_Sᵀ/τ²) W = exp(K_S Kᵀ/τ²): the best weights for the keys
    S at a temperature τ. Source: Schröder and Mackey, 2602.10056, and their code, reimplemented: keys minus
    their mean, its temperature, results clipped to the range of the values. Differences: float64, one bin,
    and selection stops when the remainder is 0.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)
    picked, W = coreset(k, m, rng)
    left = weights(q, k[picked])  # (n, m)
    found: Rows = (left @ (W @ v)) / (left @ W.sum(axis=1))[:, None]
    return found.clip(v.min(axis=0), v.max(axis=0))


def coreset(k: Rows, m: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Rows]:
    """Return the indices of at most m selected keys, and their weights (m, n) for all keys (n, d)."""
    x = k / temperature(float(np.linalg.norm(k, axis=1).max()), len(k))
    half = (x * x).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    picked, factor = cholesky(x, half, m, rng)
    gaussian = np.linalg.solve(factor[:, picked], factor)  # weights for the Gaussian kernel
    return picked, gaussian * np.exp(half - half[picked, None])


def cholesky(x: Rows, half: Rows, m: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Rows]:
    """Return the selected indices and the factor F (m, n) of randomly pivoted Cholesky.

    FᵀF is the Gaussian kernel in the selected rows and columns. A key is drawn with a probability
    proportional to the remainder of e^{x·x}.
    """
    factor, left = np.zeros_like(x, shape=(min(m, len(x)), len(x))), np.ones(len(x))
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
    """Return WildCat's temperature τ for n keys of norm at most `radius`.

    τ = sqrt(b / 2W(b/2ρ)), b = log n / radius² + 2; W is the Lambert function, W(y) e^{W(y)} = y.
    """
    b = log(n) / radius**2 + 2
    return sqrt(b / (2 * lambert(b / TWICE_RHO)))


def lambert(y: float) -> float:
    """Return the w with w e^w = y for y > 0, by Newton's method from log(1 + y) ≥ w."""
    w = log(1 + y)
    for _ in range(50):
        w -= (w - y * exp(-w)) / (1 + w)
    return w


TWICE_RHO = 2 * sqrt(1 + exp(lambert(2 / exp(2)) + 2))  # 6.383…, as in WildCat's code
