"""Lesson 16: the low-rank gradient. Mistakes students make, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import exact, lowrank
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises.lesson16 import slopes
from iocourse.lowrank import paper_gradient
from iocourse.lowrank.approximation import Approximation
from iocourse.lowrank.numpy_backend import causal_forward
from iocourse.monomials import coordinates, features_vjp, plan

# ---------------------------------------------------------------------- 16A
PRODUCT_VALUES, ZERO = "p x is right", "rows of p sum to zero"
SMALL, LINEAR = "nothing larger than the inputs is built", "twice the tokens take twice the work"


def by_states(Phi, Psi, G, h, x):
    """One state (r, dv + 1, m) for all columns, in one einsum."""
    O = Phi @ (Psi.T @ h)
    Ge = np.concatenate([G, -np.sum(G * O, axis=1)[:, None]], axis=1)
    Ve = np.concatenate([h, np.ones_like(h[:, :1])], axis=1)
    state = np.einsum("ja,jc,jm->acm", Psi, Ve, x)
    return np.einsum("ia,ic,acm->im", Phi, Ge, state)


def column_of_x_by_column(Phi, Psi, G, h, x):
    """The two parts of p by themselves, column by column of x and of h."""
    found = []
    delta = np.einsum("ic,ic->i", G, Phi.dot(Psi.T.dot(h)))
    for column in x.T:
        total = -delta * (Phi @ (Psi.T @ column))
        for g, v in zip(G.T, h.T, strict=True):
            total = total + g * (Phi @ (Psi.T @ (v * column)))
        found.append(total)
    return np.stack(found, axis=1)


def columns_of_x_at_once(Phi, Psi, G, h, x):
    """Ve's columns times those of x, side by side: (Nk, (dv + 1) m), no wider than Phi."""
    O = Phi @ (Psi.T @ h)
    Ge = np.hstack([G, -(G * O).sum(axis=1, keepdims=True)])
    Ve = np.hstack([h, np.ones((len(h), 1))])
    state = Psi.T @ (Ve[:, :, None] * x[:, None, :]).reshape(len(h), -1)
    return (Ge[:, :, None] * (Phi @ state).reshape(*Ge.shape, -1)).sum(axis=1)


def dense_p(Phi, Psi, G, h, x):
    f = Phi @ Psi.T
    p1 = f * (G @ h.T)
    return (p1 - p1.sum(axis=1, keepdims=True) * f) @ x


def row_by_row(Phi, Psi, G, h, x):
    """Little is held, and the work is quadratic."""
    found = []
    for phi, g in zip(Phi, G, strict=True):
        f = Psi @ phi
        p = f * (h @ g)
        found.append((p - p.sum() * f) @ x)
    return np.array(found)


def row_by_row_unseen(Phi, Psi, G, h, x):
    """The same past the counter."""
    return row_by_row(*(np.asarray(array) for array in (Phi, Psi, G, h, x)))


def kronecker_one_side_at_a_time(Phi, Psi, G, h, x):
    delta = (G * (Phi @ (Psi.T @ h))).sum(axis=1, keepdims=True)
    Ve = np.hstack([h, np.ones((len(h), 1))])
    state = (Psi[:, :, None] * Ve[:, None, :]).reshape(len(h), -1).T @ x
    return (Phi[:, :, None] * np.hstack([G, -delta])[:, None, :]).reshape(len(G), -1) @ state


def kronecker_built(Phi, Psi, G, h, x):
    delta = (G * (Phi @ (Psi.T @ h))).sum(axis=1, keepdims=True)
    Ge, Ve = np.hstack([G, -delta]), np.hstack([h, np.ones((len(h), 1))])
    left = (Phi[:, :, None] * Ge[:, None, :]).reshape(len(G), -1)
    right = (Psi[:, :, None] * Ve[:, None, :]).reshape(len(h), -1)
    return left @ (right.T @ x)


def library_product(Phi, Psi, G, h, x):
    wide = paper_gradient.row_wise_kronecker
    delta = (G * (Phi @ (Psi.T @ h))).sum(axis=1, keepdims=True)
    ones = np.ones((len(h), 1))
    return wide(Phi, np.hstack([G, -delta])) @ (wide(Psi, np.hstack([h, ones])).T @ x)


