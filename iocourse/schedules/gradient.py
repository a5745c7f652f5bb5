"""Gradient dL/dX of 2410.09397 for large caches: attention on Q = A1·X, K = A2, V = A3·Y, then A1ᵀdQ."""

from __future__ import annotations

from ..costs import ceil_div, distinct_sizes
from ..machine import Block, Machine, RowStats, SlowArray, Tile, probabilities
from .registry import Outputs, Tiles, schedule
from .standard_backward import product


def gradient_tiles(N: int, d: int, M: int) -> Tiles:
    """Return tile sizes with which the resident arrays of each of the four parts fill fast memory."""
    Bn = min(
        (Bn for Bn in distinct_sizes(d) if 2 * Bn + 1 <= M),
        key=lambda Bn: N * ceil_div(d, Bn) + d * ceil_div(N, min(N, (M - Bn) // (Bn + 1))),
    )
    return {
        "Bm": min(N, (M - Bn) // (Bn + 1)),
        "Bn": Bn,
        "Bf": min(N, (M - d) // (2 * d + 3)),
        "Bq": min(N, (M - 2 * d) // (3 * d + 3)),
        "Bg": next(b for b in range(d, 0, -1) if b * b + 2 * b <= M),
    }


@schedule(
    pass_="gradient",
    regime="M >= d^2",
    source="2410.09397, large caches, with FlashAttention's order",
    tiles=gradient_tiles,
)
def gradient(
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
    Bq: int,
    Bg: int,
) -> Outputs:
    """Gradient dX: one pass stores dO = O - E, D and LSE, a second computes dQ, then dX = A1ᵀdQ.

    Traffic about 10N²d²/M words, exactly `costs.gradient`.
    """
    N, d = A1.shape
    Q, H, dO, dQ = (m.new(name, (N, d)) for name in ("Q", "H", "dO", "dQ"))
    LSE, D, dX = m.new("LSE", (N,)), m.new("D", (N,)), m.new("dX", (d, d))
    product(m, A1, X, Q, Bm, Bn)
    product(m, A3, Y, H, Bm, Bn)
    for i in m.blocks(N, Bf):
        forward_residual(m, Q, A2, H, E, dO, LSE, D, i)
    for i in m.blocks(N, Bq):
        _queries_gradient(m, Q, A2, H, dO, LSE, D, dQ, i)
    product(m, A1, dQ, dX, Bg, Bg, transposed=True)
    return dX


def forward_residual(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    E: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    i: Block,
) -> None:
    """Compute and store dO = O - E, D and LSE of row block i: Q_i and O_i are resident, K and V streamed."""
    N, d = Q.shape
    with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # 2 x (Bf, d), 2·Bf
        for j in m.blocks(N, 1):
            with m.load(K, j) as k:  # (1, d)
                s = q @ k.T  # (Bf, 1)
            with s, m.load(V, j) as v:  # (1, d), in the words that K_j used
                stats.update(s, o)
                o.add_matmul(s, v)
        store_residual(m, o, stats, E, dO, LSE, D, i)


def store_residual(
    m: Machine, o: Tile, stats: RowStats, E: SlowArray, dO: SlowArray, LSE: SlowArray, D: SlowArray, i: Block
) -> None:
    """Normalise O_i, then store LSE_i, dO_i = O_i - E_i and D_i = rowsum(dO_i∘O_i)."""
    stats.normalise(o)
    m.store(stats.lse(), LSE, i)
    products = stats.l  # reuses the tile of the row sums, which are no longer needed
    products[:] = 0.0
    for c in m.blocks(o.shape[1], 1):  # E_i by columns: only the words of the scores are free
        column = o[:, c.start : c.stop]
        with m.load(E, i, c) as e:  # (Bf, 1)
            loss_gradient_and_delta(e, column, products)
    m.store(products, D, i)
    m.store(o, dO, i)


def loss_gradient_and_delta(e: Tile, o: Tile, products: Tile) -> None:
    """Add rowsum(o∘(o - e)) to `products`, then replace o by o - e; e is overwritten."""
    products.add_row_dots(o, o)
    e *= -1.0
    products.add_row_dots(o, e)
    o += e


def _queries_gradient(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    dQ: SlowArray,
    i: Block,
) -> None:
    N, d = Q.shape
    with (
        m.load(Q, i) as q,
        m.load(dO, i) as do,
        m.zeros(i, d) as dq,  # 3 x (Bq, d)
        m.load(LSE, i) as log_sums,
        m.load(D, i) as products,  # 2·Bq
    ):
        for j in m.blocks(N, 1):
            with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:  # 2 x (1, d), (Bq, 1)
                probabilities(s, log_sums)
                s.multiply_by_matmul(do, v.T, less=products)
                dq.add_matmul(s, k)
        m.store(dq, dQ, i)
