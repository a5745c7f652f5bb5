"""Backward pass with P materialised: one or two resident arrays at a time; dS overwrites P in slow memory."""

from __future__ import annotations

from ..machine import Block, Machine, SlowArray, probabilities
from ..masks import Full, Mask
from .registry import Outputs, Tiles, schedule
from .score_gradients_stored import row_product
from .standard_backward import output_tile, product


def weights_stored_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest resident blocks that fit with one streamed row, and the best tile of dQ and dK."""
    return {
        "Bk": min(N, (M - d - 1) // (d + 1)),
        "Bv": min(N, (M - d - 1) // (2 * d + 1)),
        **output_tile(N, d, M, "Bo"),
    }


@schedule(
    label="B7",
    pass_="backward",
    regime="d^2/4 <= M <= 4d^2/3",
    source="a schedule of this course: P stored, then dS over it",
    tiles=weights_stored_tiles,
)
def weights_stored(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    *,
    Bk: int,
    Bv: int,
    Bo: int,
    Bd: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass: K_j resident (stores P), then V_j and dV_j (dS replaces P), then dK and dQ in tiles.

    Traffic about 5N²d²/M + 5N² words, and (3 + 2/k)N²d²/M + (3 + 2k)N² with tiles d/k wide; exactly
    `costs.weights_stored`. A mask sets weights to 0 and saves no traffic.
    """
    N, d = Q.shape
    seen = mask or Full(N)
    P, dV = m.new("P", (N, N)), m.new("dV", (N, d))
    with m.phase("K stays"):
        for j in m.blocks(N, Bk):
            _weights(m, Q, K, LSE, P, seen, j)
    with m.phase("V and dV stay"):
        values_gradient(m, V, O, dO, P, P, dV, Bv)
    return *inputs_gradients(m, Q, K, P, Bo, Bd), dV


def _weights(
    m: Machine, Q: SlowArray, K: SlowArray, LSE: SlowArray, P: SlowArray, seen: Mask, j: Block
) -> None:
    N, d = Q.shape
    with m.load(K, j) as k:  # (Bk, d)
        for i in m.blocks(N, 1):
            with m.load(Q, i) as q, m.load(LSE, i) as log_sum:  # (1, d), (1,)
                q *= d**-0.5
                with q @ k.T as s:  # (1, Bk)
                    m.hide(s, i, j, seen)
                    m.store(probabilities(s, log_sum), P, i, j)


def values_gradient(
    m: Machine, V: SlowArray, O: SlowArray, dO: SlowArray, P: SlowArray, dS: SlowArray, dV: SlowArray, Bv: int
) -> None:
    """Store dV = PᵀdO and dS = P∘(dO Vᵀ - D), with V_j and dV_j resident; `dS` may be the array `P`."""
    N, d = V.shape
    D = m.new("D", (N,))
    for j in m.blocks(N, Bv):
        with m.load(V, j) as v, m.zeros(j, d) as dv:  # 2 x (Bv, d)
            for i in m.blocks(N, 1):
                with (
                    m.load(dO, i) as do,  # (1, d)
                    row_product(m, O, do, D, i, j) as D_i,  # (1,)
                    m.load(P, i, j) as p,  # (1, Bv)
                ):
                    dv.add_matmul(p.T, do)
                    p.multiply_by_matmul(do, v.T, less=D_i)
                    m.store(p, dS, i, j)
            m.store(dv, dV, j)


def inputs_gradients(
    m: Machine, Q: SlowArray, K: SlowArray, dS: SlowArray, Bo: int, Bd: int
) -> tuple[SlowArray, SlowArray]:
    """Store and return dQ = dS K/√d and dK = dSᵀQ/√d, with resident Bo x Bd tiles; dS, K, Q are streamed."""
    N, d = Q.shape
    dQ, dK = m.new("dQ", (N, d)), m.new("dK", (N, d))
    with m.phase("dK stays"):
        product(m, dS, Q, dK, Bo, Bd, scale=d**-0.5, transposed=True)
    with m.phase("dQ stays"):
        product(m, dS, K, dQ, Bo, Bd, scale=d**-0.5)
    return dQ, dK
