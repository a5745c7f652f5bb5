"""Lesson 15: polynomials instead of exponentials. Mistakes students make, other right answers, cheats."""

from itertools import product
from math import comb, factorial, prod

import numpy as np
from harness import Mutant, Suite, called
from numpy.polynomial import Polynomial

from iocourse import lowrank, monomials, schedules
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises.lesson15 import columns_gone_wrong
from iocourse.lowrank.polynomials import largest_error, positive_to, relative_error_at

# ---------------------------------------------------------------------- 15A
PRODUCTS = "scalar products of features are Taylor's polynomial"
COUNT = "there are C(d + g, g) features a row"
POWERS, LINEAR = "one coordinate has the powers alone", "degree 1 is the row with a 1"
ALONE = "a row's features depend on that row alone"


def nested(X, g):
    """Block i of a degree is x_i times the monomials of the degree below that begin with i or later."""
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


def highest_degree_first(X, g):
    """Exponents by trying all of them, in another order, with half of the weight as logarithms."""
    d = X.shape[1]
    columns = []
    for a in product(range(g, -1, -1), repeat=d):
        if sum(a) <= g:
            columns.append(np.prod(X ** np.array(a), axis=1) / prod(factorial(n) for n in a) ** 0.5)
    return np.column_stack(columns)


def kronecker(X, g):
    """Right products, with twins: 1 + d + d² + … columns."""
    level, found = np.ones((len(X), 1)), [np.ones((len(X), 1))]
    for l in range(1, g + 1):
        level = (level[:, :, None] * X[:, None, :]).reshape(len(X), -1)
        found.append(level / np.sqrt(factorial(l)))
    return np.hstack(found)


def by_eigenvectors(X, g):
    """The square root of the matrix of these very rows: right for X with itself only."""
    values, vectors = np.linalg.eigh(
        np.polynomial.polynomial.polyval(X @ X.T, [1 / factorial(l) for l in range(g + 1)])
    )
    found = vectors * np.sqrt(np.maximum(values, 0))
    r = comb(X.shape[1] + g, g)
    return np.pad(found, ((0, 0), (0, max(0, r - len(X)))))[:, :r]


def by_the_library(X, g):
    p = monomials.plan(X.shape[1], g)
    weights = p.multiplicities / np.array([factorial(l) for l in p.degrees])
    return monomials.features(X, p).T * np.sqrt(weights)


FEATURES = Suite(
    id="15A",
    mutants=(
        Mutant("complex", PRODUCTS, (" / np.sqrt(orders)", " / np.sqrt(orders + 0j)")),
        Mutant("weights-left-out", PRODUCTS, (" / np.sqrt(orders)", "")),
        Mutant("whole-weight-on-both-sides", PRODUCTS, ("np.sqrt(orders)", "orders")),
        Mutant("orders-of-a-power", PRODUCTS, ("np.sqrt(orders)", "np.sqrt(factorial(l))")),
        Mutant("multiplied-by-the-orders", PRODUCTS, ("/ np.sqrt", "* np.sqrt")),
        Mutant("without-the-1", COUNT, ("range(g + 1)", "range(1, g + 1)")),
        Mutant("highest-degree-left-out", LINEAR, ("range(g + 1)", "range(g)")),
        Mutant("top-degree-alone", COUNT, ("range(g + 1)", "[g]")),
        Mutant(
            "each-coordinate-once",
            POWERS,
            (
                "combinations_with_replacement(range(d), l)",
                "__import__('itertools').combinations(range(d), l)",
            ),
        ),
        Mutant(
            "twins-kept",
            COUNT,
            (
                "combinations_with_replacement(range(d), l)",
                "__import__('itertools').product(range(d), repeat=l)",
            ),
            ("np.sqrt(orders)", "np.sqrt(factorial(l))"),
        ),
        Mutant("sum-for-product", PRODUCTS, (".prod(axis=1)", ".sum(axis=1)")),
        Mutant("rows-centred", ALONE, ("    columns = []", "    columns, X = [], X - X.mean(axis=0)")),
        Mutant(
            "a-table-up-to-five", RUNS, ("factorial(axes.count(i))", "[1, 1, 2, 6, 24, 120][axes.count(i)]")
        ),
        Mutant("X-emptied", RUNS, ("return np.stack", "X[:], X = 0, X.copy(); return np.stack")),
        Mutant(
            "kept-by-shape",
            PRODUCTS,
            ("(X, g)", "(X, g, kept={})"),
            (
                "return np.stack(columns, axis=1)",
                "return kept.setdefault((X.shape, g), np.stack(columns, 1))",
            ),
        ),
        Mutant(
            "one-buffer-a-shape",
            RUNS,
            ("(X, g)", "(X, g, kept={})"),
            (
                "return np.stack(columns, axis=1)",
                "found = np.stack(columns, axis=1)\n"
                "    return np.copyto(kept.setdefault((X.shape, g), found), found) or kept[X.shape, g]",
            ),
        ),
        Mutant(
            "beside-the-degree",
            PRODUCTS,
            ("return np.stack(columns, axis=1)", "return np.stack(columns, 1), g"),
        ),
        Mutant("without-a-return", PRODUCTS, ("return np.stack", "np.stack")),
    ),
    right=(nested, highest_degree_first),
    cheats=(
        (kronecker, COUNT),
        (by_eigenvectors, PRODUCTS),
        (monomials.features, OWN),
        (by_the_library, OWN),
    ),
)

