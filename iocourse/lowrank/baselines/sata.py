"""SATA: Taylor's polynomial by symmetric monomials, each degree's once.

(q·k)^p = Σ C_a q^a k^a over the multisets a of p coordinates, C_a the number of their orders. Source: Heinsen
and Kozachkov, 2602.00294, and their code: a degree at a time, each monomial a product of gathered
coordinates. Written anew; forward pass with all keys. Nothing is taken off the keys, nothing is certified.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import numpy as np

from .linear_attention import Rows


def sata(q: Rows, k: Rows, v: Rows, m: int, rng: np.random.Generator | None = None) -> Rows:
    """O by the largest degree with at most m features in all; nothing is drawn."""
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
