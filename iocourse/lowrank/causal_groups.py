"""Tiles of causal attention, whose features are computed together for a group of tiles.

A tile of causal attention is small, and each call of NumPy costs some time, so one call computes several
tiles. Each has its own state: the sum over the tiles before it, or after it for the gradient of keys and
values.
"""

from __future__ import annotations

import numpy as np

from ..monomials import Array
from .approximation import Approximation
from .feature_tiles import CACHE, FeatureTile, columns_of, tile_memory


class CausalGroups:
    """Walk over groups of tiles: features of the loaded group, and the state before or after it.

    Row i of Q is that of token `first` + i. Rows that are missing in a tile are 0: queries before `first`,
    and all rows after the last token. spans: start and stop of each group, in tokens.
    """

    def __init__(self, Q: Array, K: Array, V: Array, s: Approximation, tile: int, first: int) -> None:
        self.Q, self.K, self.V, self.tile, self.first = Q, K, V, tile, first
        rank, m, end = s.plan.rank, V.shape[1] + 1, -(-len(K) // tile) * tile
        size = tile * max(1, min(columns_of(s, m, end) // tile, CACHE // (rank * m)))
        self.spans = [(at, min(at + size, end)) for at in range(0, end, size)]
        memory = tile_memory(s, m, size, Q, tiles=2)
        self.q, self.k = (
            FeatureTile(s, m, memory[0], queries=True),
            FeatureTile(s, m, memory[1], queries=False),
        )
        self.weights, self.state = s.weights(Q), np.zeros((rank, m), Q.dtype)
        self._states = np.empty((size // tile + 1, rank, m), Q.dtype)

    def load(self, start: int, stop: int) -> None:
        """Compute the features of the tokens start … stop - 1."""
        self.start, self.stop, self.has_queries = start, stop, stop > self.first
        tiles = (stop - start) // self.tile
        self.k.load(self.rows(self.K), tiles)
        is_key = np.arange(start, stop)[:, None] < len(self.K)
        self.values = np.concatenate([self.rows(self.V), is_key], axis=1)  # [V, 1]
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
        """Return exp of the scores within a tile, (tiles, keys, queries); 0 if the key is after the query."""
        scores = self.k.in_parts(self.k.x).mT @ self.q.in_parts(self.q.x)
        np.copyto(scores, -np.inf, where=np.tri(self.tile, k=-1, dtype=bool))
        return np.exp(scores, out=scores)

    def score_gradient(self, inside: Array, G: Array) -> Array:
        """Return the gradient of the scores within a tile from that of [N, den], G (tokens, m)."""
        return inside * (self.in_tiles(self.values) @ self.in_tiles(G).mT)

    def states_before(self) -> Array:
        """Return the states of the keys before each tile, (tiles, rank, m).

        `state` becomes that of all complete tiles up to this group.
        """
        states = self._states[: self.k.parts + 1]
        states[0] = self.state
        self.k.sums(states[1:])
        states[1:] *= self.weights
        for tile in range(self.k.parts):
            states[tile + 1] += states[tile]
        complete = min(self.stop, len(self.K) // self.tile * self.tile) - self.start
        self.state = states[complete // self.tile].copy()
        return states[:-1]

    def states_after(self, G: Array) -> Array:
        """Return the states of the queries after each tile, (tiles, rank, m), with values G (tokens, m).

        `state` becomes that of this group and all later ones.
        """
        if not self.has_queries:
            return self.state
        states = self._states[: self.k.parts + 1]
        states[-1] = self.state
        self.q.values(G)
        self.q.sums(states[:-1])
        states[:-1] *= self.weights
        for tile in reversed(range(self.k.parts)):
            states[tile] += states[tile + 1]
        self.state = states[0].copy()
        return states[1:]
