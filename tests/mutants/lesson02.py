"""What is known about the exercises of lesson 02: mistakes, other right answers, cheats."""

from math import isqrt

import numpy as np
from harness import Mutant, Suite, called

from iocourse import Machine, costs, schedules
from iocourse.course.checking import OWN, RUNS

FITS = "fits in fast memory"
ROOM = "the tile, a column piece and a row piece fit in M words"
BEST = "no tile that fits moves fewer words"
WHOLE = "returns two whole numbers of at least 1"


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


def centre_one_row_at_a_time(m, A, *, b):
    """Less than the block that is allowed is fine: the words are the same."""
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], 1):
        with m.load(A, i) as row, row.sum(axis=1) as total:
            total /= A.shape[1]
            np.subtract(row, total[:, None], out=row)
            m.store(row, Y, i)
    return Y


def centre_of_nothing(m, A, *, b):
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], b):
        with m.zeros(i, A.shape[1]) as y:
            m.store(y, Y, i)
    return Y


def centre_by_taking(m, A, *, b):
    Y = m.new("Y", A.shape)
    values = m.take(A)
    for i in m.blocks(A.shape[0], b):
        m.store(values[i.start : i.stop] - values[i.start : i.stop].mean(axis=1), Y, i)
    return Y


def centre_on_a_larger_machine(m, A, *, b):
    m.M = 10**9
    return centre_with_free(m, A, b=A.shape[0])


CENTRE = Suite(
    id="2A",
    mutants=(
        Mutant("whole-matrix-at-once", FITS, ("m.blocks(N, b)", "m.blocks(N, N)")),
        Mutant("not-in-place", FITS, ("a -= a.mean", "a = a - a.mean")),
        Mutant(
            "no-with",
            FITS,
            ("with m.load(A, i) as a:  # (b, d)\n            ", "a = m.load(A, i)\n        "),
            ("            m.store", "        m.store"),
        ),
        Mutant("loaded-twice", "A is read once", ("m.store(a", "a = m.load(A, i, into=a); m.store(a")),
        Mutant(
            "named-mean-kept",
            FITS,
            ("a -= a.mean(axis=1, keepdims=True)", "mean = a.sum(axis=1) / d; a -= mean[:, None]"),
        ),
        Mutant("ragged-block-forgotten", RUNS, ("m.blocks(N, b)", "list(m.blocks(N, b))[: N // b]")),
        Mutant("sum-for-mean", "each row of Y is that row of A minus its mean", ("a.mean(", "a.sum(")),
        Mutant("mean-of-columns", "each row of Y is that row of A minus its mean", ("axis=1", "axis=0")),
        Mutant("stored-before-too", "Y is written once", ("a -= a", "m.store(a, Y, i); a -= a")),
        Mutant("result-read-back", "Y is not read back", ("Y, i)", "Y, i); m.load(Y, i, into=a)")),
    ),
    right=(centre_with_free, centre_one_row_at_a_time),
    cheats=(
        (centre_of_nothing, "every word of the input is loaded"),
        (centre_by_taking, RUNS),
        (centre_on_a_larger_machine, RUNS),
    ),
)


# ---------------------------------------------------------------------- 2B
def matmul_columns_first(m, A, B, *, bm, bn):
    C = m.new("C", (A.shape[0], B.shape[1]))
    for j in m.blocks(B.shape[1], bn):
        for i in m.blocks(A.shape[0], bm):
            with m.zeros(i.size, j.size) as c:
                for k in reversed(range(A.shape[1])):
                    with m.load(B, (k, k + 1), j) as b, m.load(A, i, (k, k + 1)) as a:
                        c.add_matmul(a, b)
                m.store(c, C, i, j)
    return C


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


def matmul_of_the_library(m, A, B, *, bm, bn):
    return schedules.matmul(m, A, B, bm=bm, bn=bn)