# ---------------------------------------------------------------------- 15B
SMALLEST, EIGHT = "it is the smallest degree", "the largest error is right to eight digits"
INSIDE, ORDER = (
    "an error inside the interval is seen",
    "degrees are tried in order, for one may be worse than the one before",
)


def by_companion_matrix(make, R, error):
    """The same places, by np.roots on reversed coefficients; a generator over degrees."""

    def worst(c):
        c = np.asarray(c)
        rest = np.append(c[1:] * np.arange(1, len(c)), 0) - c
        found = [x.real for x in np.roots(rest[::-1]) if abs(x.imag) < 1e-8 and -R < x.real < R]
        return max(abs(sum(a * s**l for l, a in enumerate(c)) * np.exp(-s) - 1) for s in (*found, -R, R))

    return next((g, worst(make(g, R))) for g in range(1, 200) if worst(make(g, R)) <= error)


def a_grid_and_then_newton(make, R, error):
    """A coarse grid, each local maximum made exact by parabolas that shrink."""
    for g in range(1, 200):
        p = Polynomial(make(g, R))
        s = np.linspace(-R, R, 4001)
        for _ in range(3):
            off = abs(p(s) * np.exp(-s) - 1)
            top = s[off.argmax()]
            step = (s[1] - s[0]) * 2
            s = np.clip(np.linspace(top - step, top + step, 4001), -R, R)
        if off.max() <= error:
            return [g, off.max()]
    return None


def on_a_grid(make, R, error):
    s = np.linspace(-R, R, 1001)
    for g in range(1, 200):
        off = abs(Polynomial(make(g, R))(s) * np.exp(-s) - 1).max()
        if off <= error:
            return g, off
    return None


def on_a_fine_grid(make, R, error):
    s = np.linspace(-R, R, 200_001)
    over = np.exp(-s)
    for g in range(1, 60):
        off = abs(Polynomial(make(g, R))(s) * over - 1).max()
        if off <= error:
            return g, off
    return None


def by_halves(make, R, error):
    """Doubles the degree until it does, and then goes by halves."""

    def worst(g):
        return _worst(make(g, R), R)

    low, high = 0, 1
    while worst(high) > error:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if worst(middle) <= error else (middle, high)
    return high, worst(high)


def _worst(c, R):
    p = Polynomial(c)
    roots = (p.deriv() - p).roots()
    s = np.append(roots.real[(abs(roots.imag) < 1e-9) & (abs(roots.real) < R)], [-R, R])
    return abs(p(s) * np.exp(-s) - 1).max()


def the_library_finds_it(make, R, error):
    g = lowrank.smallest_degree(make, R, error)
    return g, largest_error(make(g, R), R)


