"""Lesson 15 says numbers and shows formulas: here they are computed again and looked up in its text."""

import ast
from collections import Counter
from itertools import combinations_with_replacement
from math import comb, exp, factorial, lgamma, log, prod
from pathlib import Path

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from numpy.polynomial.hermite_e import hermegauss, hermeval

from iocourse import bounds, costs, exact, explore, lowrank, run, schedules
from iocourse.course.authoring.source import parse, side
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson15 as exercises
from iocourse.data import real_head, real_heads
from iocourse.lowrank import polynomials
from iocourse.lowrank.advice import predicted_error
from iocourse.monomials import coordinates, features, plan, rank_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "solutions" / "15_polynomials.py"
CELLS = parse(SOURCE.read_text(encoding="utf-8"), SOURCE)
TEXT = "\n".join("\n".join(cell.lines) for cell in CELLS if cell.kind == "markdown").replace("\\,", ",")


def section(number):
    """The text from one numbered heading to the next."""
    return TEXT.split(f"## {number} ")[1].split("\n## ")[0].replace("{,}", ",")


def says(number, *figures):
    missing = [figure for figure in figures if figure not in section(number)]
    assert not missing, missing


def _functions():
    """What the lesson's cells define: its imports, its functions, its solved exercises."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    found = {}
    for cell in CELLS:
        if cell.kind == "code":
            body = ast.parse("\n".join(side(cell, solved=True))).body
            lines = [ast.unparse(node) for node in body if isinstance(node, kinds)]
            exec("\n".join(lines), found)
    return found


LESSON = _functions()


# ---------------------------------------------------------------------- 15.1
ENTRIES = np.random.default_rng(15).uniform(-1, 1, (2, 400, 4))


def test_section_15_1():
    needed = LESSON["ranks_needed"]
    ranks = {B: needed(exact.softmax(exact.scores(*(B * ENTRIES))), (1e-2,))[0] for B in (0.5, 2)}
    says("15.1", f"{ranks[0.5]} of 400 for $B = 0.5$, and {ranks[2]} for $B = 2$")
    P = exact.softmax(exact.scores(*(0.5 * ENTRIES)))
    U, s, Vt = np.linalg.svd(P)
    for r in (ranks[0.5] - 1, ranks[0.5]):  # the formula is that of the best matrix of this rank
        left = np.linalg.norm(P - (U[:, :r] * s[:r]) @ Vt[:r]) / np.linalg.norm(P)
        assert (left <= 1e-2) == (r == ranks[0.5])
    assert np.linalg.matrix_rank(np.random.default_rng(0).standard_normal((9, 2)) @ np.ones((2, 9))) <= 2


@pytest.mark.parametrize(("B", "d"), [(0.5, 4), (2.0, 7)])
def test_formula_15_1(B, d):
    rng = np.random.default_rng(1)
    Q, K = rng.uniform(-B, B, (2, 50, d))
    R = B**2 * d**0.5
    assert abs(exact.scores(Q, K)).max() <= R
    corner = np.full((1, d), B)
    assert exact.scores(corner, corner)[0, 0] == pytest.approx(R)
    says("15.1", r"B^2\sqrt d =: R")


# ---------------------------------------------------------------------- 15.2
def monomials_up_to(d, g):
    return [axes for l in range(g + 1) for axes in combinations_with_replacement(range(d), l)]


@pytest.mark.parametrize(("d", "l"), [(2, 2), (3, 4), (5, 3)])
def test_formula_15_3_and_how_many_there_are(d, l):
    q, k = np.random.default_rng(d).standard_normal((2, d))
    terms = []
    for axes in combinations_with_replacement(range(d), l):
        orders = factorial(l) / prod(map(factorial, Counter(axes).values()))
        terms.append(orders * q[list(axes)].prod() * k[list(axes)].prod())
    assert sum(terms) == pytest.approx((q @ k) ** l)
    assert len(monomials_up_to(d, l)) == comb(d + l, l) == rank_of(d, l)
    says("15.2", r"\frac{l!}{a_1!\cdots a_d!}; q^a,k^a".replace("; ", r"\; "), r"r = \binom{d+g}{g}")
    says("15.2", r"q_1^2,k_1^2 + 2,q_1q_2,k_1k_2 + q_2^2,k_2^2", r"(x_1^2,\ \sqrt2,x_1x_2,\ x_2^2)")


def test_section_15_2():
    kronecker = LESSON["kronecker"]
    assert kronecker(12, 3) == 1 + 12 + 144 + 1728
    says("15.2", f"{comb(15, 3)} instead of {kronecker(12, 3):,}", f"degree 4 has {comb(68, 4):,} features")
    assert kronecker(64, 4) / comb(68, 4) < factorial(4)  # "up to g!"
    p = plan(3, 2)  # the list in the text, degree by degree
    names = [" ".join(f"x{i + 1}" for i in column if i < 3) for column in coordinates(p).T]
    assert names[1:4] == ["x1", "x2", "x3"]
    assert {"".join(sorted(name)) for name in names[4:]} == {
        "".join(sorted(f"x{a} x{b}")) for a, b in ((1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3))
    }
    assert [(s.last - s.first, s.axis) for s in p.steps] == [(3, 0), (2, 1), (1, 2)]  # by smallest coordinate


def test_the_features_of_the_exercise_and_the_error_of_degree_3():
    Q, K = ENTRIES
    P = exact.softmax(exact.scores(Q, K))
    A = LESSON["my_features"](Q / 2, 3) @ LESSON["my_features"](K, 3).T
    error = np.linalg.norm(A / A.sum(axis=1, keepdims=True) - P) / np.linalg.norm(P)
    best = LESSON["ranks_needed"](P, (1e-2,))[0]
    says("15.2", f"Degree 3, rank {comb(7, 3)}, is within 1 percent: {error:.5f}", f"needed rank {best}.")
    library = features(K, plan(4, 3))
    assert library.shape == (comb(7, 3), 400)


# ---------------------------------------------------------------------- 15.3
@pytest.mark.parametrize("c", [[1.0, 1.0, 0.5], [1.0, 0.9, 0.6, 0.1], polynomials.minimax(3, 1.0)])
def test_formula_15_6_holds_and_the_largest_error_is_where_the_text_says(c):
    rng = np.random.default_rng(2)
    R, p = 0.8, Polynomial(c)
    epsilon = polynomials.largest_error(np.asarray(c), R)
    s = np.linspace(-R, R, 20001)
    assert abs(p(s) * np.exp(-s) - 1).max() == pytest.approx(epsilon, rel=1e-6)
    S, V = rng.uniform(-R, R, (40, 30)), rng.standard_normal((30, 3))
    P, A = exact.softmax(S), p(S)
    off = A / A.sum(axis=1, keepdims=True) - P
    assert (abs(off) <= 2 * epsilon / (1 - epsilon) * P).all()
    assert (abs(off @ V) <= 2 * epsilon / (1 - epsilon) * abs(V).max(axis=0)).all()
    says(
        "15.3",
        r"\frac{2\varepsilon}{1 - \varepsilon},P_{ij}",
        r"\max_{|s| \le R} \bigl|p(s),e^{-s} - 1\bigr|",
    )


@pytest.mark.parametrize("g", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("R", [0.5, 2.0])
def test_formula_15_7(g, R):
    t, w = np.polynomial.legendre.leggauss(40)
    t, w = R * (t + 1) / 2, R * w / 2
    integral = (w * t**g * np.exp(t)).sum() / factorial(g)
    c = LESSON["taylor"](g)
    assert polynomials.largest_error(c, R) == pytest.approx(integral)
    assert abs(Polynomial(c)(-R) * exp(R) - 1) == pytest.approx(integral)
    assert integral <= R ** (g + 1) * exp(R) / factorial(g + 1)  # as 15.10 says
    rest = Polynomial(c).deriv() - Polynomial(c)
    assert rest(1.3) == pytest.approx(-(1.3**g) / factorial(g))
    says("15.3", r"\frac{1}{g!}\int_0^R t^g e^{t},dt", "p' - p = -s^g/g!")
    says("15.10", "at most $R^{g+1}e^R/(g + 1)!$")


def test_section_15_3():
    p = Polynomial(LESSON["taylor"](4))
    left, right = (abs(p(s) * exp(-s) - 1) for s in (-2, 2))
    says("15.3", f"{left:.4g} on the left, {right:.4g} on the right")
    absolute = abs(p(-2) - exp(-2)), abs(p(2) - exp(2))
    says("15.3", f"{absolute[0]:.3f} and {absolute[1]:.3f}", f"itself is only {exp(-2):.4f}")
    found = {R: LESSON["my_degree"](LESSON["taylor"], R, 0.01)[0] for R in (0.5, 1, 2, 8)}
    says("15.3", "Degree {} for $R = 0.5$, {} for 1, {} for 2, and {} for 8".format(*found.values()))
    ranks = [f"{comb(12 + g, g):,}" for g in found.values()]
    says("15.3", "from {} over {} and {} to {}".format(*ranks))


# ---------------------------------------------------------------------- 15.4
@pytest.mark.parametrize(("g", "R"), [(1, 0.5), (3, 1.0), (5, 2.0), (7, 4.0)])
def test_remez_as_shown_is_the_librarys_minimax(g, R):
    assert LESSON["remez"](g, R) == pytest.approx(lowrank.polynomial("minimax", g, R).coefficients, rel=1e-5)


def test_section_15_4():
    p = Polynomial(LESSON["remez"](3, 1.0))
    peaks = np.concatenate([[-1], np.sort((p.deriv() - p).roots().real), [1]])
    errors = p(peaks) * np.exp(-peaks) - 1
    assert len(peaks) == 5 and (np.sign(errors[1:]) == -np.sign(errors[:-1])).all()
    assert abs(errors) == pytest.approx(abs(errors[0]), rel=1e-6)
    says("15.4", f"Five peaks for degree 3, all of size {abs(errors[0]):.6f}")
    found = [
        lowrank.smallest_degree(LESSON["made_by"](name), 4, 1e-2)
        for name in ("chebyshev", "minimax", "taylor")
    ]
    says("15.4", "{} and {}, beside {}".format(*found))
    shares = {}
    for R in (0.5, 1, 2, 4, 8):
        low, high = (lowrank.smallest_degree(LESSON["made_by"](n), R, 1e-2) for n in ("minimax", "taylor"))
        shares[R] = low / high
    assert shares[0.5] == pytest.approx(2 / 3) and shares[4] < 0.5 and shares[8] == pytest.approx(0.4)
    says("15.4", "two thirds of Taylor's degree at $R = 0.5$, less than half of it at $R = 4$ and 0.4 of it")
    assert min(shares.values()) >= 0.4 and max(shares.values()) < 0.7
    assert "Minimax needs 0.4 to 0.7 of Taylor's degree" in TEXT
    taylor, minimax = (lowrank.smallest_degree(LESSON["made_by"](n), 2, 1e-2) for n in ("taylor", "minimax"))
    says(
        "15.4",
        f"Taylor's degree {taylor} takes {comb(12 + taylor, 12):,} features and minimax' degree {minimax}",
    )
    says("15.4", f"takes {comb(12 + minimax, 12):,}.")
    assert polynomials.largest_error(polynomials.taylor(4), 2.0) > 1  # "above 1 at the left end"


def test_chebyshev_goes_through_exp_at_the_nodes_of_the_text():
    for g, R in ((2, 1.0), (5, 3.0)):
        nodes = R * np.cos(np.pi * (np.arange(g + 1) + 0.5) / (g + 1))
        assert Polynomial(polynomials.chebyshev(g, R))(nodes) == pytest.approx(np.exp(nodes))
    says("15.4", r"s = R\cos\bigl(\pi(j + \tfrac12)/(g + 1)\bigr)")


# ---------------------------------------------------------------------- 15.5
X, W = hermegauss(80)
W = W / W.sum()


@pytest.mark.parametrize("sigma", [0.25, 0.5, 0.85])
@pytest.mark.parametrize("g", [2, 3, 4, 5])
def test_formulas_15_9_to_15_11(sigma, g):
    """The projection in the mean square under N(0, σ²), by quadrature, and what it leaves."""
    s = sigma * X
    terms = [sigma**l / factorial(l) * hermeval(X, np.eye(g + 1)[l]) for l in range(g + 1)]
    best = exp(sigma**2 / 2) * sum(terms)
    series = exp(sigma**2 / 2) * sum(
        sigma**l / factorial(l) * hermeval(X[30:50], np.eye(60)[l]) for l in range(60)
    )
    assert series == pytest.approx(np.exp(s[30:50]))
    t = 0.3  # the generating function as the text has it
    by_degree = sum(hermeval(X[30:50], np.eye(40)[l]) * t**l / factorial(l) for l in range(40))
    assert by_degree == pytest.approx(np.exp(X[30:50] * t - t**2 / 2))
    for l in range(g + 1):  # the rest is orthogonal to every polynomial of the degree
        assert (W * (np.exp(s) - best) * X**l).sum() == pytest.approx(0, abs=1e-10)
    c = polynomials.hermite(g, np.array([sigma**2]))[:, 0]
    assert Polynomial(c)(s) == pytest.approx(sum(terms))
    left = (W * (np.exp(s) - best) ** 2).sum() / (W * np.exp(2 * s)).sum()
    assert left**0.5 == pytest.approx(LESSON["poisson_rule"](sigma, g))
    assert predicted_error(np.array([sigma**2]), g) == pytest.approx(left**0.5)
    says("15.5", r"\frac{\sigma^l}{l!},\mathrm{He}_l", r"\sqrt{\Pr[\mathrm{Poisson}(\sigma^2) > g]}")
    says("15.5", r"\sum_{m=0}^{\lfloor (g-l)/2 \rfloor} \frac{(-\sigma_i^2/2)^m}{m!}")


def test_formula_15_8_and_that_softmax_does_not_see_the_mean_key():
    rng = np.random.default_rng(3)
    q, K = rng.standard_normal((6, 5)), rng.standard_normal((70, 5)) + 2
    C = np.cov(K.T, bias=True)
    assert np.einsum("ia,ab,ib->i", q, C, q) == pytest.approx((q @ K.T).var(axis=1))
    shifted = exact.softmax(q @ (K - K.mean(axis=0)).T)
    assert shifted == pytest.approx(exact.softmax(q @ K.T))
    says("15.5", r"\sigma_i^2 = q_i^\top C, q_i")


def test_own_coefficients_as_shown_are_the_librarys():
    variances = np.array([0.0, 0.3, 0.79, 0.81, 4.0])
    for g in (1, 2, 3, 4, 7):
        assert (LESSON["own_coefficients"](g, variances) == polynomials.hermite(g, variances)).all()
    assert polynomials.CLIP == 0.8
    says("15.5", r"\min(\sigma_i^2, 0.8)")


def unclipped(g, variance):
    series = np.cumsum([(-variance / 2) ** m / factorial(m) for m in range(g // 2 + 1)], axis=0)
    return np.array([series[(g - l) // 2] / factorial(l) for l in range(g + 1)])


def positive(g, variance):
    p = Polynomial(unclipped(g, variance))
    turns = p.deriv().roots()
    return (p(turns.real[abs(turns.imag) < 1e-9]) > 0).all()


def test_even_degrees_are_positive_up_to_a_variance():
    s = np.linspace(-9, 9, 50)
    assert Polynomial(unclipped(2, 0.7))(s) == pytest.approx(0.5 * (s + 1) ** 2 + 0.5 * (1 - 0.7))
    assert positive(2, 0.999) and not positive(2, 1.001)
    limits = {}
    for g in range(4, 25, 2):
        low, high = 0.5, 2.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if positive(g, middle) else (low, middle)
        limits[g] = low
        assert all(positive(g, v) for v in np.linspace(0, 0.8, 81))
    says("15.5", "are {:.2f}, {:.2f} and {:.2f}".format(*(limits[g] for g in (4, 6, 8))))
    assert all(limits[g] > limits[g - 2] for g in range(8, 25, 2))  # "from there on they rise"


def test_section_15_5():
    rng = np.random.default_rng(15)
    keys, queries = rng.standard_normal((2000, 8)), rng.standard_normal((200, 8))
    keys -= keys.mean(axis=0)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    off, own = LESSON["weights_off"], LESSON["own_coefficients"]
    S, gains = 0.5 * queries @ keys.T, []
    for g in (2, 4, 6):
        shared = off(S, np.repeat(LESSON["taylor"](g)[:, None], len(S), axis=1))
        gains.append(shared / off(S, own(g, S.var(axis=1))))
        if g == 4:
            says("15.5", f"error of {100 * shared:.3f} percent", f"{100 * shared / gains[-1]:.4f} percent")
    says("15.5", "{:.1f} times at degree 2, {:.1f} times at degree 4 and {:.1f} times at".format(*gains))
    says("15.5", f"the rule said {100 * LESSON['poisson_rule'](0.5, 4):.3f}")
    S = queries @ keys.T
    best = np.stack([unclipped(4, v) for v in S.var(axis=1)], axis=1)
    clipped = off(S, own(4, S.var(axis=1)))
    says("15.5", f"it left {clipped:.4f} where the unclipped one would leave {off(S, best):.4f}")
    assert clipped < off(S, np.repeat(LESSON["taylor"](4)[:, None], len(S), axis=1))


# ---------------------------------------------------------------------- 15.6
def test_formula_15_12_is_attention_with_the_polynomial():
    rng = np.random.default_rng(4)
    Q, K, V = 0.5 * rng.standard_normal((3, 30, 3))
    for g in (2, 4):
        A = Polynomial(LESSON["taylor"](g))(exact.scores(Q, K))
        want = A @ V / A.sum(axis=1, keepdims=True)
        assert LESSON["two_passes"](Q, K, V, g) == pytest.approx(want)
        plain = lowrank.attention(
            Q, K - K.mean(axis=0), V, degree=g, polynomial="taylor", engine="numpy"
        )  # the library subtracts the mean key
        assert LESSON["two_passes"](Q, K - K.mean(axis=0), V, g) == pytest.approx(plain)
    says(
        "15.6",
        r"\phi(q_i), T",
        r"T = \sum_j \psi(k_j)^\top,[1, v_j]",
        "2Nr(d+1)",
        f"the rank is {comb(10, 6)}.",
    )


def test_section_15_6():
    Q, K, V = np.random.default_rng(17).uniform(-1, 1, (3, 512, 4))
    given = LESSON["features_for"](4, 3)
    done = run(LESSON["my_low_rank"], M=188, Q=Q, K=K, V=V, **given)
    form = costs.low_rank(512, 4, g=3, rc=35, Bd=5)
    assert done.ledger == form and form.peak == 184 and form.total == 4 * 512 * 4
    A = Polynomial(LESSON["taylor"](3))(exact.scores(Q, K))
    want = A @ V / A.sum(axis=1, keepdims=True)
    assert abs(done.O - want).max() < 1e-12
    flash = costs.flash_optimal(512, 4, **schedules.flash_optimal.tiles(512, 4, 188)).total
    says(
        "15.6", f"{form.total:,} words, which is $4Nd$", f"moves {flash:,}, which is {flash / 8192:.1f} times"
    )
    says("15.6", "$r = 35$, and the state has 175 words", "the state and 13 words more, 188 in all")
    assert LESSON["taylor_weight"]((0, 0)) == 0.5 and LESSON["taylor_weight"]((0, 1)) == 1


# ---------------------------------------------------------------------- 15.7
@pytest.mark.parametrize(("d", "g", "N"), [(3, 2, 7), (12, 3, 40), (5, 3, 11)])
def test_formulas_15_13_and_15_14(d, g, N):
    r = comb(d + g, g)
    for pieces in (2, 3, 5):
        rc = -(-r // pieces)
        k = -(-r // rc)
        words = 3 * N * d * k + N * d * (2 * k - 1) + 2 * N * (k - 1)
        assert costs.low_rank(N, d, g=g, rc=rc, Bd=d + 1).total == words
        Bd = -(-(d + 1) // pieces)
        c = -(-(d + 1) // Bd)
        if c > 1:
            assert costs.low_rank(N, d, g=g, rc=r, Bd=Bd).total == 2 * N * d * (c + 1) + N * c
    says("15.7", "W = 3Ndk + Nd,(2k - 1) + 2N(k - 1)", "W = 2Nd,(c + 1) + Nc")


def test_the_leading_terms_of_15_13_and_15_14():
    """Large d and a state of many times M: 5 and 2 times rNd²/M."""
    d, g, N = 512, 2, 10**6
    r = rank_of(d, g)
    M = 40 * (r + 1) + d
    unit = r * N * d * d / M
    columns = costs.low_rank(N, d, g=g, rc=r, Bd=40).total
    rows = costs.low_rank(N, d, g=g, rc=(M - 2 * d - 1) // (d + 1), Bd=d + 1).total
    assert columns / unit == pytest.approx(2, rel=0.1) and rows / unit == pytest.approx(5, rel=0.1)


def test_section_15_7():
    low, flash = LESSON["words"](40_960, 12, 3, 4096)
    least, which = bounds.lower_bound("forward", 40_960, 12, 4096)
    assert which == "A"
    crossing = schedules.crossing(12, 3, 4096)
    says("15.7", f"{crossing.N}, and {flash / low:.2f} times fewer", f"low rank moves {low:,} words")
    says(
        "15.7", f"every exact schedule for {least:,}", f"r = {crossing.rank}$, and the state has 5,915 words"
    )
    asked = ((12, 3, 4096), (12, 4, 4096), (12, 4, 16384), (64, 2, 65536), (64, 3, 65536))
    for whole in (False, True):
        ranks = sorted(schedules.crossing(*at, whole_rows=whole).ranks for at in asked)
        says("15.7", f"between {ranks[0]:.2f} and {ranks[-1]:.2f} ranks")
    moved = [schedules.crossing(12, 4, M).N for M in (4096, 16384)]
    says("15.7", "from {:,} to {:,}".format(*moved))
    fits = schedules.crossing(12, 3, 16384)
    assert fits.tiles == {"rc": 455, "Bd": 13}
    rows = schedules.flash_optimal.tiles(10**6, 12, 16384)["Br"]
    assert rows + 1 == fits.N
    says("15.7", f"from $N = {fits.N}$ on", f"here that is {-(-455 * 13 // 12)}.")
    N = -(-455 * 13 // 12)  # the first whole N with 2Nr(d + 1) <= 2N²d
    assert N * 12 >= 455 * 13 and (N - 1) * 12 < 455 * 13
    says("15.7", f"that is {455 / 12:.0f} times $4Nd$")
    assert f"moved {least / low:.0f} times fewer words than Theorem A" in TEXT


# ---------------------------------------------------------------------- 15.8
def test_section_15_8():
    polynomial = np.array([1.0, 1 - 1.999])
    O = polynomial @ [-1, 1] / polynomial.sum()
    right = exact.softmax(np.array([0.0, -1.999])) @ [-1, 1]
    says("15.8", f"the output is ${O:.1f}$ where the exact one is ${right:.3f}$")
    roots = [-polynomials.positive_to(polynomials.taylor(g)) for g in (1, 3, 5, 7)]
    says("15.8", "at $-1$, ${1:.3f}$, ${2:.3f}$ and ${3:.3f}$ for $g = 1, 3, 5, 7$".format(*roots))
    for g in (2, 4, 6, 8):
        p = Polynomial(polynomials.taylor(g))
        turn = p.deriv().roots()
        s = float(turn.real[abs(turn.imag) < 1e-9][0])
        assert p(s) == pytest.approx(s**g / factorial(g)) and p(s) > 0
    rng = np.random.default_rng(18)
    Q, K = rng.standard_normal((2, 1000, 8))
    counts = [LESSON["my_safe_rows"](0.12 * Q, K, LESSON["taylor"](g)).sum() for g in (1, 3, 5, 7, 4)]
    says("15.8", "{}, {}, {} and {} of 1000 rows for the odd degrees".format(*counts[:4]))
    assert counts[4] == 1000


def test_jensen_keeps_the_exact_sum_at_N():
    S = 3 * np.random.default_rng(5).standard_normal((40, 25))
    S -= S.mean(axis=1, keepdims=True)
    assert (np.exp(S).sum(axis=1) >= 25).all()


def test_what_is_refused_in_15_8():
    far_out = np.array([[-5.0], [1], [1], [1], [1], [1]])
    one = np.ones((1, 1))
    with pytest.raises(lowrank.NotCertified, match=r"row 0 .*-1\.4 .*degree 3.*±5"):
        lowrank.attention(one, far_out, far_out, degree=3, scale=1.0, engine="numpy")
    assert np.exp(far_out).sum() >= 6
    lowrank.attention(one, far_out, far_out, degree=4, scale=1.0, engine="numpy")
    says("15.8", "The computed sum is $-1.4$ where the exact one is at least 6")


def _large(seed):
    """Relative error of 200 rows, and what the rule says, drawn as in the cell."""
    n, size = 40_960, 12
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((2, n, size)) / size**0.5
    V = rng.standard_normal((n, size))
    O = lowrank.attention(Q, K, V, degree=3, scale=1.0, engine="numpy")
    some = rng.choice(n, 200, replace=False)
    right = exact.attention(Q[some], K, V, scale=1.0)
    rule = LESSON["poisson_rule"](np.linalg.norm(Q, axis=1) / size**0.5, 3)
    return np.linalg.norm(O[some] - right) / np.linalg.norm(right), np.mean(rule**2) ** 0.5


def test_the_large_problem_of_15_8():
    (error, rule), others = _large(19), [_large(seed)[0] for seed in (20, 21)]
    says("15.8", f"{error:.5f}, where the rule, averaged over the squares of all rows, says {rule:.5f}")
    says("15.8", "it came out at {:.4f} and {:.4f}".format(*others))
    says("15.8", f"{40_960**2:,} pairs would have been {40_960**2 * 8 / 1e9:.1f} GB")


# ---------------------------------------------------------------------- 15.9, 15.10
def test_section_15_9():
    degree = LESSON["degree_for"]
    assert [degree(s, 0.01) for s in (0.25, 0.5, 1)] == [2, 4, 6]
    says("15.9", f"degree 2 has {comb(66, 2):,} features; degree 4 has {comb(68, 4):,}", f"{comb(70, 6):,}")
    says(
        "15.9", f"as many as {comb(70, 6) / 2**20:.0f} such texts together", f"cost {comb(72, 8):,} features"
    )
    assert 0.7 < comb(68, 4) / 2**20 < 1  # "nearly as many as a text of a million tokens"
    assert comb(64 + 4, 4) == pytest.approx(64**4 / factorial(4), rel=0.2)  # "grows like d^g/g!"
    assert f"$\\sigma = 1$ the factor is {comb(70, 6):,}" in TEXT


def test_real_heads_in_15_9():
    found = {pair: lowrank.advise(real_head(*pair).Q, real_head(*pair).K) for pair in real_heads()}
    none = [pair for pair, advice in found.items() if advice.degree is None]
    billions = [pair for pair, advice in found.items() if advice.rank and advice.rank > 10**9]
    assert (len(none), len(billions), len(found)) == (3, 4, 8)
    kind = found[0, 11]
    says(
        "15.9", f"$\\sigma = {kind.logit_std:.2f}$ and needs degree {kind.degree}", f"{kind.rank:,} features"
    )
    says("15.9", f"from $N = {schedules.crossing(32, kind.degree, 65536).N:,}$ on", f"{kind.n} tokens")
    assert min(advice.logit_std for advice in found.values()) == kind.logit_std
    head = real_head(0, 11)
    Q, K = head.Q.astype(float) / 32**0.5, head.K.astype(float)
    S = Q @ (K - K.mean(0)).T
    next_one, largest = np.sort(S, axis=None)[-2:]
    says("15.9", f"one of its {S.size:,} is {largest:.1f}, the next {next_one:.1f}")
    others = np.delete(head.Q, S.max(axis=1).argmax(), axis=0)
    rule = next(g for g, error in enumerate(kind.predicted, 1) if error <= 0.01)
    says("15.9", f"by the rule degree {rule} would do")
    assert lowrank.advise(others, head.K).degree == rule  # "that one row carries the error"
    assert all(advice.exact_is_better for advice in found.values())


def test_section_15_10():
    (_, x), (_, far) = LESSON["exponent"](20), LESSON["exponent"](1000)
    says(
        "15.10",
        f"{x:.2f}: at a million tokens the work is $Nr = N^{{{1 + x:.2f}}}$",
        f"to {far:.2f} at $N = 2^",
    )
    for bits in (10, 20):  # against whole numbers
        g = next(g for g in range(1, 99) if 0.25 ** (g + 1) * exp(0.25) / factorial(g + 1) < 2.0**-bits)
        assert LESSON["exponent"](bits) == (g, pytest.approx(log(comb(bits + g, g)) / log(2.0**bits)))
        assert polynomials.largest_error(polynomials.taylor(g), 0.25) < 2.0**-bits
    assert lgamma(11) == pytest.approx(log(factorial(10)))
    steps = [LESSON["exponent"](bits)[1] for bits in (10, 20, 40, 80, 1000, 10_000)]
    assert sorted(steps, reverse=True) == steps  # "the exponent does go down"


def test_the_first_picture_of_15_11():
    numbers = explore.low_rank_explorer_picture().numbers.splitlines()
    certified = next(line for line in numbers if line.lstrip().startswith("weights, certified"))
    measured = next(line for line in numbers if line.lstrip().startswith("weights, measured"))
    assert certified.endswith(" 470 %") and measured.endswith(" 0.2 %")
    says("15.11", "470 percent at the beginning, with the measured one, 0.2 percent")


# ---------------------------------------------------------------------- the exercises' own ground
def test_the_scores_of_15_3_keep_every_polynomial_positive():
    for seed in range(20):
        for case in find("15.3").cases(np.random.default_rng(seed)):
            assert np.isfinite(case.expected).all()
            S = exact.scores(case.inputs["Q"], case.inputs["K"])
            assert abs(S).max() <= 0.9 + 1e-12
    for c in ([1, 1], [1, 1, 0.5], [1, 1, 0.5, 1 / 6], [1.0, 0.9, 0.6, 0.1], [1.0, 0.9, 0.6]):
        assert Polynomial(c)(np.linspace(-0.9, 0.9, 200)).min() > 0.05


def test_the_cases_of_15_2_have_errors_inside_outside_and_out_of_order():
    for seed in range(10):
        for case in find("15.2").cases(np.random.default_rng(seed)):
            make, R, error = (case.inputs[name] for name in ("make", "R", "error"))
            g, largest = case.expected
            p = Polynomial(make(g, R))
            ends = max(abs(p(s) * exp(-s) - 1) for s in (-R, R))
            if exercises.INSIDE in case.label:
                assert ends < 1e-6 * largest
            if exercises.UNEVEN in case.label:
                assert exercises.largest_error(make(3 * (g // 3 + 1), R), R) > error
            if "right of 0" in case.label:
                s = np.linspace(-R, 0, 1001)
                assert abs(p(s) * np.exp(-s) - 1).max() < 0.5 * largest
            if exercises.RIGHT_END in case.label:
                assert abs(p(R) * exp(-R) - 1) == pytest.approx(largest)
                assert abs(p(-R) * exp(R) - 1) < 1e-6 * largest
            if "longer interval" in case.label:
                assert exercises.largest_error(np.asarray(make(g, R)), 2 * R) > 2 * largest


def test_every_case_of_15_4_has_safe_rows_and_most_have_others():
    for seed in range(10):
        cases = find("15.4").cases(np.random.default_rng(seed))
        assert all(case.expected.any() for case in cases)
        mixed = [case for case in cases if not case.expected.all()]
        assert len(mixed) >= 6
        assert all(exercises.EVEN not in case.label for case in mixed)
        (again,) = (case for case in cases if exercises.AGAIN in case.label)
        Q, K, c = (again.inputs[name] for name in "QKc")
        reach = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()
        positive_there = (Polynomial(c)(reach) > 0) & (Polynomial(c)(-reach) > 0)
        assert (positive_there & ~again.expected).any()