def matmul_of_zeros(m, A, B, *, bm, bn):
    C = m.new("C", (A.shape[0], B.shape[1]))
    for i in m.blocks(A.shape[0], bm):
        for j in m.blocks(B.shape[1], bn):
            with m.zeros(i, j) as c:
                m.store(c, C, i, j)
    return C


def matmul_four_times(m, A, B, *, bm, bn):
    for _ in range(4):
        C = matmul_columns_first(m, A, B, bm=bm, bn=bn)
    return C


def matmul_on_its_own_machine(m, A, B, *, bm, bn):
    other = Machine(10**9)
    return matmul_columns_first(other, A, B, bm=bm, bn=bn)


PRODUCT = Suite(
    id="2B",
    mutants=(
        Mutant("whole-matrices", FITS, ("m.blocks(rows, bm)", "m.blocks(rows, rows)")),
        Mutant("temporary-product", FITS, ("c.add_matmul(a, b)", "c += a @ b")),
        Mutant("all-the-depth-at-once", FITS, ("m.blocks(depth, 1)", "m.blocks(depth, depth)")),
        Mutant("tile-not-freed", FITS, ("m.load(A, i, k) as a", "m.load(A, i, k) as a, a.copy() as d")),
        Mutant(
            "ragged-rows-forgotten", RUNS, ("m.blocks(rows, bm)", "list(m.blocks(rows, bm))[: rows // bm]")
        ),
        Mutant("last-step-forgotten", "values equal A @ B", ("m.blocks(depth, 1)", "range(depth - 1)")),
        Mutant("no-accumulation", "values equal A @ B", ("c.add_matmul", "c *= 0; c.add_matmul")),
        Mutant(
            "column-loaded-twice",
            "A is read ⌈n/bn⌉ times",
            ("c.add_matmul", "a = m.load(A, i, k, into=a); c.add_matmul"),
        ),
        Mutant(
            "row-loaded-twice",
            "B is read ⌈m/bm⌉ times",
            ("c.add_matmul", "b = m.load(B, k, j, into=b); c.add_matmul"),
        ),
        Mutant("one-row-at-a-time", "B is read ⌈m/bm⌉ times", ("m.blocks(rows, bm)", "m.blocks(rows, 1)")),
        Mutant(
            "stored-at-every-step",
            "C is written once",
            ("c.add_matmul(a, b)", "c.add_matmul(a, b); m.store(c, C, i, j)"),
        ),
        Mutant(
            "result-read-back",
            "C is not read back",
            ("m.store(c, C, i, j)", "m.store(c, C, i, j); m.load(C, i, j, into=c)"),
        ),
        Mutant(
            "sizes-exchanged", RUNS, ("with m.zeros(i, j)", "with m.zeros(j, i)"), ("(a, b)", "(b.T, a.T)")
        ),
    ),
    right=(matmul_columns_first, matmul_with_explicit_frees),
    cheats=(
        (matmul_of_the_library, OWN),
        (matmul_of_zeros, "every word of the input is loaded"),
        (matmul_four_times, "A is read ⌈n/bn⌉ times"),
        (matmul_on_its_own_machine, RUNS),
        (called("matmul_on_slow_arrays", lambda m, A, B, *, bm, bn: A @ B), RUNS),
    ),
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


def tile_by_trying_all(m, n, k, M):
    every = [(bm, bn) for bm in range(1, m + 1) for bn in range(1, n + 1) if bm * bn + bm + bn <= M]
    counts = [(m * (-(-n // bn)) + n * (-(-m // bm)), bm, bn) for bm, bn in every]
    return list(min(counts)[1:])


def tile_of_the_library(m, n, k, M):
    tiles = schedules.matmul_tiles(m, n, k, M)
    return tiles["bm"], tiles["bn"]


TILE = Suite(
    id="2C",
    mutants=(
        Mutant("pieces-not-counted", ROOM, ("(M - bm) // (bm + 1)", "M // bm"), ("2 * bm + 1", "bm")),
        Mutant("one-piece-not-counted", ROOM, ("(M - bm) // (bm + 1)", "M // (bm + 1)")),
        Mutant("three-tiles", BEST, ("(M - bm) // (bm + 1)", "M // (3 * bm) or 1")),
        Mutant("most-words", BEST, ("return min(", "return max(")),
        Mutant("largest-tile", BEST, ("costs.matmul(m, n, k, bm=tile[0], bn=tile[1]).total", "-tile[0]")),
        Mutant("sizes-exchanged", BEST, ("costs.matmul(m, n, k,", "costs.matmul(n, m, k,")),
        Mutant("last-row-forgotten", RUNS, ("range(1, m + 1)", "range(1, m)")),
        Mutant("words-returned", WHOLE, (").total)", ").total)[0]")),
    ),
    right=(tile_from_the_columns, tile_by_trying_all),
    cheats=(
        (tile_of_the_library, OWN),
        (called("the_same_tile", lambda m, n, k, M: (1, 1)), BEST),
        (called("tile_by_square_root", lambda m, n, k, M: (isqrt(M + 1) - 1, isqrt(M + 1) - 1)), BEST),
        (called("tile_by_a_third", lambda m, n, k, M: (max(1, isqrt(M // 3)), max(1, isqrt(M // 3)))), BEST),
        (called("tile_with_fractions", lambda m, n, k, M: ((M + 1) ** 0.5 - 1,) * 2), WHOLE),
        (called("tile_as_a_ledger", lambda m, n, k, M: costs.matmul(m, n, k, bm=1, bn=1)), WHOLE),
    ),
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


def gram_diagonal_first(m, A, *, b):
    rows, depth = A.shape
    G = m.new("G", (rows, rows))
    for i in m.blocks(rows, b):
        with m.zeros(i, i) as g:
            for k in m.blocks(depth, 1):
                with m.load(A, i, k) as a:
                    g.add_matmul(a, a.T)
            m.store(g, G, i, i)
    for i in m.blocks(rows, b):
        for j in [block for block in m.blocks(rows, b) if block.start > i.start]:
            with m.zeros(i, j) as g:
                for k in m.blocks(depth, 1):
                    with m.load(A, i, k) as a, m.load(A, j, k) as c:
                        g.add_matmul(a, c.T)
                m.store(g, G, i, j)
                m.store(g.T, G, j, i)
    return G


def gram_of_zeros(m, A, *, b):
    G = m.new("G", (A.shape[0], A.shape[0]))
    for i in m.blocks(A.shape[0], 1):
        for j in m.blocks(A.shape[0], 1):
            with m.zeros(i, j) as g:
                m.store(g, G, i, j)
    return G


GRAM = Suite(
    id="2D",
    mutants=(
        Mutant(
            "symmetry-not-used",
            "A is read ⌈m/b⌉ times",
            ("if j.start > i.start", "if False"),
            ("if i != j", "if False"),
        ),
        Mutant("diagonal-loaded-twice", "A is read ⌈m/b⌉ times", ("if i == j", "if False")),
        Mutant("other-half-not-stored", RUNS, ("if i != j", "if False")),
        Mutant("other-half-not-turned", RUNS, ("m.store(g.T, G, j, i)", "m.store(g, G, j, i)")),
        Mutant("diagonal-stored-twice", "G is written once", ("if i != j", "if True")),
        Mutant("turned-by-copying", FITS, ("m.store(g.T,", "m.store(g.T.copy(),")),
        Mutant("temporary-product", FITS, ("g.add_matmul(a, c.T)", "g += a @ c.T")),
        Mutant("last-step-forgotten", "values equal A @ A.T", ("m.blocks(depth, 1)", "range(depth - 1)")),
        Mutant("whole-rows", FITS, ("m.blocks(depth, 1)", "m.blocks(depth, depth)")),
    ),
    right=(gram_above_the_diagonal, gram_diagonal_first),
    cheats=((gram_of_zeros, "every word of the input is loaded"),),
)

SUITES = (CENTRE, PRODUCT, TILE, GRAM)
