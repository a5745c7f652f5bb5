"""Symmetric monomials: polynomial features of a row, whose scalar products are powers of scalar products.

(q·k)^l = Σ_{|a| = l} l!/a! qᵃ kᵃ, so a polynomial of degree g in q·k is a scalar product of C(d + g, g)
numbers per row. A monomial of degree p is one of degree p - 1 times a coordinate, so each feature needs one
multiplication.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from .sizes import check_sizes, positive_int, zero_or_more

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureBlock:
    """One block of features: first … last - 1 are coordinate `axis` times the features from `source` on."""

    first: int
    last: int
    axis: int
    source: int


@dataclass(frozen=True, eq=False)
class Plan:
    """Steps that compute the monomials of degree 0 … g in d coordinates, with degrees and multiplicities.

    rank: number of monomials. degrees (rank,): degree of each. multiplicities (rank,): l!/a!, so that the
    weighted sum over degree l is the power (q·k)^l.
    """

    d: int
    g: int
    steps: tuple[FeatureBlock, ...]
    degrees: NDArray[np.int64]
    multiplicities: Array

    @property
    def rank(self) -> int:
        """Number of monomials, C(d + g, g)."""
        return len(self.degrees)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Index of the first feature of each degree, and the total number: (g + 2,)."""
        return np.searchsorted(self.degrees, np.arange(self.g + 2))

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Steps as an array (S, 4) with columns first, last, axis and source."""
        rows = [(step.first, step.last, step.axis, step.source) for step in self.steps]
        return np.array(rows, np.int64).reshape(-1, 4)


def rank_of(d: int, g: int) -> int:
    """Return C(d + g, g), the number of monomials of degree at most g in d coordinates."""
    d, g = positive_int("d", d), zero_or_more("g", g)
    return comb(d + g, g)


@lru_cache(maxsize=None, typed=True)
def plan(d: int, g: int) -> Plan:
    """Return the plan for d coordinates and degree g ≥ 1; plans are cached.

    Monomials of degree p are sorted by their smallest coordinate i. Block i is x_i times the monomials of
    degree p - 1 whose coordinates are all at least i, which are a suffix of that list.
    """
    d, g = check_sizes(d=d, g=g)
    rank = rank_of(d, g)
    degrees, multiplicities = np.ones(rank, np.int64), np.ones(rank)
    degrees[0] = 0
    leading = np.ones(rank, np.int32)  # exponent of each monomial's smallest coordinate
    steps: list[FeatureBlock] = []
    starts, end = list(range(1, d + 1)), d + 1  # of degree p - 1: the start of each coordinate's suffix
    for p in range(2, g + 1):
        at, new_starts = end, []
        for axis, (source, next_source) in enumerate(zip(starts, [*starts[1:], end], strict=True)):
            made, again = slice(at, at + end - source), next_source - source
            steps.append(FeatureBlock(made.start, made.stop, axis, source))
            new_starts.append(at)
            degrees[made] = p
            leading[at : at + again] += leading[source:next_source]
            multiplicities[made] = multiplicities[source:end] * p / leading[made]
            at = made.stop
        end, starts = at, new_starts
    degrees.flags.writeable = multiplicities.flags.writeable = False  # one plan serves every caller
    return Plan(d, g, tuple(steps), degrees, multiplicities)


def coordinates(p: Plan) -> NDArray[np.int32]:
    """Return (g, rank): feature a is the product of the g coordinates in column a; coordinate d is 1."""
    table = np.full((p.g, p.rank), p.d, dtype=np.int32)
    table[0, 1 : p.d + 1] = np.arange(p.d)
    for step in p.steps:
        made = slice(step.first, step.last)
        table[:, made] = table[:, step.source : step.source + step.last - step.first]
        table[p.degrees[step.first] - 1, made] = step.axis
    return table


def features(x: Array, p: Plan) -> Array:
    """Return the monomials of each row of x (n, d), feature by feature: (rank, n)."""
    found = np.empty((p.rank, len(x)), dtype=x.dtype)
    found[0] = 1.0
    found[1 : p.d + 1] = x.T
    fill(found, p.steps)
    return found


def fill(found: Array, steps: Iterable[FeatureBlock]) -> None:
    """Compute the features of the steps in `found` (…, n), whose first rows are 1 and the coordinates."""
    for step in steps:
        source = found[step.source : step.source + step.last - step.first]
        np.multiply(source, found[1 + step.axis], out=found[step.first : step.last])


def features_vjp(dfeatures: Array, found: Array, x: Array, p: Plan) -> Array:
    """Return the gradient of x (n, d) from that of its features (rank, n), which is overwritten."""
    dx = np.zeros_like(x)
    for step in reversed(p.steps):
        count = step.last - step.first
        source, up = slice(step.source, step.source + count), dfeatures[step.first : step.last]
        dx[:, step.axis] += (up * found[source]).sum(0)
        dfeatures[source] += up * x[:, step.axis]
    return dx + dfeatures[1 : p.d + 1].T
