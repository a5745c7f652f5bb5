"""FlashAttention-2 backward pass: D is computed first, key blocks are in the outer loop."""

from __future__ import annotations

from ..machine import Machine, SlowArray, probabilities
from ..masks import Full, Mask
from .registry import Outputs, Tiles, schedule


def flash2_backward_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Br = 1, which leaves the most words for key blocks, and Bc = ⌊(M - 3d - 2)/(4d + 1)⌋."""
    return {"Br": 1, "Bc": min(N, (M - 3 * d - 2) // (4 * d + 1))}


@schedule(
    label="B2",
    pass_="backward",
    regime="M >= d^2",
    source="FlashAttention-2, 2307.08691, Algorithm 2",
    tiles=flash2_backward_tiles,
)
def flash2_backward(
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
    """Backward pass with resident K_j, V_j, dK_j, dV_j; Q_i, dO_i, L_i and D_i are loaded per i.

    dQ_i is loaded (created, in the first iteration) and stored. Traffic about 16N²d²/M words, exactly
    `costs.flash2_backward`.
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
                    with (
                        m.load(Q, i) as q,
                        m.load(dO, i) as do,
                        m.zeros(i, d) if first else m.load(dQ, i) as dq,  # 3 x (Br, d)
                        m.load(LSE, i) as log_sums,
                        m.load(D, i) as products,  # 2·Br
                    ):
                        q *= d**-0.5
                        with q @ k.T as s:  # (Br, Bc)
                            m.hide(s, i, j, seen)
                            probabilities(s, log_sums)
                            dv.add_matmul(s.T, do)
                            s.multiply_by_matmul(do, v.T, less=products)
                            dk.add_matmul(s.T, q)
                            s *= d**-0.5  # dQ = dS K/√d, and k does not have this factor as q does
                            dq.add_matmul(s, k)
                        m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


def row_products(m: Machine, O: SlowArray, dO: SlowArray, D: SlowArray, Br: int) -> None:
    """Compute D = rowsum(dO∘O) and store it; traffic 2Nd + N words."""
    for i in m.blocks(O.shape[0], Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as products:  # (Br, d), (Br, d), (Br,)
            m.store(products.add_row_dots(do, o), D, i)


def clear_unseen(m: Machine, dQ: SlowArray, seen: Mask, Br: int) -> None:
    """Store zeros in the rows of dQ whose keys are all masked, because no key block writes them."""
    for unseen in seen.unseen_rows():
        for i in m.blocks(unseen, Br):
            with m.zeros(i, dQ.shape[1]) as zeros:
                m.store(zeros, dQ, i)