PRODUCT = Suite(
    id="16A",
    mutants=(
        Mutant("delta-left-out", ZERO, ("Ge = np.hstack([G, -(G * O)", "Ge = np.hstack([G, -0 * (G * O)")),
        Mutant("delta-with-plus", ZERO, ("-(G * O).sum", "+(G * O).sum")),
        Mutant("delta-from-h", PRODUCT_VALUES, ("O = Phi @ (Psi.T @ h)", "O = Phi @ (Psi.T @ (h * h))")),
        Mutant("ones-left-out", ZERO, ("np.ones((len(h), 1))", "np.zeros((len(h), 1))")),
        Mutant("rows-not-scaled", PRODUCT_VALUES, ("g[:, None] * (Phi", "(Phi")),
        Mutant("columns-not-scaled", PRODUCT_VALUES, ("(v[:, None] * x)", "x")),
        Mutant("first-columns-only", PRODUCT_VALUES, ("zip(Ge.T, Ve.T,", "zip(Ge.T[:-1], Ve.T[:-1],")),
        Mutant("delta-over-keys", RUNS, ("len(G), x.shape[1]", "len(h), x.shape[1]")),
        Mutant(
            "f-built", SMALL, ("(Phi @ (Psi.T @ (v[:, None] * x)))", "((Phi @ Psi.T) @ (v[:, None] * x))")
        ),
        Mutant("x-emptied", RUNS, ("return found", "x[:] = 0; G[:] = 0\n    return found")),
        Mutant(
            "kept-by-shape",
            PRODUCT_VALUES,
            ("G, h, x)", "G, h, x, kept={})"),
            ("return found", "return kept.setdefault((Phi.shape, Psi.shape, x.shape), found)"),
        ),
        Mutant(
            "one-buffer-a-shape",
            RUNS,
            ("G, h, x)", "G, h, x, kept={})"),
            (
                "found = np.zeros((len(G), x.shape[1]))",
                "kept.setdefault((len(G), x.shape), np.zeros((len(G), x.shape[1])))\n"
                "    found = kept[len(G), x.shape]\n    found[:] = 0",
            ),
        ),
        Mutant("f-built-is-slow", LINEAR, ("O = Phi @ (Psi.T @ h)", "O = (Phi @ Psi.T) @ h")),
    ),
    right=(by_states, column_of_x_by_column, columns_of_x_at_once),
    cheats=(
        (dense_p, SMALL),
        (dense_p, LINEAR),
        (row_by_row, LINEAR),
        (row_by_row_unseen, LINEAR),
        (kronecker_built, SMALL),
        (kronecker_one_side_at_a_time, SMALL),
        (library_product, OWN),
        (paper_gradient.kronecker, OWN),
    ),
)

# ---------------------------------------------------------------------- 16B
ONE, POWERS, DEEP = "a coordinate is a feature too", "powers of one coordinate", "features made of features"
SLOPES = "the slopes of all features are right"
ONE_PASS = "many coordinates take no more passes over the features"


def factor_by_factor(df, f, x, p):
    """From the list of coordinates of each feature, without the steps."""
    table = coordinates(p)
    factors = np.vstack([x.T, np.ones(len(x))])[table]
    dx = np.zeros((x.shape[1] + 1, len(x)))
    for at in range(len(table)):
        np.add.at(dx, table[at], df * np.delete(factors, at, axis=0).prod(axis=0))
    return dx[:-1].T


def by_tangents(df, f, x, p):
    """Forward, one coordinate after the other: the features' slopes along it, then a sum."""
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


def block_by_block(df, f, x, p):
    """A gradient of its own, a row for each feature, and np.einsum for the sums."""
    total, dx = df.copy(), x * 0.0
    for step in p.steps[::-1]:
        up, rows = total[step.first : step.last], range(step.source, step.source + step.last - step.first)
        dx[:, step.axis] += np.einsum("rn,rn->n", up, f[rows.start : rows.stop])
        total[rows.start : rows.stop] += np.einsum("rn,n->rn", up, x[:, step.axis])
    return dx + np.transpose(total[1 : 1 + x.shape[1]])


def features_by_steps(x, p, like):
    """All features of x (r, n), made anew from the steps."""
    f = np.ones_like(like)
    f[1 : x.shape[1] + 1] = x.T
    for step in p.steps:
        source = slice(step.source, step.source + step.last - step.first)
        f[step.first : step.last] = x[:, step.axis] * f[source]
    return f


