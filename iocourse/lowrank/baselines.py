"""Baselines: published methods for attention in linear time, each in a few lines of NumPy.

Every entry of `FIELD` takes q, k (n, d), v (n, d_v), a number of features m and a generator. It returns O
(n, d_v), an approximation of softmax(QKᵀ)V; scores are not scaled again. The features differ:

- `favor`: positive random features, correct on average;
- `nystrom`: the exponential itself, at some of the keys;
- `wildcat`: the same, at keys selected and weighted by randomly pivoted Cholesky;
- `sata`: the monomials of Taylor's polynomial, each once;
- `elu`: one feature per column; it does not approximate softmax.

Low-rank attention of this package differs from all of them: its features do not depend on the data, its
coefficients are chosen, and it has certificates and a gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations_with_replacement
from math import comb, exp, factorial, log, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]  # float32 or float64, one row per token
Attend = Callable[[Rows, Rows, Rows, int, np.random.Generator], Rows]

CUT = 1e-10  # relative to the largest singular value: smaller ones are omitted in Nyström's inverse
LEFT = 1e-12  # of the diagonal of WildCat's kernel: smaller remainders are rounding errors


def linear(left: Rows, right: Rows, v: Rows) -> Rows:
    """Return (left rightᵀ)V divided by its row sums, for features (n, m), v (n, d_v); no n × n array."""
    ones = np.ones((len(v), 1), v.dtype)
    both = left @ (right.T @ np.hstack([v, ones]))  # (n, d_v + 1)
    found: Rows = both[:, :-1] / both[:, -1:]
    return found


def favor(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by FAVOR+, with m positive random features with orthogonal directions, correct on average.

    E e^{w·q - |q|²/2} e^{w·k - |k|²/2} = e^{q·k} for a normal w. The largest exponent, of a query or of all
    keys, is subtracted because it cancels. Source: the Performer, 2009.14794.
    """
    W = directions(m, q.shape[1], rng).astype(q.dtype)  # (m, d)
    left, right = log_features(q, W), log_features(k, W)  # (n, m)
    left = np.exp(left - left.max(axis=1, keepdims=True))
    return linear(left, np.exp(right - right.max()), v)


def log_features(x: Rows, W: Rows) -> Rows:
    """Return w·x - |x|²/2 for every row x of `x` (n, d) and w of `W` (m, d): (n, m)."""
    found: Rows = x @ W.T - (x * x).sum(axis=1, keepdims=True) / 2
    return found


