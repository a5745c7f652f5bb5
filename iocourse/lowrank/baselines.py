"""Baselines: published methods for attention in linear time, with their multiply-adds, and the SVD floor.

Every entry of `FIELD` takes q (n, d), k (n_k, d), v (n_k, d_v), a number m and a generator. It returns O
(n, d_v), an approximation of softmax(QKᵀ)V; scores are not scaled again. A query combines about m rows: the
features of a state (`feature_maps`), selected keys, or both (`key_selection`).

Low-rank attention of this package differs from all of them: its features do not depend on the data, its
coefficients are chosen, and it has certificates and a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb, isqrt

import numpy as np

from . import feature_maps as maps
from . import key_selection as keys
from .feature_maps import Rows as Rows

Attend = Callable[[Rows, Rows, Rows, int, np.random.Generator], Rows]

FIELD: dict[str, Attend] = {
    "SATA": maps.sata,  # the monomials of Taylor's polynomial, each once
    "WildCat": keys.wildcat,  # keys selected and weighted by randomly pivoted Cholesky
    "Nyström": keys.nystrom,  # the exponential itself, at randomly drawn keys
    "FAVOR+": maps.favor,  # positive random features, correct on average
    "elu + 1": maps.elu,  # one feature per column; it does not approximate softmax
    "centroids": keys.centroids,  # means of clusters of keys and values, weighted by their sizes
    "KDEformer": keys.kdeformer,  # keys drawn with chances from column norms of the weights
    "HyperAttention": keys.hyperattention,  # keys of similar hash exactly, a uniform sample for the rest
    "Based": keys.based,  # a window exactly, Taylor's polynomial of degree 2 for the rest
    "support basis": keys.support_basis,  # rows with large entries exactly, degree 2 for the rest
    "PolySketch": maps.polysketch,  # squares of randomly sketched polynomials of degree 2
    "Linformer": keys.linformer,  # random mixtures of keys; untrained, it does not approximate softmax
}


def multiply_adds(name: str, n: int, n_k: int, d: int, d_v: int, m: int) -> int:
    """Return the multiply-adds of a forward pass: n queries, n_k keys, d and d_v columns, m features.

    `name` is a key of `FIELD`, "exact", or "low rank" (this package, with m = C(d + g, g) features, without
    its statistics). Products of matrices and factorisations are counted, as an upper bound where the number
    depends on the data. Exponentials, products of entries, sorting and random numbers are not counted.
    Raises ValueError for an unknown name.
    """
    state = (n + n_k) * (d_v + 1)  # per feature: sums over the keys, and their products with queries
    few, r = min(m, n_k), isqrt(m)
    _, features, exactly = keys.split(m, d)
    window = 2 * min(max(exactly - 1, 0) // 2, n_k - 1) + 1
    rows, columns = min(exactly, n), min(exactly, n_k)
    half = max(m // 2, 1)
    block, sample = -(-n_k // max(n_k // half, 1)), min(m - half, n_k)
    counts: dict[str, int] = {
        "exact": n * n_k * (d + d_v),
        "low rank": state * m,
        "SATA": state * comb(d + maps.degree_of(m, d), d),
        "WildCat": n_k * few * (2 * d + few - 1) // 2  # selection
        + few**3 // 3 + few**2 * n_k + few * n_k * d_v + n * few * (d + d_v + 1),
        "Nyström": few * few * d + 11 * few**3 // 2  # eigenvectors, about 9m³/2, and a product
        + (n + n_k) * few * d + n * few**2 + state * few,
        "FAVOR+": (n + n_k) * m * d + state * m,
        "elu + 1": state * d,
        "centroids": (n + n_k) * d * d + keys.ROUNDS * n_k * few * d + n * few * (d + d_v),
        "KDEformer": min(m, n) * n_k * d + n * m * (d + d_v),
        "HyperAttention": (n + n_k) * (d + 1) * keys.BITS + n * (block + sample) * (d + d_v),
        "Based": state * features + n * window * (d + d_v + 1),
        "support basis": rows * n_k * (d + d_v) + (n - rows) * columns * (d + d_v + 1)
        + (n + n_k - rows - columns) * features * (d_v + 1),
        "PolySketch": 2 * (n + n_k) * (d + 1) * r + state * r * r,
        "Linformer": (n + n_k) * m * (d + d_v),
    }  # fmt: skip
    if name not in counts:
        raise ValueError(f"name must be one of {', '.join(counts)}, got {name!r}")
    return counts[name]


def svd_floor(P: Rows, r: int, v: Rows | None = None) -> float:
    """Return the relative error, in the Frobenius norm, of the best matrix of rank r for weights P (n, n_k).

    That matrix is the truncated singular value decomposition (Eckart and Young): no matrix of rank r has a
    smaller error. With `v` (n_k, d_v) return the error of O = P v if this one matrix is used for P. That is a
    reference, not a lower bound: another matrix of rank r can have a smaller error of O, and one of rank d_v
    has none. Raises ValueError if r is below 0.
    """
    if r < 0:
        raise ValueError(f"r must be a rank of at least 0, got {r}")
    U, s, W = np.linalg.svd(P, full_matrices=False)
    if v is None:
        return float(np.linalg.norm(s[r:]) / np.linalg.norm(s))
    rest = (U[:, r:] * s[r:]) @ (W[r:] @ v)
    return float(np.linalg.norm(rest) / np.linalg.norm(P @ v))
