"""Block-sparse attention: F3's order, where a mask says which keys a block of queries needs."""

from __future__ import annotations

from .. import costs
from ..machine import Block, Machine, RowStats, SlowArray, Tile
from ..masks import Mask
from .registry import Outputs, Tiles, schedule


def block_sparse_tiles(N: int, d: int, M: int, mask: Mask) -> Tiles:
    """The cheapest number of rows that fits, with Bc = 1.

    Two neighbours need no fewer columns than both as one block, so sizes up to half the largest are left out.
    The work grows with N; above 2¹⁵ queries not every size is tried.
    """
    most = min(N, max(1, (M - d) // (2 * d + 3)))
    sizes = range(most, most // 2, -(1 + N // 2**15))
    return {"Br": min(sizes, key=lambda Br: costs.block_sparse(N, d, mask=mask, Br=Br, Bc=1).total), "Bc": 1}


@schedule(
    pass_="forward",
    lesson=(8, 3),
    regime="any mask",
    source="FlashAttention, 2205.14135, section 3.3, in F3's order",
    tiles=block_sparse_tiles,
)
def block_sparse(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, mask: Mask, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Q_i and O_i stay; only the keys that some row of the block sees pass by. Costs `costs.block_sparse`.

    A query that sees no key (allowed by `BlockMask(..., allow_empty=True)`) gets a row of zeros.
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br, alike=mask.alike):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            for needed in mask.columns(i.start, i.stop):
                for j in m.blocks(needed, Bc):
                    _take_in(m, K, V, q, o, stats, mask, i, j)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)


def _take_in(
    m: Machine, K: SlowArray, V: SlowArray, q: Tile, o: Tile, stats: RowStats, mask: Mask, i: Block, j: Block
) -> None:
    with m.load(K, j) as k:  # (Bc, d)
        s = q @ k.T  # (Br, Bc)
    m.hide(s, i, j, mask)
    with s, m.load(V, j) as v:  # (Bc, d), in the room K_j has left
        stats.update(s, o)
        o.add_matmul(s, v)
