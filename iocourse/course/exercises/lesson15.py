"""Exercises of lesson 15: features, smallest degree, two passes, rows that are safe, a schedule to repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import cheb2poly
from numpy.typing import NDArray

from ... import costs
from ...ledger import Ledger
from ...machine import Features, Machine, SlowArray
from ...solution_guard import no_calls_into
from ..exercise import (
    Case,
    Exercise,
    Property,
    Trial,
    WrongForm,
    run_function,
    run_schedule,
    trial_from_error,
)
from ..properties import (
    Form,
    describe_value,
    difference,
    each,
    every_input_loaded,
    fits,
    idle,
    is_number,
    one_array,
    only_where,
    reads,
    reads_within,
    several,
    shortened,
    total_within,
    values,
    values_in,
    whole,
    writes,
)
from ..trials.streamed_rows import HeldTrial, least_held, memory_watch

Array = NDArray[np.float64]
Make = Callable[[int, float], Array]


def taylor(g: int, R: float = 1.0) -> Array:
    """1/l!, whatever R is. (g + 1,)."""
    return np.array([1 / factorial(l) for l in range(g + 1)])


def polynomial_of(S: Array, c: Sequence[float] | Array) -> Array:
    """Σ c_l Sˡ, entry by entry."""
    return np.asarray(Polynomial(c)(S), dtype=np.float64)


# ---------------------------------------------------------------------- 15A features of a row
ONE_COORDINATE, DEGREE_1 = "d=1", "g=1"


def _feature_cases(rng: np.random.Generator) -> list[Case]:
    """Several sizes, one coordinate and degree 1 among them; as many keys as queries, more, and fewer."""
    sizes = [(7, 9, 3, 2), (5, 6, 4, 3), (6, 6, 2, 5), (4, 5, 1, 7), (5, 3, 6, 1), (1, 2, 5, 4)]
    return [_feature_case(rng, *size) for size in sizes]


def _feature_case(rng: np.random.Generator, N: int, Nk: int, d: int, g: int) -> Case:
    Q, K = rng.uniform(-1.5, 1.5, (N, d)), rng.uniform(-1.5, 1.5, (Nk, d))
    want = polynomial_of(Q @ K.T, taylor(g))
    return Case(f"N={N}, d={d}, g={g}", {"Q": Q, "K": K, "g": g}, want)


LIBRARY = ("iocourse.monomials", "iocourse.lowrank")


def _no_call_into_the_library() -> AbstractContextManager[None]:
    """Any function of `LIBRARY` refuses: its parts answer these exercises, and later ones may use them."""
    return no_calls_into(LIBRARY, "is the library's own answer to this exercise")


@trial_from_error
def _play_features(student: Callable[..., Any], case: Case) -> Trial:
    """The student's features of all queries, of all keys, and of the first query alone.

    What comes first has to wait for what comes later, as it was.
    """
    Q, K, g = (case.inputs[name] for name in "QKg")
    found: list[Any] = []

    def kept(X: Array, g: int) -> Any:
        found.append(student(X, g))
        return found[-1]

    with _no_call_into_the_library():
        trials = [run_function(kept, Case(case.label, {"X": X, "g": g})) for X in (Q, K, Q[:1])]
    failed = next((trial for trial in trials if trial.error is not None), None)
    if failed is not None:
        return replace(failed, case=case)
    values = [trial.value for trial in trials]
    return Trial(case, value=tuple(values), returned=(values, found))


def _three(trial: Trial) -> tuple[Array, Array, Array] | None:
    """Features of queries, of keys and of one query, where each is one array of numbers."""
    found = [one_array(value) for value in trial.value]
    return None if any(x is None for x in found) else tuple(found)  # type: ignore[return-value]


def _not_features(trial: Trial) -> WrongForm:
    wrong = next(value for value in trial.value if one_array(value) is None)
    return WrongForm(
        f"expected one array of real numbers, a row for each row of X; yours is {describe_value(wrong)}"
    )


def _products(trial: Trial) -> str | None:
    three = _three(trial)
    if three is None:
        return _not_features(trial)
    phi, psi, _ = three
    if phi.ndim != 2 or psi.ndim != 2 or phi.shape[1] != psi.shape[1]:
        shapes = f"{phi.shape} and {psi.shape}"
        return WrongForm(f"features of Q and of K have shapes {shapes}; a row each, as many columns")
    return difference(phi @ psi.T, trial.case.expected)


def _count(trial: Trial) -> str | None:
    three = _three(trial)
    if three is None:
        return _not_features(trial)
    d, g = trial.case.inputs["Q"].shape[1], trial.case.inputs["g"]
    got, want = three[0].shape, (len(trial.case.inputs["Q"]), comb(d + g, g))
    return None if got == want else WrongForm(f"yours has shape {got}, expected {want}")


def _row_alone(trial: Trial) -> str | None:
    three = _three(trial)
    if three is None:
        return _not_features(trial)
    return difference(three[2], three[0][:1], wanted="among all rows")


FEATURES = Exercise(
    id="15A",
    title="Features of a row",
    function="my_features",
    difficulty=2,
    importance=5,
    minutes=12,
    hints=(
        "For d = 2 and g = 2 write down all six features by hand, with what they are divided by. What is a! "
        "for x₁x₁, and for x₁x₂?",
        "A monomial is a choice of coordinates with repetition and without order. The setup cell imports a "
        "function of itertools that lists just those, for each degree from 0 to g.",
        "For one choice, take those columns of X (one column may be taken several times) and multiply along "
        "axis 1; no columns at all give ones. Count how often each coordinate was chosen, and divide by the "
        "root of the product of the factorials of these counts. Stack the results as columns.",
    ),
    cases=_feature_cases,
    properties=(
        each("scalar products of features are Taylor's polynomial", _products),
        each("there are C(d + g, g) features a row", _count),
        only_where("one coordinate has the powers alone", ONE_COORDINATE, _products),
        only_where("degree 1 is the row with a 1", DEGREE_1, _products),
        idle(each("a row's features depend on that row alone", _row_alone)),
    ),
    run_case=_play_features,
)


# ---------------------------------------------------------------------- 15B the smallest degree
INSIDE, RIGHT_END, UNEVEN = "largest inside", "largest at the right end", "a larger degree that is worse"


def through(points: Array) -> Array:
    """Coefficients of the polynomial that equals exp at these points, as many as there are points."""
    powers = points[:, None] ** np.arange(len(points))
    return np.asarray(np.linalg.solve(powers, np.exp(points)), dtype=np.float64)


def chebyshev(g: int, R: float) -> Array:
    """Through exp at the Chebyshev nodes of [-R, R]. (g + 1,)."""
    points = R * np.cos(np.pi * (np.arange(g + 1) + 0.5) / (g + 1))
    return through(points)


def flattened(g: int, R: float) -> Array:
    """Through exp at -R and R and at equal distances between: errors inside, none at the ends. (g + 1,)."""
    return through(np.linspace(-R, R, g + 1))


def leaning(g: int, R: float) -> Array:
    """Through exp at the ends and at points that crowd towards -R: largest error right of 0. (g + 1,)."""
    return through(2 * R * np.linspace(0, 1, g + 1) ** 2 - R)


def from_the_left(g: int, R: float) -> Array:
    """Taylor's at -R: right at the left end, and farthest off at the right one. (g + 1,)."""
    p = Polynomial(taylor(g))(Polynomial([R, 1.0])) * np.exp(-R)
    return np.asarray(p.coef, dtype=np.float64)


