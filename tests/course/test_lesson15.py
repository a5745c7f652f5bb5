"""Tests of lessons 15 and 15b: statements, formulas that the build does not compare, and exercises."""

import ast
from collections import Counter
from itertools import combinations_with_replacement
from math import comb, exp, factorial, log, prod

import numpy as np
import pytest
from lesson_source import Lesson
from numpy.polynomial import Polynomial
from numpy.polynomial.hermite_e import hermegauss, hermeval

from iocourse import exact, lowrank, run
from iocourse.course.checking import failed_properties, judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson15 as exercises
from iocourse.course.points import points_of
from iocourse.lowrank import polynomials
from iocourse.lowrank.advice import predicted_error
from iocourse.monomials import coordinates, plan, rank_of
from tests.mutation.references import build, exercise_source

SOURCES = Lesson("15_"), Lesson("15b_")
SECOND = 6  # first section of part b


def says(number, *formulas):
    """Assert that the section, in part a or b, contains these formulas or words."""
    SOURCES[int(number.split(".")[1]) >= SECOND].says(number, *formulas)


def _functions():
    """Return the names defined in both parts: imports, functions and solved exercises."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    found = {}
    for _, source in (cell for evening in SOURCES for cell in evening.solved_cells()):
        lines = [ast.unparse(node) for node in ast.parse(source).body if isinstance(node, kinds)]
        exec("\n".join(lines), found)
    return found


LESSON = _functions()


# ---------------------------------------------------------------------- 15.1
ENTRIES = np.random.default_rng(15).uniform(-1, 1, (2, 400, 4))


def test_ranks_needed_are_those_of_the_best_matrix_of_a_rank():
    P = exact.softmax(exact.scores(*(0.5 * ENTRIES)))
    (rank,) = LESSON["ranks_needed"](P, (1e-2,))
    U, s, Vt = np.linalg.svd(P)
    for r in (rank - 1, rank):
        left = np.linalg.norm(P - (U[:, :r] * s[:r]) @ Vt[:r]) / np.linalg.norm(P)
        assert (left <= 1e-2) == (r == rank)


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
@pytest.mark.parametrize(("d", "l"), [(2, 2), (3, 4), (5, 3)])
def test_formula_15_3_and_how_many_there_are(d, l):
    q, k = np.random.default_rng(d).standard_normal((2, d))
    terms = []
    for axes in combinations_with_replacement(range(d), l):
        orders = factorial(l) / prod(map(factorial, Counter(axes).values()))
        terms.append(orders * q[list(axes)].prod() * k[list(axes)].prod())
    assert sum(terms) == pytest.approx((q @ k) ** l)
    assert sum(1 for n in range(l + 1) for _ in combinations_with_replacement(range(d), n)) == rank_of(d, l)
    says("15.2", r"\frac{l!}{a_1!\cdots a_d!}; q^a,k^a".replace("; ", r"\; "))
    says("15.2", r"(x_1^2,\ \sqrt2,x_1x_2,\ x_2^2)")


def test_features_are_made_in_the_order_of_15_2():
    assert LESSON["kronecker"](12, 3) == 1 + 12 + 144 + 1728
    assert LESSON["kronecker"](64, 4) / comb(68, 4) < factorial(4)  # "up to g!"
    p = plan(3, 2)  # the list in the text, degree by degree
    names = [" ".join(f"x{i + 1}" for i in column if i < 3) for column in coordinates(p).T]
    assert names[1:4] == ["x1", "x2", "x3"]
    assert {"".join(sorted(name)) for name in names[4:]} == {
        "".join(sorted(f"x{a} x{b}")) for a, b in ((1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3))
    }
    assert [(s.last - s.first, s.axis) for s in p.steps] == [(3, 0), (2, 1), (1, 2)]  # by smallest coordinate


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
    assert integral <= R ** (g + 1) * exp(R) / factorial(g + 1)  # the bound of section 15.10
    rest = Polynomial(c).deriv() - Polynomial(c)
    assert rest(1.3) == pytest.approx(-(1.3**g) / factorial(g))
    says("15.3", r"\frac{1}{g!}\int_0^R t^g e^{t},dt", "p' - p = -s^g/g!")
    says("15.10", "at most $R^{g+1}e^R/(g + 1)!$")


# ---------------------------------------------------------------------- 15.7 the best polynomial
@pytest.mark.parametrize(("g", "R"), [(1, 0.5), (3, 1.0), (5, 2.0), (7, 4.0)])
def test_remez_as_shown_is_the_librarys_minimax(g, R):
    assert LESSON["remez"](g, R) == pytest.approx(lowrank.polynomial("minimax", g, R).coefficients, rel=1e-5)


def test_the_peaks_of_minimax_are_equal():
    p = Polynomial(LESSON["remez"](3, 1.0))
    peaks = np.concatenate([[-1], np.sort((p.deriv() - p).roots().real), [1]])
    errors = p(peaks) * np.exp(-peaks) - 1
    assert len(peaks) == 5 and (np.sign(errors[1:]) == -np.sign(errors[:-1])).all()
    assert abs(errors) == pytest.approx(abs(errors[0]), rel=1e-6)
    assert polynomials.largest_error(polynomials.taylor(4), 2.0) > 1  # "above 1 at the left end"


def test_chebyshev_goes_through_exp_at_the_nodes_of_the_text():
    for g, R in ((2, 1.0), (5, 3.0)):
        nodes = R * np.cos(np.pi * (np.arange(g + 1) + 0.5) / (g + 1))
        assert Polynomial(polynomials.chebyshev(g, R))(nodes) == pytest.approx(np.exp(nodes))
    says("15.7", r"s = R\cos\bigl(\pi(j + \tfrac12)/(g + 1)\bigr)")


# ---------------------------------------------------------------------- 15.6 a row's own
X, W = hermegauss(80)
W = W / W.sum()


@pytest.mark.parametrize("sigma", [0.25, 0.5, 0.85])
@pytest.mark.parametrize("g", [2, 3, 4, 5])
def test_formulas_15_10_and_15_11_and_their_series(sigma, g):
    """The least-squares projection under N(0, σ²) and its remaining error, by quadrature."""
    s = sigma * X
    terms = [sigma**l / factorial(l) * hermeval(X, np.eye(g + 1)[l]) for l in range(g + 1)]
    best = exp(sigma**2 / 2) * sum(terms)
    series = exp(sigma**2 / 2) * sum(
        sigma**l / factorial(l) * hermeval(X[30:50], np.eye(60)[l]) for l in range(60)
    )
    assert series == pytest.approx(np.exp(s[30:50]))
    t = 0.3  # the generating function of the lesson
    by_degree = sum(hermeval(X[30:50], np.eye(40)[l]) * t**l / factorial(l) for l in range(40))
    assert by_degree == pytest.approx(np.exp(X[30:50] * t - t**2 / 2))
    for l in range(g + 1):  # the error is orthogonal to every polynomial of this degree
        assert (W * (np.exp(s) - best) * X**l).sum() == pytest.approx(0, abs=1e-10)
    c = polynomials.hermite(g, np.array([sigma**2]))[:, 0]
    assert Polynomial(c)(s) == pytest.approx(sum(terms))
    left = (W * (np.exp(s) - best) ** 2).sum() / (W * np.exp(2 * s)).sum()
    assert left**0.5 == pytest.approx(LESSON["poisson_rule"](sigma, g))
    assert predicted_error(np.array([sigma**2]), g) == pytest.approx(left**0.5)
    says("15.6", r"\frac{\sigma^l}{l!},\mathrm{He}_l", r"\sqrt{\Pr[\mathrm{Poisson}(\sigma^2) > g]}")


def test_the_variance_of_15_6_and_that_softmax_does_not_see_the_mean_key():
    rng = np.random.default_rng(3)
    q, K = rng.standard_normal((6, 5)), rng.standard_normal((70, 5)) + 2
    C = np.cov(K.T, bias=True)
    assert np.einsum("ia,ab,ib->i", q, C, q) == pytest.approx((q @ K.T).var(axis=1))
    shifted = exact.softmax(q @ (K - K.mean(axis=0)).T)
    assert shifted == pytest.approx(exact.softmax(q @ K.T))
    says("15.6", r"\sigma_i^2 = q_i^\top C, q_i")


def test_own_coefficients_as_shown_are_the_librarys():
    variances = np.array([0.0, 0.3, 0.79, 0.81, 4.0])
    for g in (1, 2, 3, 4, 7):
        assert (LESSON["own_coefficients"](g, variances) == polynomials.hermite(g, variances)).all()


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
    assert all(limits[g] > limits[g - 2] for g in range(8, 25, 2))  # "from there on they rise"


# ---------------------------------------------------------------------- 15.4 two passes
def test_formula_15_8_is_attention_with_the_polynomial():
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
    says("15.4", r"\phi(q_i), T", r"T = \sum_j \psi(k_j)^\top,[1, v_j]", "2Nr(d+1)")


# ---------------------------------------------------------------------- 15.5 tiles of the state
# ---------------------------------------------------------------------- 15.8
def test_even_degrees_are_lowest_at_a_power_and_every_row_of_15_8_is_safe_with_one():
    for g in (2, 4, 6, 8):
        p = Polynomial(polynomials.taylor(g))
        turn = p.deriv().roots()
        s = float(turn.real[abs(turn.imag) < 1e-9][0])
        assert p(s) == pytest.approx(s**g / factorial(g)) and p(s) > 0
    for g in (1, 3, 5, 7):
        assert Polynomial(polynomials.taylor(g))(-polynomials.positive_to(polynomials.taylor(g))) < 1e-9
    Q, K = np.random.default_rng(18).standard_normal((2, 100, 8))
    assert LESSON["my_safe_rows"](0.12 * Q, K, LESSON["taylor"](4)).all()


@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_what_is_refused_in_15_8():
    far_out = np.array([[-5.0], [1], [1], [1], [1], [1]])
    one = np.ones((1, 1))
    with pytest.raises(lowrank.NotCertified, match=r"row 0 .*-1\.4 .*degree 3.*±5"):
        lowrank.attention(one, far_out, far_out, degree=3, scale=1.0, engine="numpy")
    assert np.exp(far_out).sum() >= 6
    lowrank.attention(one, far_out, far_out, degree=4, scale=1.0, engine="numpy")


def _large(seed):
    """Return the relative error of 200 rows, drawn as in the cell."""
    n, size = 40_960, 12
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((2, n, size)) / size**0.5
    V = rng.standard_normal((n, size))
    O = lowrank.attention(Q, K, V, degree=3, scale=1.0, engine="numpy")
    some = rng.choice(n, 200, replace=False)
    right = exact.attention(Q[some], K, V, scale=1.0)
    return np.linalg.norm(O[some] - right) / np.linalg.norm(right)


def test_other_seeds_of_the_large_problem_are_two_thirds_and_less_than_half():
    shown = 0.00329  # relative error of the output, which the check bounds
    assert _large(20) / shown == pytest.approx(2 / 3, abs=0.05) and _large(21) < shown / 2


# ---------------------------------------------------------------------- 15.9, 15.10
def test_the_exponent_of_15_10():
    for bits in (10, 20):  # compared with integer arithmetic
        g = next(g for g in range(1, 99) if 0.25 ** (g + 1) * exp(0.25) / factorial(g + 1) < 2.0**-bits)
        assert LESSON["exponent"](bits) == (g, pytest.approx(log(comb(bits + g, g)) / log(2.0**bits)))
        assert polynomials.largest_error(polynomials.taylor(g), 0.25) < 2.0**-bits
    steps = [LESSON["exponent"](bits)[1] for bits in (10, 20, 40, 80, 1000, 10_000)]
    assert sorted(steps, reverse=True) == steps  # "the exponent does go down"


# ---------------------------------------------------------------------- exercises
def test_the_scores_of_15C_keep_every_polynomial_positive_or_its_negative():
    for seed in range(20):
        for case in find("15C").cases(np.random.default_rng(seed)):
            assert np.isfinite(case.expected).all()
            S = exact.scores(case.inputs["Q"], case.inputs["K"])
            assert abs(S).max() <= 0.9 + 1e-12
    for c in ([1, 1], [1, 1, 0.5], [1, 1, 0.5, 1 / 6], [1.0, 0.9, 0.6, 0.1], [1.0, 0.9, 0.6]):
        assert Polynomial(c)(np.linspace(-0.9, 0.9, 200)).min() > 0.05


def test_the_cases_of_15B_have_errors_inside_outside_and_out_of_order():
    for seed in range(10):
        for case in find("15B").cases(np.random.default_rng(seed)):
            make, R, error = (case.inputs[name] for name in ("make", "R", "error"))
            g, largest = case.expected
            p = Polynomial(make(g, R))
            ends = max(abs(p(s) * exp(-s) - 1) for s in (-R, R))
            if case.has(exercises.INSIDE):
                assert ends < 1e-2 * largest
            if case.has(exercises.UNEVEN):
                assert exercises.largest_error(make(3 * (g // 3 + 1), R), R) > error
            if case.has(exercises.RIGHT_OF_0):
                s = np.linspace(-R, 0, 1001)
                assert abs(p(s) * np.exp(-s) - 1).max() < 0.5 * largest
            if case.has(exercises.RIGHT_END):
                assert abs(p(R) * exp(-R) - 1) == pytest.approx(largest)
                assert abs(p(-R) * exp(R) - 1) < 1e-6 * largest
            if case.has(exercises.LONGER):
                assert exercises.largest_error(np.asarray(make(g, R)), 2 * R) > 2 * largest


def test_every_case_of_15D_has_safe_rows_and_most_have_others():
    for seed in range(10):
        cases = find("15D").cases(np.random.default_rng(seed))
        assert all(case.expected.any() for case in cases)
        mixed = [case for case in cases if not case.expected.all()]
        assert len(mixed) >= 6
        assert not any(case.has(exercises.EVEN) for case in mixed)
        again = next(case for case in cases if case.has(exercises.AGAIN))
        Q, K, c = (again.inputs[name] for name in "QKc")
        reach = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()
        positive_there = (Polynomial(c)(reach) > 0) & (Polynomial(c)(-reach) > 0)
        assert (positive_there & ~again.expected).any()


# ---------------------------------------------------------------------- 15E
def _run(function, case):
    """Return the ledger of a schedule on a case, with its moves, and its values."""
    done = run(function, M=10**6, **case.inputs)
    return done.ledger, done.O


def test_what_is_handed_out_to_repair_is_what_the_lesson_measured():
    stopped = exercise_source("15E", solved=False)
    handed_out = build("15E", stopped.replace("    raise NotImplementedError\n", ""))
    for case in find("15E").cases(np.random.default_rng(0)):
        ours, shown = _run(exercises.columns_gone_wrong, case), _run(handed_out, case)
        assert ours[0] == shown[0] and ours[0].moves == shown[0].moves and (ours[1] == shown[1]).all()
        assert ours[1] == pytest.approx(case.expected)  # its values are correct
    verdicts = judge(find("15E"), handed_out, 0)
    assert points_of(find("15E"), verdicts).total == 0
    assert list(failed_properties(verdicts)) == [
        "fits in fast memory",
        "V is read once",
        "moves at most 2Nd words per iteration plus 2Nd",
    ]


def test_each_half_of_the_repair_of_15E_is_worth_its_properties():
    """Too much memory violates one property, and complete rows of V two."""
    found = exercise_source("15E", solved=False).replace("    raise NotImplementedError\n", "")
    stored = "                    m.store(o, O, i, c)\n"
    memory = found.replace(stored, f"{stored}            state.free()\n")
    loads = found.replace("m.load(V, j) as v", "m.load(V, j, c) as v").replace("v[:, c.start : c.stop]", "v")
    for half, share in ((memory, 1 / 3), (loads, 2 / 3)):
        points = points_of(find("15E"), judge(find("15E"), build("15E", half), 0))
        assert points.total / find("15E").importance == pytest.approx(share)


def test_a_constant_answer_to_15D_earns_nothing_for_its_little_memory():
    for answer in (lambda Q, K, c: np.ones(len(Q), bool), lambda Q, K, c: (Q**2).sum(axis=1) < c[0]):
        verdicts = judge(find("15D"), answer, 0)
        assert dict(verdicts)["does not compute the scores of all pairs"]
        assert points_of(find("15D"), verdicts).traffic == 0


def test_the_budget_of_15E_is_what_the_reference_moves_and_the_faults_are_two():
    for seed in range(3):
        for case in find("15E").cases(np.random.default_rng(seed)):
            (N, d), r = case.inputs["Q"].shape, len(case.inputs["phi"])
            turns, columns = -(-d // case.inputs["Bd"]), min(case.inputs["Bd"], d)
            repaired, _ = _run(LESSON["my_columns"], case)
            wrong, _ = _run(exercises.columns_gone_wrong, case)
            assert repaired == case.budget and repaired.peak == case.M - max(0, d - columns - 1)
            assert wrong.total - repaired.total == wrong.reads["V"] - N * d == (turns - 1) * N * d
            following = 0 if turns == 1 else d - columns if turns == 2 else columns
            in_a_turn = r * (1 + columns) + max(2 * d, d + columns + 1)  # k and v, or q, o and l
            assert wrong.peak == max(in_a_turn, r * (1 + columns + following))
