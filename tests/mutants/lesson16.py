"""Lesson 16: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite, as_scratch

from iocourse.monomials import coordinates

# ---------------------------------------------------------------------- 16A
SMALL, LINEAR = (
    "holds little more than its inputs",
    "the work grows linearly with the number of tokens",
)


def column_of_x_by_column(Phi, Psi, G, h, x):
    """Compute the two parts of p separately, column by column of x and of h."""
    found = []
    delta = np.einsum("ic,ic->i", G, Phi.dot(Psi.T.dot(h)))
    for column in x.T:
        total = -delta * (Phi @ (Psi.T @ column))
        for g, v in zip(G.T, h.T, strict=True):
            total = total + g * (Phi @ (Psi.T @ (v * column)))
        found.append(total)
    return np.stack(found, axis=1)


def row_by_row(Phi, Psi, G, h, x):
    """Use little memory but quadratic work."""
    found = []
    for phi, g in zip(Phi, G, strict=True):
        f = Psi @ phi
        p = f * (h @ g)
        found.append((p - p.sum() * f) @ x)
    return np.array(found)


def row_by_row_unseen(Phi, Psi, G, h, x):
    """Do the same without being counted."""
    return row_by_row(*(np.asarray(array) for array in (Phi, Psi, G, h, x)))


def kronecker_built(Phi, Psi, G, h, x):
    delta = (G * (Phi @ (Psi.T @ h))).sum(axis=1, keepdims=True)
    Ge, Ve = np.hstack([G, -delta]), np.hstack([h, np.ones((len(h), 1))])
    left = (Phi[:, :, None] * Ge[:, None, :]).reshape(len(G), -1)
    right = (Psi[:, :, None] * Ve[:, None, :]).reshape(len(h), -1)
    return left @ (right.T @ x)


PRODUCT = Suite(
    "16A",
    right=column_of_x_by_column,
    wrong={"right, by work that is not allowed": ((kronecker_built, SMALL), (row_by_row_unseen, LINEAR))},
)

# ---------------------------------------------------------------------- 16B
ONE_PASS = "the number of passes does not grow with d"


def factor_by_factor(df, f, x, p):
    """Use the list of coordinates of each feature instead of the steps."""
    table = coordinates(p)
    factors = np.vstack([x.T, np.ones(len(x))])[table]
    dx = np.zeros((x.shape[1] + 1, len(x)))
    for at in range(len(table)):
        np.add.at(dx, table[at], df * np.delete(factors, at, axis=0).prod(axis=0))
    return dx[:-1].T


def by_tangents(df, f, x, p):
    """Use forward mode, one coordinate at a time: derivatives of the features, then a sum."""
    columns = []
    for axis in range(x.shape[1]):
        slope = np.zeros_like(f)
        slope[1 + axis] = 1.0
        for step in p.steps:
            made = slice(step.first, step.last)
            source = slice(step.source, step.source + step.last - step.first)
            slope[made] = slope[source] * x[:, step.axis] + (f[source] if step.axis == axis else 0.0)
        columns.append((df * slope).sum(axis=0))
    return np.array(columns).T


PULL_BACK = Suite(
    "16B",
    right=factor_by_factor,
    wrong={"no recorded mutant fails this property alone": ((by_tangents, ONE_PASS),)},
)

# ---------------------------------------------------------------------- 16C
FITS = "fits in fast memory"


def by_hand(m, Q, K, V, dO, T, *, phi, psi):
    """Use explicit free(), -δ by a product, dO scaled before its copy, and dV before dK."""
    N, d = Q.shape
    t, U = m.load(T, (0, len(phi))), m.full(len(phi), d + 1)
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    for i in range(N):
        q, do, both = m.load(Q, (i, i + 1)), m.load(dO, (i, i + 1)), m.zeros(1, d + 1)
        phi.add_matmul(both, q, t)
        do /= both[:, d:]
        ge = m.zeros(1, d + 1)
        ge[:, :d] = do
        ge[:, d:].add_matmul(do, both[:, :d].T)
        ge[:, d:] /= both[:, d:]
        ge[:, d:] *= -1.0
        phi.add_outer(U, q, ge)
        both.free()
        dq = m.zeros(1, d)
        phi.add_gradient(dq, q, t, ge)
        m.store(dq, dQ, (i, i + 1))
        for tile in (q, do, ge, dq):
            tile.free()
    t.free()
    for j in range(N):
        k, one = m.load(K, (j, j + 1)), m.full(1, d + 1, 1.0)
        with m.zeros(1, d) as dv:
            psi.add_matmul(dv, k, U[:, :d])
            m.store(dv, dV, (j, j + 1))
        with m.load(V, (j, j + 1)) as v:
            one[:, :d] = v
        with m.zeros(1, d) as dk:
            psi.add_gradient(dk, k, U, one)
            m.store(dk, dK, (j, j + 1))
        k.free()
        one.free()
    return dQ, dK, dV


SWEEPS = Suite(
    "16C",
    right=by_hand,
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant(
                "T-stays",
                FITS,
                (
                    "with m.load(T, (0, r)) as t:",
                    "t = m.load(T, (0, r))\n    spare = m.zeros(r, d + 1)\n    if True:",
                ),
            ),
        ),
        "no operator makes it": (
            as_scratch("dO", "ge *=", "m.store(do, dO, i)", "moves at most 7Nd words and the state"),
        ),
    },
)


# ---------------------------------------------------------------------- 16D
def states_first(Q, K, V, phi, w, B):
    """Accumulate the states of all tiles, then process the queries of all tiles."""
    starts = range(0, len(Q), B)
    V1 = np.append(V, np.ones((len(V), 1)), axis=1)
    own = np.array([w * (phi(K[at : at + B]) @ V1[at : at + B]) for at in starts])
    before = np.cumsum(own, axis=0) - own
    O = np.zeros(V.shape)
    for T, at in zip(before, starts, strict=True):
        q, k = Q[at : at + B], K[at : at + B]
        seen = np.tri(len(q), dtype=bool)
        both = phi(q).T @ T + np.where(seen, np.exp(q @ k.T), 0.0) @ V1[at : at + B]
        O[at : at + B] = both[:, :-1] / both[:, -1:]
    return O


CAUSAL = Suite(
    "16D",
    right=states_first,
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant(
                "prefix-made-anew",
                LINEAR,
                ("        q, k, v1 =", "        T = w * (phi(K[:at]) @ V1[:at])\n        q, k, v1 ="),
            ),
        ),
        "no operator makes it": (
            Mutant(
                "without-itself",
                "uses the exact exp within a tile",
                ("np.tril(np.exp(q @ k.T))", "np.tril(np.exp(q @ k.T), -1)"),
            ),
        ),
    },
)

SUITES = (PRODUCT, PULL_BACK, SWEEPS, CAUSAL)