def by_differences(df, f, x, p):
    """The features a little before and behind, one coordinate after the other."""
    columns = []
    for axis in range(x.shape[1]):
        step = np.zeros_like(x)
        step[:, axis] = 1e-5
        before, behind = (features_by_steps(x + side * step, p, f) for side in (-1, 1))
        columns.append((df * (behind - before) / 2e-5).sum(axis=0))
    return np.array(columns).T


def with_a_jacobian(df, f, x, p):
    """Slopes of all features in all coordinates (r, n, d), and one product with df."""
    J = np.zeros((*f.shape, x.shape[1]))
    for axis in range(x.shape[1]):
        J[1 + axis, :, axis] = 1.0
    for step in p.steps:
        made, source = slice(step.first, step.last), slice(step.source, step.source + step.last - step.first)
        J[made] = J[source] * x[:, step.axis][:, None]
        J[made, :, step.axis] += f[source]
    return np.einsum("rn,rnd->nd", df, J)


TOTAL_SLOPE = "dx + df[1 : x.shape[1] + 1].T"

PULL_BACK = Suite(
    id="16B",
    mutants=(
        Mutant("steps-forwards", DEEP, ("reversed(plan.steps)", "plan.steps")),
        Mutant("sources-forgotten", POWERS, ("        df[source] += up * x[:, step.axis]\n", "")),
        Mutant("coordinates-forgotten", ONE, ("dx + df[1 : x.shape[1] + 1].T", "dx")),
        Mutant("constant-for-a-coordinate", ONE, ("df[1 : x.shape[1] + 1].T", "df[: x.shape[1]].T")),
        Mutant("made-for-source", SLOPES, ("(up * f[source])", "(up * f[step.first : step.last])")),
        Mutant("last-coordinate-only", SLOPES, ("dx[:, step.axis] +=", "dx[:, step.axis] =")),
        Mutant(
            "sources-overwritten",
            DEEP,
            ("df[source] += up * x[:, step.axis]", "df[source] = up * x[:, step.axis]"),
        ),
        Mutant("x-emptied", RUNS, ("return dx + df[1", "x[:], x = 0, x.copy(); return dx + df[1")),
        Mutant("f-overwritten", RUNS, ("        df[source] +=", "        f[source] *= 1.5; df[source] +=")),
        Mutant(
            "kept-by-shape",
            DEEP,
            ("(df, f, x, plan)", "(df, f, x, plan, kept={})"),
            ("return dx + df[1 : x.shape[1] + 1].T", f"return kept.setdefault(f.shape, {TOTAL_SLOPE})"),
        ),
        Mutant(
            "one-buffer-a-shape",
            RUNS,
            ("(df, f, x, plan)", "(df, f, x, plan, kept={})"),
            (
                "return dx + df[1 : x.shape[1] + 1].T",
                f"found = {TOTAL_SLOPE}\n"
                "    return np.copyto(kept.setdefault(f.shape, found), found) or kept[f.shape]",
            ),
        ),
        Mutant("one-step-too-few", POWERS, ("reversed(plan.steps)", "reversed(plan.steps[1:])")),
    ),
    right=(factor_by_factor, block_by_block),
    cheats=(
        (called("library_pull_back", lambda df, f, x, p: features_vjp(df, f, x, p)), OWN),
        (by_tangents, ONE_PASS),
        (by_differences, SLOPES),
        (by_differences, ONE_PASS),
        (with_a_jacobian, ONE_PASS),
        (called("coordinates_only", lambda df, f, x, p: df[1 : x.shape[1] + 1].T), POWERS),
        (called("slopes_of_the_check", lambda df, f, x, p: slopes(x, p, df)), OWN),
        (slopes, OWN),
    ),
)

# ---------------------------------------------------------------------- 16C
SWEEP_VALUES, FITS = "dQ, dK and dV are right", "fits in fast memory"
LOADED, TOTAL = "every word of the input is loaded", "no more than 7Nd words and the state move"
Q_ONCE, K_ONCE, T_ONCE = "Q is read once", "K is read once", "T is read once"
DQ_ONCE, DK_ONCE = "dQ is written once", "dK is written once"


def by_hand(m, Q, K, V, dO, T, *, phi, psi):
    """Tiles freed by hand, -δ by a product, dO scaled before it is copied, dV before dK."""
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


