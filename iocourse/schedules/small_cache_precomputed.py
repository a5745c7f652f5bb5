"""Split-d backward pass for small fast memories with P precomputed: dS is stored, then dV, dQ and dK."""

from __future__ import annotations

from ..costs import best_sizes, ceil_div
from ..machine import Block, Machine, SlowArray, Tile
from ..masks import Mask
from .registry import Outputs, Tiles, schedule
from .standard_backward import output_tile, product


def small_cache_precomputed_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the best tile of dS and the best tile of the outputs, both near √M x √M."""

    def columns(Br: int) -> tuple[int]:
        wide = (M - 2 * Br) // (Br + 1)
        return (
            min(N, wide) if wide >= Br else 0,
        )  # a tile with Br > Bc needs fewer words with its sides exchanged

    Br, Bc = best_sizes(lambda Br, Bc: ceil_div(N, Br) + ceil_div(N, Bc), N, columns)
    return {"Br": Br, "Bc": Bc, **output_tile(N, d, M, "Bm")}


@schedule(
    pass_="backward",
    regime="M < d^2/4, P given",
    source="blocked products, as small_cache_backward, for weights that are stored already",
    tiles=small_cache_precomputed_tiles,
)
def small_cache_precomputed(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    P: SlowArray,
    dO: SlowArray,
    *,
    Br: int,
    Bc: int,
    Bm: int,
    Bd: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass: compute dS = P∘(dO Vᵀ - D), then dV = PᵀdO, dQ = dS K and dK = dSᵀQ.

    P includes the mask. Traffic about 8N²d/√M + 2N² words, exactly `costs.small_cache_precomputed`.
    """
    N, d = Q.shape
    dS, dV = m.new("dS", (N, N)), m.new("dV", (N, d))
    dQ, dK = m.new("dQ", (N, d)), m.new("dK", (N, d))
    for i in m.blocks(N, Br):
        with m.zeros(i) as products:  # D_i, (Br,): computed for the first key block, kept for the others
            for j in m.blocks(N, Bc):
                _scores_gradient(m, V, O, P, dO, dS, products, i, j)
    product(m, P, dO, dV, Bm, Bd, transposed=True)
    product(m, dS, K, dQ, Bm, Bd, scale=d**-0.5)
    product(m, dS, Q, dK, Bm, Bd, scale=d**-0.5, transposed=True)
    return dQ, dK, dV


def _scores_gradient(
    m: Machine,
    V: SlowArray,
    O: SlowArray,
    P: SlowArray,
    dO: SlowArray,
    dS: SlowArray,
    products: Tile,
    i: Block,
    j: Block,
) -> None:
    """Accumulate a tile of dP over columns of dO and V, convert it to dS with columns of P, and store it."""
    with m.zeros(i, j) as ds:  # (Br, Bc)
        for c in m.blocks(V.shape[1], 1):
            with m.load(dO, i, c) as do:  # (Br, 1)
                if j.start == 0:
                    with m.load(O, i, c) as o:  # (Br, 1)
                        products.add_row_dots(do, o)
                with m.load(V, j, c) as v:  # (Bc, 1)
                    ds.add_matmul(do, v.T)
        ds -= products[:, None]
        for c in m.blocks((j.start, j.stop), 1):
            with m.load(P, i, c) as p:  # (Br, 1)
                ds[:, c.start - j.start : c.stop - j.start] *= p
        m.store(ds, dS, i, j)
