"""Gradient dL/dX without Q, H or dQ in slow memory: the d x d matrices are resident, rows are streamed."""

from __future__ import annotations

from ..machine import Block, Machine, SlowArray, Tile, probabilities
from .gradient import store_residual
from .registry import Outputs, Tiles, schedule


def gradient_reassociated_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest numbers of rows of A1 that fit in addition to X, Y and (second pass) dX."""
    room = M - 2 * d * d
    return {
        "Bf": min(N, (room - 2 * d) // (2 * d + 3)),
        "Bq": min(N, (room - d * d - 3 * d) // (2 * d + 3)),
    }


@schedule(
    pass_="gradient",
    regime="M >> d^2",
    source="a schedule of this course: (A1·X)·a2ᵀ as A1·(X·a2ᵀ), for fast memories well above d² words",
    tiles=gradient_reassociated_tiles,
)
def gradient_reassociated(
    m: Machine,
    A1: SlowArray,
    A2: SlowArray,
    A3: SlowArray,
    X: SlowArray,
    Y: SlowArray,
    E: SlowArray,
    *,
    Bf: int,
    Bq: int,
) -> Outputs:
    """Gradient dX with s_ij = A1_i·(X a2_j) and v_j = a3_j·Y computed when needed, dX += (A1_Iᵀ dS_Ij) a2_j.

    Traffic about 8N²d²/M words, exactly `costs.gradient_reassociated`.
    """
    N, d = A1.shape
    dO, dX = m.new("dO", (N, d)), m.new("dX", (d, d))
    LSE, D = m.new("LSE", (N,)), m.new("D", (N,))
    with m.load(X, (0, d)) as x, m.load(Y, (0, d)) as y:  # 2 x (d, d)
        for i in m.blocks(N, Bf):
            _forward(m, A1, A2, A3, E, dO, LSE, D, x, y, i)
        with m.zeros(d, d) as dx:  # (d, d)
            for i in m.blocks(N, Bq):
                _add_gradient(m, A1, A2, A3, dO, LSE, D, x, y, dx, i)
            m.store(dx, dX, (0, d))
    return dX


def _forward(
    m: Machine,
    A1: SlowArray,
    A2: SlowArray,
    A3: SlowArray,
    E: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    x: Tile,
    y: Tile,
    i: Block,
) -> None:
    N, d = A1.shape
    with m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Bf, d), 2·Bf
        with m.load(A1, i) as a1:  # (Bf, d)
            for j in m.blocks(N, 1):
                with _scores(m, a1, A2, x, j) as s:  # (Bf, 1)
                    stats.update(s, o)
                    with m.load(A3, j) as a3, a3 @ y as v:  # 2 x (1, d)
                        o.add_matmul(s, v)
        store_residual(m, o, stats, E, dO, LSE, D, i)


def _scores(m: Machine, a1: Tile, A2: SlowArray, x: Tile, j: Block) -> Tile:
    # X·a2_j is one row. Q_i = A1_i·X would need as many words as A1_i.
    with m.load(A2, j) as a2, a2 @ x.T as row:  # 2 x (1, d)
        s: Tile = a1 @ row.T
        return s


def _add_gradient(
    m: Machine,
    A1: SlowArray,
    A2: SlowArray,
    A3: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    x: Tile,
    y: Tile,
    dx: Tile,
    i: Block,
) -> None:
    N = A1.shape[0]
    with (
        m.load(A1, i) as a1,
        m.load(dO, i) as do,  # 2 x (Bq, d)
        m.load(LSE, i) as log_sums,
        m.load(D, i) as products,  # 2·Bq
    ):
        for j in m.blocks(N, 1):
            with m.load(A2, j) as a2:  # (1, d)
                with a2 @ x.T as row:  # (1, d)
                    s = a1 @ row.T  # (Bq, 1)
                with s:
                    probabilities(s, log_sums)
                    with m.load(A3, j) as a3, a3 @ y as v:  # 2 x (1, d)
                        s.multiply_by_matmul(do, v.T, less=products)
                    with a1.T @ s as left:  # (d, 1), so that dX needs no dQ_i
                        dx.add_matmul(left, a2)
