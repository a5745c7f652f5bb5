"""Features of one tile of tokens, and their products with a state, without most features of degree g.

Arrays of a tile have one column per token. Block i of degree g is coordinate xᵢ times a suffix Sᵢ of degree
g - 1 (see `monomials.plan`). With Tᵢ for its rows of the state T (rank, m), and ∘ along the tokens,

    sums       Tᵢ = Sᵢ (xᵢ ∘ W)ᵀ            of Σ features Wᵀ;       W: values (m, columns)
    product    N += xᵢ ∘ (Tᵢᵀ Sᵢ)           N = Tᵀ features (m, columns)
    gradient   dSᵢ += Tᵢ (xᵢ ∘ W),  dxᵢ += Σ W ∘ (Tᵢᵀ Sᵢ)      of Σ W ∘ N

These are products of small matrices, which OpenBLAS computes without copying. A short block is stored, because
xᵢ ∘ W would be longer. A stored feature has the factor of its degree (`Approximation.series`) in place of xᵢ.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..monomials import Array, FeatureBlock, Plan, fill, pull_back
from .approximation import Approximation

CACHE = 3 * 2**17  # numbers of a tile's arrays: 1.5 MiB of float32, of the order of a second-level cache
LEAST, MOST = 128, 768  # tokens of a tile
SMALL = 1200  # numbers of a result up to which OpenBLAS does not copy a transposed operand


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
    gap = end - base  # a stored feature of degree g is so many rows before its row of the state
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
    """Features of up to `columns` tokens, in arrays that are used again for the next tile.

    queries: True for scaled queries with their row factors, False for shifted keys. The tokens can be cut into
    parts of equal size with one state each; a state is (rank, m) or (parts, rank, m).
    """

    def __init__(self, s: Approximation, m: int, columns: int, like: Array, queries: bool) -> None:
        self.s, self.of_queries = s, queries
        self.layout = cut = layout(s.plan, m, queries and s.covariance is not None)
        factors = cut.series + cut.open
        counts = np.cumsum([cut.stored, factors, factors * m, factors * m, cut.stored])
        # In one piece, which is not returned to the system after a call.
        self._arrays = np.split(np.empty((counts[-1], columns), like.dtype), counts[:-1])

    def load(self, X: Array, parts: int = 1, true_scale: bool = False) -> None:
        """Compute the features of the rows X (columns, d).

        true_scale: multiply those of queries by e^(σ²/2), see `Approximation.series`.
        """
        self.parts, cut, n = parts, self.layout, len(X)
        self.F, self.factors, P, xW, self.dF = (array[:, :n] for array in self._arrays)
        self.P, self.xW = (array.reshape(len(self.factors), -1, n) for array in (P, xW))
        self.F[0], self.factors[0], self.scale = 1, 1, None
        self.x = self.F[1 : 1 + X.shape[1]]
        self.x[...] = (self.s.queries(X) if self.of_queries else self.s.keys(X)).T
        fill(self.F, cut.steps)
        self.factors[cut.series :] = self.x[: cut.open]
        if self.of_queries and self.s.covariance is not None:
            self.factors[: cut.series], scale = self.s.series(self.x)
            self.scale = scale if true_scale else None

    def values(self, W: Array) -> None:
        """Set the values W (columns, m), of which `sums` and `gradient` are computed."""
        self.W = np.ascontiguousarray(W.T)
        if self.scale is not None:
            self.W *= self.scale
        if len(self.factors) == 1:  # it is 1
            self.xW = self.W[None]
        else:
            np.multiply(self.factors[:, None], self.W, out=self.xW)

    def sums(self, out: Array) -> None:
        """Store Σ features Wᵀ of each part in `out` (parts, rank, m)."""
        for factor, rows, stored, _ in self.layout.products:
            xW = self.in_parts(self.xW[factor]).swapaxes(1, 2)
            np.matmul(self.in_parts(self.F[stored]), xW, out=out[:, rows])

    def product(self, T: Array) -> Array:
        """Return Tᵀ features, (m, columns)."""
        for each in self.layout.products:
            self._multiply(T, each)
        single = len(self.factors) == 1  # it is 1
        found: Array = self.P[0] if single else np.einsum("imc,ic->mc", self.P, self.factors)
        if self.scale is not None:
            found *= self.scale
        return found

    def gradient(self, T: Array, multiplied: bool = False) -> Array:
        """Return the gradient (d, columns) of Σ W ∘ (Tᵀ features) by the tokens.

        multiplied: True if `product` has been called with this T.
        """
        cut = self.layout
        for each in cut.products:
            xW, dF = self.in_parts(self.xW[each.factor]), self.in_parts(self.dF[each.stored])
            if each.factor < cut.series:
                np.matmul(T[..., each.rows, :], xW, out=dF)
                continue
            dF += T[..., each.rows, :] @ xW
            if not multiplied:
                self._multiply(T, each)
        self.dF[1 : 1 + cut.open] += np.einsum("imc,mc->ic", self.P[cut.series :], self.W)
        pull_back(self.dF, self.F, cut.steps)
        return self.dF[1 : 1 + len(self.x)]

    def in_parts(self, X: Array) -> Array:
        """Return X (rows, columns) as (parts, rows, columns of a part), a view."""
        return X.reshape(len(X), self.parts, -1).swapaxes(0, 1)

    def _multiply(self, T: Array, each: Product) -> None:
        rows, F, P = T[..., each.rows, :], self.in_parts(self.F[each.stored]), self.in_parts(self.P[each.factor])
        if each.first:
            np.matmul(rows.swapaxes(-1, -2), F, out=P)
        else:
            P += rows.swapaxes(-1, -2) @ F


def columns_of(s: Approximation, m: int) -> int:
    """Return the number of tokens whose features and products fit into the cache, between LEAST and MOST."""
    cut = layout(s.plan, m, s.covariance is not None)
    return min(MOST, max(LEAST, CACHE // (cut.stored + (cut.series + cut.open) * m) // 64 * 64))