def tokens_from_the_end(m, Q, K, V, dO, T, *, phi, psi):
    """Both sweeps backwards; temporaries in the place of in-place updates."""
    N, d = Q.shape
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    U = m.zeros(len(phi), d + 1)
    with m.load(T, (0, len(phi))) as t:
        for i in reversed(range(N)):
            with m.load(Q, (i, i + 1)) as q, m.zeros(1, d + 1) as o, m.zeros(1, d + 1) as ge:
                phi.add_matmul(o, q, t)
                with m.load(dO, (i, i + 1)) as do:
                    ge[:, :d] = do
                    with (do * o[:, :d]).sum(axis=1, keepdims=True) as products:
                        products /= o[:, d:]
                        ge[:, d:] = products
                        ge[:, d:] *= -1.0
                ge /= o[:, d:]
                o[:, :] = 0.0
                phi.add_outer(U, q, ge)
                with m.zeros(1, d) as dq:
                    phi.add_gradient(dq, q, t, ge)
                    m.store(dq, dQ, (i, i + 1))
    with U:
        for j in reversed(range(N)):
            with m.load(K, (j, j + 1)) as k, m.load(V, (j, j + 1)) as v, m.full(1, d + 1, 1.0) as ve:
                ve[:, :d] = v
                with m.zeros(1, d) as dk, m.zeros(1, d + 1) as dv:
                    psi.add_gradient(dk, k, U, ve)
                    psi.add_matmul(dv, k, U)
                    m.store(dk, dK, (j, j + 1))
                    m.store(dv[:, :d], dV, (j, j + 1))
    return dQ, dK, dV


def state_for_each_query(m, Q, K, V, dO, T, *, phi, psi):
    """Right values and room, but T comes again with every query."""
    N, d = Q.shape
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    with m.zeros(len(phi), d + 1) as U:
        for i in range(N):
            q, do = m.load(Q, (i, i + 1)), m.load(dO, (i, i + 1))
            o, ge, dq = m.zeros(1, d + 1), m.zeros(1, d + 1), m.zeros(1, d)
            with m.load(T, (0, len(phi))) as t, q, do, o, ge, dq:
                phi.add_matmul(o, q, t)
                ge[:, :d] = do
                ge[:, d:].add_matmul(do, o[:, :d].T)
                ge[:, d:] /= o[:, d:]
                ge[:, d:] *= -1.0
                ge /= o[:, d:]
                phi.add_outer(U, q, ge)
                phi.add_gradient(dq, q, t, ge)
                m.store(dq, dQ, (i, i + 1))
        for j in range(N):
            with m.load(K, (j, j + 1)) as k, m.load(V, (j, j + 1)) as v, m.full(1, d + 1, 1.0) as ve:
                ve[:, :d] = v
                with m.zeros(1, d) as dk, m.zeros(1, d) as dv:
                    psi.add_gradient(dk, k, U, ve)
                    psi.add_matmul(dv, k, U[:, :d])
                    m.store(dk, dK, (j, j + 1))
                    m.store(dv, dV, (j, j + 1))
    return dQ, dK, dV


def library_gradient(m, Q, K, V, dO, T, *, phi, psi):
    return lowrank.gradient(np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2)), degree=2)


