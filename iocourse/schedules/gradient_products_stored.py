"""dL/dX around M = d²: dP is made once and stored, so that fewer arrays stay while dQ grows."""

from __future__ import annotations

from ..machine import Block, Machine, Slow, probabilities
from .gradient import forward_residual, gradient_tiles, times_small, transposed_times
from .registry import Outputs, Tiles, schedule


def gradient_products_stored_tiles(N: int, d: int, M: int) -> Tiles:
    """What stays takes all of M in each of the five parts."""
    return {
        **gradient_tiles(N, d, M),
        "Bp": min(N, (M - d) // (d + 2)),
        "Bq": min(N, (M - d) // (2 * d + 3)),
    }


@schedule(
    pass_="gradient",
    lesson=(7, 9, 6),
    regime="d^2 <= M <= 3/2 d^2",
    source="a sequence of sweeps that the course's search found, iocourse.sweeps",
    tiles=gradient_products_stored_tiles,
)
def gradient_products_stored(
    m: Machine,
    A1: Slow,
    A2: Slow,
    A3: Slow,
    X: Slow,
    Y: Slow,
    E: Slow,
    *,
    Bm: int,
    Bn: int,
    Bf: int,
    Bp: int,
    Bq: int,
    Bg: int,
) -> Outputs:
    """`gradient` with dP - D in slow memory: dO_I stays while V passes, then Q_I and dQ_I while K does.

    7N²d²/M + 2N² words. Costs `costs.gradient_products_stored`.
    """
    N, d = A1.shape
    Q, H, dO, dQ = (m.new(name, (N, d)) for name in ("Q", "H", "dO", "dQ"))
    LSE, D, dP, dX = m.new("LSE", (N,)), m.new("D", (N,)), m.new("dP", (N, N)), m.new("dX", (d, d))
    times_small(m, A1, X, Q, Bm, Bn)
    times_small(m, A3, Y, H, Bm, Bn)
    for i in m.blocks(N, Bf):
        forward_residual(m, Q, A2, H, E, dO, LSE, D, i)
    for i in m.blocks(N, Bp):
        _weights_gradient(m, dO, H, D, dP, i)
    for i in m.blocks(N, Bq):
        _queries_gradient(m, Q, A2, LSE, dP, dQ, i)
    transposed_times(m, A1, dQ, dX, Bg)
    return dX


def _weights_gradient(m: Machine, dO: Slow, V: Slow, D: Slow, dP: Slow, i: Block) -> None:
    """dP_Ij - D_I, a column at a time."""
    with m.load(dO, i) as do, m.load(D, i) as products:  # (Bp, d), (Bp,)
        for j in m.blocks(V.shape[0], 1):
            with m.load(V, j) as v, do @ v.T as dp:  # (1, d), (Bp, 1)
                dp -= products[:, None]
                m.store(dp, dP, i, j)


def _queries_gradient(m: Machine, Q: Slow, K: Slow, LSE: Slow, dP: Slow, dQ: Slow, i: Block) -> None:
    """The scores of a column are made again, and meet their dP - D."""
    N, d = Q.shape
    with m.load(Q, i) as q, m.zeros(i, d) as dq, m.load(LSE, i) as log_sums:  # 2 x (Bq, d), (Bq,)
        for j in m.blocks(N, 1):
            with m.load(K, j) as k, q @ k.T as ds:  # (1, d), (Bq, 1)
                probabilities(ds, log_sums)
                with m.load(dP, i, j) as dp:  # (Bq, 1)
                    ds *= dp
                dq.add_product(ds, k)
        m.store(dq, dQ, i)
