"""A sliding window for 4Nd words: the keys in sight roll along in fast memory."""

from __future__ import annotations

from collections import deque

from ..machine import Machine, Slow, Tile
from .registry import Outputs, Tiles, schedule


def window_tiles(N: int, d: int, M: int, w: int) -> Tiles:
    """None: the width of the window decides what is in fast memory."""
    return {}


@schedule(
    pass_="forward",
    lesson=(8, 4),
    regime="a window of 2w + 1 keys fits",
    source="a schedule of this course: a ring buffer of keys and values",
    tiles=window_tiles,
)
def window(m: Machine, Q: Slow, K: Slow, V: Slow, *, w: int, lse: bool = False) -> Outputs:
    """Query i sees keys i - w … i + w. Each row of Q, K and V is loaded once: `costs.window`, 4Nd words."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    ring: deque[tuple[Tile, Tile]] = deque()  # keys and values in sight, oldest first
    loaded = 0
    for i in m.blocks(N, 1, alike=False):
        if i.start > w:
            for tile in ring.popleft():
                tile.free()
        while loaded <= min(i.start + w, N - 1):
            ring.append((m.load(K, loaded), m.load(V, loaded)))  # (1, d), (1, d)
            loaded += 1
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (1, d), (1, d), 2
            q *= d**-0.5
            for k, v in ring:
                with q @ k.T as s:  # (1, 1)
                    stats.update(s, o)
                    o.add_product(s, v)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    for pair in ring:
        for tile in pair:
            tile.free()
    return O if L is None else (O, L)
