"""Split-d forward pass with scores materialised and safe softmax, for M below about d²/2."""

from __future__ import annotations

from ..costs import best_sizes, ceil_div
from ..machine import Block, Machine, SlowArray, Tile, probabilities
from .registry import Outputs, Tiles, schedule


def small_cache_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the tiles with the least traffic: tries each Br with the largest Bc and Bd; near √M each."""

    def widths(Br: int) -> tuple[int, int]:
        return min(N, (M - 3 * Br) // (Br + 1)), min(d, (M - 2 * Br) // (Br + 1))

    def words(Br: int, Bc: int, Bd: int) -> int:
        return d * ceil_div(N, Bc) + 2 * d * ceil_div(N, Br) + N * ceil_div(d, Bd)

    Br, Bc, Bd = best_sizes(words, extent=N, others=widths)
    return {"Br": Br, "Bc": Bc, "Bd": Bd}


@schedule(
    label="F5",
    pass_="forward",
    regime="M < d^2",
    source="the blocked products of 2402.07443 with online softmax; constant optimal for M << d^2",
    tiles=small_cache_tiles,
)
def small_cache(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bc: int, Bd: int, lse: bool = False
) -> Outputs:
    """Forward pass that stores the raw scores of a row block, then computes its output tile by tile.

    Fast memory keeps the row statistics; slow memory holds Br x N scores at a time. Traffic about
    4N²d/√M + N² words, exactly `costs.small_cache`.
    """
    N, d = Q.shape
    O, S = m.new("O", (N, d)), m.new("S", (min(Br, N), N))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, Bc):
                with scores_tile(m, Q, K, i, j) as s:  # (Br, Bc)
                    m.store(s, S, (0, i.size), j)  # raw, because later blocks can raise the maximum
                    stats.update(s)
            log_sums = stats.lse()
            stats.l.free()  # the weights need only LSE_i, and O_i gets these words
            for c in m.blocks(d, Bd):
                weighted_values(m, S, V, O, log_sums, i, (0, i.size), c)
            if L is not None:
                m.store(log_sums, L, i)
    return O if L is None else (O, L)


def scores_tile(m: Machine, Q: SlowArray, K: SlowArray, i: Block, j: Block) -> Tile:
    """Return QᵢKⱼᵀ/√d as a tile (Br, Bc), computed with one column of Q and K at a time: Br + Bc words."""
    s = m.zeros(i, j)
    for c in m.blocks(Q.shape[1], 1):
        with m.load(Q, i, c) as q, m.load(K, j, c) as k:  # (Br, 1), (Bc, 1)
            q *= Q.shape[1] ** -0.5
            s.add_matmul(q, k.T)
    return s


def weighted_values(
    m: Machine,
    S: SlowArray,
    V: SlowArray,
    O: SlowArray,
    log_sums: Tile,
    i: Block,
    rows: Block | tuple[int, int],
    columns: Block | tuple[int, int],
) -> None:
    """Store rows i and `columns` of O = softmax(S)·V, with the scores in `rows` of S; keys are streamed."""
    with m.zeros(i, columns) as o:
        for j in m.blocks(V.shape[0], 1):
            with m.load(S, rows, j) as s, m.load(V, j, columns) as v:  # (Br, 1), (1, Bd)
                o.add_matmul(probabilities(s, log_sums), v)
        m.store(o, O, i, columns)