def the_library_certifies_it(make, R, error):
    return next((g, e) for g in range(1, 99) if (e := largest_error(make(g, R), R)) <= error)


def the_library_evaluates_it(make, R, error):
    """Its places are right, and its errors there are the library's."""
    for g in range(1, 99):
        p = Polynomial(make(g, R))
        s = (p.deriv() - p).roots().real
        largest = abs(relative_error_at(p.coef, np.append(s[abs(s) < R], [-R, R]))).max()
        if largest <= error:
            return g, largest
    return None


KEPT = "abs(real) < R"

DEGREE = Suite(
    id="15B",
    mutants=(
        Mutant("ends-alone", INSIDE, ("np.append(real[abs(real) < R], [-R, R])", "np.array([-R, R])")),
        Mutant(
            "ends-forgotten",
            SMALLEST,
            ("np.append(real[abs(real) < R], [-R, R])", "np.append(real[abs(real) < R], 0)"),
        ),
        Mutant("right-end-alone", EIGHT, ("[-R, R])", "[R])")),
        Mutant("left-end-alone", SMALLEST, ("[-R, R])", "[-R])")),
        Mutant("places-left-of-0-alone", INSIDE, (KEPT, "(abs(real) < R) & (real < 0)")),
        Mutant("roots-of-p", INSIDE, ("(p.deriv() - p).roots()", "p.roots()")),
        Mutant("roots-of-p'", INSIDE, ("(p.deriv() - p).roots()", "p.deriv().roots()")),
        Mutant("roots-outside-count", EIGHT, (KEPT, "abs(real) < 2 * R")),
        Mutant("absolute-error", EIGHT, ("p(s) * np.exp(-s) - 1", "p(s) - np.exp(s)")),
        Mutant("signed-error", EIGHT, ("abs(p(s) * np.exp(-s) - 1).max()", "(p(s) * np.exp(-s) - 1).max()")),
        Mutant("relative-to-p", EIGHT, ("p(s) * np.exp(-s) - 1", "np.exp(s) / p(s) - 1")),
        Mutant("one-degree-too-many", SMALLEST, ("return g, largest", "return g + 1, largest")),
        Mutant("even-degrees-alone", SMALLEST, ("g += 1", "g += 2")),
        Mutant("a-fraction-of-a-degree", SMALLEST, ("return g, largest", "return g + 0.4, largest")),
        Mutant("degree-in-floats", SMALLEST, ("return g, largest", "return float(g), largest")),
        Mutant("both-as-text", SMALLEST, ("return g, largest", "return str(g), repr(float(largest))")),
        Mutant("error-as-text", EIGHT, ("return g, largest", "return g, repr(float(largest))")),
        Mutant("degree-alone", SMALLEST, ("return g, largest", "return g")),
        Mutant("polynomial-too", SMALLEST, ("return g, largest", "return g, largest, p")),
    ),
    right=(by_companion_matrix, a_grid_and_then_newton),
    cheats=(
        (on_a_grid, EIGHT),
        (on_a_fine_grid, EIGHT),
        (by_halves, ORDER),
        (the_library_finds_it, OWN),
        (the_library_certifies_it, OWN),
        (the_library_evaluates_it, OWN),
        (lowrank.smallest_degree, OWN),
    ),
)

# ---------------------------------------------------------------------- 15C
SAME = "values equal attention with the same polynomial"
WEIGHTS, FITS = "the weights that psi carries are used", "fits in fast memory"
LOADED, TOTAL = "every word of the input is loaded", "4Nd words, whatever the rank is"
Q_ONCE, K_ONCE, V_ONCE = "Q is read once", "K is read once", "V is read once"
O_ONCE = "O is written once"


def values_in_one_tile(m, Q, K, V, *, phi, psi):
    """Row sums in a tile of their own; rows by number, frees by hand, the scale on the key."""
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