SWEEPS = Suite(
    id="16C",
    mutants=(
        Mutant("delta-forgotten", SWEEP_VALUES, ("ge[:, d].add_row_dots(do, o[:, :d])", "pass")),
        Mutant("delta-with-plus", SWEEP_VALUES, ("ge *= -1.0", "pass")),
        Mutant("den-forgotten", SWEEP_VALUES, ("ge /= o[:, d:]", "pass")),
        Mutant("outputs-not-divided", SWEEP_VALUES, ("o[:, :d] /= o[:, d:]", "pass")),
        Mutant(
            "den-without-its-sign",
            SWEEP_VALUES,
            ("o[:, :d] /= o[:, d:]", "np.abs(o[:, d:], out=o[:, d:]); o[:, :d] /= o[:, d:]"),
        ),
        Mutant("phi-for-keys", SWEEP_VALUES, ("psi.add_gradient(dk", "phi.add_gradient(dk")),
        Mutant("psi-for-queries", SWEEP_VALUES, ("phi.add_outer(U", "psi.add_outer(U")),
        Mutant("weights-forgotten-in-dV", SWEEP_VALUES, ("psi.add_matmul(dv", "phi.add_matmul(dv")),
        Mutant("zero-beside-v", SWEEP_VALUES, ("m.full(1, d + 1, 1.0)", "m.zeros(1, d + 1)")),
        Mutant(
            "dK-for-dV",
            SWEEP_VALUES,
            (
                "m.store(dk, dK, j)\n                m.store(dv, dV, j)",
                "m.store(dv, dK, j)\n                m.store(dk, dV, j)",
            ),
        ),
        Mutant(
            "T-stays",
            FITS,
            (
                "with m.load(T, (0, r)) as t:",
                "t = m.load(T, (0, r))\n    spare = m.zeros(r, d + 1)\n    if True:",
            ),
        ),
        Mutant("Q-twice", Q_ONCE, ("m.load(Q, i) as q,", "m.load(Q, i) as first, m.load(Q, i) as q,")),
        Mutant(
            "K-twice",
            K_ONCE,
            ("with m.load(K, j) as k,", "m.load(K, j).free()\n        with m.load(K, j) as k,"),
        ),
        Mutant(
            "dQ-twice",
            DQ_ONCE,
            ("m.store(dq, dQ, i)", "m.store(dq, dQ, i)\n                    m.store(dq, dQ, i)"),
        ),
        Mutant(
            "dK-twice",
            DK_ONCE,
            ("m.store(dk, dK, j)", "m.store(dk, dK, j)\n                m.store(dk, dK, j)"),
        ),
        Mutant(
            "scratch",
            TOTAL,
            ("    U.free()\n", "    m.store(U, m.new('scratch', (r, d + 1)), (0, r))\n    U.free()\n"),
        ),
    ),
    right=(by_hand, tokens_from_the_end),
    cheats=((state_for_each_query, T_ONCE), (library_gradient, OWN), (lowrank.gradient, OWN)),
)

# ---------------------------------------------------------------------- 16D
CAUSAL_VALUES, INSIDE = "values are those of the causal weights", "within a tile exp is exact"
RAGGED, BLIND = "a smaller last tile is right", "no row depends on later ones"
KEPT = "the inputs are left as they were"


def both_parts_apart(Q, K, V, phi, w, B):
    """Numerators and denominators in arrays of their own; weights on the features of the queries."""
    d, r = V.shape[1], len(w)
    top, bottom, found = np.zeros((r, d)), np.zeros((r, 1)), []
    for at in range(0, len(Q), B):
        q, k, v = Q[at : at + B], K[at : at + B], V[at : at + B]
        left, psi = (w * phi(q)).T, phi(k)
        near = np.exp(np.einsum("ic,jc->ij", q, k)) * np.tri(len(q))
        numerator, den = left @ top + near @ v, left @ bottom + near.sum(axis=1, keepdims=True)
        found.append(numerator / den)
        top, bottom = top + psi @ v, bottom + psi.sum(axis=1, keepdims=True)
    return np.concatenate(found)


def states_first(Q, K, V, phi, w, B):
    """All tiles' states, summed up, then all tiles' queries."""
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


def dense_weights(Q, K, V, phi, w, B):
    S, tile = Q @ K.T, np.arange(len(Q)) // B
    far = phi(Q).T @ (w * phi(K))
    weights = np.tril(np.where(tile[:, None] == tile[None, :], np.exp(S), far))
    return weights @ V / weights.sum(axis=1, keepdims=True)


def dense_unseen(Q, K, V, phi, w, B):
    """The same past the counter."""
    Q, K, V, w = (np.asarray(array) for array in (Q, K, V, w))
    return dense_weights(Q, K, V, phi, w, B)


def prefixes_by_method(Q, K, V, phi, w, B):
    """The features once, then the state anew for each tile by the method `dot`."""
    V1, psi, O = np.hstack([V, np.ones((len(V), 1))]), w * phi(K), np.empty_like(V)
    for at in range(0, len(Q), B):
        rows = slice(at, at + B)
        far = phi(Q[rows]).T @ psi[:, :at].dot(V1[:at])
        both = far + np.tril(np.exp(Q[rows] @ K[rows].T)) @ V1[rows]
        O[rows] = both[:, :-1] / both[:, -1:]
    return O


def prefix_anew(Q, K, V, phi, w, B):
    """The state made again for each tile, from all keys before."""
    V1 = np.hstack([V, np.ones((len(V), 1))])
    O = np.empty_like(V)
    for at in range(0, len(Q), B):
        rows = slice(at, at + B)
        T = w * (phi(K[:at]) @ V1[:at])
        both = phi(Q[rows]).T @ T + np.tril(np.exp(Q[rows] @ K[rows].T)) @ V1[rows]
        O[rows] = both[:, :-1] / both[:, -1:]
    return O


