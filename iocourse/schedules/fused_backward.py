"""Fused backward pass: FlashAttention-2 order with one query row at a time and dQ_i in dO_i's buffer."""

from __future__ import annotations

from ..machine import Block, Machine, SlowArray, Tile, probabilities
from ..masks import Full, Mask
from .flash2_backward import clear_unseen, row_products
from .registry import Outputs, Tiles, schedule


def fused_backward_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Br = 1, which leaves the most words for key blocks, and Bc = ⌊(M - 2d - 2)/(4d + 1)⌋."""
    return {"Br": 1, "Bc": min(N, (M - 2 * d - 2) // (4 * d + 1))}


@schedule(
    label="B3",
    pass_="backward",
    regime="M >= d^2",
    source="FlashAttention-2's order with Br = 1 and dQ_i in dO_i's buffer",
    tiles=fused_backward_tiles,
)
def fused_backward(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    *,
    Br: int,
    Bc: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass with resident K_j, V_j, dK_j, dV_j; dO_i is freed before dQ_i is loaded.

    Traffic about 16N²d²/M words (12 read, 4 written), exactly `costs.fused_backward`.
    """
    N, d = Q.shape
    seen = mask or Full(N)
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    row_products(m, O, dO, D, Br)
    clear_unseen(m, dQ, seen, Br)
    for j in m.blocks(N, Bc, alike=seen.alike, short_first=seen.short_first(Bc, columns=True)):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:  # 4 x (Bc, d)
            for start, stop, first in seen.visits(j.start, j.stop):
                for i in m.blocks((start, stop), Br):
                    with m.load(Q, i) as q, m.load(LSE, i) as log_sums, m.load(D, i) as products:
                        q *= d**-0.5
                        s = q @ k.T  # (Br, Bc)
                        m.hide(s, i, j, seen)
                        probabilities(s, log_sums)
                        scores_gradient(m, dO, s, v, dv, products, i)
                        dk.add_matmul(s.T, q)
                        with (
                            s,
                            m.zeros(i, d) if first else m.load(dQ, i) as dq,
                        ):  # in the words that dO_i used
                            s *= d**-0.5  # dQ = dS K/√d, and k does not have this factor as q does
                            dq.add_matmul(s, k)
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


def scores_gradient(m: Machine, dO: SlowArray, s: Tile, v: Tile, dv: Tile, products: Tile, i: Block) -> None:
    """Replace P_ij in `s` by dS_ij and add P_ijᵀdO_i to dV_j; dO_i is loaded and freed."""
    with m.load(dO, i) as do:  # (Br, d)
        dv.add_matmul(s.T, do)
        s.multiply_by_matmul(do, v.T, less=products)