def sums_in_the_last_column(m, Q, K, V, *, phi, psi):
    """One product with [v, 1]: the value is loaded beside a 1, which is made and not loaded."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    with m.zeros(len(psi), d + 1) as state:
        for j in m.blocks(N, 1):
            with m.load(V, j) as v, m.load(K, j) as k:
                psi.add_outer(state[:, :d], k, v)
                psi.add_outer(state[:, d:], k)
        for i in m.blocks(N, 1):
            with m.load(Q, i) as q, m.zeros(1, d + 1) as row:
                q *= d**-0.5
                phi.add_matmul(row, q, state)
                o, l = row[:, :d], row[:, d:]
                o /= l
                m.store(o, O, i)
    return O


def state_a_query(m, Q, K, V, *, phi, psi):
    """Right values; keys and values come again for every query."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, 1):
        with m.zeros(len(psi), d + 1) as state:
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, m.load(V, j) as v:
                    psi.add_outer(state[:, :1], k)
                    psi.add_outer(state[:, 1:], k, v)
            with m.load(Q, i) as q, m.zeros(1, d + 1) as o:
                q *= d**-0.5
                phi.add_matmul(o, q, state)
                o[:, 1:] /= o[:, :1]
                m.store(o[:, 1:], O, i)
    return O


def sums_first(m, Q, K, V, *, phi, psi):
    """Right values; a pass over the keys for the row sums alone."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    with m.zeros(len(psi), d + 1) as state:
        for j in m.blocks(N, 1):
            with m.load(K, j) as k:
                psi.add_outer(state[:, :1], k)
        for j in m.blocks(N, 1):
            with m.load(K, j) as k, m.load(V, j) as v:
                psi.add_outer(state[:, 1:], k, v)
        for i in m.blocks(N, 1):
            with m.load(Q, i) as q, m.zeros(1, d + 1) as o:
                q *= d**-0.5
                phi.add_matmul(o, q, state)
                o[:, 1:] /= o[:, :1]
                m.store(o[:, 1:], O, i)
    return O


def keys_all_at_once(m, Q, K, V, *, phi, psi):
    """Right values and words, with K and V whole in fast memory."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    with m.zeros(len(psi), d + 1) as state:
        with m.load(K, (0, N)) as k, m.load(V, (0, N)) as v:
            for j in range(N):
                psi.add_outer(state[:, :1], k[j : j + 1])
                psi.add_outer(state[:, 1:], k[j : j + 1], v[j : j + 1])
        for i in m.blocks(N, 1):
            with m.load(Q, i) as q, m.zeros(1, d + 1) as o:
                q *= d**-0.5
                phi.add_matmul(o, q, state)
                o[:, 1:] /= o[:, :1]
                m.store(o[:, 1:], O, i)
    return O