def wide(g: int, R: float) -> Array:
    """Chebyshev's for twice the interval: p' = p outside of [-R, R] too. (g + 1,)."""
    return chebyshev(g, 2 * R)


def uneven(g: int, R: float) -> Array:
    """Taylor's, but degrees that are multiples of 3 are off by a fifth. (g + 1,)."""
    return taylor(g) * (1.2 if g % 3 == 0 else 1.0)


def largest_error(c: Array, R: float) -> float:
    """max |p(s) e⁻ˢ - 1| over [-R, R], from the places where p' = p and from the ends."""
    p = Polynomial(c)
    roots = (p.deriv() - p).roots()
    real = roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]
    s = np.append(real[abs(real) < R], [-R, R])
    return float(abs(p(s) * np.exp(-s) - 1).max())


@cache
def _waves(g: int) -> Array:
    """Coefficients of Chebyshev's polynomial of degree g. (g + 1,)."""
    return np.asarray(cheb2poly(np.eye(g + 1)[g]), dtype=np.float64)


def rippled(thirds: int, g: int, R: float) -> Array:
    """Taylor's with a Chebyshev ripple of g waves, whose highest lies narrow and just inside the left end.

    A grid of 200,001 points is off there in the eighth digit where the top lies between two of its points;
    `thirds` moves the top by so many thirds of their distance. (g + 1,).
    """
    stretch = np.cos(np.pi / (2 * g)) * (1 + thirds * 1e-5 / 3)  # the ripple is 0 at -R and R
    waves = _waves(g) * (stretch / R) ** np.arange(g + 1)
    return np.asarray(taylor(g) + 0.05 / g * waves, dtype=np.float64)


