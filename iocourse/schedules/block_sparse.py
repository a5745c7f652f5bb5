"""Block-sparse attention: the loop order of flash_optimal, loading only keys that some query attends to."""

from __future__ import annotations

from .. import costs
from ..machine import Block, Machine, RowStats, SlowArray, Tile
from ..masks import Mask
from .registry import Outputs, Tiles, schedule


def block_sparse_tiles(N: int, d: int, M: int, mask: Mask) -> Tiles:
    """Return the Br with the least traffic that fits, with Bc = 1.

    Two adjacent blocks together load at least the keys of their union, so sizes up to half the largest are
    not tried. For N of 2¹⁵ and more, only some sizes are tried, because the work grows with N.
    """
    most = min(N, max(1, (M - d) // (2 * d + 3)))
    sizes = range(most, most // 2, -(1 + N // 2**15))
    return {"Br": min(sizes, key=lambda Br: costs.block_sparse(N, d, mask=mask, Br=Br, Bc=1).total), "Bc": 1}


@schedule(
    pass_="forward",
    regime="any mask",
    source="FlashAttention, 2205.14135, section 3.3, in the loop order of flash_optimal",
    tiles=block_sparse_tiles,
)
def block_sparse(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, mask: Mask, Br: int, Bc: int, lse: bool = False
) -> Outputs:
    """Masked attention with resident Q_i and O_i; only keys that a row of the block attends to are streamed.

    A query without a visible key (see `BlockMask(..., allow_empty=True)`) gets a row of zeros.
    Traffic: `costs.block_sparse`.
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br, alike=mask.alike, short_first=mask.short_first(Br)):
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
    with s, m.load(V, j) as v:  # (Bc, d), in the words that K_j used
        stats.update(s, o)
        o.add_matmul(s, v)