def softmax_after_all(m, Q, K, V, *, phi, psi):
    """Exact attention, F3 with one row a block: not the polynomial that was asked for."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, 1):
        with m.load(Q, i) as q, m.zeros(1, d) as o, m.row_stats(1) as stats:
            q *= d**-0.5
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def the_librarys_schedule(m, Q, K, V, *, phi, psi):
    return schedules.low_rank(m, Q, K, V, g=2, rc=len(phi), Bd=Q.shape[1] + 1)


def taken_from_slow_memory(m, Q, K, V, *, phi, psi):
    q, k, v = m.take(Q), m.take(K), m.take(V)
    return m.slow("O", lowrank.attention(q, k, v, degree=2))


DIVIDED = "o[:, 1:] /= o[:, :1]"

TWO_PASSES = Suite(
    id="15C",
    mutants=(
        Mutant("missing-scale", SAME, ("q *= d**-0.5", "pass")),
        Mutant(
            "scale-after-the-features", SAME, ("q *= d**-0.5", "pass"), (DIVIDED, f"o *= d**-0.5; {DIVIDED}")
        ),
        Mutant("never-divided", SAME, (DIVIDED, "pass")),
        Mutant("divided-by-N", SAME, (DIVIDED, "o /= N")),
        Mutant(
            "sums-of-v", SAME, ("psi.add_outer(state[:, :1], k)", "psi.add_outer(state[:, :1], k, v[:, :1])")
        ),
        Mutant("no-row-sums", SAME, ("psi.add_outer(state[:, :1], k)", "pass")),
        Mutant("features-of-the-value", SAME, ("state[:, 1:], k, v", "state[:, 1:], v, k")),
        Mutant(
            "row-sums-without-their-sign", WEIGHTS, (DIVIDED, f"np.abs(o[:, :1], out=o[:, :1]); {DIVIDED}")
        ),
        Mutant("phi-on-both-sides", WEIGHTS, ("psi.add_outer", "phi.add_outer")),
        Mutant("weights-twice", SAME, ("phi.add_matmul", "psi.add_matmul")),
        Mutant(
            "K-again-for-V",
            K_ONCE,
            ("psi.add_outer(state[:, 1:]", "k = m.load(K, j, into=k); psi.add_outer(state[:, 1:]"),
        ),
        Mutant("Q-loaded-twice", Q_ONCE, ("q *= d**-0.5", "q = m.load(Q, i, into=q); q *= d**-0.5")),
        Mutant("O-before-the-division", O_ONCE, (DIVIDED, f"m.store(o[:, 1:], O, i); {DIVIDED}")),
        Mutant("a-second-state", FITS, ("as state:", "as state, m.zeros(len(psi), d + 1) as spare:")),
        Mutant(
            "state-is-stored",
            TOTAL,
            ("for i in", "m.store(state, m.new('T', state.shape), (0, len(psi)))\n        for i in"),
        ),
        Mutant(
            "last-key-left-out", LOADED, ("for j in m.blocks(N, 1)", "for j in m.blocks(max(1, N - 1), 1)")
        ),
    ),
    right=(values_in_one_tile, sums_in_the_last_column),
    cheats=(
        (state_a_query, K_ONCE),
        (sums_first, K_ONCE),
        (keys_all_at_once, FITS),
        (softmax_after_all, SAME),
        (the_librarys_schedule, OWN),
        (schedules.low_rank, OWN),
        (taken_from_slow_memory, RUNS),
    ),
)

# ---------------------------------------------------------------------- 15D
NEVER, ALWAYS = "no row is called safe that is not", "every safe row is called safe"
NO_ROOT = "a polynomial without real roots is always safe"
ON_THE_RIGHT = "a root on the right counts as one on the left"
AGAIN = "between two roots is not safe, and beyond them neither"
OWN_LENGTH, NO_PAIRS = "each row is judged by its own length", "no pairs are formed"


def squared_lengths(Q, K, c):
    """Without roots of sums: squares compared, real roots by np.roots."""
    found = np.roots(np.trim_zeros(np.asarray(c)[::-1], "f"))
    nearest = min((abs(x.real) for x in found if abs(x.imag) < 1e-8 * (1 + abs(x))), default=np.inf)
    return (Q**2).sum(axis=1) * (K**2).sum(axis=1).max() < nearest**2


def row_by_row(Q, K, c):
    """For each row the least value of p on its interval: at the ends and where p' = 0."""
    p = Polynomial(c)
    longest = max(np.linalg.norm(k) for k in K)
    turns = p.deriv().roots() if len(c) > 2 else np.zeros(0)
    turns = turns.real[abs(turns.imag) < 1e-9 * (1 + abs(turns))]
    found = []
    for q in Q:
        reach = np.linalg.norm(q) * longest
        places = np.append(turns[abs(turns) <= reach], [-reach, reach, 0.0])
        found.append(bool(p(places).min() > 0))
    return found


def ones_and_zeros(Q, K, c):
    """1 for a row that is safe, 0 for one that is not."""
    return squared_lengths(Q, K, c).astype(int)


def by_all_pairs(Q, K, c):
    """The scores that there are: another question, and N x N words."""
    return (Polynomial(c)(Q @ K.T) > 0).all(axis=1)


def right_and_by_all_pairs(Q, K, c):
    reach = abs(Q @ K.T).max(axis=1)
    return squared_lengths(Q, K, c) & (reach < np.inf)


def at_the_ends_alone(Q, K, c):
    """p is positive at the largest and the least score: it may be negative between."""
    p, reach = Polynomial(c), np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()
    return (p(reach) > 0) & (p(-reach) > 0)