def _degree_cases(rng: np.random.Generator) -> list[Case]:
    """Taylor, Chebyshev, and others: farthest off inside or on the right, or worse at a larger degree."""
    R = float(rng.uniform(0.8, 1.2))
    asked: list[tuple[str, Make, float, float]] = [
        ("Taylor", taylor, R, 1e-2),
        ("Taylor", taylor, 3 * R, 1e-3),
        ("Taylor", taylor, 0.1 * R, 0.5),
        ("Chebyshev", chebyshev, 2 * R, 1e-4),
        (INSIDE, flattened, 2 * R, 1e-3),
        (INSIDE, flattened, R, 1e-2),
        (f"{INSIDE}, right of 0", leaning, 2 * R, 1e-2),
        (RIGHT_END, from_the_left, R, 1e-3),
        ("Chebyshev of a longer interval", wide, R, 1e-3),
        (UNEVEN, uneven, 1.0, 1e-2),  # degree 5; 8 and 7 will do, 6 will not
        (UNEVEN, uneven, 2.0, 1e-4),
    ]
    narrow = 0.05 * np.exp(0.9845 * R) / 15.5
    for thirds in range(3):  # each a function by name, for a grader sends it to another process
        asked.append((f"{INSIDE}, narrow", partial(rippled, thirds), R, narrow))
    return [_degree_case(*case) for case in asked]


def _degree_case(label: str, make: Make, R: float, error: float) -> Case:
    g = next(g for g in range(1, 60) if largest_error(make(g, R), R) <= error)
    want = g, largest_error(make(g, R), R)
    return Case(f"{label}, R={R:.3f}, error {error:.4g}", {"make": make, "R": R, "error": error}, want)


@trial_from_error
def _play_degree(student: Callable[..., Any], case: Case) -> Trial:
    with _no_call_into_the_library():
        return run_function(student, case)


Found = tuple[int, float]


def _pair(trial: Trial) -> Found | None:
    g, error = several(trial.value, 2) or (None, None)
    degree = whole(g)
    return None if degree is None or not is_number(error) else (degree, float(error))


DEGREE_AND_ERROR = Form(
    "returns a degree and an error", _pair, "a pair (g, error), g a whole number from 1 and error a number"
)


def _right_degree(trial: Trial, found: Found) -> str | None:
    got, want = found[0], trial.case.expected[0]
    return None if got == want else f"yours {got}, expected {want}"


def _right_error(trial: Trial, found: Found) -> str | None:
    """Eight digits, and what rounding leaves of 1 - 1."""
    got, want = found[1], trial.case.expected[1]
    return None if abs(got - want) <= 1e-8 * want + 1e-13 else f"yours {got:.12g}, expected {want:.12g}"