def directions(m: int, d: int, rng: np.random.Generator) -> Rows:
    """Return random directions (m, d): blocks of d orthogonal rows with the lengths of normal vectors."""
    Q, R = np.linalg.qr(rng.standard_normal((-(-m // d), d, d)))
    Q = Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None]  # for a uniform distribution of directions
    lengths = np.linalg.norm(rng.standard_normal((m, d)), axis=1)
    found: Rows = Q.swapaxes(1, 2).reshape(-1, d)[:m] * lengths[:, None]
    return found


def nystrom(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by Nyström's method with m landmarks, at most all keys.

    exp(QKᵀ) ≈ exp(QLᵀ) exp(LLᵀ)⁺ exp(LKᵀ). The computation is in float64, because in float32 the error of the
    inverse would dominate. Source: the Nyströmformer, 2102.03902. There are three differences. The landmarks
    are randomly drawn keys, not means of neighbouring tokens, because means of independent tokens are all
    similar. The exponential is approximated before the rows are normalised, as in every baseline here. The
    inverted matrix is the Gaussian kernel of the landmarks, whose diagonal is 1; the lengths are factors.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)  # this does not change the softmax
    L = k[rng.permutation(len(k))[:m]]  # (m, d)
    half = (L * L).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    middle = np.linalg.pinv(np.exp(L @ L.T - half - half[:, None]), rcond=CUT, hermitian=True)
    scores = q @ L.T - half  # (n, m)
    left = np.exp(scores - scores.max(axis=1, keepdims=True))
    return linear(left @ middle, np.exp(k @ L.T - half), v)


def wildcat(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Return O by WildCat, over at most m weighted keys selected by randomly pivoted Cholesky.

    exp(QKᵀ) ≈ exp(QK_Sᵀ) W, where W solves exp(K_S K_Sᵀ/τ²) W = exp(K_S Kᵀ/τ²): the best weights for the keys
    S at a temperature τ. Source: Schröder and Mackey, 2602.10056, its project page and public code,
    reimplemented: keys minus their mean, the temperature of the code, results clipped to the range of the
    values. Differences: float64, one bin, and selection stops when the remainder is 0.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)
    picked, W = coreset(k, m, rng)
    scores = q @ k[picked].T  # (n, m)
    left = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Rows = (left @ (W @ v)) / (left @ W.sum(axis=1))[:, None]
    return found.clip(v.min(axis=0), v.max(axis=0))


def coreset(k: Rows, m: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Rows]:
    """Return the indices of at most m selected keys, and their weights (m, n) for all keys (n, d)."""
    x = k / temperature(float(np.linalg.norm(k, axis=1).max()), len(k))
    half = (x * x).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    picked, factor = cholesky(x, half, m, rng)
    weights = np.linalg.solve(factor[:, picked], factor)  # of the Gaussian kernel
    return picked, weights * np.exp(half - half[picked, None])


def cholesky(x: Rows, half: Rows, m: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Rows]:
    """Return the selected indices and the factor F (m, n) of randomly pivoted Cholesky.

    FᵀF is the Gaussian kernel in the selected rows and columns. A key is drawn with a probability
    proportional to the remainder of e^{x·x}.
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


def sata(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator | None = None) -> Rows:
    """Return O by SATA: Taylor's polynomial of the largest degree with at most m features; rng is ignored.

    Each symmetric monomial is computed once. (q·k)^p = Σ C_a q^a k^a over the multisets a of p coordinates,
    where C_a is the number of their orders. Source: Heinsen and Kozachkov, 2602.00294, and their code: one
    degree at a time, each monomial a product of gathered coordinates. Reimplemented: the forward pass with
    all keys, without a shift of the keys and without certificates.
    """
    d = q.shape[1]
    v1 = np.hstack([v, np.ones((len(v), 1), v.dtype)])  # (n, d_v + 1)
    total = np.zeros_like(v1, shape=(len(q), v1.shape[1]))
    for p in range(degree_of(m, d) + 1):
        places, orders = term(p, d)
        state = orders[:, None].astype(k.dtype) * (monomials(k, places).T @ v1)  # (C(d + p - 1, p), d_v + 1)
        total += monomials(q, places) @ state / factorial(p)
    found: Rows = total[:, :-1] / total[:, -1:]
    return found


def degree_of(m: int, d: int) -> int:
    """Return the largest g with C(d + g, g) ≤ m. Raises ValueError if m is below 1."""
    if m < 1:
        raise ValueError(f"m must be at least 1 (the constant feature), got {m}")
    g = 0
    while comb(d + g + 1, g + 1) <= m:
        g += 1
    return g


def term(p: int, d: int) -> tuple[Rows, Rows]:
    """Return the coordinates of each monomial of degree p, (count, p), and its multiplicity in (q·k)^p."""
    places = list(combinations_with_replacement(range(d), p))
    orders = [factorial(p) // prod(map(factorial, Counter(axes).values())) for axes in places]
    return np.array(places, np.intp).reshape(len(places), p), np.array(orders)


def monomials(x: Rows, places: Rows) -> Rows:
    """Return, for every row of x, the product of the coordinates in each row of `places`: (n, count)."""
    found: Rows = x[:, places].prod(axis=-1)
    return found


def elu(q: Rows, k: Rows, v: Rows, m: int = 0, rng: np.random.Generator | None = None) -> Rows:
    """Return O by linear attention with the d features elu + 1 of every entry; m and rng are ignored.

    This is a different model, not an approximation of softmax. Source: Katharopoulos and others, 2006.16236.
    """
    return linear(elu_features(q), elu_features(k), v)


def elu_features(x: Rows) -> Rows:
    """Return elu(x) + 1: x + 1 where x is positive, otherwise its exponential."""
    found: Rows = np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    return found


FIELD: dict[str, Attend] = {
    "SATA": sata,
    "WildCat": wildcat,
    "Nyström": nystrom,
    "FAVOR+": favor,
    "elu + 1": elu,
}