def library_causal(Q, K, V, phi, w, B):
    setting = Approximation(plan(Q.shape[1], 2), lowrank.polynomial("taylor", 2))
    return causal_forward(Q, K, V, setting, tile=B).O


def softmax_causal(Q, K, V, phi, w, B):
    S = np.where(np.tri(len(Q)) > 0, Q @ K.T, -np.inf)
    P = np.exp(S)
    return P @ V / P.sum(axis=1, keepdims=True)


def exact_causal(Q, K, V, phi, w, B):
    return exact.attention(Q, K, V, causal=True, scale=1.0)


CAUSAL = Suite(
    id="16D",
    mutants=(
        Mutant("no-triangle", BLIND, ("np.tril(np.exp(q @ k.T))", "np.exp(q @ k.T)")),
        Mutant(
            "own-keys-first",
            CAUSAL_VALUES,
            ("        q, k, v1 =", "        T += w * (phi(K[rows]) @ V1[rows])\n        q, k, v1 ="),
            ("        T += w * (phi(k) @ v1)\n", ""),
        ),
        Mutant("polynomial-inside", INSIDE, ("np.exp(q @ k.T)", "1 + q @ k.T + (q @ k.T) ** 2 / 2")),
        Mutant(
            "maximum-before-the-mask",
            BLIND,
            (
                "near = np.tril(np.exp(q @ k.T))",
                "top = (q @ k.T).max(axis=1, keepdims=True)\n        near = np.tril(np.exp(q @ k.T - top))",
            ),
            ("phi(q).T @ T", "np.exp(-top) * (phi(q).T @ T)"),
        ),
        Mutant(
            "scaled-by-all-lengths",
            BLIND,
            (
                "near = np.tril(np.exp(q @ k.T))",
                "top = np.linalg.norm(q, axis=1, keepdims=True) * np.linalg.norm(K, axis=1).max()\n"
                "        near = np.tril(np.exp(q @ k.T - top))",
            ),
            ("phi(q).T @ T", "np.exp(-top) * (phi(q).T @ T)"),
        ),
        Mutant("complex", CAUSAL_VALUES, ("return O", "return O + 1j * O")),
        Mutant("mean-of-all-keys", BLIND, ("    V1 = np", "    K = K - K.mean(axis=0)\n    V1 = np")),
        Mutant("written-over-V", KEPT, ("np.empty_like(V)", "V")),
        Mutant("scores-cut-off", CAUSAL_VALUES, ("np.exp(q @ k.T)", "np.exp(np.minimum(q @ k.T, 30))")),
        Mutant("a-column-more-than-K", RUNS, ("np.empty_like(V)", "np.empty((len(Q), Q.shape[1] + 1))")),
        Mutant("queries-emptied", KEPT, ("return O", "Q[:] = 0; return O")),
        Mutant("weights-forgotten", CAUSAL_VALUES, ("T += w * (", "T += (")),
        Mutant("state-overwritten", CAUSAL_VALUES, ("T += w", "T = w")),
        Mutant("mask-before-exp", INSIDE, ("np.tril(np.exp(q @ k.T))", "np.exp(np.tril(q @ k.T))")),
        Mutant(
            "diagonal-hidden", INSIDE, ("np.tril(np.exp(q @ k.T))", "np.tril(np.exp(q @ k.T), -1) + 1e-9")
        ),
        Mutant(
            "whole-tiles-only",
            RAGGED,
            ("range(0, len(Q), B)", "range(0, len(Q) - B + 1, B)"),
            ("np.empty_like(V)", "np.zeros_like(V)"),
        ),
        Mutant("last-tile-first", BLIND, ("in range(0, len(Q), B)", "in reversed(range(0, len(Q), B))")),
        Mutant(
            "prefix-made-anew",
            LINEAR,
            ("        q, k, v1 =", "        T = w * (phi(K[:at]) @ V1[:at])\n        q, k, v1 ="),
        ),
    ),
    right=(both_parts_apart, states_first),
    cheats=(
        (dense_weights, LINEAR),
        (prefix_anew, LINEAR),
        (dense_unseen, LINEAR),
        (prefixes_by_method, LINEAR),
        (library_causal, OWN),
        (exact_causal, OWN),
        (softmax_causal, CAUSAL_VALUES),
        (lowrank.attention, OWN),
    ),
)

SUITES = (PRODUCT, PULL_BACK, SWEEPS, CAUSAL)
