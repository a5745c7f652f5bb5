"""Lesson 04: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import MOST, Mutant, Suite, as_scratch

from iocourse import RowStats, costs


# ---------------------------------------------------------------------- cheats that fit every schedule
# ---------------------------------------------------------------------- right in one of the two orders
def queries_outside(m, Q, K, V, *, Br, Bc):
    """FA-2 order whose tiles are freed explicitly."""
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


# ---------------------------------------------------------------------- 4A
FLASH2 = Suite(
    "4A",
    right=queries_outside,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),)},
)


# ---------------------------------------------------------------------- 4B
def keys_outside_first_block_by_itself(m, Q, K, V, *, Br, Bc):
    """Skip the pass that stores zeros, and divide O after the last key block: fewer words."""
    N, d = Q.shape
    O, maxima, sums = m.new("O", (N, d)), m.new("m", (N,)), m.new("l", (N,))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v:
            for i in m.blocks(N, Br):
                q, o = m.load(Q, i), m.zeros(i, d) if j.first else m.load(O, i)
                stats = m.row_stats(i) if j.first else RowStats(m.load(maxima, i), m.load(sums, i))
                q *= d**-0.5
                with q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
                if j.last:
                    stats.normalise(o)
                m.store(o, O, i)
                m.store(stats.m, maxima, i)
                m.store(stats.l, sums, i)
                for tile in (q, o, stats):
                    tile.free()
    return O


FLASH1 = Suite(
    "4B",
    right=keys_outside_first_block_by_itself,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),)},
)


# ---------------------------------------------------------------------- 4C
def keys_freed_by_hand(m, Q, K, V, *, Br, Bc):
    """Use plain ranges, explicit free(), and an explicit division."""
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


FLASH_OPTIMAL = Suite(
    "4C",
    right=keys_freed_by_hand,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),)},
)


# ---------------------------------------------------------------------- 4D
def by_search(N, d, M):
    """Evaluate the closed form for every Br."""
    fitting = [Br for Br in range(1, N + 1) if costs.flash_optimal(N, d, Br=Br, Bc=1).peak <= M]
    return [max(fitting), 1]


TILES = Suite(
    "4D",
    right=by_search,
    wrong={
        "no operator makes it": (
            Mutant("never-fills-M", "no tile that fits moves fewer words", ("(M - d) //", "(M - d - 1) //")),
        )
    },
)

# ---------------------------------------------------------------------- 4E
REPAIRED = Suite(
    "4E",
    right=keys_freed_by_hand,
    wrong={
        "no operator makes it": (
            as_scratch("Q", "s *=", "m.store(q, Q, i)", "moves no more words than (4.3)"),
        )
    },
)

SUITES = (FLASH1, FLASH2, FLASH_OPTIMAL, TILES, REPAIRED)
