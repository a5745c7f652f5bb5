"""What is known about the exercises of lesson 04: mistakes, other right answers, cheats."""

import numpy as np
from harness import Suite

from iocourse import costs


# ---------------------------------------------------------------------- cheats that fit every schedule


# ---------------------------------------------------------------------- right in one of the two orders
def queries_outside(m, Q, K, V, *, Br, Bc):
    """F2 with its tiles freed by hand."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        q, o, stats = m.load(Q, i), m.zeros(i, d), m.row_stats(i)
        for j in m.blocks(N, Bc):
            k, v = m.load(K, j), m.load(V, j)
            s = q @ k.T
            s *= d**-0.5
            stats.update(s, o)
            o.add_matmul(s, v)
            for tile in (k, v, s):
                tile.free()
        stats.normalise(o)
        m.store(o, O, i)
        for tile in (q, o, stats):
            tile.free()
    return O


def keys_outside_by_range(m, Q, K, V, *, Br, Bc):
    """Plain ranges, loads into the tile's own place, arithmetic of online softmax written out."""
    N, d = Q.shape
    O, top, total = m.new("O", (N, d)), m.new("top", (N,)), m.new("total", (N,))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        n = rows[1] - rows[0]
        with m.zeros(n, d) as o, m.full(n, value=-1e300) as t, m.zeros(n) as l:
            m.store(o, O, rows)
            m.store(t, top, rows)
            m.store(l, total, rows)
    for start in range(0, N, Bc):
        keys = (start, min(start + Bc, N))
        k, v = m.load(K, keys), m.load(V, keys)
        for first in range(0, N, Br):
            one_visit(m, Q, O, top, total, k, v, (first, min(first + Br, N)))
        k.free()
        v.free()
    return O


def one_visit(m, Q, O, top, total, k, v, rows):
    q, o, t, l = m.load(Q, rows), m.load(O, rows), m.load(top, rows), m.load(total, rows)
    s = q @ k.T
    s /= np.sqrt(q.shape[1])
    new = s.max(axis=1)
    np.maximum(new, t, out=new)
    t -= new
    np.exp(t, out=t)  # the factor
    l *= t
    o *= l[:, None]
    s -= new[:, None]
    np.exp(s, out=s)
    l += s.sum(axis=1)
    o.add_matmul(s, v)
    o /= l[:, None]
    m.store(o, O, rows)
    m.store(new, top, rows)
    m.store(l, total, rows)


# ---------------------------------------------------------------------- 4A


FLASH2 = Suite("4A", right=queries_outside)


# ---------------------------------------------------------------------- 4B


FLASH1 = Suite("4B", right=keys_outside_by_range)


# ---------------------------------------------------------------------- 4C


def keys_freed_by_hand(m, Q, K, V, *, Br, Bc):
    """Plain ranges, free() everywhere, and the division written out."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        q = m.load(Q, rows)
        q /= np.sqrt(d)
        o, stats = m.zeros(rows[1] - rows[0], d), m.row_stats(rows[1] - rows[0])
        for first in range(0, N, Bc):
            keys = (first, min(first + Bc, N))
            k = m.load(K, keys)
            s = q @ k.T
            k.free()
            stats.update(s, o)
            v = m.load(V, keys)
            o.add_matmul(s, v)
            v.free()
            s.free()
        o /= stats.l[:, None]
        m.store(o, O, rows)
        q.free()
        o.free()
        stats.free()
    return O


FLASH_OPTIMAL = Suite("4C", right=keys_freed_by_hand)


# ---------------------------------------------------------------------- 4D
def by_search(N, d, M):
    """Try every Br, and the closed form on each."""
    fitting = [Br for Br in range(1, N + 1) if costs.flash_optimal(N, d, Br=Br, Bc=1).peak <= M]
    return [max(fitting), 1]


TILES = Suite("4D", right=by_search)


# ---------------------------------------------------------------------- 4E


REPAIRED = Suite("4E", right=keys_freed_by_hand)

SUITES = (FLASH1, FLASH2, FLASH_OPTIMAL, TILES, REPAIRED)
