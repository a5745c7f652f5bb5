"""Lesson 09: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite, as_scratch

from iocourse.machine import probabilities

# ---------------------------------------------------------------------- 9A
SEQUENCE = "returns words and a list of passes"


def every_sequence(sweeps, x, state, goal):
    """Enumerate all sequences one pass at a time, and take the cheapest."""
    open_ends, whole = [(state, [])], []
    while open_ends:
        at, path = open_ends.pop()
        if at == goal:
            whole.append(path)
        else:
            open_ends += [(sweep[3], [*path, sweep]) for sweep in sweeps[at]]
    words = [sum(len(r.split()) * len(t.split()) * x * x + n for r, t, n, _ in path) for path in whole]
    least = int(np.argmin(words))
    return words[least], tuple(whole[least])


SEARCH = Suite(
    "9A",
    right=every_sequence,
    wrong={
        "half of the result": (
            Mutant(
                "words-alone",
                SEQUENCE,
                ("key=lambda one: one[0])", "key=lambda one: one[0])[0]"),
                ("return 0, []", "return 0"),
                ("rest, path =", "rest ="),
                ("[sweep, *path]", "0"),
            ),
        ),
        "no operator makes it": (
            Mutant(
                "words-right-passes-wrong",
                "the words equal those of the passes",
                (
                    "return min(found, key=lambda one: one[0])",
                    "return min(found, key=lambda one: one[0])[0], max(found, key=lambda one: one[0])[1]",
                ),
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 9B
def in_arrays(N, d, M, pass_):
    """Evaluate each form as a multiple of Nd with NumPy's maximum; return a list."""
    x, y, slices = np.sqrt(M), M / (N * d), np.maximum(1, d / np.sqrt(M))
    squares = N / d * (1 + slices)
    if pass_ == "forward":
        found = [
            ("F5", 1 + 3 * np.maximum(1, N / x) + squares),
            ("F3", 2 + np.maximum(2, 4 / y)),
            ("F7", 2 + np.maximum(2, 2 / y) + 2 * N / d),
        ]
    else:
        found = [
            ("B5", 5 + 7 * np.maximum(1, N / x) + 3 * squares),
            ("B4", 8 + np.maximum(2, 6 / y) + np.maximum(2, 8 / y)),
            ("B3", 5 + np.maximum(4, 16 / y)),
            ("B7", 6 + 3 * np.maximum(1, 1 / y) + np.maximum(1, 2 / y) + 5 * N / d),
            ("B6", 6 + np.maximum(2, 8 / y) + np.maximum(1, 1 / y) + 2 * N / d),
        ]
    sign, times = min(found, key=lambda one: one[1])
    return [sign, times * N * d]


ENVELOPE = Suite(
    "9B",
    right=in_arrays,
    wrong={
        "no operator makes it": (
            Mutant(
                "words-right-label-wrong",
                "the label is that of the best schedule",
                (
                    "return min(words.items(), key=lambda item: item[1])",
                    "return max(words, key=words.get), min(words.values())",
                ),
            ),
            Mutant(
                "label-right-words-wrong",
                "returns the words of the best schedule for every M",
                (
                    "return min(words.items(), key=lambda item: item[1])",
                    "return min(words, key=words.get), max(words.values())",
                ),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 9C
def D_from_dP(m, Q, K, V, dO, LSE, *, Br):
    """Compute D as Σ_j p_ij dp_ij, count queries explicitly, and start dq at zero."""
    N, d = Q.shape
    out = {name: m.new(name, (N, d)) for name in ("dQ", "dK", "dV")}
    everything = (0, N)
    k, v = m.load(K, everything), m.load(V, everything)
    dk, dv = m.zeros(N, d), m.zeros(N, d)
    for start in range(0, N, Br):
        i = (start, min(start + Br, N))
        rows = i[1] - i[0]
        do, D = m.load(dO, i), m.zeros(rows)
        with m.load(Q, i) as q, m.load(LSE, i) as L:
            p = q @ k.T
            p *= d**-0.5
            probabilities(p, L)
            with do @ v.T as dp:
                D.add_row_dots(p, dp)
            dv.add_matmul(p.T, do)
            p.multiply_by_matmul(do, v.T, less=D)
            p *= d**-0.5
            do.free()
            dk.add_matmul(p.T, q)
        with m.zeros(rows, d) as dq:
            dq.add_matmul(p, k)
            m.store(dq, out["dQ"], i)
        p.free()
        D.free()
    m.store(dk, out["dK"], everything)
    m.store(dv, out["dV"], everything)
    return out["dQ"], out["dK"], out["dV"]


BACKWARD = Suite(
    "9C",
    right=D_from_dP,
    wrong={
        "no operator makes it": (
            as_scratch("Q", "probabilities(s, L_i)", "m.store(q, Q, i)", "moves at most 7Nd + N words"),
        )
    },
)


# ---------------------------------------------------------------------- 9D
def keys_with(m, Q, K, V, dO, LSE, D, *, Bc, Br):
    N, d = Q.shape
    dS, dK, dV = m.new("dS", (N, N)), m.new("dK", (N, d)), m.new("dV", (N, d))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):
                with (
                    m.load(Q, i) as q,
                    m.load(dO, i) as do,
                    m.load(LSE, i) as L,
                    m.load(D, i) as D_i,
                ):
                    q *= d**-0.5
                    with q @ k.T as s:
                        dv.add_matmul(probabilities(s, L).T, do)
                        s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        m.store(s, dS, i, j)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dS, dK, dV


def one_row_later(m, Q, K, V, dO, LSE, D, *, Bc):
    """Use the library's loop with one query per block."""
    return keys_with(m, Q, K, V, dO, LSE, D, Bc=Bc, Br=1)


KEYS = Suite(
    "9D",
    right=one_row_later,
    wrong={
        "no operator makes it": (
            as_scratch("Q", "q *=", "m.store(q, Q, i)", "moves no more words than (9.4)"),
        )
    },
)

SUITES = (SEARCH, ENVELOPE, BACKWARD, KEYS)
