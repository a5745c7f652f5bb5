"""Fused split-d forward pass for small fast memories, without any N x N array in slow memory."""

from __future__ import annotations

import numpy as np

from ..costs import best_sizes, ceil_div
from ..machine import Block, Machine, RowStats, SlowArray, Tile
from .registry import Outputs, Tiles, schedule
from .small_cache import scores_tile


def small_cache_fused_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the pair Br, Bc with the least traffic that fits; near Br : Bc = 2 : 3."""
    Br, Bc = best_sizes(
        lambda Br, Bc: 3 * ceil_div(N, Bc) + 2 * ceil_div(N, Br),
        extent=N,
        others=lambda Br: (min(N, (M - 4 * Br) // (Br + 1)),),
    )
    return {"Br": Br, "Bc": Bc}


@schedule(
    label="F6",
    pass_="forward",
    regime="M < d^2",
    source="a schedule of this course: FlashAttention-2's order with d cut into columns",
    tiles=small_cache_fused_tiles,
)
def small_cache_fused(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Forward pass per tile of scores: compute it by columns of d, then load, rescale, update and store O_i.

    O_i is processed column by column. Traffic: `costs.small_cache_fused`, at best 2√6·N²d/√M words.
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, Bc):
                # O_i is in slow memory: keep exp(old - new maximum) until each of its columns is loaded.
                with scores_tile(m, Q, K, i, j) as s, stats.m.copy() as factor:  # (Br, Bc), (Br,)
                    stats.update(s)
                    factor -= stats.m
                    np.exp(factor, out=factor)  # type: ignore[call-overload]  # NumPy's types know no Tile
                    for c in m.blocks(d, 1):
                        _update_column(m, V, O, s, stats, factor, i, j, c)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)


def _update_column(
    m: Machine,
    V: SlowArray,
    O: SlowArray,
    s: Tile,
    stats: RowStats,
    factor: Tile,
    i: Block,
    j: Block,
    c: Block,
) -> None:
    with m.zeros(i, c) if j.first else m.load(O, i, c) as o, m.load(V, j, c) as v:  # (Br, 1), (Bc, 1)
        o *= factor[:, None]
        o.add_matmul(s, v)
        if j.last:
            stats.normalise(o)
        m.store(o, O, i, c)
