"""F2: FlashAttention-2's loop order, query blocks outside."""

from __future__ import annotations

from .. import costs
from ..costs import ceil_div
from ..machine import Machine, Slow
from .registry import Outputs, Tiles, schedule


def quarter_tiles(N: int, d: int, M: int) -> Tiles:
    """FlashAttention-1's sizes with rows and columns exchanged: Br = ⌈M/4d⌉, Bc = min(⌈M/4d⌉, d)."""
    Br = ceil_div(M, 4 * d)
    return {"Br": Br, "Bc": min(Br, d)}


def flash2_tiles(N: int, d: int, M: int) -> Tiles:
    """A quarter of M for Q_i where that fits, else the best of this loop order: Bc = 1 and the largest Br."""
    quarter = quarter_tiles(N, d, M)
    if costs.flash2(N, d, Br=quarter["Br"], Bc=quarter["Bc"]).peak <= M:
        return quarter
    return {"Br": min(N, (M - 2 * d) // (2 * d + 3)), "Bc": 1}


def flash2_note(N: int, d: int, M: int) -> str:
    """Says which of the two choices was taken."""
    quarter = quarter_tiles(N, d, M)
    peak = costs.flash2(N, d, Br=quarter["Br"], Bc=quarter["Bc"]).peak
    if peak <= M:
        return "a quarter of M for Q_i, as in FlashAttention-1"
    return (
        f"Br={quarter['Br']}, Bc={quarter['Bc']} (a quarter of M for Q_i) need {peak} words and do not fit; "
        "best tiles of this loop order instead"
    )


@schedule(
    pass_="forward",
    lesson=(4, 2),
    regime="M >= d^2",
    source="FlashAttention-2, 2307.08691, Algorithm 1",
    tiles=flash2_tiles,
    note=flash2_note,
)
def flash2(m: Machine, Q: Slow, K: Slow, V: Slow, *, Br: int, Bc: int, lse: bool = False) -> Outputs:
    """Q_i, O_i and the row statistics stay; K and V stream past. Costs `costs.flash2` words."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:  # (Bc, d), (Bc, d), (Br, Bc)
                    stats.update(s, o)
                    o.add_product(s, v)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)
