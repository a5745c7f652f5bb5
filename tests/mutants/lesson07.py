"""What is known about the exercises of lesson 07: mistakes, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import costs, exact, schedules
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises.lesson07 import best_plan
from iocourse.machine import probabilities
from iocourse.schedules.small_cache import scores_tile
from iocourse.schedules.standard_backward import product_of_rows

FITS = "fits in fast memory"
LOADED = "every word of the input is loaded"
TOTAL = "no more words move than the closed form says"
BLOCK_SIZE = "block size does not change the answer"
Q_PASSES, K_PASSES = "Q is read ⌈N/Bc⌉ times", "K is read ⌈N/Br⌉ times"

# ---------------------------------------------------------------------- 7A
SCORES = "the tile holds the scores of block i against block j"
TIGHT = "fits in Br·Bc + Br + Bc words"


def columns_by_range(m, Q, K, i, j):
    """The last column first, whole numbers for blocks, and the scale at the end."""
    s = m.zeros(i.size, j.size)
    for c in reversed(range(Q.shape[1])):
        q, k = m.load(Q, (i.start, i.stop), (c, c + 1)), m.load(K, (j.start, j.stop), (c, c + 1))
        s.add_matmul(q, k.T)
        q.free()
        k.free()
    s /= np.sqrt(Q.shape[1])
    return s


def tile_made_turned(m, Q, K, i, j):
    """Keys by queries, and handed over as a turned view."""
    turned = m.zeros(j, i)
    for c in m.blocks(Q.shape[1], 1):
        with m.load(K, j, c) as k, m.load(Q, i, c) as q:
            k *= Q.shape[1] ** -0.5
            turned.add_matmul(k, q.T)
    return turned.T


def whole_rows(m, Q, K, i, j):
    with m.load(Q, i) as q, m.load(K, j) as k:
        q *= Q.shape[1] ** -0.5
        return q @ k.T


def columns_two_by_two(m, Q, K, i, j):
    s = m.zeros(i, j)
    for c in m.blocks(Q.shape[1], 2):
        with m.load(Q, i, c) as q, m.load(K, j, c) as k:
            q *= Q.shape[1] ** -0.5
            s.add_matmul(q, k.T)
    return s


def zeros_tile(m, Q, K, i, j):
    return m.zeros(i, j)


def tile_taken_from_the_machine(m, Q, K, i, j):
    return m.take(Q)[i.start : i.stop] @ m.take(K)[j.start : j.stop].T


def library_product(m, Q, K, i, j):
    s = product_of_rows(m, Q, K, i, j)
    s *= Q.shape[1] ** -0.5
    return s


TILE = Suite(
    id="7A",
    mutants=(
        Mutant("missing-scale", SCORES, ("q *= d**-0.5", "pass")),
        Mutant("scale-by-d", SCORES, ("d**-0.5", "d**-1")),
        Mutant("scale-of-one-d", SCORES, ("d**-0.5", "10**-0.5")),
        Mutant("first-column-only", SCORES, ("m.blocks(d, 1)", "[(0, 1)]")),
        Mutant("first-column-only-loads-too-little", LOADED, ("m.blocks(d, 1)", "[(0, 1)]")),
        Mutant("last-column-skipped", SCORES, ("m.blocks(d, 1)", "list(m.blocks(d, 1))[:-1]")),
        Mutant("keys-for-queries", SCORES, ("m.load(Q, i, c)", "m.load(K, i, c)")),
        Mutant("not-turned", RUNS, ("k.T", "k")),
        Mutant("eight-columns-at-once", TIGHT, ("m.blocks(d, 1)", "m.blocks(d, 8)")),
        Mutant("product-as-a-temporary", TIGHT, ("s.add_matmul(q, k.T)", "s += q @ k.T")),
        Mutant("scaled-column-as-a-temporary", TIGHT, ("q *= d**-0.5", "q = q * d**-0.5")),
        Mutant(
            "Q-loaded-twice", Q_PASSES, ("q *= d", "m.load(Q, i, c, into=k); k = m.load(K, j, c); q *= d")
        ),
        Mutant("K-loaded-twice", K_PASSES, ("q *= d", "k = m.load(K, j, c, into=k); q *= d")),
        Mutant("tile-freed", RUNS, ("return s", "s.free(); return s")),
        Mutant("nothing-returned", RUNS, ("return s", "return None")),
    ),
    right=(columns_by_range, tile_made_turned),
    cheats=(
        (whole_rows, TIGHT),
        (columns_two_by_two, TIGHT),
        (zeros_tile, SCORES),
        (zeros_tile, LOADED),
        (tile_taken_from_the_machine, RUNS),
        (scores_tile, OWN),
        (called("library_tile", lambda m, Q, K, i, j: scores_tile(m, Q, K, i, j)), OWN),
        (library_product, OWN),
    ),
)


# ---------------------------------------------------------------------- 7B
VALUES = "values equal exact attention"
LARGE = "scores of ±10,000 neither overflow nor vanish"
SCRATCH = "scratch in slow memory is at most Br rows of scores"


def my_tile(m, Q, K, i, j):
    s = m.zeros(i, j)
    for c in m.blocks(Q.shape[1], 1):
        with m.load(Q, i, c) as q, m.load(K, j, c) as k:
            q *= Q.shape[1] ** -0.5
            s.add_matmul(q, k.T)
    return s


def statistics_by_hand(m, Q, K, V, *, Br, Bc, Bd):
    """Maximum and sum as plain vectors, and a division at the end in place of the log-sum-exp."""
    N, d = Q.shape
    O, scores = m.new("out", (N, d)), m.new("scores", (Br, N))
    for i in m.blocks(N, Br):
        rows, top, total = (0, i.size), m.full(i, value=-1e300), m.zeros(i)
        for j in m.blocks(N, Bc):
            s = my_tile(m, Q, K, i, j)
            m.store(s, scores, rows, j)
            with s.max(axis=1) as new:
                np.maximum(new, top, out=new)
                top -= new
                np.exp(top, out=top)
                total *= top
                top[:] = new
            s -= top[:, None]
            np.exp(s, out=s)
            with s.sum(axis=1) as more:
                total += more
            s.free()
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:
                for j in range(N):
                    with m.load(scores, rows, j) as s, m.load(V, j, c) as v:
                        s -= top[:, None]
                        np.exp(s, out=s)
                        o.add_matmul(s, v)
                o /= total[:, None]
                m.store(o, O, i, c)
        top.free()
        total.free()
    return O


def sums_freed_first(m, Q, K, V, *, Br, Bc, Bd):
    """The footprint of (7.3) to the word, and a scratch array for each block."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        S, stats = m.new("S", (i.size, N)), m.row_stats(i)
        for j in m.blocks(N, Bc):
            with my_tile(m, Q, K, i, j) as s:
                m.store(s, S, (0, i.size), j)
                stats.update(s)
        L = stats.lse()
        stats.l.free()
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:
                for j in m.blocks(N, 1):
                    with m.load(V, j, c) as v, m.load(S, (0, i.size), j) as s:
                        o.add_matmul(probabilities(s, L), v)
                m.store(o, O, i, c)
        L.free()
    return O