DEGREE = Exercise(
    id="15B",
    title="The smallest degree",
    function="my_degree",
    difficulty=3,
    importance=4,
    minutes=10,
    hints=(
        "Begin with the largest error of one polynomial. At which places can it be, and how does NumPy find "
        "them?",
        "Take the roots of p' - p, keep those that are real and lie inside (-R, R), and add the two ends. "
        "The largest of |p(s)e⁻ˢ - 1| over these few places is exact.",
        "A root that is real may come back with a tiny imaginary part: compare the size of that with 1e-9, "
        "and go on with the real part. Then count g upwards from 1 and stop at the first whose largest error "
        "is small enough.",
    ),
    cases=_degree_cases,
    properties=(
        DEGREE_AND_ERROR.must("it is the smallest degree", _right_degree),
        DEGREE_AND_ERROR.must("the largest error is right to eight digits", _right_error),
        DEGREE_AND_ERROR.must("an error inside the interval is seen", _right_error, INSIDE),
        DEGREE_AND_ERROR.must(
            "degrees are tried in order, for one may be worse than the one before", _right_degree, UNEVEN
        ),
    ),
    run_case=_play_degree,
)


# ---------------------------------------------------------------------- 15C two passes
OTHER, LONG = "other weights", "more tokens than features"


def _weight(axes: tuple[int, ...], c: Sequence[float] | Array) -> float:
    """c_l l!/a! of one monomial."""
    return float(c[len(axes)]) * factorial(len(axes)) / prod(map(factorial, Counter(axes).values()))


def features_of(d: int, c: Sequence[float] | Array, reverse: bool = False) -> dict[str, Features]:
    """`phi` and `psi` for the polynomial with coefficients c; reversed, the 1 comes last."""
    axes = [a for l in range(len(c)) for a in combinations_with_replacement(range(d), l)]
    axes = axes[::-1] if reverse else axes
    return {"phi": Features(axes), "psi": Features(axes, [_weight(a, c) for a in axes])}


def _pass_cases(rng: np.random.Generator) -> list[Case]:
    """Taylor of degrees 1 to 3, other coefficients, more tokens than features and fewer, one token.

    Scores are at most 1, where each of these polynomials has one sign: with weights that are negative, row
    sums are too, and in the quotient that cancels.
    """
    other = [1.0, 0.9, 0.6, 0.1]
    sizes: list[tuple[str, int, int, Sequence[float] | Array]] = [
        ("Taylor", 9, 3, taylor(2)),
        (LONG, 40, 2, taylor(3)),
        ("Taylor", 12, 6, taylor(2)),
        ("Taylor", 11, 5, taylor(1)),
        (OTHER, 13, 3, other),
        (f"{OTHER}, negative", 8, 3, [-c for c in other]),
        ("one token", 1, 4, taylor(2)),
    ]
    found = [_pass_case(rng, *size) for size in sizes]
    return [*found, _pass_case(rng, OTHER, 10, 4, other[:3], reverse=True)]


def _pass_case(
    rng: np.random.Generator, label: str, N: int, d: int, c: Sequence[float] | Array, reverse: bool = False
) -> Case:
    Q, K, V = rng.standard_normal((3, N, d))
    Q *= 0.9 * d**0.5 / abs(Q @ K.T).max()
    A = polynomial_of(Q @ K.T * d**-0.5, c)
    g, r = len(c) - 1, comb(d + len(c) - 1, d)
    budget = costs.low_rank(N, d, g=g, rc=r, Bd=d + 1)
    inputs: dict[str, Any] = {"Q": Q, "K": K, "V": V, **features_of(d, c, reverse)}
    return Case(
        f"{label}, N={N}, d={d}, r={r}", inputs, A @ V / A.sum(axis=1, keepdims=True), budget.peak + 4, budget
    )