def at_many_places(Q, K, c):
    """p on a grid for each row: two roots close to each other lie between its points."""
    reach = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()
    return np.array([(Polynomial(c)(np.linspace(-far, far, 2001)) > 0).all() for far in reach])


def by_the_librarys_root(Q, K, c):
    return np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max() < positive_to(np.asarray(c))


SAFE = Suite(
    id="15D",
    mutants=(
        Mutant("mean-key", NEVER, ("np.linalg.norm(K, axis=1).max()", "np.linalg.norm(K, axis=1).mean()")),
        Mutant(
            "as-many-keys-as-queries",
            NEVER,
            ("np.linalg.norm(K, axis=1)", "np.linalg.norm(K[:len(Q)], axis=1)"),
        ),
        Mutant(
            "longest-query-for-all",
            OWN_LENGTH,
            ("np.linalg.norm(Q, axis=1) *", "np.full(len(Q), np.linalg.norm(Q, axis=1).max()) *"),
        ),
        Mutant("largest-entry-for-length", NEVER, ("np.linalg.norm(K, axis=1).max()", "abs(K).max()")),
        Mutant("length-of-the-whole-K", ALWAYS, ("np.linalg.norm(K, axis=1).max()", "np.linalg.norm(K)")),
        Mutant(
            "farthest-root", NEVER, ("abs(real).min(initial=np.inf)", "abs(real).max(initial=0.0) or np.inf")
        ),
        Mutant(
            "roots-on-the-left-alone",
            ON_THE_RIGHT,
            ("abs(real).min(initial=np.inf)", "abs(real[real < 0]).min(initial=np.inf)"),
        ),
        Mutant(
            "complex-roots-count",
            NO_ROOT,
            ("roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]", "abs(roots)"),
        ),
        Mutant(
            "real-parts-of-all",
            ALWAYS,
            ("roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]", "roots.real"),
        ),
        Mutant("any-root-near-the-axis", NO_ROOT, ("< 1e-9 * (1 + abs(roots))", "< 0.3")),
        Mutant("Q-squared-in-place", RUNS, ("reach = ", "Q *= Q; reach = ")),
        Mutant(
            "a-fraction-for-true",
            NEVER,
            ("return reach < nearest", "return np.where(reach < nearest, 0.3, 0)"),
        ),
        Mutant(
            "nan-for-true", NEVER, ("return reach < nearest", "return np.where(reach < nearest, np.nan, 0)")
        ),
        Mutant("without-a-return", NEVER, ("return reach", "reach")),
        Mutant("zero-is-safe", NEVER, ("reach < nearest", "reach <= nearest")),
        Mutant("turned-round", NEVER, ("reach < nearest", "reach >= nearest")),
        Mutant("interval-of-1", NEVER, ("reach < nearest", "np.linalg.norm(Q, axis=1) < nearest")),
        Mutant(
            "none-where-no-root",
            NO_ROOT,
            ("min(initial=np.inf)", "min(initial=np.inf) % np.inf if len(real) else 0.0"),
        ),
    ),
    right=(squared_lengths, row_by_row, ones_and_zeros),
    cheats=(
        (by_all_pairs, NEVER),
        (right_and_by_all_pairs, NO_PAIRS),
        (at_the_ends_alone, AGAIN),
        (at_many_places, AGAIN),
        (by_the_librarys_root, OWN),
        (called("always", lambda Q, K, c: np.ones(len(Q), dtype=bool)), NEVER),
        (called("never", lambda Q, K, c: np.zeros(len(Q), dtype=bool)), ALWAYS),
    ),
)

# ---------------------------------------------------------------------- 15E
V_RIGHT, FITS_RIGHT = (
    "V is read once, and the values are right",
    "fits in fast memory, and the values are right",
)
Q_TURN, K_TURN = "Q is read once a turn", "K is read once a turn"
TURNS = "no more words move than 2Nd a turn and 2Nd"


def a_pass_for_the_row_sums(state, sums, psi, k, v, first):
    """What a key and its value do to the state."""
    if first:
        psi.add_outer(sums, k)
    psi.add_outer(state, k, v)


def in_two_functions(m, Q, K, V, *, phi, psi, Bd):
    """The state in a `with`, keys taken in by a function, numbers for blocks."""
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


