"""Backward pass with dS materialised: scores are computed once; dS is stored and read back once for dQ."""

from __future__ import annotations

from ..machine import Block, Machine, SlowArray, Tile, probabilities
from ..masks import Full, Mask
from .registry import Outputs, Tiles, schedule
from .standard_backward import product


def score_gradients_stored_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest resident blocks of both passes; the other arrays are streamed row by row."""
    return {"Br": min(N, (M - d) // (d + 1)), "Bc": min(N, (M - 2 * d - 2) // (4 * d + 1))}


@schedule(
    label="B6",
    pass_="backward",
    regime="4d^2/3 <= M <= 5d^2/2",
    source="a schedule of this course: dS stored, so that no score is computed twice",
    tiles=score_gradients_stored_tiles,
)
def score_gradients_stored(
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
    """Backward pass in two phases: K_j, V_j, dK_j, dV_j resident (Q, dO streamed), then dQ_i (dS, K).

    A mask sets weights to 0 and saves no traffic. Traffic about 9N²d²/M + 2N² words, exactly
    `costs.score_gradients_stored`.
    """
    N, d = Q.shape
    seen = mask or Full(N)
    D, dS = m.new("D", (N,)), m.new("dS", (N, N))
    dQ, dK, dV = m.new("dQ", (N, d)), m.new("dK", (N, d)), m.new("dV", (N, d))
    with m.phase("columns stay"):
        for j in m.blocks(N, Bc):
            _keys_gradient(m, Q, K, V, O, dO, LSE, D, dS, dK, dV, seen, j)
    with m.phase("dQ stays"):
        product(m, dS, K, dQ, Br, d, scale=d**-0.5)
    return dQ, dK, dV


def _keys_gradient(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    dS: SlowArray,
    dK: SlowArray,
    dV: SlowArray,
    seen: Mask,
    j: Block,
) -> None:
    N, d = Q.shape
    with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:  # 4 x (Bc, d)
        for i in m.blocks(N, 1):
            with (
                m.load(dO, i) as do,
                row_product(m, O, do, D, i, j) as D_i,
                m.load(Q, i) as q,  # 2 x (1, d)
                m.load(LSE, i) as log_sum,  # 2 x (1,)
            ):
                q *= d**-0.5
                with q @ k.T as s:  # (1, Bc)
                    m.hide(s, i, j, seen)
                    dv.add_matmul(probabilities(s, log_sum).T, do)
                    s.multiply_by_matmul(do, v.T, less=D_i)
                    dk.add_matmul(s.T, q)
                    m.store(s, dS, i, j)
        m.store(dk, dK, j)
        m.store(dv, dV, j)


def row_product(m: Machine, O: SlowArray, do: Tile, D: SlowArray, i: Block, j: Block) -> Tile:
    """Return D_i, shape (1,), for a loaded row dO_i: computed for the first key block, loaded for the others.

    O_i is loaded one word at a time, which needs no more fast memory than the steps that follow. D_i is
    stored if a later key block needs it.
    """
    N, d = O.shape
    if j.start:
        return m.load(D, i)
    D_i = m.zeros(i)
    for c in m.blocks(d, 1):
        with m.load(O, i, c) as o:  # (1, 1)
            D_i.add_row_dots(do[:, c.start : c.stop], o)
    if j.stop < N:
        m.store(D_i, D, i)
    return D_i