TWO_PASSES = Exercise(
    id="15C",
    title="Two passes",
    function="my_low_rank",
    difficulty=3,
    importance=5,
    minutes=12,
    hints=(
        "Which array has to be in fast memory all the time, and which ones only pass by? In which order do "
        "the three inputs come?",
        "Make the state of len(psi) rows and d + 1 columns. First loop: a key and its value go into the "
        "state, the key alone into one of the columns. Second loop: a query takes d + 1 words from it.",
        "One add_matmul on a row of d + 1 words gives output and row sum together. Divide the view of the "
        "output in place by the view of the sum, which has shape (1, 1), and store that view.",
    ),
    cases=_pass_cases,
    properties=(
        values("values equal attention with the same polynomial"),
        values_in("the weights that psi carries are used", OTHER),
        fits(),
        every_input_loaded("Q", "K", "V"),
        *reads(Q="once", K="once", V="once"),
        *writes(O="once"),
        total_within("4Nd words, whatever the rank is"),
    ),
    run_case=run_schedule,
)


# ---------------------------------------------------------------------- 15D rows that are safe
EVEN, RIGHT, AGAIN, BORDER, MANY = (
    "no real root",
    "a root on the right alone",
    "positive again beyond two roots",
    "lengths around the root",
    "1,000 tokens",
)
ONE_COLUMN = 8  # arrays of as many words as Q has may be held at once, and so many words a token more


def _safe_cases(rng: np.random.Generator) -> list[Case]:
    """Odd and even degrees, roots on either side, rows of length zero, few rows safe and many."""
    Q, K = rng.standard_normal((60, 5)), rng.standard_normal((40, 5))
    Q[3] = 0.0
    longest = float(np.linalg.norm(K, axis=1).max())
    direction = Q[:20] / np.linalg.norm(Q[:20] + (Q[:20] == 0), axis=1, keepdims=True)
    border = direction * (np.linspace(0.7, 1.3, 20) / longest)[:, None]
    one_far = K.copy()
    one_far[-1] *= 6
    asked: list[tuple[str, Array, Array, Sequence[float] | Array]] = [
        ("Taylor of degree 3", 0.15 * Q, K, taylor(3)),
        ("Taylor of degree 5", 0.2 * Q, K, taylor(5)),
        (EVEN, 2 * Q, K, taylor(4)),
        (f"{EVEN}, long rows", 1e6 * Q[:9], K, taylor(4)),
        (f"{EVEN}, but nearly one", 0.2 * Q, K, [0.65, 1.6, 1.0]),
        (RIGHT, 0.15 * Q, K, [1.0, -0.8]),
        (RIGHT, 0.15 * Q, K, [24.0, -8.0, -4.0, -5.0]),
        (AGAIN, 0.18 * Q, K, [1.5, 2.5, 1.0]),
        ("roots on both sides", 0.15 * Q, K, [1.0, -0.2, -0.2]),
        (f"{AGAIN}, one beside the other", border, K, [1 - 1e-12, 2.0, 1.0]),
        (BORDER, border, K, taylor(1)),
        (
            f"{BORDER}, one of them just there",
            np.diag([3.0, 5.0, 7.0]),
            np.array([[0.6, 0.8, 0]]),
            [5.0, 1.0],
        ),
        ("one long key, the last", 0.15 * Q[:30], one_far, taylor(3)),
        ("a single key", 0.3 * Q, K[:1], taylor(3)),
    ]
    found = [_safe_case(*case) for case in asked]
    many = _safe_case(MANY, 0.1 * rng.standard_normal((1000, 8)), rng.standard_normal((1000, 8)), taylor(3))
    return [*found, many]


def _safe_case(label: str, Q: Array, K: Array, c: Sequence[float] | Array) -> Case:
    roots = Polynomial(c).roots()
    real = roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]
    reach = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()
    want = reach < abs(real).min(initial=np.inf)
    return Case(f"{label}, N={len(Q)}", {"Q": Q, "K": K, "c": np.asarray(c, dtype=np.float64)}, want)


@trial_from_error
def _play_safe(student: Callable[..., Any], case: Case) -> Trial:
    """With many tokens also tell how many bytes were held at once."""

    def attempt() -> HeldTrial:
        with memory_watch(case.has(MANY)) as held, _no_call_into_the_library():
            trial = run_function(student, case)
        return HeldTrial(**vars(trial), held=held())

    return least_held(attempt) if case.has(MANY) else attempt()


