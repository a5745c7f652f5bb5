"""Lesson 08: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import MOST, Mutant, Suite, as_scratch

# ---------------------------------------------------------------------- 8A
EVERY = "is exact for every grid"


def column_by_column(tiles, heights, widths, d):
    counts = np.asarray(tiles).sum(axis=0)
    return np.int64(2 * d) * (np.sum(heights) + np.dot(counts, widths))


COUNT = Suite(
    "8A",
    right=column_by_column,
    wrong={
        "its size": (
            Mutant("counted-to-255", EVERY, ("np.array(widths)", "np.array(widths).astype(np.uint8)")),
        )
    },
)


# ---------------------------------------------------------------------- 8B
def by_plain_ranges(m, Q, K, V, *, mask, Br, Bc):
    """Use ranges, explicit free(), values in the buffer of the keys, and later parts of a row first."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        q, o, stats = m.load(Q, rows), m.zeros(rows, d), m.row_stats(rows)
        for needed in reversed(mask.columns(*rows)):
            for j in m.blocks(needed, Bc):
                for i in m.blocks(rows, Br):
                    k = m.load(K, j)
                    s = q @ k.T
                    s *= d**-0.5
                    v = m.load(V, j, into=k)
                    m.hide(s, i, j, mask)
                    stats.update(s, o)
                    o.add_matmul(s, v)
                    v.free()
                    s.free()
        stats.normalise(o)
        m.store(o, O, rows)
        for tile in (q, o, stats):
            tile.free()
    return O


SPARSE = Suite(
    "8B",
    right=by_plain_ranges,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),)},
)


# ---------------------------------------------------------------------- 8C
def with_a_dict(m, Q, K, V, *, w):
    """Address keys and values by position; a new key reuses the buffer of the evicted one."""
    N, d = Q.shape
    O, there = m.new("O", (N, d)), {}
    for j in range(min(w, N)):
        there[j] = m.load(K, j), m.load(V, j)
    for i in range(N):
        gone = there.pop(i - w - 1, (None, None))
        if i + w < N:
            there[i + w] = m.load(K, i + w, into=gone[0]), m.load(V, i + w, into=gone[1])
        else:
            for tile in gone:
                if tile is not None:
                    tile.free()
        q, o, stats = m.load(Q, i), m.zeros(1, d), m.row_stats(1)
        for k, v in there.values():
            s = k @ q.T
            s *= d**-0.5
            stats.update(s, o)
            o.add_matmul(s, v)
            s.free()
        stats.normalise(o)
        m.store(o, O, i)
        for tile in (q, o, stats):
            tile.free()
    return O


WINDOW = Suite(
    "8C",
    right=with_a_dict,
    wrong={
        "no operator makes it": (
            as_scratch("Q", "q *=", "m.store(q, Q, i)", "moves at most 4Nd words for every w"),
            Mutant(
                "a-key-less-to-the-right",
                "a window over all keys gives full attention",
                ("min(i + w + 1, N)", "min(i + 1, N)"),
            ),
            Mutant(
                "no-keys-to-the-left",
                "a window over all keys gives full attention",
                ("if i > w:", "if i > 0:"),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 8D
def bucket_after_bucket(pairs):
    """Visit the tokens; each new one is followed by the others of its bucket, in order."""
    order = []
    for token in range(len(pairs)):
        if token not in order:
            friends = pairs[token] | pairs[:, token]
            order.extend(int(t) for t in np.flatnonzero(friends))
    return order


ORDER = Suite("8D", right=bucket_after_bucket)


# ---------------------------------------------------------------------- 8E
def least_by_places(pairs, d, M):
    """Set the positions of the pairs one by one."""
    places = np.argwhere(pairs)
    touched = {("query", int(i)) for i, _ in places} | {("key", int(j)) for _, j in places}
    by_pairs = 4 * len(places) * d * d / (M + d * d) - M - d * d
    return by_pairs if by_pairs > 2 * d * len(touched) else 2 * d * len(touched)


LEAST = Suite("8E", right=least_by_places)

SUITES = (COUNT, SPARSE, WINDOW, ORDER, LEAST)
