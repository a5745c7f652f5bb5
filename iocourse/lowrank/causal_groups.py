"""Tiles of causal attention, whose features are computed together for a group of tiles.

A tile of causal attention is small, and NumPy needs some time per call, so one call serves several tiles. Each
has its own state: the sum over the tiles before it, or after it for the gradient of keys and values.
"""

from __future__ import annotations

import numpy as np

from ..monomials import Array
from .approximation import Approximation
from .feature_tiles import CACHE, FeatureTile, columns_of


def with_ones(x: Array) -> Array:
    """Return [x, 1], (n, d + 1)."""
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


class CausalGroups:
    """Walk over groups of tiles: features of the loaded group, and the state before or after it.

    Row i of Q is that of token `first` + i. Rows that are missing in a tile are 0: queries before `first`, and
    all rows after the last token. spans: start and stop of each group, in tokens.
    """

    def __init__(self, Q: Array, K: Array, V: Array, s: Approximation, tile: int, first: int) -> None:
        self.Q, self.K, self.V, self.tile, self.first = Q, K, V, tile, first
        rank, m, end = s.plan.rank, V.shape[1] + 1, -(-len(K) // tile) * tile
        size = min(end, tile * max(1, min(columns_of(s, m) // tile, CACHE // (rank * m))))
        self.spans = [(at, min(at + size, end)) for at in range(0, end, size)]
        self.q, self.k = (FeatureTile(s, m, size, Q, queries) for queries in (True, False))
        self.weights, self.state = s.weights(Q), np.zeros((rank, m), Q.dtype)
        self._states = np.empty((size // tile + 1, rank, m), Q.dtype)

    def load(self, start: int, stop: int) -> None:
        """Compute the features of the tokens start … stop - 1."""
        self.start, self.stop, self.has_queries = start, stop, stop > self.first
        tiles = (stop - start) // self.tile
        self.k.load(self.rows(self.K), tiles)
        self.values = with_ones(self.rows(self.V))
        self.values[len(self.K) - start :, -1] = 0
        self.k.values(self.values)
        if self.has_queries:
            self.q.load(self.rows(self.Q, self.first), tiles, true_scale=True)

    def rows(self, X: Array, first: int = 0) -> Array:
        """Return the rows of the group from X, whose first row is that of token `first`."""
        found = X[max(self.start - first, 0) : max(self.stop - first, 0)]
        if len(found) < self.stop - self.start:
            part, found = found, np.zeros((self.stop - self.start, X.shape[1]), X.dtype)
            at = max(first - self.start, 0)
            found[at : at + len(part)] = part
        return found

    def store(self, columns: Array, X: Array, first: int = 0) -> None:
        """Store columns of the group as rows of X, whose first row is that of token `first`."""
        into = X[max(self.start - first, 0) : max(self.stop - first, 0)]
        at = max(first - self.start, 0)
        into[...] = columns[:, at : at + len(into)].T

    def in_tiles(self, X: Array) -> Array:
        """Return the rows X of the group as (tiles, rows of a tile, columns)."""
        return X.reshape(-1, self.tile, X.shape[1])

    def inside(self) -> Array:
        """Return exp of the scores (tiles, keys, queries) within a tile, and 0 if the key is after the query."""
        scores = self.k.in_parts(self.k.x).mT @ self.q.in_parts(self.q.x)
        np.copyto(scores, -np.inf, where=np.tri(self.tile, k=-1, dtype=bool))
        return np.exp(scores, out=scores)

    def states_before(self) -> Array:
        """Return the state of the keys before each tile (tiles, rank, m), and add the complete tiles to it."""
        states = self._states[: self.k.parts + 1]
        states[0] = self.state
        self.k.sums(states[1:])
        states[1:] *= self.weights
        for before, after in zip(states[:-1], states[1:], strict=True):
            after += before
        complete = min(self.stop, len(self.K) // self.tile * self.tile) - self.start
        self.state = states[complete // self.tile].copy()
        return states[:-1]

    def states_after(self, G: Array) -> Array:
        """Return the state of the queries after each tile, with values G, and add those of the group to it."""
        if not self.has_queries:
            return self.state
        states = self._states[: self.k.parts + 1]
        states[-1] = self.state
        self.q.values(G)
        self.q.sums(states[:-1])
        states[:-1] *= self.weights
        for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
            before += after
        self.state = states[0].copy()
        return states[1:]
