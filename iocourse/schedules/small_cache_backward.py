"""Split-d backward pass for small fast memories: five blocked products, P and dS in slow memory."""

from __future__ import annotations

from ..costs import best_sizes, ceil_div
from ..machine import Block, Machine, SlowArray, Tile, probabilities
from ..masks import Full, Mask
from .registry import Outputs, Tiles, schedule
from .small_cache import scores_tile
from .standard_backward import output_tile, product, product_of_rows


def small_cache_backward_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the best tile of P and dS and the best tile of the outputs, both near √M x √M."""
    Br, Bc = best_sizes(
        lambda Br, Bc: ceil_div(N, Br) + ceil_div(N, Bc), N, lambda Br: (min(N, (M - 2 * Br) // (Br + 1)),)
    )
    return {"Br": Br, "Bc": Bc, **output_tile(N, d, M, "Bm")}


@schedule(
    label="B5",
    pass_="backward",
    regime="M < d^2",
    source="blocked products, as 2410.09397 for small caches",
    tiles=small_cache_backward_tiles,
)
def small_cache_backward(
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
    Bm: int,
    Bd: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass: compute D, P and dS, then dV = PᵀdO, dQ = dS K and dK = dSᵀQ.

    A mask sets weights to 0 and saves no traffic. Traffic about 10N²d/√M + 3N² words, exactly
    `costs.small_cache_backward`.
    """
    N, d = Q.shape
    seen = mask or Full(N)
    D, P, dS = m.new("D", (N,)), m.new("P", (N, N)), m.new("dS", (N, N))
    dQ, dK, dV = m.new("dQ", (N, d)), m.new("dK", (N, d)), m.new("dV", (N, d))
    for i in m.blocks(N, Br):
        _row_products(m, O, dO, D, i)
    for i in m.blocks(N, Br):
        with m.load(LSE, i) as log_sums:  # (Br,)
            for j in m.blocks(N, Bc):
                with scores_tile(m, Q, K, i, j) as s:  # (Br, Bc)
                    m.hide(s, i, j, seen)
                    m.store(probabilities(s, log_sums), P, i, j)
    for i in m.blocks(N, Br):
        with m.load(D, i) as products:  # (Br,)
            for j in m.blocks(N, Bc):
                _scores_gradient(m, dO, V, P, dS, products, i, j)
    product(m, P, dO, dV, Bm, Bd, transposed=True)
    product(m, dS, K, dQ, Bm, Bd, scale=d**-0.5)
    product(m, dS, Q, dK, Bm, Bd, scale=d**-0.5, transposed=True)
    return dQ, dK, dV


def _row_products(m: Machine, O: SlowArray, dO: SlowArray, D: SlowArray, i: Block) -> None:
    with m.zeros(i) as products:  # (Br,)
        for c in m.blocks(O.shape[1], 1):
            with m.load(O, i, c) as o, m.load(dO, i, c) as do:  # 2 x (Br, 1)
                products.add_row_dots(do, o)
        m.store(products, D, i)


def _scores_gradient(
    m: Machine, dO: SlowArray, V: SlowArray, P: SlowArray, dS: SlowArray, products: Tile, i: Block, j: Block
) -> None:
    """Accumulate a tile of dP over columns of dO and V, convert it to dS with columns of P, and store it."""
    with product_of_rows(m, dO, V, i, j) as ds:  # (Br, Bc)
        ds -= products[:, None]
        for c in m.blocks((j.start, j.stop), 1):
            with m.load(P, i, c) as p:  # (Br, 1)
                ds[:, c.start - j.start : c.stop - j.start] *= p
        m.store(ds, dS, i, j)
