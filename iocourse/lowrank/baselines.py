"""Baselines: attention in linear time as others do it, each in a few lines of NumPy.

Every entry of `FIELD` takes q, k (n, d), v (n, d_v), a number of features m and a generator, and gives O
(n, d_v), about softmax(QKᵀ)V; scores are not scaled again. They differ in their features alone:

- `favor`: random ones that are positive and right on average;
- `nystrom`: the exponential itself, at some of the keys;
- `wildcat`: the same at keys that are picked and weighted with care;
- `sata`: the monomials of Taylor's polynomial, each once;
- `elu`: as many as there are columns; it does not try to be softmax.

Low-rank attention of this package differs from all of them in that its features are known beforehand, its
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

Rows = NDArray[Any]  # float32 or float64, a token a row
Attend = Callable[[Rows, Rows, Rows, int, np.random.Generator], Rows]

CUT = 1e-10  # of the largest singular value: smaller ones are left out of Nyström's inverse
LEFT = 1e-12  # of the diagonal of WildCat's kernel: less is rounding


def linear(left: Rows, right: Rows, v: Rows) -> Rows:
    """(left rightᵀ)V over the sums of its rows: features (n, m), v (n, d_v); n × n is never formed."""
    ones = np.ones((len(v), 1), v.dtype)
    both = left @ (right.T @ np.hstack([v, ones]))  # (n, d_v + 1)
    found: Rows = both[:, :-1] / both[:, -1:]
    return found


def favor(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """FAVOR+: O with m positive random features, right on average, with orthogonal directions.

    E e^{w·q - |q|²/2} e^{w·k - |k|²/2} = e^{q·k} for a normal w. The largest exponent, of a query or of all
    keys, is taken off: it cancels. Source: the Performer, 2009.14794.
    """
    W = directions(m, q.shape[1], rng).astype(q.dtype)  # (m, d)
    left, right = log_features(q, W), log_features(k, W)  # (n, m)
    left = np.exp(left - left.max(axis=1, keepdims=True))
    return linear(left, np.exp(right - right.max()), v)


def log_features(x: Rows, W: Rows) -> Rows:
    """w·x - |x|²/2 for every row of x (n, d) and of W (m, d): (n, m)."""
    found: Rows = x @ W.T - (x * x).sum(axis=1, keepdims=True) / 2
    return found


def directions(m: int, d: int, rng: np.random.Generator) -> Rows:
    """(m, d): blocks of d orthogonal rows, each as long as a normal vector would be."""
    Q, R = np.linalg.qr(rng.standard_normal((-(-m // d), d, d)))
    Q = Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None]  # else one direction is likelier than another
    lengths = np.linalg.norm(rng.standard_normal((m, d)), axis=1)
    found: Rows = Q.swapaxes(1, 2).reshape(-1, d)[:m] * lengths[:, None]
    return found


def nystrom(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """Nyström's method: O by comparing everything with m landmarks, all keys at most.

    exp(QKᵀ) ≈ exp(QLᵀ) exp(LLᵀ)⁺ exp(LKᵀ). In float64: in float32 the inverse would be the error. Source:
    the Nyströmformer, 2102.03902. Three things are ours: its landmarks are means of neighbouring tokens, and
    here they are keys by lot, for means of independent tokens are all alike; the exponential is approximated
    before its rows are divided, as in every baseline here; and what is inverted is the Gaussian kernel of
    the landmarks, whose diagonal is 1, the lengths being multiplied in.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k = k - k.mean(axis=0)  # softmax does not see it
    L = k[rng.permutation(len(k))[:m]]  # (m, d)
    half = (L * L).sum(axis=1) / 2  # e^{x·y} = e^{|x|²/2} · Gaussian(x, y) · e^{|y|²/2}
    middle = np.linalg.pinv(np.exp(L @ L.T - half - half[:, None]), rcond=CUT, hermitian=True)
    scores = q @ L.T - half  # (n, m)
    left = np.exp(scores - scores.max(axis=1, keepdims=True))
    return linear(left @ middle, np.exp(k @ L.T - half), v)


def wildcat(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator) -> Rows:
    """WildCat: O over m weighted keys, or fewer where they say it all, picked by randomly pivoted Cholesky.

    exp(QKᵀ) ≈ exp(QK_Sᵀ) W, where W solves exp(K_S K_Sᵀ/τ²) W = exp(K_S Kᵀ/τ²): the best weights for the keys
    S at a temperature τ. Source: Schröder and Mackey, 2602.10056, its project page and public code, written
    anew: keys less their mean, the temperature of the code, results clipped to the range of the values.
    Ours: float64, one bin, and an end where nothing is left to pick.
    """
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


def sata(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator | None = None) -> Rows:
    """SATA: O by Taylor's polynomial of the largest degree with at most m features, each symmetric monomial
    once; nothing is drawn.

    (q·k)^p = Σ C_a q^a k^a over the multisets a of p coordinates, C_a the number of their orders. Source:
    Heinsen and Kozachkov, 2602.00294, and their code: a degree at a time, each monomial a product of gathered
    coordinates. Written anew; forward pass with all keys. Nothing is taken off the keys, nothing is
    certified.
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
    """The largest g with C(d + g, g) ≤ m. Raises ValueError where m is below 1."""
    if m < 1:
        raise ValueError(f"m is {m}; the constant alone is 1 feature")
    g = 0
    while comb(d + g + 1, g + 1) <= m:
        g += 1
    return g


def term(p: int, d: int) -> tuple[Rows, Rows]:
    """The coordinates of each monomial of degree p, (count, p), and how often it stands in (q·k)^p."""
    places = list(combinations_with_replacement(range(d), p))
    orders = [factorial(p) // prod(map(factorial, Counter(axes).values())) for axes in places]
    return np.array(places, np.intp).reshape(len(places), p), np.array(orders)


def monomials(x: Rows, places: Rows) -> Rows:
    """The products of the coordinates that each row of `places` names, for every row of x: (n, count)."""
    found: Rows = x[:, places].prod(axis=-1)
    return found


def elu(q: Rows, k: Rows, v: Rows, m: int = 0, rng: np.random.Generator | None = None) -> Rows:
    """Linear attention with the features elu + 1 of every entry: d of them, whatever m is; nothing is drawn.

    A model of its own, not an approximation. Source: Katharopoulos and others, 2006.16236.
    """
    return linear(elu_features(q), elu_features(k), v)


def elu_features(x: Rows) -> Rows:
    """elu(x) + 1: x + 1 where x is positive, else its exponential."""
    found: Rows = np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    return found


FIELD: dict[str, Attend] = {
    "SATA": sata,
    "WildCat": wildcat,
    "Nyström": nystrom,
    "FAVOR+": favor,
    "elu + 1": elu,
}
