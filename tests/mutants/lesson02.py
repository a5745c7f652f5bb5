"""Lesson 02: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import MOST, Mutant, Suite, as_scratch


# ---------------------------------------------------------------------- 2A
def centre_with_free(m, A, *, b):
    Y = m.new("Y", A.shape)
    for start in range(0, A.shape[0], b):
        rows = (start, min(start + b, A.shape[0]))
        tile = m.load(A, rows)
        mean = np.mean(tile, axis=1)
        tile -= mean[:, None]
        m.store(tile, Y, rows)
        tile.free()
        mean.free()
    return Y


CENTRE = Suite(
    "2A",
    right=centre_with_free,
    wrong={"no operator makes it": (as_scratch("A", "m.store(a, Y, i)", "m.store(a, A, i)", MOST),)},
)


# ---------------------------------------------------------------------- 2B
def matmul_with_explicit_frees(m, A, B, *, bm, bn):
    (rows, depth), cols = A.shape, B.shape[1]
    C = m.new("C", (rows, cols))
    for top in range(0, rows, bm):
        i = slice(top, min(top + bm, rows))
        for left in range(0, cols, bn):
            j = slice(left, min(left + bn, cols))
            c = m.zeros(i.stop - i.start, j.stop - j.start)
            a = b = None
            for k in range(depth):
                a = m.load(A, i, slice(k, k + 1), into=a)
                b = m.load(B, slice(k, k + 1), j, into=b)
                c.add_matmul(a, b)
            m.store(c, C, i, j)
            for tile in (a, b, c):
                tile.free()
    return C


PRODUCT = Suite(
    "2B",
    right=matmul_with_explicit_frees,
    wrong={"no operator makes it": (as_scratch("A", "c.add_matmul(a, b)", "m.store(a, A, i, k)", MOST),)},
)


# ---------------------------------------------------------------------- 2C
def tile_from_the_columns(m, n, k, M):
    best = None
    for bn in range(n, 0, -1):
        bm = min((M + 1) // (bn + 1) - 1, m)
        if bm < 1:
            continue
        words = m * k * -(-n // bn) + k * n * -(-m // bm)
        if best is None or words < best[0]:
            best = (words, (bm, bn))
    return best[1]


TILE = Suite(
    "2C",
    right=tile_from_the_columns,
    wrong={
        "no operator makes it": (
            Mutant(
                "never-fills-M",
                "no tile that fits moves fewer words",
                (
                    "2 * bm + 1 <= M]",
                    "2 * bm + 1 <= M]\n    tiles = [(b, c) for b, c in tiles if b * c + b + c < M] or tiles",
                ),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 2D
def gram_above_the_diagonal(m, A, *, b):
    rows, depth = A.shape
    G = m.new("G", (rows, rows))
    blocks = [(s, min(s + b, rows)) for s in range(0, rows, b)]
    for p, i in enumerate(blocks):
        for j in blocks[p:]:
            g = m.zeros(i[1] - i[0], j[1] - j[0])
            for k in range(depth):
                left = m.load(A, i, k)
                right = left if i == j else m.load(A, j, k)
                g.add_matmul(left, right.T)
                del left, right
            m.store(g, G, i, j)
            if i != j:
                m.store(g.T, G, j, i)
            g.free()
    return G


GRAM = Suite(
    "2D",
    right=gram_above_the_diagonal,
    wrong={"no operator makes it": (as_scratch("A", "g.add_matmul(a, a.T)", "m.store(a, A, i, k)", MOST),)},
)

SUITES = (CENTRE, PRODUCT, TILE, GRAM)
