"""FlashAttention-1 backward pass: key blocks in the outer loop, dQ_i loaded and stored in each iteration."""

from __future__ import annotations

from ..costs import ceil_div
from ..machine import Machine, RowStats, SlowArray, Tile, probabilities
from ..masks import Full, Mask
from .registry import Outputs, Tiles, schedule


def flash1_backward_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Br = 1, which leaves the most words for key blocks, and the largest Bc."""
    return {"Br": 1, "Bc": min(N, (M - 4 * d - 2) // (4 * d + 1))}


def published_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the tiles of 2205.14135, Algorithm 4: Bc = ⌈M/4d⌉, Br = min(⌈M/4d⌉, d).

    They fit only if N is less than Bc, because K_j, V_j, dK_j and dV_j already use all of M.
    """
    Bc = ceil_div(M, 4 * d)
    return {"Br": min(Bc, d), "Bc": Bc}


@schedule(
    label="B1",
    pass_="backward",
    regime="M >= d^2",
    source="FlashAttention, 2205.14135, Algorithm 4",
    tiles=flash1_backward_tiles,
    published=published_tiles,
)
def flash1_backward(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    dO: SlowArray,
    maxima: SlowArray,
    sums: SlowArray,
    *,
    Br: int,
    Bc: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass that recomputes the scores, and D_i in each iteration; traffic about 20N²d²/M words.

    Traffic: `costs.flash1_backward`.
    """
    N, d = Q.shape
    seen = mask or Full(N)
    dQ, dK, dV = m.new("dQ", (N, d)), m.new("dK", (N, d)), m.new("dV", (N, d))
    _clear(m, dQ, Br)
    _clear(m, dK, Bc)
    _clear(m, dV, Bc)
    for j in m.blocks(N, Bc, alike=seen.alike, short_first=seen.short_first(Bc, columns=True)):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:  # 4 x (Bc, d)
            for start, stop, _ in seen.visits(j.start, j.stop):
                for i in m.blocks((start, stop), Br):
                    with (
                        m.load(Q, i) as q,
                        m.load(O, i) as o,
                        m.load(dO, i) as do,
                        m.load(dQ, i) as dq,  # 4 x (Br, d)
                        RowStats(m.load(maxima, i), m.load(sums, i)) as stats,  # 2·Br
                    ):
                        q *= d**-0.5
                        with q @ k.T as s:  # (Br, Bc)
                            m.hide(s, i, j, seen)
                            probabilities(s, stats.lse())
                            D = _row_products(stats.l, do, o)
                            dv.add_matmul(s.T, do)
                            s.multiply_by_matmul(do, v.T, less=D)
                            dk.add_matmul(s.T, q)
                            s *= d**-0.5  # dQ = dS K/√d, and k does not have this factor as q does
                            dq.add_matmul(s, k)
                        m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


def _clear(m: Machine, array: SlowArray, b: int) -> None:
    for block in m.blocks(array.shape[0], b):
        with m.zeros(block, array.shape[1]) as zeros:
            m.store(zeros, array, block)


def _row_products(room: Tile, do: Tile, o: Tile) -> Tile:
    """Return D_i = rowsum(dO∘O) in `room`, the tile of the row sums, which are no longer needed."""
    room[:] = 0.0
    return room.add_row_dots(do, o)
