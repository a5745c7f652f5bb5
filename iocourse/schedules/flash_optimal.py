"""FlashAttention-2 loop order with K/V buffer reuse; its leading constant 4 is optimal by Theorem A."""

from __future__ import annotations

from ..machine import Machine, SlowArray
from .registry import Outputs, Tiles, schedule


def flash_optimal_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Bc = 1, which leaves the most words for queries, and Br = ⌊(M - d)/(2d + 3)⌋."""
    return {"Br": min(N, (M - d) // (2 * d + 3)), "Bc": 1}


@schedule(
    label="F3",
    pass_="forward",
    regime="M >= d^2",
    source="FlashAttention-2's loop order with V_j in K_j's buffer and Bc = 1; optimal constant by Theorem A",
    tiles=flash_optimal_tiles,
)
def flash_optimal(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Forward pass with resident Q_i and O_i; K_j is freed before V_j is loaded into the same words.

    Traffic about 4N²d²/M words, exactly `costs.flash_optimal`.
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                # V_j is needed only after the scores. In the words of K_j it leaves space for more rows of Q.
                with m.load(K, j) as k:  # (Bc, d)
                    s = q @ k.T  # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the words that K_j used
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)
