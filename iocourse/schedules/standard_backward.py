"""Standard backward pass: one formula after another, with P as an input and dP, dS in slow memory."""

from __future__ import annotations

from ..costs import best_pair, best_sizes, ceil_div
from ..machine import Block, Machine, SlowArray, Tile
from ..masks import Mask
from .registry import Outputs, Tiles, schedule


def standard_backward_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the best tile of dP, the best tile of the outputs, and the longest part of a row that fits."""
    Bm, Bn = best_sizes(
        lambda Bm, Bn: ceil_div(N, Bm) + ceil_div(N, Bn), N, lambda Bm: (min(N, (M - Bm) // (Bm + 1)),)
    )
    return {**output_tile(N, d, M, "Br"), "Bc": min(N, (M - 1) // 2), "Bm": Bm, "Bn": Bn}


def output_tile(N: int, d: int, M: int, rows: str) -> Tiles:
    """Return the best tile, `rows` x Bd, of an (N, d) product over N that fits with a column and a row."""
    Bd, r = best_pair(
        lambda Bd, r: N * ceil_div(d, Bd) + d * ceil_div(N, r), d, lambda Bd: min(N, (M - Bd) // (Bd + 1))
    )
    return {rows: r, "Bd": Bd}


@schedule(
    label="B0",
    pass_="backward",
    regime="every M",
    source="FlashAttention, 2205.14135, Algorithm 3",
    tiles=standard_backward_tiles,
)
def standard_backward(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    P: SlowArray,
    dO: SlowArray,
    *,
    Br: int,
    Bd: int,
    Bc: int,
    Bm: int,
    Bn: int,
    mask: Mask | None = None,
) -> Outputs:
    """Compute dV = PᵀdO, dP = dO Vᵀ, dS = P∘(dP - D), dQ = dS K and dK = dSᵀQ, all materialised.

    P includes the mask: masked pairs have weight 0 and save no traffic. Traffic: `costs.standard_backward`.
    """
    N, d = Q.shape
    dV, dP, dS = m.new("dV", (N, d)), m.new("dP", (N, N)), m.new("dS", (N, N))
    dQ, dK = m.new("dQ", (N, d)), m.new("dK", (N, d))
    product(m, P, dO, dV, Br, Bd, transposed=True)
    for i in m.blocks(N, Bm):
        for j in m.blocks(N, Bn):
            with product_of_rows(m, dO, V, i, j) as dp:  # (Bm, Bn)
                m.store(dp, dP, i, j)
    for i in m.blocks(N, 1):
        _scores_gradient(m, P, dP, dS, i, Bc)
    product(m, dS, K, dQ, Br, Bd, scale=d**-0.5)
    product(m, dS, Q, dK, Br, Bd, scale=d**-0.5, transposed=True)
    return dQ, dK, dV


def product(
    m: Machine,
    A: SlowArray,
    B: SlowArray,
    C: SlowArray,
    b: int,
    Bd: int,
    *,
    scale: float = 1.0,
    transposed: bool = False,
) -> None:
    """Store C = scale·AB, or scale·AᵀB if `transposed`: b x Bd tiles of C are resident, A and B streamed."""
    for i in m.blocks(C.shape[0], b):
        for c in m.blocks(C.shape[1], Bd):
            with m.zeros(i, c) as out:  # (b, Bd)
                for k in m.blocks(B.shape[0], 1):
                    rows, cols = (k, i) if transposed else (i, k)
                    with m.load(A, rows, cols) as a, m.load(B, k, c) as row:  # b words, (1, Bd)
                        out.add_matmul(a.T if transposed else a, row)
                out *= scale
                m.store(out, C, i, c)


def product_of_rows(m: Machine, A: SlowArray, B: SlowArray, i: Block, j: Block) -> Tile:
    """Return AᵢBⱼᵀ as a tile, computed from one column of A and of B at a time."""
    s = m.zeros(i, j)
    for c in m.blocks(A.shape[1], 1):
        with m.load(A, i, c) as a, m.load(B, j, c) as b:
            s.add_matmul(a, b.T)
    return s


def _scores_gradient(m: Machine, P: SlowArray, dP: SlowArray, dS: SlowArray, i: Block, Bc: int) -> None:
    """Store row i of dS: a first pass over the row computes D_i = Σ P∘dP, a second one dS."""
    with m.zeros(i) as D:  # (1,)
        for j in m.blocks(P.shape[1], Bc):
            with m.load(P, i, j) as p, m.load(dP, i, j) as dp:  # (1, Bc), (1, Bc)
                D.add_row_dots(p, dp)
        for j in m.blocks(P.shape[1], Bc):
            with m.load(P, i, j) as p, m.load(dP, i, j) as dp:
                dp -= D[:, None]
                dp *= p
                m.store(dp, dS, i, j)
