"""Two-pass backward pass: dQ with resident query blocks, then dK and dV with resident key blocks."""

from __future__ import annotations

from ..machine import Block, Machine, SlowArray, probabilities
from ..masks import Full, Mask
from .fused_backward import scores_gradient
from .registry import Outputs, Tiles, schedule


def split_backward_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest resident blocks of both passes; the other arrays are streamed row by row."""
    rows, columns = (M - 2 * d) // (3 * d + 3), (M - 2 * d - 2) // (4 * d + 1)
    return {"Br1": min(N, rows), "Bc1": 1, "Br2": 1, "Bc2": min(N, columns)}


@schedule(
    label="B4",
    pass_="backward",
    regime="M >= d^2",
    source="a schedule of this course: the cheapest division of dQ, dK and dV among passes over the data",
    tiles=split_backward_tiles,
)
def split_backward(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    *,
    Br1: int,
    Bc1: int,
    Br2: int,
    Bc2: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass that computes the scores twice, so that no partial dQ is stored and read back.

    Traffic about 14N²d²/M words, exactly `costs.split_backward`.
    """
    N, d = Q.shape
    seen = mask or Full(N)
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    with m.phase("rows stay"):  # also computes D for both passes, so that O is read once
        for i in m.blocks(N, Br1, alike=seen.alike, short_first=seen.short_first(Br1)):
            _queries_gradient(m, Q, K, V, O, dO, LSE, D, dQ, seen, i, Bc1)
    with m.phase("columns stay"):
        for j in m.blocks(N, Bc2, alike=seen.alike, short_first=seen.short_first(Bc2, columns=True)):
            _keys_gradient(m, Q, K, V, dO, LSE, D, dK, dV, seen, j, Br2)
    return dQ, dK, dV


def _queries_gradient(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    dQ: SlowArray,
    seen: Mask,
    i: Block,
    Bc: int,
) -> None:
    d = Q.shape[1]
    with m.load(dO, i) as do, m.load(LSE, i) as log_sums, m.zeros(i) as products:  # (Br, d), 2·Br
        for c in m.blocks(d, 1):
            with m.load(O, i, c) as o:  # (Br, 1)
                products.add_row_dots(do[:, c.start : c.stop], o)
        m.store(products, D, i)
        with m.load(Q, i) as q, m.zeros(i, d) as dq:  # 2 x (Br, d)
            q *= d**-0.5
            for needed in seen.columns(i.start, i.stop):
                for j in m.blocks(needed, Bc):
                    with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:  # 2 x (Bc, d), (Br, Bc)
                        m.hide(s, i, j, seen)
                        probabilities(s, log_sums)
                        s.multiply_by_matmul(do, v.T, less=products)
                        s *= d**-0.5  # dQ = dS K/√d, and k does not have this factor as q does
                        dq.add_matmul(s, k)
            m.store(dq, dQ, i)


def _keys_gradient(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    dK: SlowArray,
    dV: SlowArray,
    seen: Mask,
    j: Block,
    Br: int,
) -> None:
    d = Q.shape[1]
    with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:  # 4 x (Bc, d)
        for start, stop, _ in seen.visits(j.start, j.stop):
            for i in m.blocks((start, stop), Br):
                with m.load(Q, i) as q, m.load(LSE, i) as log_sums, m.load(D, i) as products:
                    q *= d**-0.5
                    with q @ k.T as s:  # (Br, Bc)
                        m.hide(s, i, j, seen)
                        probabilities(s, log_sums)
                        scores_gradient(m, dO, s, v, dv, products, i)
                        dk.add_matmul(s.T, q)  # dK = dSᵀQ/√d, and q has the factor
        m.store(dk, dK, j)
        m.store(dv, dV, j)
