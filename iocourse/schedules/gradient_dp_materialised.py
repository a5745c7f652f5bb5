"""Gradient dL/dX with dP materialised by a separate pass, so that only two arrays are resident for dQ."""

from __future__ import annotations

from ..machine import Block, Machine, SlowArray, probabilities
from .gradient import forward_residual, gradient_tiles
from .registry import Outputs, Tiles, schedule
from .standard_backward import product


def gradient_dp_materialised_tiles(N: int, d: int, M: int) -> Tiles:
    """Return tile sizes with which the resident arrays of each part fill fast memory."""
    two_stay = min(N, (M - d) // (2 * d + 3))
    return {
        **sides_tiles(N, d, M),
        "Bf": two_stay,
        "Bs": min(N, (M - d) // (d + 2)),
        "Bq": two_stay,
    }


def sides_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the tile sizes of Q = A1·X, H = A3·Y and dX = A1ᵀdQ that `gradient` uses."""
    picked = gradient_tiles(N, d, M)
    return {name: picked[name] for name in ("Bm", "Bn", "Bg")}


@schedule(
    pass_="gradient",
    regime="d^2 <= M <= 3d^2/2",
    source="a schedule of this course: found by iocourse.sweeps",
    tiles=gradient_dp_materialised_tiles,
)
def gradient_dp_materialised(
    m: Machine,
    A1: SlowArray,
    A2: SlowArray,
    A3: SlowArray,
    X: SlowArray,
    Y: SlowArray,
    E: SlowArray,
    *,
    Bm: int,
    Bn: int,
    Bf: int,
    Bs: int,
    Bq: int,
    Bg: int,
) -> Outputs:
    """Gradient dX in passes with few resident arrays: Q_i and O_i, dO_i (stores dP - D), Q_i and dQ_i.

    Traffic about 7N²d²/M + 2N² words, exactly `costs.gradient_dp_materialised`.
    """
    N, d = A1.shape
    Q, H, dO, dQ = (m.new(name, (N, d)) for name in ("Q", "H", "dO", "dQ"))
    dP, LSE, D, dX = m.new("dP", (N, N)), m.new("LSE", (N,)), m.new("D", (N,)), m.new("dX", (d, d))
    product(m, A1, X, Q, Bm, Bn)
    product(m, A3, Y, H, Bm, Bn)
    for i in m.blocks(N, Bf):
        forward_residual(m, Q, A2, H, E, dO, LSE, D, i)
    for i in m.blocks(N, Bs):
        _store_weights_gradient(m, dO, H, D, dP, i)
    for i in m.blocks(N, Bq):
        _queries_gradient(m, Q, A2, LSE, dP, dQ, i)
    product(m, A1, dQ, dX, Bg, Bg, transposed=True)
    return dX


def _store_weights_gradient(
    m: Machine, dO: SlowArray, V: SlowArray, D: SlowArray, dP: SlowArray, i: Block
) -> None:
    with m.load(dO, i) as do, m.load(D, i) as products:  # (Bs, d), (Bs,)
        for j in m.blocks(V.shape[0], 1):
            with m.load(V, j) as v, do @ v.T as dp:  # (1, d), (Bs, 1)
                dp -= products[:, None]  # here, so that the last pass does not load D
                m.store(dp, dP, i, j)


def _queries_gradient(
    m: Machine, Q: SlowArray, K: SlowArray, LSE: SlowArray, dP: SlowArray, dQ: SlowArray, i: Block
) -> None:
    N, d = K.shape
    with m.load(Q, i) as q, m.zeros(i, d) as dq:  # 2 x (Bq, d)
        with m.load(LSE, i) as log_sums:  # (Bq,)
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Bq, 1)
                    probabilities(s, log_sums)
                    with m.load(dP, i, j) as dp:  # (Bq, 1)
                        s *= dp
                    dq.add_matmul(s, k)
        m.store(dq, dQ, i)
