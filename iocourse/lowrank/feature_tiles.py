"""Features of one tile of tokens, and their products with a state, without most features of degree g.

The arrays of a tile have one column per token. Block i of degree g is coordinate xᵢ times a suffix Sᵢ of
degree g - 1 (`monomials.plan`). Let Tᵢ be its rows of the state T (rank, m), W the values (m, columns), and
N = Tᵀ times the features, (m, columns). With ∘ for a product token by token, the part of block i is

    sum of features times W       Tᵢ = Sᵢ (xᵢ ∘ W)ᵀ
    N                             xᵢ ∘ (Tᵢᵀ Sᵢ)
    gradient of Σ W ∘ N           dSᵢ = Tᵢ (xᵢ ∘ W),   dxᵢ = Σ W ∘ (Tᵢᵀ Sᵢ)

So block i is not stored, unless it has fewer rows than xᵢ ∘ W. The stored features of a query have the factor
of their degree (`Approximation.series`) in place of xᵢ. All of these are products of small matrices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..monomials import Array, FeatureBlock, Plan, fill
from .approximation import Approximation

CACHE = 3 * 2**17  # numbers of a tile's arrays: 1.5 MiB of float32, of the order of a second-level cache
LEAST, MOST = 128, 768  # tokens of a tile
SMALL = 1200  # numbers of a result up to which OpenBLAS uses a transposed operand without a copy


class Product(NamedTuple):
    """One matrix product: rows of the state with rows of the stored features, for one factor of the tokens.

    first: True for the first product with this factor.
    """

    factor: int
    rows: slice
    stored: slice
    first: bool


class Layout(NamedTuple):
    """Stored features, the steps that compute them, and the products that cover all rows of a state.

    The factors are `series` factors by degree, and then the coordinates whose blocks are not stored (`open`).
    """

    stored: int
    steps: tuple[FeatureBlock, ...]
    series: int
    open: int
    products: tuple[Product, ...]


@lru_cache(maxsize=64)
def layout(p: Plan, m: int, by_degree: bool) -> Layout:
    """Return the layout for states with m columns; by_degree: features have factors of their degrees."""
    g, starts = p.g, p.starts.tolist()
    series = g // 2 + 1 if by_degree else 1
    base = starts[g]
    # Suffixes shrink, so the blocks that are not stored are the first ones.
    blocks = [step for step in p.steps if step.first >= base and step.last - step.first > m]
    end = blocks[-1].last if blocks else base
    gap = end - base  # a stored feature of degree g is stored `gap` rows before its row of the state
    ranges = [(0, starts[g - 1] if by_degree else 0, base, 0), (0, end, p.rank, gap)]
    ranges += [(j, starts[max(g - 2 * j - 1, 0)], starts[g - 2 * j + 1], 0) for j in range(1, series)]
    ranges += [(series + i, step.first, step.last, step.first - step.source) for i, step in enumerate(blocks)]
    products: list[Product] = []
    most = max(64, SMALL // m)
    for factor, first, last, back in ranges:
        for rows in (slice(at, min(at + most, last)) for at in range(first, last, most)):
            stored = slice(rows.start - back, rows.stop - back)
            products.append(Product(factor, rows, stored, factor not in {made.factor for made in products}))
    steps = [step for step in p.steps if step.first < base]
    steps += [
        FeatureBlock(step.first - gap, step.last - gap, step.axis, step.source)
        for step in p.steps
        if step.first >= end
    ]
    return Layout(p.rank - gap, tuple(steps), series, len(blocks), tuple(products))


class FeatureTile:
    """Features of the tokens of one tile, in arrays that are used again for the next tile.

    memory (rows, columns): for the arrays, from `tile_memory`, with columns for the largest tile.
    queries: True for scaled queries with their row factors, False for shifted keys.
    """

    def __init__(self, s: Approximation, m: int, memory: Array, queries: bool) -> None:
        self.s, self.of_queries = s, queries
        self.layout = cut = layout(s.plan, m, queries and s.covariance is not None)
        factors = cut.series + cut.open
        counts = (cut.stored, factors, factors * m, factors * m, cut.stored)
        self._arrays = np.split(memory, np.cumsum(counts))[: len(counts)]

    def load(self, X: Array) -> None:
        """Compute the features of the rows X (columns, d)."""
        cut, n = self.layout, len(X)
        self.F, self.factors, P, xW, self.dF = (array[:, :n] for array in self._arrays)
        self.P, self.xW = (array.reshape(len(self.factors), -1, n) for array in (P, xW))
        self.F[0], self.factors[0] = 1, 1
        self.x = self.F[1 : 1 + X.shape[1]]
        self.x[...] = (self.s.queries(X) if self.of_queries else self.s.keys(X)).T
        fill(self.F, cut.steps)
        self.factors[cut.series :] = self.x[: cut.open]
        if self.of_queries and self.s.covariance is not None:
            self.factors[: cut.series], _ = self.s.series(self.x)

    def values(self, W: Array) -> None:
        """Set the values W (columns, m), of which `sums` and `gradient` are computed."""
        self.W = np.ascontiguousarray(W.T)
        if len(self.factors) == 1:  # it is 1
            self.xW = self.W[None]
        else:
            np.multiply(self.factors[:, None], self.W, out=self.xW)

    def sums(self, out: Array) -> None:
        """Store Σ features Wᵀ in `out` (rank, m)."""
        for factor, rows, stored, _ in self.layout.products:
            np.matmul(self.F[stored], self.xW[factor].T, out=out[rows])

    def product(self, T: Array) -> Array:
        """Return Tᵀ features, (m, columns)."""
        for each in self.layout.products:
            self._multiply(T, each)
        single = len(self.factors) == 1  # it is 1
        found: Array = self.P[0] if single else np.einsum("imc,ic->mc", self.P, self.factors)
        return found

    def gradient(self, T: Array, multiplied: bool = False) -> Array:
        """Return the gradient (d, columns) of Σ W ∘ (Tᵀ features) by the tokens.

        multiplied: True if `product` has been called with this T.
        """
        cut = self.layout
        for each in cut.products:
            xW, dF = self.xW[each.factor], self.dF[each.stored]
            if each.factor < cut.series:
                np.matmul(T[each.rows], xW, out=dF)
                continue
            dF += T[each.rows] @ xW
            if not multiplied:
                self._multiply(T, each)
        self.dF[1 : 1 + cut.open] += np.einsum("imc,mc->ic", self.P[cut.series :], self.W)
        for step in reversed(cut.steps):
            up = self.dF[step.first : step.last]
            source = slice(step.source, step.source + len(up))
            self.dF[1 + step.axis] += np.einsum("fc,fc->c", up, self.F[source])
            up *= self.x[step.axis]
            self.dF[source] += up
        return self.dF[1 : 1 + len(self.x)]

    def _multiply(self, T: Array, each: Product) -> None:
        """Store one product of T with features in P, or add it."""
        P, F = self.P[each.factor], self.F[each.stored]
        if each.first:
            np.matmul(T[each.rows].T, F, out=P)
        else:
            P += T[each.rows].T @ F


def columns_of(s: Approximation, m: int, n: int) -> int:
    """Return the number of tokens, at most n, whose features and products fit into the cache."""
    cut = layout(s.plan, m, s.covariance is not None)
    fit = CACHE // (cut.stored + (cut.series + cut.open) * m) // 64 * 64
    return min(n, MOST, max(LEAST, fit))


def tile_memory(s: Approximation, m: int, columns: int, like: Array) -> Array:
    """Return memory for the arrays of a `FeatureTile`, (rows, columns).

    It is one array, because the process keeps one for the next call, but returns several to the system.
    """
    cut = layout(s.plan, m, s.covariance is not None)
    return np.empty((2 * cut.stored + (cut.series + cut.open) * (2 * m + 1), columns), like.dtype)
