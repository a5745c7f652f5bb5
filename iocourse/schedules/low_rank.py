"""Low-rank attention: with a Taylor polynomial for exp, attention is two products with a small state.

p(q·k) = φ(q)·ψ(k) with r = C(d + g, g) features. The state T = ψ(K)ᵀ[1, V], (r, d + 1), does not grow with N,
and O is φ(Q)T divided by its first column, the row sums. Features are computed when needed and not stored.
If T fits, each row of Q, K and V is read once: 4Nd words. Otherwise T is computed tile by tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, combinations_with_replacement, islice
from math import factorial, prod

from .. import costs, exact
from ..costs import distinct_sizes
from ..exact import Array
from ..machine import Block, Features, Machine, SlowArray, Tile
from ..monomials import rank_of
from .registry import Approximates, Tiles, schedule

MOST_FEATURES = 2**22  # per tile of a run
BYTES_LISTED = 500  # approximate bytes per feature in Python


def low_rank_tiles(N: int, d: int, M: int, g: int) -> Tiles:
    """Return the tile of the state with the least traffic that fits; tries each width with its largest rc."""

    def tiles(Bd: int) -> Tiles:
        return {"rc": min(rank_of(d, g), (M - d - Bd) // Bd), "Bd": Bd}

    fitting = [tiles(Bd) for Bd in distinct_sizes(d + 1) if M - d - Bd >= Bd]
    return min(fitting, key=lambda picked: costs.low_rank(N, d, g=g, **picked).total)


def polynomial_attention(a: Mapping[str, Array], *, g: int) -> tuple[Array, ...]:
    """Return p(QKᵀ/√d)V divided by row sums, the reference of low rank; p is the Taylor polynomial of exp."""
    S = exact.scores(a["Q"], a["K"])
    P = sum((S**l / factorial(l) for l in range(1, g + 1)), start=S**0)  # (N, N)
    return (P @ a["V"] / P.sum(axis=1, keepdims=True),)


def low_rank_note(N: int, d: int, M: int, g: int) -> str:
    """Return a remark with the rank and the number of tiles of the state for M."""
    picked = low_rank_tiles(N, d, M, g)
    r = rank_of(d, g)
    if picked["rc"] == r and picked["Bd"] == d + 1:
        return f"rank {r}: the state of {r * (d + 1)} words fits"
    pieces = costs.ceil_div(r, picked["rc"]) * costs.ceil_div(d + 1, picked["Bd"])
    return f"rank {r}: the state of {r * (d + 1)} words in {pieces} tiles"


@schedule(
    pass_="forward",
    regime="bounded scores, N above the rank",
    source="a schedule of this course, after Alman and Song, 2302.13214; Taylor features",
    tiles=low_rank_tiles,
    note=low_rank_note,
    approximates=Approximates("dense attention with the same polynomial", polynomial_attention),
)
def low_rank(m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, g: int, rc: int, Bd: int) -> SlowArray:
    """Low-rank forward pass: accumulate a tile of the state over K and V, then add its part to each row of O.

    The row sums l are computed with the first columns of the state and stored for the others. Use an odd
    degree for small scores only, because its polynomial can be negative.
    Traffic: `costs.low_rank`.
    """
    N, d = Q.shape
    require_features_that_can_be_listed(d, g, rc)
    O, l = m.new("O", (N, d)), m.new("l", (N,))
    for c in m.blocks(d + 1, Bd):
        for p in m.blocks(rank_of(d, g), rc):
            with m.zeros(p, c) as state:  # (rc, Bd)
                _take_in_keys(m, K, V, state, listed_features(d, g, p, weighted=True), c)
                _answer_queries(m, Q, O, l, state, listed_features(d, g, p), c, p)
    return O


def require_features_that_can_be_listed(d: int, g: int, rc: int) -> None:
    """Raise ValueError if a run would keep too long a list of features in Python, whatever M is."""
    rank = rank_of(d, g)
    listed = min(rc, rank)
    if listed > MOST_FEATURES:
        raise ValueError(
            f"d = {d}, g = {g} has rank {rank:,}, and a run with rc = {listed:,} features would need about "
            f"{listed * BYTES_LISTED / 1e9:,.1f} GB of memory; rc must be at most {MOST_FEATURES:,}"
        )


def listed_features(d: int, g: int, p: Block, *, weighted: bool = False) -> Features:
    """Return monomials p.start … p.stop - 1, ordered by degree, then coordinates, with weights 1/a! or 1."""
    all_of_them = chain.from_iterable(combinations_with_replacement(range(d), k) for k in range(g + 1))
    factors = list(islice(all_of_them, p.start, p.stop))
    return Features(factors, [_weight(axes) for axes in factors] if weighted else None)


def _weight(axes: tuple[int, ...]) -> float:
    return 1 / prod(map(factorial, Counter(axes).values()))


def _take_in_keys(m: Machine, K: SlowArray, V: SlowArray, state: Tile, features: Features, c: Block) -> None:
    for j in m.blocks(K.shape[0], 1):
        with m.load(K, j) as k:  # (1, d)
            if c.first:
                features.add_outer(state[:, :1], k)
            if averages(c):
                with m.load(V, j, columns_of_values(c)) as v:  # (1, Bd), one less in the tile of row sums
                    features.add_outer(state[:, int(c.first) :], k, v)


def _answer_queries(
    m: Machine, Q: SlowArray, O: SlowArray, l: SlowArray, state: Tile, features: Features, c: Block, p: Block
) -> None:
    """Add the part of this tile of the state to O: the first tile creates O, the last divides by row sums."""
    for i in m.blocks(Q.shape[0], 1):
        with m.load(Q, i) as q:  # (1, d)
            q *= Q.shape[1] ** -0.5
            if c.first:
                total = m.zeros(i) if p.first else m.load(l, i)  # (1,)
                features.add_matmul(total[:, None], q, state[:, :1])
            if averages(c):
                values = columns_of_values(c)
                o = m.zeros(i, values) if p.first else m.load(O, i, values)  # (1, Bd)
                features.add_matmul(o, q, state[:, int(c.first) :])
        if c.first and not (c.last and p.last):
            m.store(total, l, i)
        if averages(c):
            if p.last and not c.first:
                total = m.load(l, i)
            if p.last:
                o /= total[:, None]
            m.store(o, O, i, columns_of_values(c))
            o.free()
        if c.first or p.last:
            total.free()


def averages(c: Block) -> bool:
    """Return True if columns c of [1, V] include a column of V."""
    return c.stop > 1


def columns_of_values(c: Block) -> tuple[int, int]:
    """Return the range of columns of V among columns c of [1, V]."""
    return max(0, c.start - 1), c.stop - 1
