"""FlashAttention-2 loop order: query blocks in the outer loop."""

from __future__ import annotations

from ..costs import ceil_div
from ..machine import Machine, SlowArray
from .registry import Outputs, Tiles, schedule


def flash2_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Bc = 1, which leaves the most words for queries, and the largest Br; traffic about 4N²d²/M."""
    return {"Br": min(N, (M - 2 * d) // (2 * d + 3)), "Bc": 1}


def quarter_tiles(N: int, d: int, M: int) -> Tiles:
    """Return FlashAttention-1's tiles with Br and Bc exchanged: Br = ⌈M/4d⌉, Bc = min(⌈M/4d⌉, d).

    2307.08691 does not give tile sizes in terms of M. Traffic about 8N²d²/M words.
    """
    Br = ceil_div(M, 4 * d)
    return {"Br": Br, "Bc": min(Br, d)}


@schedule(
    label="F2",
    pass_="forward",
    regime="M >= d^2",
    source="FlashAttention-2, 2307.08691, Algorithm 1",
    tiles=flash2_tiles,
    published=quarter_tiles,
)
def flash2(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Forward pass with resident Q_i, O_i and row statistics; K, V are streamed. Traffic: `costs.flash2`."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:  # (Bc, d), (Bc, d), (Br, Bc)
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)