def _never_wrongly(trial: Trial) -> str | None:
    said, want = _truths(trial), trial.case.expected
    if isinstance(said, WrongForm):
        return said
    wrong = np.flatnonzero(said & ~want)
    return f"row {wrong[0]} is called safe, and is not" if len(wrong) else None


def _whenever_it_is(trial: Trial) -> str | None:
    said, want = _truths(trial), trial.case.expected
    if isinstance(said, WrongForm):
        return said
    missed = np.flatnonzero(want & ~said)
    return f"row {missed[0]} is safe, and is not called so" if len(missed) else None


def _told_apart(trial: Trial) -> str | None:
    """No row is wrongly called safe, and not for want of an answer: of these cases each has rows that are."""
    said = _truths(trial)
    if isinstance(said, WrongForm) or said.any():
        return _never_wrongly(trial)
    return f"{int(trial.case.expected.sum())} rows are safe, and none is called so"


def _each_row(trial: Trial) -> str | None:
    return _never_wrongly(trial) or _whenever_it_is(trial)


def _truths(trial: Trial) -> NDArray[np.bool_] | WrongForm:
    said, rows = trial.value, len(trial.case.expected)
    found = one_array(said)
    if found is None or found.shape != (rows,) or not np.isin(found, (0, 1)).all():
        yours = describe_value(said) if found is None or found.shape != (rows,) else shortened(said)
        return WrongForm(f"expected True or False for each of {rows} rows; yours is {yours}")
    return found.astype(bool)


def _no_pairs(trial: Trial) -> str | None:
    """Inputs are copied once for the student, who may hold several more of that size, and never N x N."""
    Q = trial.case.inputs["Q"]
    allowed = ONE_COLUMN * (Q.nbytes + 8 * len(Q))
    held = trial.held if isinstance(trial, HeldTrial) else 0
    return (
        None
        if held <= allowed
        else f"yours held {held / 8:,.0f} words at once, allowed are {allowed / 8:,.0f}"
    )


SAFE_PROPERTIES: tuple[Property, ...] = (
    idle(each("no row is called safe that is not", _never_wrongly)),
    idle(each("every safe row is called safe", _whenever_it_is)),  # so does an answer that is always True
    idle(only_where("a polynomial without real roots is always safe", EVEN, _whenever_it_is)),
    only_where("a root on the right counts as one on the left", RIGHT, _told_apart),
    only_where("between two roots is not safe, and beyond them neither", AGAIN, _told_apart),
    only_where("each row is judged by its own length", BORDER, _each_row),
    idle(only_where("no pairs are formed", MANY, _no_pairs)),
)

SAFE = Exercise(
    id="15D",
    title="Rows that are safe",
    function="my_safe_rows",
    difficulty=2,
    importance=4,
    minutes=8,
    hints=(
        "p(0) is positive. Where is the nearest place at which p could change its sign?",
        "p is positive as long as |s| is smaller than its nearest real root, on whichever side that lies. "
        "How large can the score of a query of a given length be with a key no longer than the longest?",
        "Cauchy and Schwarz: at most the product of the two lengths, and some key of that length would reach "
        "it. So compare, row by row, the length of the query times the largest length of a key with the "
        "smallest |root| among the real roots; where there is none, that is infinity.",
    ),
    cases=_safe_cases,
    properties=SAFE_PROPERTIES,
    run_case=_play_safe,
)


# ---------------------------------------------------------------------- 15E a schedule to repair
RAGGED, ALL = "a last turn of fewer columns", "one turn"


