"""Sliding-window attention with 4Nd words: fast memory holds the keys of the current window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..machine import Block, Machine, SlowArray, Tile
from .registry import Outputs, Tiles, schedule


def window_tiles(N: int, d: int, M: int, w: int) -> Tiles:
    """Return {}, because the width of the window determines the footprint."""
    return {}


@schedule(
    pass_="forward",
    regime="a window of 2w + 1 keys fits",
    source="a schedule of this course: a ring buffer of keys and values",
    tiles=window_tiles,
)
def window(m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, w: int, lse: bool = False) -> Outputs:
    """Forward pass in which query i attends to keys i - w … i + w; each row of Q, K and V is loaded once.

    Traffic 4Nd words, exactly `costs.window`.
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    ring: deque[tuple[Tile, Tile]] = deque()  # keys and values of the current window, oldest first
    for i in _queries(m, N, w):
        if i.start > w:  # key i - w - 1, the oldest, has left the window
            for tile in ring.popleft():
                tile.free()
        # Query 0 needs w + 1 keys, each later one a single new key.
        for coming in range(i.start + w if i.start else 0, min(i.start + w + 1, N)):
            ring.append((m.load(K, coming), m.load(V, coming)))  # (1, d), (1, d)
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (1, d), (1, d), 2
            q *= d**-0.5
            for j in m.blocks(len(ring), 1):
                k, v = ring[j.start]
                with q @ k.T as s:  # (1, 1)
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    for pair in ring:
        for tile in pair:
            tile.free()
    return O if L is None else (O, L)


def _queries(m: Machine, N: int, w: int) -> Iterator[Block]:
    """Yield all queries in three groups: while the ring fills, while it is full, and at the end.

    While it is full, each query loads one key and frees one, so a dry machine can run one query for all.
    """
    filled = min(w + 1, N)
    last = max(filled, N - w)
    for begin, end, alike in ((0, filled, False), (filled, last, True), (last, N, True)):
        if begin < end:
            yield from m.blocks((begin, end), 1, alike=alike)
