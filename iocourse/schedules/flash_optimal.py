"""F3: the row-block order with its constant made as small as any schedule's can be."""

from __future__ import annotations

from ..machine import Machine, SlowArray
from .registry import Outputs, Tiles, schedule


def flash_optimal_tiles(N: int, d: int, M: int) -> Tiles:
    """One key at a time leaves the most room for queries: Bc = 1, Br = ⌊(M - d)/(2d + 3)⌋."""
    return {"Br": min(N, (M - d) // (2 * d + 3)), "Bc": 1}


@schedule(
    label="F3",
    pass_="forward",
    lesson=(4, 3),
    regime="M >= d^2",
    source="FlashAttention-2's order with V_j in K_j's place and Bc = 1; optimal constant by Theorem A",
    tiles=flash_optimal_tiles,
)
def flash_optimal(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Q_i and O_i stay; K_j is freed before V_j arrives. Costs `costs.flash_optimal`, about 4N²d²/M."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:  # (Bc, d)
                    s = q @ k.T  # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the room K_j has left
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)
