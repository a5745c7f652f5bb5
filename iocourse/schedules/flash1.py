"""FlashAttention-1 loop order: key blocks in the outer loop."""

from __future__ import annotations

from ..costs import ceil_div
from ..machine import Machine, RowStats, SlowArray
from .registry import Outputs, Tiles, schedule


def flash1_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Br = 1, which leaves the most words for keys, and the largest Bc; traffic about 6N²d²/M."""
    return {"Br": 1, "Bc": min(N, (M - 2 * d - 2) // (2 * d + 1))}


def published_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the tiles of 2205.14135, Algorithm 1: Bc = ⌈M/4d⌉, Br = min(⌈M/4d⌉, d); traffic 12N²d²/M."""
    Bc = ceil_div(M, 4 * d)
    return {"Br": min(Bc, d), "Bc": Bc}


@schedule(
    label="F1",
    pass_="forward",
    regime="M >= d^2",
    source="FlashAttention, 2205.14135, Algorithm 1",
    tiles=flash1_tiles,
    published=published_tiles,
)
def flash1(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Forward pass with resident K_j and V_j; Q_i is loaded, and O_i, m_i, l_i are loaded and stored, per j.

    Traffic: `costs.flash1`.
    """
    N, d = Q.shape
    O, maxima, sums = m.new("O", (N, d)), m.new("m", (N,)), m.new("l", (N,))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), 2·Br
            m.store(o, O, i)
            m.store(stats.m, maxima, i)
            m.store(stats.l, sums, i)
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v:  # (Bc, d), (Bc, d)
            for i in m.blocks(N, Br):
                with (
                    m.load(Q, i) as q,
                    m.load(O, i) as o,
                    RowStats(m.load(maxima, i), m.load(sums, i)) as stats,
                ):
                    q *= d**-0.5
                    stats.unnormalise(o)  # O_i is normalised in slow memory after each j, as in Algorithm 1
                    with q @ k.T as s:  # (Br, Bc)
                        stats.update(s, o)
                        o.add_matmul(s, v)
                    stats.normalise(o)
                    m.store(o, O, i)
                    m.store(stats.m, maxima, i)
                    m.store(stats.l, sums, i)
                    if L is not None and j.last:
                        m.store(stats.lse(), L, i)
    return O if L is None else (O, L)