def one_state_for_sums_and_columns(m, Q, K, V, *, phi, psi, Bd):
    """The first column of one tile are the row sums, the others are set to 0 when a turn begins."""
    N, d = Q.shape
    O, width = m.new("O", (N, d)), min(Bd, d)
    with m.zeros(len(psi), 1 + width) as both:
        for c in m.blocks(d, Bd):
            state = both[:, 1 : 1 + c.stop - c.start]
            state *= 0.0
            for j in m.blocks(N, 1):
                with m.load(K, j) as k:
                    if c.first:
                        psi.add_outer(both[:, :1], k)
                    with m.load(V, j, c) as v:
                        psi.add_outer(state, k, v)
            for i in m.blocks(N, 1):
                with m.load(Q, i) as q, m.zeros(1, c) as o, m.zeros(1, 1) as l:
                    q *= d**-0.5
                    phi.add_matmul(o, q, state)
                    phi.add_matmul(l, q, both[:, :1])
                    o /= l
                    m.store(o, O, i, c)
    return O


def all_columns_at_once(m, Q, K, V, *, phi, psi, Bd):
    """The schedule of 15C: fewer words, and no room for it."""
    return sums_in_the_last_column(m, Q, K, V, phi=phi, psi=psi)


def as_it_was(m, Q, K, V, *, phi, psi, Bd):
    return columns_gone_wrong(m, Q, K, V, phi=phi, psi=psi, Bd=Bd)


def nothing_moves(m, Q, K, V, *, phi, psi, Bd):
    """Zeros, which fit and read V not once."""
    O = m.new("O", Q.shape)
    for i in m.blocks(Q.shape[0], 1):
        with m.zeros(i, Q.shape[1]) as o:
            m.store(o, O, i)
    return O


LOADS = "with m.load(K, j) as k, m.load(V, j, c) as v:"
REPAIR = Suite(
    id="15E",
    mutants=(
        Mutant(
            "whole-rows-of-V",
            V_RIGHT,
            (LOADS, LOADS.replace("j, c", "j")),
            ("psi.add_outer(state, k, v)", "psi.add_outer(state, k, v[:, c.start : c.stop])"),
        ),
        Mutant("old-state-kept", FITS_RIGHT, ("state.free()", "pass")),
        Mutant(
            "freed-too-early",
            RUNS,
            ("for i in m.blocks(N, 1):", "state.free()\n            for i in m.blocks(N, 1):"),
        ),
        Mutant("sums-every-turn", SAME, ("if c.first:", "if True:")),
        Mutant("sums-in-the-last-turn", SAME, ("if c.first:", "if c.last:")),
        Mutant("missing-scale", SAME, ("q *= d**-0.5", "pass")),
        Mutant("phi-on-both-sides", WEIGHTS, ("psi.add_outer", "phi.add_outer")),
        Mutant("never-divided", SAME, ("o /= l", "pass")),
        Mutant("first-columns-every-turn", SAME, (LOADS, LOADS.replace("j, c", "j, (0, c.stop - c.start)"))),
        Mutant(
            "K-again-for-V", K_TURN, ("psi.add_outer(state", "k = m.load(K, j, into=k); psi.add_outer(state")
        ),
        Mutant("Q-loaded-twice", Q_TURN, ("q *= d**-0.5", "q = m.load(Q, i, into=q); q *= d**-0.5")),
        Mutant("O-before-the-division", O_ONCE, ("o /= l", "m.store(o, O, i, c); o /= l")),
        Mutant(
            "state-is-stored",
            TURNS,
            ("state.free()", "m.store(state, m.new('T', state.shape), (0, len(psi))); state.free()"),
        ),
    ),
    right=(in_two_functions, one_state_for_sums_and_columns),
    cheats=(
        (as_it_was, V_RIGHT),
        (as_it_was, FITS_RIGHT),
        (all_columns_at_once, FITS_RIGHT),
        (nothing_moves, SAME),
    ),
)

SUITES = (FEATURES, DEGREE, TWO_PASSES, SAFE, REPAIR)
