"""Lesson 15: alternative correct answers, and wrong answers that no recorded mutant covers."""

from math import factorial, prod

import numpy as np
from harness import Mutant, Suite, as_scratch

# ---------------------------------------------------------------------- 15A


def nested(X, g):
    """Compute block i of a degree as x_i times the lower monomials that begin with i or later."""
    N, d = X.shape
    exponents, values = [(0,) * d], [np.ones(N)]
    level = [(tuple(int(i == j) for j in range(d)), X[:, i], i) for i in range(d)]
    for _ in range(g):
        exponents += [e for e, _, _ in level]
        values += [v for _, v, _ in level]
        level = [
            (tuple(n + (j == i) for j, n in enumerate(e)), X[:, i] * v, i)
            for i in range(d)
            for e, v, first in level
            if first >= i
        ]
    return np.array([v / np.sqrt(prod(map(factorial, e))) for e, v in zip(exponents, values, strict=True)]).T


FEATURES = Suite("15A", right=nested)


# ---------------------------------------------------------------------- 15B
def by_companion_matrix(make, R, error):
    """Find the same roots by np.roots on reversed coefficients, with a generator over degrees."""

    def worst(c):
        c = np.asarray(c)
        rest = np.append(c[1:] * np.arange(1, len(c)), 0) - c
        found = [x.real for x in np.roots(rest[::-1]) if abs(x.imag) < 1e-8 and -R < x.real < R]
        return max(abs(sum(a * s**l for l, a in enumerate(c)) * np.exp(-s) - 1) for s in (*found, -R, R))

    return next((g, worst(make(g, R))) for g in range(1, 200) if worst(make(g, R)) <= error)


DEGREE = Suite(
    "15B",
    right=by_companion_matrix,
    wrong={
        "no operator makes it": (
            Mutant(
                "error-right-degree-wrong",
                "returns the smallest degree",
                ("return g, largest", "return g + 1, largest"),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 15C
def values_in_one_tile(m, Q, K, V, *, phi, psi):
    """Use a separate tile for row sums, rows by number, explicit free(), and scaled keys."""
    N, d = Q.shape
    O, r = m.new("O", (N, d)), len(phi)
    T, sums = m.zeros(r, d), m.zeros(r, 1)
    for j in range(N):
        k = m.load(K, (j, j + 1))
        k *= d**-0.5
        v = m.load(V, j)
        psi.add_outer(T, k, v)
        psi.add_outer(sums, k)
        k.free()
        v.free()
    for i in range(N):
        q, o, l = m.load(Q, i), m.zeros(1, d), m.zeros(1, 1)
        phi.add_matmul(o, q, T)
        phi.add_matmul(l, q, sums)
        o /= l
        m.store(o, O, i)
        for tile in (q, o, l):
            tile.free()
    return O


TWO_PASSES = Suite(
    "15C",
    right=values_in_one_tile,
    wrong={
        "no operator makes it": (
            as_scratch("Q", "q *=", "m.store(q, Q, i)", "moves at most 4Nd words for every rank"),
        )
    },
)

# ---------------------------------------------------------------------- 15D
NO_PAIRS = "does not compute the scores of all pairs"


def squared_lengths(Q, K, c):
    """Compare squares instead of roots of sums, and find real roots by np.roots."""
    found = np.roots(np.trim_zeros(np.asarray(c)[::-1], "f"))
    nearest = min((abs(x.real) for x in found if abs(x.imag) < 1e-8 * (1 + abs(x))), default=np.inf)
    return (Q**2).sum(axis=1) * (K**2).sum(axis=1).max() < nearest**2


def ones_and_zeros(Q, K, c):
    """Return 1 for a safe row and 0 otherwise."""
    return squared_lengths(Q, K, c).astype(int)


def right_and_by_all_pairs(Q, K, c):
    reach = abs(Q @ K.T).max(axis=1)
    return squared_lengths(Q, K, c) & (reach < np.inf)


SAFE = Suite(
    "15D",
    right=ones_and_zeros,
    wrong={
        "right, by work that is not allowed": ((right_and_by_all_pairs, NO_PAIRS),),
        "no operator makes it": (
            Mutant(
                "negative-roots-only",
                "positive roots count like negative ones",
                ("abs(real).min(initial=np.inf)", "-real[real < 0].max(initial=-np.inf)"),
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 15E
def a_pass_for_the_row_sums(state, sums, psi, k, v, first):
    """Add a key and its value to the state."""
    if first:
        psi.add_outer(sums, k)
    psi.add_outer(state, k, v)


def in_two_functions(m, Q, K, V, *, phi, psi, Bd):
    """Keep the state in a `with`, add keys by a function, and use numbers for blocks."""
    N, d = Q.shape
    O, sums = m.new("O", (N, d)), m.zeros(len(psi), 1)
    for start in range(0, d, Bd):
        c = (start, min(start + Bd, d))
        with m.zeros(len(psi), c[1] - c[0]) as state:
            for j in range(N):
                with m.load(V, (j, j + 1), c) as v, m.load(K, (j, j + 1)) as k:
                    a_pass_for_the_row_sums(state, sums, psi, k, v, start == 0)
            for i in range(N):
                q, o, l = m.load(Q, (i, i + 1)), m.zeros(1, c[1] - c[0]), m.zeros(1, 1)
                q *= d**-0.5
                phi.add_matmul(l, q, sums)
                phi.add_matmul(o, q, state)
                o /= l
                m.store(o, O, (i, i + 1), c)
                for tile in (q, o, l):
                    tile.free()
    return O


REPAIR = Suite(
    "15E",
    right=in_two_functions,
    wrong={
        "no operator makes it": (
            as_scratch("Q", "q *=", "m.store(q, Q, i)", "moves at most 2Nd words per iteration plus 2Nd"),
        )
    },
)

SUITES = (FEATURES, DEGREE, TWO_PASSES, SAFE, REPAIR)
