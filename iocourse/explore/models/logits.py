"""The logits of the low-rank explorer: of given queries and keys, of a shipped head, or Gaussian ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import sqrt
from typing import Any

import numpy as np

from ...data import real_head
from ...monomials import Array
from ...sizes import positive_int

SAMPLED_KEYS = 512
SAMPLED = 1 << 15  # logits that are looked at, in whole rows of at most so many keys
GAUSSIAN_ROWS = 64
LARGEST = 1e70  # entry of Q or K: squares of logits are still float64 numbers


@dataclass(frozen=True, eq=False)
class Logits:
    """Sampled rows of q·(k - mean of the keys)/√d: softmax does not see the mean, and low rank leaves it out.

    name: of the data. n, d: its keys and columns. S (rows, keys): the sample. variances (rows,): of each of
    these rows over all keys. entry: the largest |entry| of Q and of K less its mean. limit: largest |q| times
    largest |k| over √d, which no logit passes. drawn: they stand for more of their kind, which has no bound.
    """

    name: str
    n: int
    d: int
    S: Array
    variances: Array
    entry: float
    limit: float
    drawn: bool = False

    @cached_property
    def weights(self) -> Array:
        """(rows, keys): softmax of the sampled rows."""
        found: Array = np.exp(self.S - self.S.max(axis=1, keepdims=True))
        found /= found.sum(axis=1, keepdims=True)
        return found

    @cached_property
    def largest(self) -> float:
        """The largest |logit| of the sample."""
        return float(abs(self.S).max())

    def quantiles(self, shares: tuple[float, ...]) -> tuple[Array, Array]:
        """Logits below which these shares lie: of the sampled logits, and of their attention weight."""
        ordered, weight = self._by_size
        last = len(ordered) - 1
        places = np.array(shares)
        of_logits = ordered[np.ceil(places * last).astype(int)]
        return of_logits, ordered[np.minimum(np.searchsorted(weight, places * weight[-1]), last)]

    @cached_property
    def _by_size(self) -> tuple[Array, Array]:
        """The sampled logits from the smallest on, and the attention weight up to each."""
        order = np.argsort(self.S, axis=None)
        return self.S.ravel()[order], np.cumsum(self.weights.ravel()[order])

    @cached_property
    def size(self) -> float:
        """Root of the sum of squares of the weights."""
        return size_of(self.weights)

    @property
    def std(self) -> float:
        """Standard deviation of a row's logits, root mean square over the sampled rows."""
        return float(np.sqrt(self.variances.mean()))


def size_of(X: Array) -> float:
    """Root of the sum of squares. Not by BLAS, whose threads take longer to wake than this takes."""
    return float(np.sqrt(np.square(X).sum()))


def logits_of(Q: Any, K: Any, name: str = "Q and K as given") -> Logits:
    """The logits of queries Q (n_q, d) and keys K (n_k, d), with the scale 1/√d.

    Of many rows and keys some are drawn, always the same. Raises ValueError for shapes that do not go
    together and entries that are not finite.
    """
    q, k = (np.asarray(X, dtype=np.float64) for X in (Q, K))
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"Q and K have shapes {q.shape} and {k.shape}; they must be (n_q, d) and (n_k, d) of one head"
        )
    for array, X in (("Q", q), ("K", k)):
        if not np.isfinite(X).all():
            row = int(np.argmin(np.isfinite(X).all(axis=1)))
            raise ValueError(f"{array} has an entry that is not finite in row {row}")
        if abs(X).max() > LARGEST:
            raise ValueError(f"{array} has an entry of size {abs(X).max():.3g}; allowed is up to {LARGEST:g}")
    n, d = k.shape
    rest = k - k.mean(axis=0)
    rng = np.random.default_rng(0)
    keys = rng.permutation(n)[:SAMPLED_KEYS]
    rows = rng.permutation(len(q))[: max(1, SAMPLED // len(keys))]
    x = q[rows] / sqrt(d)
    return Logits(
        name=name,
        n=n,
        d=d,
        S=x @ rest[keys].T,
        variances=((x @ (rest.T @ rest / n)) * x).sum(axis=1),
        entry=float(max(abs(q).max(), abs(rest).max())),
        limit=float(np.linalg.norm(q, axis=1).max() * np.linalg.norm(rest, axis=1).max() / sqrt(d)),
    )


@lru_cache(maxsize=16)
def head_logits(layer: int, head: int) -> Logits:
    """The logits of a shipped head."""
    found = real_head(layer, head)
    return logits_of(found.Q, found.K, f"head {layer}.{head} of MiniLM")


@lru_cache(maxsize=16)
def gaussian_logits(d: int, sigma: float) -> Logits:
    """The logits, of standard deviation sigma, of queries and keys with normal entries of size √sigma."""
    positive_int("d", d)
    if not 0 < sigma < np.inf:
        raise ValueError(f"sigma is {sigma}; it must be positive and finite")
    rng = np.random.default_rng(0)
    Q = sqrt(sigma) * rng.standard_normal((GAUSSIAN_ROWS, d))
    K = sqrt(sigma) * rng.standard_normal((SAMPLED_KEYS, d))
    return replace(logits_of(Q, K, f"Gaussian, σ = {sigma:.3g}"), drawn=True)


CACHES = (head_logits, gaussian_logits)  # what a measurement of redrawing must forget