def columns_gone_wrong(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, phi: Features, psi: Features, Bd: int
) -> SlowArray:
    """Low rank by columns of the state, with the two faults that exercise 15E asks to find and to repair."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    with m.zeros(len(psi), 1) as sums:
        for c in m.blocks(d, Bd):
            state = m.zeros(len(psi), c)  # (r, Bd)
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, m.load(V, j) as v:
                    if c.first:
                        psi.add_outer(sums, k)
                    psi.add_outer(state, k, v[:, c.start : c.stop])
            for i in m.blocks(N, 1):
                with m.load(Q, i) as q, m.zeros(1, c) as o, m.zeros(1, 1) as l:
                    q *= d**-0.5
                    phi.add_matmul(o, q, state)
                    phi.add_matmul(l, q, sums)
                    o /= l
                    m.store(o, O, i, c)
    return O


def columns_in_turn(N: int, d: int, r: int, Bd: int) -> Ledger:
    """Words where the row sums' column stays and those of V take turns: Q and K for each turn, V and O once.

    Footprint r(Bd + 1) for the state, and d + Bd + 1 for a query, its part of O and its row sum.
    """
    turns, columns = -(-d // Bd), min(Bd, d)
    words = N * d
    return Ledger(
        reads={"Q": turns * words, "K": turns * words, "V": words},
        writes={"O": words},
        peak=r * (columns + 1) + d + columns + 1,
        sizes=dict.fromkeys("QKVO", words),
    )


def _turn_cases(rng: np.random.Generator) -> list[Case]:
    """Turns of equal width, a ragged last one, one column a turn, all at once, other weights, one token."""
    other = [1.0, 0.9, 0.6, 0.1]
    asked: list[tuple[str, int, int, Sequence[float] | Array, int]] = [
        ("equal turns", 9, 6, taylor(2), 2),
        (RAGGED, 12, 5, taylor(2), 2),
        ("one column a turn", 8, 3, taylor(3), 1),
        (ALL, 11, 4, taylor(2), 4),
        (f"{ALL}, room for more", 7, 3, taylor(1), 5),
        (OTHER, 13, 4, other, 2),
        (f"{OTHER}, negative", 8, 3, [-c for c in other], 2),
        ("one token", 1, 4, taylor(2), 2),
    ]
    return [_turn_case(_pass_case(rng, label, N, d, c), N, d, Bd) for label, N, d, c, Bd in asked]


def _turn_case(case: Case, N: int, d: int, Bd: int) -> Case:
    """The same problem, with Bd columns a turn and no word of room to spare."""
    budget = columns_in_turn(N, d, len(case.inputs["phi"]), Bd)
    label = f"{case.label}, Bd={Bd}"
    return Case(label, {**case.inputs, "Bd": Bd}, case.expected, budget.peak, budget)


TURN_VALUES = values("values equal attention with the same polynomial")


def _beside_right_values(asked: Property) -> Property:
    """The property with right values: what is handed out has those, and zeros move few words."""

    def judge(trials: Sequence[Trial]) -> str | None:
        return "the values are not right" if TURN_VALUES.judge(trials) else asked.judge(trials)

    return Property(f"{asked.name}, and the values are right", judge)


REPAIR = Exercise(
    id="15E",
    title="A schedule to repair",
    function="my_columns",
    difficulty=2,
    importance=2,
    minutes=10,
    hints=(
        "Two faults, one for words and one for room. Which array is read more often than a turn's share of "
        "it, and what stands above the limit between two turns?",
        "A turn needs Bd columns of V. What does it load? And when its columns of O are finished, who still "
        "needs its columns of the state?",
        "A load takes a second range, of columns; the row that comes is then as wide as the state. A tile "
        "whose name is given to a new one is there until the new one has been made: free it before that.",
    ),
    cases=_turn_cases,
    properties=(
        idle(TURN_VALUES),
        idle(values_in("the weights that psi carries are used", OTHER)),
        _beside_right_values(reads_within("V", "V is read once")),
        _beside_right_values(fits()),
        every_input_loaded("Q", "K", "V"),
        *reads(Q="once a turn", K="once a turn"),
        *writes(O="once"),
        total_within("no more words move than 2Nd a turn and 2Nd"),
    ),
    run_case=run_schedule,
)

EXERCISES = (FEATURES, DEGREE, TWO_PASSES, SAFE, REPAIR)