def fused(m, Q, K, V, *, Br, Bc, Bd):
    """F6, right, and not what was asked for: partial outputs travel."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:
            for j in m.blocks(N, Bc):
                with my_tile(m, Q, K, i, j) as s, stats.m.copy() as factor:
                    stats.update(s)
                    factor -= stats.m
                    np.exp(factor, out=factor)
                    for c in m.blocks(d, 1):
                        with m.zeros(i, c) if j.first else m.load(O, i, c) as o, m.load(V, j, c) as v:
                            o *= factor[:, None]
                            o.add_matmul(s, v)
                            if j.last:
                                stats.normalise(o)
                            m.store(o, O, i, c)
    return O


def rows_of_queries(m, Q, K, V, *, Br, Bc, Bd):
    """F3 with a single query: right, and too many words."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, 1):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, 1):
                with m.load(K, j) as k:
                    s = q @ k.T
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def all_scores_at_once(m, Q, K, V, *, Br, Bc, Bd):
    N, d = Q.shape
    O, rows = m.new("O", (N, d)), (0, N)
    with m.load(Q, rows) as q, m.load(K, rows) as k, m.load(V, rows) as v:
        q *= d**-0.5
        s = q @ k.T
        s -= s.max(axis=1, keepdims=True)
        np.exp(s, out=s)
        s /= s.sum(axis=1, keepdims=True)
        m.store(s @ v, O, rows)
    return O


def zeros(m, Q, K, V, *, Br, Bc, Bd):
    O = m.new("O", Q.shape)
    for i in m.blocks(Q.shape[0], 1):
        with m.zeros(i, Q.shape[1]) as o:
            m.store(o, O, i)
    return O


def library_schedule_inside(m, Q, K, V, *, Br, Bc, Bd):
    return schedules.small_cache(m, Q, K, V, Br=Br, Bc=Bc, Bd=Bd)


def scores_by_the_library(m, Q, K, V, *, Br, Bc, Bd):
    """Only the tile is handed over to the library."""
    with m.row_stats(min(Br, Q.shape[0])) as stats:
        for i in m.blocks(Q.shape[0], Br):
            for j in m.blocks(Q.shape[0], Bc):
                with scores_tile(m, Q, K, i, j) as s:
                    stats.update(s)
    return m.new("O", Q.shape)


