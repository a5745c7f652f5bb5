"""Lesson 07: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import MOST, Mutant, Suite, as_scratch

from iocourse import costs
from iocourse.machine import probabilities


# ---------------------------------------------------------------------- 7A
def columns_by_range(m, Q, K, i, j):
    """Start at the last column, address blocks by integers, and apply the scale at the end."""
    s = m.zeros(i.size, j.size)
    for c in reversed(range(Q.shape[1])):
        q, k = m.load(Q, (i.start, i.stop), (c, c + 1)), m.load(K, (j.start, j.stop), (c, c + 1))
        s.add_matmul(q, k.T)
        q.free()
        k.free()
    s /= np.sqrt(Q.shape[1])
    return s


TILE = Suite(
    "7A",
    right=columns_by_range,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i, c)", MOST),)},
)


# ---------------------------------------------------------------------- 7B
def my_tile(m, Q, K, i, j):
    s = m.zeros(i, j)
    for c in m.blocks(Q.shape[1], 1):
        with m.load(Q, i, c) as q, m.load(K, j, c) as k:
            q *= Q.shape[1] ** -0.5
            s.add_matmul(q, k.T)
    return s


def sums_freed_first(m, Q, K, V, *, Br, Bc, Bd):
    """Use exactly the footprint of (7.3), and one scratch array per block."""
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


SMALL = Suite(
    "7B",
    right=sums_freed_first,
    wrong={"no operator makes it": (as_scratch("V", "o.add_matmul", "m.store(v, V, j, c)", MOST),)},
)


# ---------------------------------------------------------------------- 7C
def footprint_to_the_word(m, Q, K, V, *, Br):
    """Transpose keys after loading them, and free the sums once the log-sum-exp is computed."""
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


BLOCKS, ONE = (
    "the result does not depend on the block size",
    ("L = stats.lse()", "L = stats.lse(); L[:] = L.max()"),
)
STORED = Suite(
    "7C",
    right=footprint_to_the_word,
    wrong={
        "on every seed": (Mutant("one-sum-for-all", BLOCKS, ONE),),
        "no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),),
    },
)


# ---------------------------------------------------------------------- 7D
def total_of(plan, N, d):
    return getattr(costs, plan[0])(N, d, **plan[1]).total


def by_best_pair(N, d, M):
    """Search once per schedule, over useful sizes only, and return NumPy integers."""

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


PLAN = Suite(
    "7D",
    right=by_best_pair,
    wrong={
        "no operator makes it": (
            Mutant(
                "never-fills-M",
                "no plan that fits moves fewer words",
                ("both, one =", "M = max(5, M - 1)\n    both, one ="),
            ),
            Mutant(
                "a-right-name",
                "no plan that fits moves fewer words",
                ("return min(possible", "best = min(possible"),
                (".total)", ".total)\n    return best[0], dict.fromkeys(best[1], 1)"),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 7E
ONCE = "calls forward once and backward once"


def gradient_word_by_word(X, A1, A2, A3, Y, E, forward, backward):
    """Compute the last product as a sum over rows, and transpose V twice."""
    Q, V = np.dot(A1, X), (Y.T @ A3.T).T
    dQ = backward(Q, A2, V, -(E - forward(Q, A2, V)))[0]
    return sum(np.outer(a, row) for a, row in zip(A1, dQ, strict=True))


GRADIENT = Suite(
    "7E",
    right=gradient_word_by_word,
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant("forward-twice", ONCE, ("dQ, _, _", "O = forward(Q, A2, V); dQ, _, _")),
        ),
        "no operator makes it": (
            Mutant(
                "backward-twice",
                "calls forward once and backward once",
                ("dQ, _, _ =", "backward(Q, A2, V, dO)\n    dQ, _, _ ="),
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 7F
def names_taken_over(m, Q, K, V, *, Br, Bo, Bd):
    """Visit keys in reverse by integers; each new block reuses the buffer of the previous one."""
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


REPAIR = Suite(
    "7F",
    right=names_taken_over,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),)},
)

SUITES = (TILE, SMALL, STORED, PLAN, GRADIENT, REPAIR)
