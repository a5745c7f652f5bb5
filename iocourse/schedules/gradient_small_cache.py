"""Gradient dL/dX for small caches: every product is blocked; slow memory holds the scores, then dS."""

from __future__ import annotations

from .. import costs
from ..machine import Block, Machine, SlowArray, Tile, probabilities
from .gradient import loss_gradient_and_delta
from .registry import Outputs, Tiles, schedule
from .standard_backward import product, product_of_rows


def gradient_small_cache_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the tile size {"B": B}, where B ≤ max(N, d) is the largest that fits in M words.

    It fits if B² + 4B ≤ M, for B ≤ min(N, d).
    """
    return {"B": costs.largest_square(costs.gradient_small_cache, N, d, M)}


@schedule(
    pass_="gradient",
    regime="M < d^2",
    source="2410.09397, small caches, blocked products",
    tiles=gradient_small_cache_tiles,
)
def gradient_small_cache(
    m: Machine,
    A1: SlowArray,
    A2: SlowArray,
    A3: SlowArray,
    X: SlowArray,
    Y: SlowArray,
    E: SlowArray,
    *,
    B: int,
) -> Outputs:
    """Gradient dX by blocked products for Q, H, S, dO, dS (in place of S), dQ and dX.

    Traffic about 8N²d/√M + 6Nd²/√M + 3N² words, exactly `costs.gradient_small_cache`.
    """
    N, d = A1.shape
    Q, H, dO, dQ = (m.new(name, (N, d)) for name in ("Q", "H", "dO", "dQ"))
    S, LSE, D, dX = m.new("S", (N, N)), m.new("LSE", (N,)), m.new("D", (N,)), m.new("dX", (d, d))
    product(m, A1, X, Q, B, B)
    product(m, A3, Y, H, B, B)
    for i in m.blocks(N, B):
        _forward(m, Q, A2, H, E, S, dO, LSE, D, i, B)
    for i in m.blocks(N, B):
        with m.load(LSE, i) as log_sums, m.load(D, i) as products:  # 2·B
            for j in m.blocks(N, B):
                _scores_gradient(m, dO, H, S, log_sums, products, i, j)
    product(m, S, A2, dQ, B, B)
    product(m, A1, dQ, dX, B, B, transposed=True)
    return dX


def _forward(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    E: SlowArray,
    S: SlowArray,
    dO: SlowArray,
    LSE: SlowArray,
    D: SlowArray,
    i: Block,
    B: int,
) -> None:
    N, d = Q.shape
    with m.row_stats(i) as stats:  # 2·B
        for j in m.blocks(N, B):
            with product_of_rows(m, Q, K, i, j) as s:  # (B, B)
                m.store(s, S, i, j)
                stats.update(s)
        m.store(stats.lse(), LSE, i)  # lse() replaces the maxima, so stats.m is LSE_i from here on
        products = stats.l  # reuses the tile of the row sums, which are no longer needed
        products[:] = 0.0
        for c in m.blocks(d, B):
            _residual(m, S, V, E, dO, stats.m, products, i, c)
        m.store(products, D, i)


def _residual(
    m: Machine,
    S: SlowArray,
    V: SlowArray,
    E: SlowArray,
    dO: SlowArray,
    log_sums: Tile,
    products: Tile,
    i: Block,
    c: Block,
) -> None:
    """Compute a tile of O from columns of S and rows of V, and store it as dO = O - E."""
    with m.zeros(i, c) as o:  # (B, B)
        for j in m.blocks(V.shape[0], 1):
            with m.load(S, i, j) as s, m.load(V, j, c) as v:  # (B, 1), (1, B)
                o.add_matmul(probabilities(s, log_sums), v)
        for column in m.blocks((c.start, c.stop), 1):
            with m.load(E, i, column) as e:  # (B, 1)
                loss_gradient_and_delta(e, o[:, column.start - c.start : column.stop - c.start], products)
        m.store(o, dO, i, c)


def _scores_gradient(
    m: Machine, dO: SlowArray, V: SlowArray, S: SlowArray, log_sums: Tile, products: Tile, i: Block, j: Block
) -> None:
    with product_of_rows(m, dO, V, i, j) as ds:  # (B, B)
        ds -= products[:, None]
        for column in m.blocks((j.start, j.stop), 1):
            with m.load(S, i, column) as s:  # (B, 1)
                ds[:, column.start - j.start : column.stop - j.start] *= probabilities(s, log_sums)
        m.store(ds, S, i, j)