def every_score_made_again(m, Q, K, V, *, Br, Bc, Bd):
    """Right, without scratch, and each score made once more for each column tile of the output."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:
            for j in m.blocks(N, Bc):
                with my_tile(m, Q, K, i, j) as s:
                    stats.update(s)
            L = stats.lse()
            for c in m.blocks(d, Bd):
                with m.zeros(i, c) as o:
                    for j in m.blocks(N, 1):
                        with my_tile(m, Q, K, i, j) as s, m.load(V, j, c) as v:
                            o.add_matmul(probabilities(s, L), v)
                    m.store(o, O, i, c)
    return O


def taken_from_the_machine(m, Q, K, V, *, Br, Bc, Bd):
    return m.slow("O", exact.attention(m.take(Q), m.take(K), m.take(V)))


NO_MAXIMUM = (
    ("stats.update(s)", "np.exp(s, out=s); stats.l[:] = stats.l + s.sum(axis=1)"),
    ("L = stats.lse()", "L = stats.l"),
    ("o.add_matmul(probabilities(s, L), v)", "np.exp(s, out=s); s /= L[:, None]; o.add_matmul(s, v)"),
)
STORE = "m.store(s, S, (0, i.size), j)"

SMALL = Suite(
    id="7B",
    mutants=(
        Mutant("scratch-as-long-as-a-row-is-wide", RUNS, ("(min(Br, N), N)", "(min(Br, d), N)")),
        Mutant("two-columns-of-scores", FITS, ("for j in m.blocks(N, 1):", "for j in m.blocks(N, 2):")),
        Mutant(
            "stored-after-the-update",
            VALUES,
            (STORE, "stats.update(s)"),
            ("stats.update(s)\n            L", f"{STORE}\n            L"),
        ),
        Mutant("no-maximum", LARGE, *NO_MAXIMUM),
        Mutant("exponentials-without-the-sum", VALUES, ("stats.lse()", "stats.m")),
        Mutant("statistics-miss-the-tiles", RUNS, ("stats.update(s)", "stats.update(m.zeros(2, j))")),
        Mutant(
            "normalised-again", VALUES, ("m.store(o, O, i, c)", "stats.normalise(o); m.store(o, O, i, c)")
        ),
        Mutant("last-columns-skipped", RUNS, ("m.blocks(d, Bd)", "list(m.blocks(d, Bd))[: d // Bd]")),
        Mutant("last-keys-skipped", RUNS, ("m.blocks(N, Bc)", "list(m.blocks(N, Bc))[: N // Bc]")),
        Mutant("last-key-skipped-in-output", VALUES, ("m.blocks(N, 1)", "list(m.blocks(N, 1))[:-1]")),
        Mutant("keys-for-values", VALUES, ("m.load(V, j, c)", "m.load(K, j, c)")),
        Mutant("keys-for-values-loads-no-V", LOADED, ("m.load(V, j, c)", "m.load(K, j, c)")),
        Mutant("full-square-of-scores", SCRATCH, ("(min(Br, N), N)", "(N, N)"), ("(0, i.size)", "i")),
        Mutant("one-column-of-output", "S is read ⌈d/Bd⌉ times", ("m.blocks(d, Bd)", "m.blocks(d, 1)")),
        Mutant("scores-stored-twice", "S is written once", (STORE, f"{STORE}; {STORE}")),
        Mutant("output-stored-for-each-key", "O is written once", ("L), v)", "L), v); m.store(o, O, i, c)")),
        Mutant(
            "V-loaded-twice",
            "V is read ⌈N/Br⌉ times",
            ("o.add_matmul", "v = m.load(V, j, c, into=v); o.add_matmul"),
        ),
        Mutant("K-for-one-query-at-a-time", K_PASSES, ("m.blocks(N, Br)", "m.blocks(N, 1)")),
        Mutant("Q-for-one-key-at-a-time", Q_PASSES, ("m.blocks(N, Bc)", "m.blocks(N, 1)")),
        Mutant(
            "values-by-full-rows",
            FITS,
            ("m.load(V, j, c) as v:", "m.load(V, (0, N), c) as all, m.load(V, j, c) as v:"),
        ),
        Mutant("scores-made-twice", TOTAL, (STORE, f"{STORE}; my_scores_tile(m, Q, K, i, j).free()")),
        Mutant(
            "a-row-block-of-scores-kept",
            FITS,
            ("L = stats.lse()", "L = stats.lse(); kept = m.load(S, (0, i.size))"),
        ),
        Mutant(
            "tile-not-freed",
            FITS,
            (
                "with my_scores_tile(m, Q, K, i, j) as s:",
                "for s in (kept := [my_scores_tile(m, Q, K, i, j) for _ in 'ab'])[:1]:",
            ),
        ),
    ),
    right=(statistics_by_hand, sums_freed_first),
    cheats=(
        (fused, "O is written once"),
        (rows_of_queries, TOTAL),
        (all_scores_at_once, FITS),
        (zeros, VALUES),
        (zeros, LOADED),
        (library_schedule_inside, OWN),
        (schedules.small_cache, OWN),
        (schedules.small_cache.body, OWN),
        (taken_from_the_machine, RUNS),
        (scores_by_the_library, OWN),
        (every_score_made_again, TOTAL),
    ),
)


# ---------------------------------------------------------------------- 7C
S_ONCE, Q_ONCE = "S is read once", "Q is read once"


def statistics_by_hand_whole_rows(m, Q, K, V, *, Br):
    """Maximum and sum as plain vectors, a scratch array for each block, and a division at the end."""
    N, d = Q.shape
    out = m.new("out", (N, d))
    for i in m.blocks(N, Br):
        scores, top, total = m.new("scores", (i.size, N)), m.full(i, value=-1e300), m.zeros(i)
        q = m.load(Q, i)
        q /= d**0.5
        for j in range(N):
            k = m.load(K, j)
            with q @ k.T as s:
                k.free()
                m.store(s, scores, (0, i.size), j)
                with np.maximum(top, s[:, 0]) as new:
                    top -= new
                    np.exp(top, out=top)
                    total *= top
                    top[:] = new
                s -= top[:, None]
                np.exp(s, out=s)
                total += s[:, 0]
        q.free()
        o = m.zeros(i, d)
        for j in reversed(range(N)):
            with m.load(V, j) as v, m.load(scores, (0, i.size), j) as s:
                s -= top[:, None]
                np.exp(s, out=s)
                o.add_matmul(s, v)
        o /= total[:, None]
        m.store(o, out, i)
        for tile in (o, top, total):
            tile.free()
    return out


def footprint_to_the_word(m, Q, K, V, *, Br):
    """Keys as views turned after they came, and the sums let go of as soon as the log-sum-exp is there."""
    N, d = Q.shape
    O, S = m.new("O", (N, d)), m.new("S", (min(Br, N), N))
    for i in m.blocks(N, Br):
        stats, rows = m.row_stats(i), (0, i.size)
        with m.load(Q, i) as q:
            for j in m.blocks(N, 1):
                with m.load(K, j) as k:
                    k *= d**-0.5
                    with q @ k.T as s:
                        m.store(s, S, rows, j)
                        stats.update(s)
        L = stats.lse()
        stats.l.free()
        with m.zeros(i, d) as o:
            for j in m.blocks(N, 1):
                with m.load(S, rows, j) as s, m.load(V, j) as v:
                    o.add_matmul(probabilities(s, L), v)
            m.store(o, O, i)
        L.free()
    return O


def order_of_flash_optimal(m, Q, K, V, *, Br):
    """F3, right: rows of two arrays at a time, for which there is no room."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, 1):
                with m.load(K, j) as k:
                    s = q @ k.T
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def half_as_many_rows(m, Q, K, V, *, Br):
    """F3 with the rows that do fit: right, and K and V pass too often."""
    return order_of_flash_optimal(m, Q, K, V, Br=max(1, Br // 2))


def columns_of_small_cache(m, Q, K, V, *, Br):
    """F5 with tiles of the same rows: right, and Q comes by columns, again for each block of keys."""
    d = Q.shape[1]
    return statistics_by_hand(m, Q, K, V, Br=Br, Bc=max(1, d // 2), Bd=max(1, d // 2))


def scores_made_twice(m, Q, K, V, *, Br):
    """Nothing is stored: Q stays for the statistics, and is loaded again with K for each output."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:
            for j in m.blocks(N, 1):
                with my_tile(m, Q, K, i, j) as s:
                    stats.update(s)
            L = stats.lse()
            with m.zeros(i, d) as o:
                for j in m.blocks(N, 1):
                    with my_tile(m, Q, K, i, j) as s, m.load(V, j) as v:
                        o.add_matmul(probabilities(s, L), v)
                m.store(o, O, i)
    return O


def library_scores_stored_inside(m, Q, K, V, *, Br):
    return schedules.scores_stored(m, Q, K, V, Br=Br)


def zeros_for_O(m, Q, K, V, *, Br):
    return zeros(m, Q, K, V, Br=Br, Bc=1, Bd=1)


STORED = Suite(
    id="7C",
    mutants=(
        Mutant("missing-scale", VALUES, ("q *= d**-0.5", "pass")),
        Mutant("scale-of-one-d", VALUES, ("d**-0.5", "10**-0.5")),
        Mutant(
            "stored-after-the-update",
            VALUES,
            (STORE, "stats.update(s)"),
            ("stats.update(s)\n            L", f"{STORE}\n            L"),
        ),
        Mutant("no-maximum", LARGE, *NO_MAXIMUM),
        Mutant("exponentials-without-the-sum", VALUES, ("stats.lse()", "stats.m")),
        Mutant("normalised-again", VALUES, ("m.store(o, O, i)", "stats.normalise(o); m.store(o, O, i)")),
        Mutant("keys-for-values", VALUES, ("m.load(V, j)", "m.load(K, j)")),
        Mutant("keys-for-values-loads-no-V", LOADED, ("m.load(V, j)", "m.load(K, j)")),
        Mutant(
            "last-key-skipped", VALUES, ("as v:", "as v:  # L\n                        if j.last: continue")
        ),
        Mutant(
            "statistics-of-all-rows-at-once", VALUES, ("L = stats.lse()", "L = stats.lse(); L[:] = L.max()")
        ),
        Mutant(
            "queries-stay-beside-the-output",
            FITS,
            ("with m.load(Q, i) as q:", "for q in [m.load(Q, i)]:"),
        ),
        Mutant(
            "output-made-beside-the-queries",
            FITS,
            ("with m.load(Q, i) as q:", "with m.load(Q, i) as q, m.zeros(i, d):"),
        ),
        Mutant("full-square-of-scores", SCRATCH, ("(min(Br, N), N)", "(N, N)"), ("(0, i.size)", "i")),
        Mutant("scores-stored-twice", "S is written once", (STORE, f"{STORE}; {STORE}")),
        Mutant(
            "scores-read-twice",
            S_ONCE,
            ("o.add_matmul", "s = m.load(S, (0, i.size), j, into=s); o.add_matmul"),
        ),
        Mutant("output-stored-for-each-key", "O is written once", ("L), v)", "L), v); m.store(o, O, i)")),
        Mutant(
            "V-loaded-twice",
            "V is read ⌈N/Br⌉ times",
            ("o.add_matmul", "v = m.load(V, j, into=v); o.add_matmul"),
        ),
        Mutant("K-loaded-twice", K_PASSES, ("m.store(s, S", "k = m.load(K, j, into=k); m.store(s, S")),
        Mutant("one-query-at-a-time", K_PASSES, ("m.blocks(N, Br)", "m.blocks(N, 1)")),
        Mutant(
            "queries-for-each-key",
            Q_ONCE,
            ("m.store(s, S", "q = m.load(Q, i, into=q); q *= d**-0.5; m.store(s, S"),
        ),
        Mutant(
            "all-values-at-once",
            FITS,
            ("as s, m.load(V, j) as v:", "as s, m.load(V, (0, N)), m.load(V, j) as v:"),
        ),
    ),
    right=(statistics_by_hand_whole_rows, footprint_to_the_word),
    cheats=(
        (order_of_flash_optimal, FITS),
        (half_as_many_rows, K_PASSES),
        (columns_of_small_cache, Q_ONCE),
        (scores_made_twice, TOTAL),
        (zeros_for_O, VALUES),
        (zeros_for_O, LOADED),
        (library_scores_stored_inside, OWN),
        (schedules.scores_stored, OWN),
        (schedules.scores_stored.body, OWN),
        (
            called(
                "the_tiled_one",
                lambda m, Q, K, V, Br: schedules.scores_stored_tiled.body(
                    m, Q, K, V, Br=Br, Bo=Br, Bd=Q.shape[1]
                ),
            ),
            OWN,
        ),
        (
            called("taken", lambda m, Q, K, V, Br: m.slow("O", exact.attention(*map(m.take, (Q, K, V))))),
            RUNS,
        ),
    ),
)


# ---------------------------------------------------------------------- 7D
IS_PLAN = "returns a schedule's name and its tiles"
PLAN_FITS = "the plan fits in M words"
BEST = "no plan that fits moves fewer words"


def total_of(plan, N, d):
    return getattr(costs, plan[0])(N, d, **plan[1]).total


def by_best_pair(N, d, M):
    """One search a schedule, with the sizes worth trying only; the sizes as NumPy's whole numbers."""

    def widths(Br):
        return min(N, (M - 3 * Br) // (Br + 1)), min(d, (M - 2 * Br) // (Br + 1))

    def words(Br, Bc):
        return costs.small_cache(N, d, Br=Br, Bc=Bc, Bd=widths(Br)[1]).total

    Br, Bc = costs.best_pair(words, extent=N, partner=lambda b: widths(b)[0])
    plans = [["small_cache", {"Br": np.int64(Br), "Bc": Bc, "Bd": widths(Br)[1]}]]
    if 3 * d + 3 <= M:
        plans.append(["flash_optimal", {"Bc": 1, "Br": min(N, (M - d) // (2 * d + 3))}])
    if 2 * d + 3 <= M:
        rows = min(N, (M - d) // (d + 3))
        Bd, Bo = costs.best_pair(
            lambda Bd, Bo: costs.scores_stored_tiled(N, d, Br=rows, Bo=Bo, Bd=Bd).total,
            extent=d,
            partner=lambda b: min(N, (M - b) // (b + 2)),
        )
        plans.append(["scores_stored_tiled", {"Bd": Bd, "Bo": Bo, "Br": rows}])
        plans.append(["scores_stored", {"Br": rows}])
    return min(plans, key=lambda plan: total_of(plan, N, d))


def cut_to_the_arrays(N, d, M):
    """A loop over rows for all, sizes cut to N and d, and the footprint asked of the closed form."""
    plans = []
    for Br in range(1, N + 1):
        free = M - 2 * Br
        plans.append(("flash_optimal", {"Br": Br, "Bc": 1}))
        plans.append(("scores_stored", {"Br": Br}))
        wide, columns = min(N, (free - Br) // (Br + 1)), min(d, free // (Br + 1))
        plans.append(("small_cache", {"Br": Br, "Bc": wide, "Bd": columns}))
    rows = min(N, (M - d) // (d + 3))
    slices = {-(-d // k) for k in range(1, d + 1)}
    plans += [
        ("scores_stored_tiled", {"Br": rows, "Bo": min(N, (M - w) // (w + 2)), "Bd": w}) for w in slices
    ]
    there = [(name, tiles) for name, tiles in plans if min(tiles.values()) >= 1]
    ranked = sorted(there, key=lambda plan: total_of(plan, N, d))
    return next(plan for plan in ranked if getattr(costs, plan[0])(N, d, **plan[1]).peak <= M)


def library_plan(N, d, M):
    choice = schedules.best(N, d, M)
    return choice.schedule.name, choice.tiles


def by_the_border_alone(N, d, M):
    """The borders of 7.6 in place of a search, with square tiles in F5."""
    if d * d < M:
        return "flash_optimal", {"Br": max(1, min(N, (M - d) // (2 * d + 3))), "Bc": 1}
    if d * d < 2 * M and d + 3 <= M - d:
        return "scores_stored", {"Br": (M - d) // (d + 3)}
    b = max(1, int((M + 4) ** 0.5) - 2)
    return "small_cache", {"Br": b, "Bc": b, "Bd": b}


F3_ROWS, F7_ROWS, F7D_ROWS = "(M - d) // (2 * d + 3)", "(M - d) // (d + 3)", "(M - Bd) // (Bd + 2)"
WITHOUT = "plans = [plan for plan in plans if plan[0] != '{}']\n    possible"


def without(name):
    """The reference, which never offers this schedule."""
    return Mutant(f"never-{name}", BEST, ("    possible", f"    {WITHOUT.format(name)}"))


PLAN = Suite(
    id="7D",
    mutants=(
        Mutant("as-many-rows-as-a-square-has", BEST, ("range(1, N + 1)", "range(1, int(M**0.5) + 1)")),
        Mutant(
            "a-row-that-just-fits-left-out", BEST, ("(M - d) // (2 * d + 3)", "(M - d - 1) // (2 * d + 3)")
        ),
        Mutant("statistics-forgotten", PLAN_FITS, ("(M - 3 * Br)", "(M - 2 * Br)")),
        Mutant("F3-with-room-for-queries-only", PLAN_FITS, (F3_ROWS, "(M - d) // d")),
        Mutant("F3-without-a-statistic", PLAN_FITS, (F3_ROWS, "(M - d) // (2 * d + 2)")),
        Mutant("F3-one-word-generous", PLAN_FITS, (F3_ROWS, "(M - d + 1) // (2 * d + 3)")),
        Mutant("F3-one-word-short", BEST, (F3_ROWS, "(M - d - 1) // (2 * d + 3)")),
        Mutant("F3-one-word-a-row-too-many", BEST, (F3_ROWS, "(M - d) // (2 * d + 4)")),
        Mutant("F3-with-two-keys", PLAN_FITS, ('"Bc": 1', '"Bc": 2')),
        Mutant("F7-without-a-statistic", PLAN_FITS, (F7_ROWS, "(M - d) // (d + 2)")),
        Mutant("F7-one-word-generous", PLAN_FITS, (F7_ROWS, "(M - d + 1) // (d + 3)")),
        Mutant("F7-one-word-short", BEST, (F7_ROWS, "(M - d - 1) // (d + 3)")),
        Mutant("F7d-without-log-sums", PLAN_FITS, (F7D_ROWS, "(M - Bd) // (Bd + 1)")),
        Mutant("F7d-without-a-value", PLAN_FITS, (F7D_ROWS, "M // (Bd + 2)")),
        Mutant("F7d-one-word-short", BEST, (F7D_ROWS, "(M - Bd - 1) // (Bd + 2)")),
        Mutant("F7d-with-as-many-rows-as-F7", BEST, (F7D_ROWS, "one")),
        Mutant("F7d-in-one-slice", BEST, ("range(1, d + 1)", "[d]")),
        Mutant("F7d-in-powers-of-two", BEST, ("range(1, d + 1)", "{1, 2, 4, 8, 16, max(1, d // 2), d}")),
        Mutant("F7d-in-two-slices", BEST, ("range(1, d + 1)", "[-(-d // 2)]")),
        Mutant("F5-Bd-as-wide-as-d", PLAN_FITS, ('"Bc": Bc, "Bd": Bd', '"Bc": Bc, "Bd": d')),
        Mutant("F5-Bd-of-one", BEST, ('"Bc": Bc, "Bd": Bd', '"Bc": Bc, "Bd": 1')),
        Mutant("F5-no-wider-than-high", BEST, ('"Bc": Bc', '"Bc": min(Br, Bc)')),
        Mutant("F5-never-one-column", RUNS, (">= 1]", "> 1 or plan[0] != 'small_cache']")),
        Mutant("square-tiles", BEST, ("in range(1, N + 1)", "in [max(1, int((M + 4) ** 0.5) - 2)]")),
        Mutant("F3-rows-up-to-the-root", BEST, (F3_ROWS, "min(int(M**0.5), (M - d) // (2 * d + 3))")),
        *map(without, ("flash_optimal", "scores_stored", "scores_stored_tiled")),
        Mutant("never-small_cache", RUNS, ("    possible", f"    {WITHOUT.format('small_cache')}")),
        Mutant("most-words", BEST, ("return min(", "return max(")),
        Mutant("tiles-only", IS_PLAN, (".total)", ".total)[1]")),
        Mutant("not-whole", RUNS, ("//", "/")),
    ),
    right=(by_best_pair, cut_to_the_arrays),
    cheats=(
        (library_plan, OWN),
        (called("library_tiles", lambda N, d, M: ("small_cache", schedules.small_cache.tiles(N, d, M))), OWN),
        (schedules.best, OWN),
        (called("the_yardstick", lambda N, d, M: best_plan(N, d, M)[:2]), OWN),
        (called("always_one", lambda N, d, M: ("small_cache", {"Br": 1, "Bc": 1, "Bd": 1})), BEST),
        (by_the_border_alone, BEST),
        (called("name_only", lambda N, d, M: "small_cache"), IS_PLAN),
        (
            called("unknown_schedule", lambda N, d, M: ("naive", {"Br": 1, "Bc": 1, "Bm": 1, "Bn": 1})),
            IS_PLAN,
        ),
        (called("one_tile_short", lambda N, d, M: ("small_cache", {"Br": 1, "Bc": 1})), IS_PLAN),
    ),
)


# ---------------------------------------------------------------------- 7E
PAPER = "values equal the paper's formula A1ᵀ p A2"
NUDGED = "agrees with nudging X"
MASK = "right with a mask inside forward and backward"
ONCE = "calls forward once and backward once"


def as_the_paper_says(X, A1, A2, A3, Y, E, forward, backward):
    """f, h, q and p, with a maximum taken off."""
    S = A1 @ X @ A2.T
    f = np.exp(S - S.max(axis=1, keepdims=True))
    f /= f.sum(axis=1, keepdims=True)
    h = A3 @ Y
    fq = f * ((f @ h - E) @ h.T)
    return A1.T @ (fq - fq.sum(axis=1)[:, None] * f) @ A2


def with_X_on_the_other_side(X, A1, A2, A3, Y, E, forward, backward):
    """K = A2 Xᵀ in place of Q = A1 X: then dL/dX = dKᵀ A2."""
    K, V = A2 @ X.T, A3 @ Y
    dK = backward(A1, K, V, forward(A1, K, V) - E)[1]
    return np.einsum("ja,jb->ab", dK, A2)


def arrays_by_name(X, A1, A2, A3, Y, E, forward, backward):
    Q, V = A1 @ X, A3 @ Y
    return A1.T @ backward(Q=Q, K=A2, V=V, dO=forward(Q=Q, K=A2, V=V) - E)[0]


def gradient_word_by_word(X, A1, A2, A3, Y, E, forward, backward):
    """The last product as a sum over rows, and V turned twice."""
    Q, V = np.dot(A1, X), (Y.T @ A3.T).T
    dQ = backward(Q, A2, V, -(E - forward(Q, A2, V)))[0]
    return sum(np.outer(a, row) for a, row in zip(A1, dQ, strict=True))


def called_for_show(X, A1, A2, A3, Y, E, forward, backward):
    """The paper's formula beside two calls whose results are thrown away."""
    backward(A1 @ X, A2, A3 @ Y, forward(A1 @ X, A2, A3 @ Y))
    return as_the_paper_says(X, A1, A2, A3, Y, E, forward, backward)


def handed_back(X, A1, A2, A3, Y, E, forward, backward):
    return exact.grad_x(X, A1, A2, A3, Y, E)


def by_differences(X, A1, A2, A3, Y, E, forward, backward):
    """What the loss does when each word is nudged: nearly, and nearly is not equal."""
    G, h = np.zeros(X.shape), 1e-5
    for at in np.ndindex(*X.shape):
        nudge = np.zeros(X.shape)
        nudge[at] = h
        up, down = (((forward(A1 @ (X + w * nudge), A2, A3 @ Y) - E) ** 2).sum() for w in (1, -1))
        G[at] = (up - down) / (4 * h)
    return G


GRADIENT = Suite(
    id="7E",
    mutants=(
        Mutant("E-forgotten", NUDGED, (" - E ", " ")),
        Mutant("E-forgotten-values", PAPER, (" - E ", " ")),
        Mutant("sign", NUDGED, ("dO = forward(Q, A2, V) - E", "dO = E - forward(Q, A2, V)")),
        Mutant("Y-forgotten", NUDGED, ("A3 @ Y", "A3")),
        Mutant("X-forgotten", NUDGED, ("A1 @ X", "A1")),
        Mutant("dK-for-dQ", NUDGED, ("dQ, _, _ =", "_, dQ, _ =")),
        Mutant("A2-for-A1", NUDGED, ("A1.T @ dQ", "A2.T @ dQ")),
        Mutant("turned", NUDGED, ("A1.T @ dQ", "dQ.T @ A1")),
        Mutant("stops-at-dQ", NUDGED, ("return A1.T @ dQ", "return dQ")),
        Mutant("scaled", NUDGED, ("backward(Q, A2", "backward(Q / X.shape[0] ** 0.5, A2")),
        Mutant("E-written-over", RUNS, ("dO = forward(Q, A2, V) - E", "E -= forward(Q, A2, V); dO = -E")),
        Mutant("twice", PAPER, ("return A1.T", "return 2 * A1.T")),
        Mutant("forward-twice", ONCE, ("dQ, _, _", "O = forward(Q, A2, V); dQ, _, _")),
    ),
    right=(with_X_on_the_other_side, gradient_word_by_word, arrays_by_name),
    cheats=(
        (handed_back, OWN),
        (exact.grad_x, OWN),
        (called("no_gradient", lambda X, A1, A2, A3, Y, E, forward, backward: np.zeros(X.shape)), PAPER),
        (by_differences, PAPER),
        (by_differences, ONCE),
        (as_the_paper_says, ONCE),
        (called_for_show, MASK),
    ),
)

# ---------------------------------------------------------------------- 7F
TO_THE_WORD = "fits in the footprint of (7.6), to the word"
L_ONCE = "LSE is read once"


def all_in_with_blocks(m, Q, K, V, *, Br, Bo, Bd):
    """Every tile ends with its block; the scores are scaled by their keys."""
    N, d = Q.shape
    S, L, O = m.new("S", (N, N)), m.new("LSE", (N,)), m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.row_stats(i) as stats:
            for j in m.blocks(N, 1):
                with m.load(K, j) as k:
                    k *= d**-0.5
                    with q @ k.T as s:
                        m.store(s, S, i, j)
                        stats.update(s)
            m.store(stats.lse(), L, i)
    for i in m.blocks(N, Bo):
        with m.load(L, i) as log_sums:
            for c in m.blocks(d, Bd):
                with m.zeros(i, c) as o:
                    for j in m.blocks(N, 1):
                        with m.load(V, j, c) as v, m.load(S, i, j) as s:
                            o.add_matmul(probabilities(s, log_sums), v)
                    m.store(o, O, i, c)
    return O


def names_taken_over(m, Q, K, V, *, Br, Bo, Bd):
    """Keys backwards, by whole numbers; each new block takes the place of the last."""
    N, d = Q.shape
    O, S, LSE = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    q = L = None
    for i in m.blocks(N, Br):
        q = m.load(Q, i, into=q)
        q /= d**0.5
        stats = m.row_stats(i)
        for j in reversed(range(N)):
            with m.load(K, j) as k, q @ k.T as s:
                m.store(s, S, i, (j, j + 1))
                stats.update(s)
        m.store(stats.lse(), LSE, i)
        stats.free()
    q.free()
    for i in m.blocks(N, Bo):
        L = m.load(LSE, i, into=L)
        for c in m.blocks(d, Bd):
            o = m.zeros(i, c)
            for j in reversed(range(N)):
                with m.load(S, i, (j, j + 1)) as s, m.load(V, j, c) as v:
                    s -= L[:, None]
                    np.exp(s, out=s)
                    o.add_matmul(s, v)
            m.store(o, O, i, c)
            o.free()
    return O


def as_found(m, Q, K, V, *, Br, Bo, Bd):
    """The schedule before it is repaired."""
    N, d = Q.shape
    O, S, LSE = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    for i in m.blocks(N, Br):
        q = m.load(Q, i)
        q *= d**-0.5
        with m.row_stats(i) as stats:
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:
                    m.store(s, S, i, j)
                    stats.update(s)
            m.store(stats.lse(), LSE, i)
    for i in m.blocks(N, Bo):
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:
                for j in m.blocks(N, 1):
                    with m.load(LSE, i) as L, m.load(S, i, j) as s, m.load(V, j, c) as v:
                        o.add_matmul(probabilities(s, L), v)
                m.store(o, O, i, c)
    return O


def cut_into_small_tiles(m, Q, K, V, *, Br, Bo, Bd):
    """A remedy for the peak alone: tiles so small that a block too many fits."""
    return as_found(m, Q, K, V, Br=max(1, Br // 2), Bo=max(1, Bo // 2), Bd=Bd)


def rows_stay_in_F5(m, Q, K, V, *, Br, Bo, Bd):
    """Another schedule of lesson 07, right: columns of Q and K pass."""
    return statistics_by_hand(m, Q, K, V, Br=Br, Bc=1, Bd=Bd)


FREED, LOADED_ONCE = "        q.free()", "        L = m.load(LSE, i)"
USED = "with m.load(S, i, j) as s, m.load(V, j, c) as v:"

REPAIR = Suite(
    id="7F",
    mutants=(
        Mutant("the-last-queries-stay", TO_THE_WORD, (FREED, "        pass")),
        Mutant(
            "queries-freed-by-the-next-ones",
            TO_THE_WORD,
            (f"{FREED}\n", ""),
            ("    for i in m.blocks(N, Bo)", "    q.free()\n    for i in m.blocks(N, Bo)"),
        ),
        Mutant(
            "log-sums-for-every-key",
            L_ONCE,
            (LOADED_ONCE, "        pass"),
            (USED, USED.replace("with ", "with m.load(LSE, i) as L, ")),
            ("        L.free()", "        pass"),
        ),
        Mutant(
            "log-sums-for-every-slice",
            L_ONCE,
            (LOADED_ONCE, "        pass"),
            ("with m.zeros(i, c) as o:", "with m.load(LSE, i) as L, m.zeros(i, c) as o:"),
            ("        L.free()", "        pass"),
        ),
        Mutant(
            "all-log-sums-stay",
            TO_THE_WORD,
            (LOADED_ONCE, "        every = m.load(LSE, (0, N)); L = every[i.start : i.stop]"),
            ("        L.free()", "        every.free()"),
        ),
        Mutant("log-sums-of-the-first-block", RUNS, (LOADED_ONCE, "        L = m.load(LSE, (0, 1))")),
        Mutant(
            "queries-freed-too-early",
            RUNS,
            (FREED, "        pass"),
            ("with m.row_stats(i)", "q.free()\n        with m.row_stats(i)"),
        ),
        Mutant(
            "scores-read-for-every-column", "S is read ⌈d/Bd⌉ times", ("m.blocks(d, Bd)", "m.blocks(d, 1)")
        ),
        Mutant("smaller-tiles-of-output", "V is read ⌈N/Bo⌉ times", ("m.blocks(N, Bo)", "m.blocks(N, 1)")),
        Mutant("smaller-blocks-of-queries", K_PASSES, ("m.blocks(N, Br)", "m.blocks(N, 1)")),
        Mutant("output-stored-for-each-key", "O is written once", ("L), v)", "L), v); m.store(o, O, i, c)")),
        Mutant(
            "log-sums-stored-after-each-key",
            "LSE is written once",
            ("stats.update(s)", "stats.update(s)\n            m.store(stats.m, LSE, i)"),
        ),
        Mutant("missing-scale", VALUES, ("q *= d**-0.5", "pass")),
        Mutant("exponentials-without-the-sum", VALUES, ("stats.lse()", "stats.m")),
    ),
    right=(all_in_with_blocks, names_taken_over),
    cheats=(
        (as_found, TO_THE_WORD),
        (as_found, L_ONCE),
        (cut_into_small_tiles, L_ONCE),
        (cut_into_small_tiles, K_PASSES),
        (rows_stay_in_F5, Q_ONCE),
        (schedules.scores_stored_tiled, OWN),
        (
            called(
                "library_inside",
                lambda m, Q, K, V, Br, Bo, Bd: schedules.scores_stored_tiled(m, Q, K, V, Br=Br, Bo=Bo, Bd=Bd),
            ),
            OWN,
        ),
    ),
)

SUITES = (TILE, SMALL, STORED, PLAN, GRADIENT, REPAIR)
