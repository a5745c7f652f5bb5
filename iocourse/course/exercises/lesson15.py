"""Exercises of lesson 15: features, smallest degree, two passes, rows that are safe, a schedule to repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from ..exercise import (
    Case,
    Sample,
    Trial,
    WrongForm,
    exercise,
    run_function,
    trial_from_error,
)
from ..guard import no_calls_into
from ..kinds.schedule import schedule_exercise
from ..properties import (
    Form,
    as_traffic,
    describe_value,
    difference,
    each,
    every_input_loaded,
    idle,
    is_number,
    one_array,
    only_where,
    reads,
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
    """Return 1/l! for any R. (g + 1,)."""
    return np.array([1 / factorial(l) for l in range(g + 1)])


def polynomial_of(S: Array, c: Sequence[float] | Array) -> Array:
    """Return Σ c_l Sˡ, elementwise."""
    return np.asarray(Polynomial(c)(S), dtype=np.float64)


# ---------------------------------------------------------------------- 15A features of a row
def _one_coordinate(case: Case) -> bool:
    return bool(case.inputs["Q"].shape[1] == 1)


def _degree_1(case: Case) -> bool:
    return bool(case.inputs["g"] == 1)


def _feature_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of several sizes, also one coordinate and degree 1, with equal or unequal Nq and Nk."""
    sizes = [(7, 9, 3, 2), (5, 6, 4, 3), (6, 6, 2, 5), (4, 5, 1, 7), (5, 3, 6, 1), (1, 2, 5, 4)]
    return [_feature_case(rng, *size) for size in sizes]


def _feature_case(rng: np.random.Generator, N: int, Nk: int, d: int, g: int) -> Case:
    Q, K = rng.uniform(-1.5, 1.5, (N, d)), rng.uniform(-1.5, 1.5, (Nk, d))
    want = polynomial_of(Q @ K.T, taylor(g))
    return Case(f"N={N}, d={d}, g={g}", {"Q": Q, "K": K, "g": g}, want)


LIBRARY = ("iocourse.monomials", "iocourse.lowrank")


def _no_call_into_the_library() -> AbstractContextManager[None]:
    """Make every function of `LIBRARY` raise, because its parts solve these exercises."""
    return no_calls_into(LIBRARY, "is the library's own answer to this exercise")


@trial_from_error
def _play_features(student: Callable[..., Any], case: Case) -> Trial:
    """Compute the student's features of all queries, of all keys, and of the first query.

    Later calls must not modify earlier results.
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
    """Return the features of queries, of keys and of one query, if each is one array of numbers."""
    found = [one_array(value) for value in trial.value]
    return None if any(x is None for x in found) else tuple(found)  # type: ignore[return-value]


def _not_features(trial: Trial) -> WrongForm:
    wrong = next(value for value in trial.value if one_array(value) is None)
    return WrongForm(
        f"expected one array of real numbers with one row per row of X, got {describe_value(wrong)}"
    )


def _products(trial: Trial) -> str | None:
    three = _three(trial)
    if three is None:
        return _not_features(trial)
    phi, psi, _ = three
    if phi.ndim != 2 or psi.ndim != 2 or phi.shape[1] != psi.shape[1]:
        shapes = f"{phi.shape} and {psi.shape}"
        return WrongForm(
            f"features of Q and of K have shapes {shapes}, expected one row per token and equal columns"
        )
    return difference(phi @ psi.T, trial.case.expected)


def _count(trial: Trial) -> str | None:
    three = _three(trial)
    if three is None:
        return _not_features(trial)
    d, g = trial.case.inputs["Q"].shape[1], trial.case.inputs["g"]
    got, want = three[0].shape, (len(trial.case.inputs["Q"]), comb(d + g, g))
    return None if got == want else WrongForm(f"got shape {got}, expected {want}")


def _row_alone(trial: Trial) -> str | None:
    three = _three(trial)
    if three is None:
        return _not_features(trial)
    return difference(three[2], three[0][:1], wanted="together with all rows")


FEATURES = exercise(
    "15A",
    cases=_feature_cases,
    properties=(
        each("inner products of features equal the Taylor polynomial", _products),
        each("returns C(d + g, g) features per row", _count),
        only_where("for one coordinate, the features are its powers", _one_coordinate, _products),
        only_where("for degree 1, the features are the row and a 1", _degree_1, _products),
        idle(each("the features of a row depend on that row only", _row_alone)),
    ),
    run_case=_play_features,
)


# ---------------------------------------------------------------------- 15B the smallest degree
INSIDE, RIGHT_END, UNEVEN = "largest inside", "largest at the right end", "a larger degree that is worse"
RIGHT_OF_0, LONGER = "right of 0", "Chebyshev of a longer interval"
EQUAL = "exactly the allowed error"


def through(points: Array) -> Array:
    """Return the coefficients of the polynomial that interpolates exp at these points."""
    powers = points[:, None] ** np.arange(len(points))
    return np.asarray(np.linalg.solve(powers, np.exp(points)), dtype=np.float64)


def chebyshev(g: int, R: float) -> Array:
    """Interpolate exp at the Chebyshev nodes of [-R, R]. (g + 1,)."""
    points = R * np.cos(np.pi * (np.arange(g + 1) + 0.5) / (g + 1))
    return through(points)


def flattened(g: int, R: float) -> Array:
    """Interpolate exp at equidistant points from -R to R: largest error inside. (g + 1,)."""
    return through(np.linspace(-R, R, g + 1))


def leaning(g: int, R: float) -> Array:
    """Interpolate exp at points that are dense near -R: largest error right of 0. (g + 1,)."""
    return through(2 * R * np.linspace(0, 1, g + 1) ** 2 - R)


def from_the_left(g: int, R: float) -> Array:
    """Return the Taylor polynomial at -R: largest error at the right end. (g + 1,)."""
    p = Polynomial(taylor(g))(Polynomial([R, 1.0])) * np.exp(-R)
    return np.asarray(p.coef, dtype=np.float64)


def wide(g: int, R: float) -> Array:
    """Return `chebyshev` for twice the interval: p' = p also outside [-R, R]. (g + 1,)."""
    return chebyshev(g, 2 * R)


def taylor_with_worse_degrees(g: int, R: float) -> Array:
    """Return `taylor`, multiplied by 1.2 if g is a multiple of 3. (g + 1,)."""
    return taylor(g) * (1.2 if g % 3 == 0 else 1.0)


def vanishing(g: int, R: float) -> Array:
    """Return `taylor`; for degree 3 so small that p(s) e⁻ˢ - 1 is -1 in any way of computing it. (g + 1,)."""
    return 1e-30 * chebyshev(g, R) if g == 3 else taylor(g) * (3 if g < 3 else 1)


def largest_error(c: Array, R: float) -> float:
    """Return max |p(s) e⁻ˢ - 1| over [-R, R], from the points where p' = p and from the ends."""
    p = Polynomial(c)
    roots = (p.deriv() - p).roots()
    real = roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]
    s = np.append(real[abs(real) < R], [-R, R])
    return float(abs(p(s) * np.exp(-s) - 1).max())


@cache
def _waves(g: int) -> Array:
    """Return the coefficients of the Chebyshev polynomial of degree g. (g + 1,)."""
    return np.asarray(cheb2poly(np.eye(g + 1)[g]), dtype=np.float64)


def rippled(thirds: int, g: int, R: float) -> Array:
    """Return `taylor` with a Chebyshev ripple of degree g, whose largest peak is near the left end.

    A grid of 200,001 points has an error in the eighth digit if the peak is between two of its points;
    `thirds` moves the peak by this number of thirds of their distance. (g + 1,).
    """
    stretch = np.cos(np.pi / (2 * g)) * (1 + thirds * 1e-5 / 3)  # the ripple is 0 at -R and R
    waves = _waves(g) * (stretch / R) ** np.arange(g + 1)
    return np.asarray(taylor(g) + 0.05 / g * waves, dtype=np.float64)


def _degree_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of Taylor, Chebyshev and other polynomials, with the largest error at different places."""
    R = float(rng.uniform(0.8, 1.2))
    narrow = 0.05 * np.exp(0.9845 * R) / 15.5
    return [
        _degree_case(taylor, R, 1e-2, "Taylor"),
        _degree_case(taylor, 3 * R, 1e-3, "Taylor"),
        _degree_case(taylor, 0.1 * R, 0.5, "Taylor"),
        _degree_case(chebyshev, 2 * R, 1e-4, "Chebyshev"),
        _degree_case(flattened, 2 * R, 1e-3, INSIDE),
        _degree_case(flattened, R, 1e-2, INSIDE),
        _degree_case(leaning, 2 * R, 1e-2, INSIDE, RIGHT_OF_0),
        _degree_case(from_the_left, R, 1e-3, RIGHT_END),
        _degree_case(wide, R, 1e-3, LONGER),
        _degree_case(taylor_with_worse_degrees, 1.0, 1e-2, UNEVEN),  # degree 5; 7 and 8 suffice, 6 does not
        _degree_case(taylor_with_worse_degrees, 2.0, 1e-4, UNEVEN),
        _degree_case(vanishing, R, 1.0, EQUAL),  # degree 3; no rounding makes its error larger than 1
        # named functions, because a grader sends them to another process
        *(_degree_case(partial(rippled, thirds), R, narrow, INSIDE, "narrow") for thirds in range(3)),
    ]


def _degree_case(make: Make, R: float, error: float, *tags: str) -> Case:
    g = next(g for g in range(1, 60) if largest_error(make(g, R), R) <= error)
    want = g, largest_error(make(g, R), R)
    label = f"{', '.join(tags)}, R={R:.3f}, error {error:.4g}"
    return Case(label, {"make": make, "R": R, "error": error}, want, tags=frozenset(tags))


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
    "returns a degree and an error",
    _pair,
    "a pair (g, error), with an integer g of at least 1 and a number error",
)


def _right_degree(trial: Trial, found: Found) -> str | None:
    got, want = found[0], trial.case.expected[0]
    return None if got == want else f"got {got}, expected {want}"


def _right_error(trial: Trial, found: Found) -> str | None:
    """Compare eight digits, with the rounding error of 1 - 1."""
    got, want = found[1], trial.case.expected[1]
    return None if abs(got - want) <= 1e-8 * want + 1e-13 else f"got {got:.12g}, expected {want:.12g}"


DEGREE = exercise(
    "15B",
    cases=_degree_cases,
    properties=(
        DEGREE_AND_ERROR.must("returns the smallest degree", _right_degree),
        DEGREE_AND_ERROR.must("the largest error is correct to eight digits", _right_error),
        DEGREE_AND_ERROR.must("finds the largest error inside the interval", _right_error, INSIDE),
        DEGREE_AND_ERROR.must("tries the degrees in increasing order", _right_degree, UNEVEN),
        DEGREE_AND_ERROR.must("an error equal to the allowed one is accepted", _right_degree, EQUAL),
    ),
    run_case=_play_degree,
)


# ---------------------------------------------------------------------- 15C two passes
OTHER, OTHERS = "other weights", (1.0, 0.9, 0.6, 0.1)  # coefficients that are not those of Taylor


def _weight(axes: tuple[int, ...], c: Sequence[float] | Array) -> float:
    """Return c_l l!/a! of one monomial."""
    return float(c[len(axes)]) * factorial(len(axes)) / prod(map(factorial, Counter(axes).values()))


def features_of(d: int, c: Sequence[float] | Array, reverse: bool = False) -> dict[str, Features]:
    """Return `phi` and `psi` for the polynomial with coefficients c; `reverse` puts the constant last."""
    axes = [a for l in range(len(c)) for a in combinations_with_replacement(range(d), l)]
    axes = axes[::-1] if reverse else axes
    return {"phi": Features(axes), "psi": Features(axes, [_weight(a, c) for a in axes])}


def pass_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield Taylor polynomials of degrees 1 to 3, other coefficients, many and few tokens, and one token.

    For scores of at most 1 each of these polynomials has one sign. With negative weights the row sums are
    negative too, so the signs cancel in the quotient.
    """
    yield _low_rank_sample(rng, "Taylor", 9, 3, taylor(2))
    yield _low_rank_sample(rng, "more tokens than features", 40, 2, taylor(3))
    yield _low_rank_sample(rng, "Taylor", 12, 6, taylor(2))
    yield _low_rank_sample(rng, "Taylor", 11, 5, taylor(1))
    yield _low_rank_sample(rng, OTHER, 13, 3, OTHERS)
    yield _low_rank_sample(rng, f"{OTHER}, negative", 8, 3, [-c for c in OTHERS])
    yield _low_rank_sample(rng, "one token", 1, 4, taylor(2))
    yield _low_rank_sample(rng, OTHER, 10, 4, OTHERS[:3], reverse=True)


def _low_rank_sample(
    rng: np.random.Generator, words: str, N: int, d: int, c: Sequence[float] | Array, reverse: bool = False
) -> Sample:
    Q, K, V = rng.standard_normal((3, N, d))
    Q *= 0.9 * d**0.5 / abs(Q @ K.T).max()
    sizes = {"N": N, "d": d, "r": comb(d + len(c) - 1, d)}
    tag = "" if np.array_equal(c, taylor(len(c) - 1)) else OTHER
    inputs = {"Q": Q, "K": K, "V": V, **features_of(d, c, reverse)}
    return Sample(sizes, inputs, tags=(tag,), prefix=words, facts={"c": c})


def _low_rank_attention(Q: Array, K: Array, V: Array, c: Sequence[float] | Array, **_: Any) -> Array:
    A = polynomial_of(Q @ K.T * Q.shape[1] ** -0.5, c)
    return np.asarray(A @ V / A.sum(axis=1, keepdims=True))


def _whole_state(N: int, d: int, r: int, c: Sequence[float] | Array, **_: Any) -> Ledger:
    return costs.low_rank(N, d, g=len(c) - 1, rc=r, Bd=d + 1)


LOW_RANK_VALUES = values("values equal attention with the same polynomial")
PSI_USED = values_in("uses the weights in psi", OTHER)
TWO_PASSES = schedule_exercise(
    "15C",
    pass_inputs,
    equals=_low_rank_attention,
    moves=_whole_state,
    spare=lambda **_: 4,
    values=(LOW_RANK_VALUES, PSI_USED),
    words=(*reads(Q="once", K="once", V="once"), *writes(O="once")),
    total=total_within("moves at most 4Nd words for every rank"),
)


# ---------------------------------------------------------------------- 15D rows that are safe
EVEN, RIGHT, AGAIN, BORDER, MANY = (
    "no real root",
    "a root on the right alone",
    "positive again beyond two roots",
    "lengths around the root",
    "1,000 tokens",
)
ONE_COLUMN = 8  # allowed: this number of arrays of the size of Q, and of words per token


def _safe_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of odd and even degrees, roots on either side, zero rows, and few or many safe rows."""
    Q, K = rng.standard_normal((60, 5)), rng.standard_normal((40, 5))
    Q[3] = 0.0
    longest = float(np.linalg.norm(K, axis=1).max())
    direction = Q[:20] / np.linalg.norm(Q[:20] + (Q[:20] == 0), axis=1, keepdims=True)
    border = direction * (np.linspace(0.7, 1.3, 20) / longest)[:, None]
    one_far = K.copy()
    one_far[-1] *= 6
    just_there = np.diag([3.0, 5.0, 7.0]), np.array([[0.6, 0.8, 0]])
    return [
        _safe_case(0.15 * Q, K, taylor(3), "Taylor of degree 3"),
        _safe_case(0.2 * Q, K, taylor(5), "Taylor of degree 5"),
        _safe_case(2 * Q, K, taylor(4), EVEN),
        _safe_case(1e6 * Q[:9], K, taylor(4), EVEN, "long rows"),
        _safe_case(0.2 * Q, K, [0.65, 1.6, 1.0], EVEN, "but nearly one"),
        _safe_case(0.15 * Q, K, [1.0, -0.8], RIGHT),
        _safe_case(0.15 * Q, K, [24.0, -8.0, -4.0, -5.0], RIGHT),
        _safe_case(0.18 * Q, K, [1.5, 2.5, 1.0], AGAIN),
        _safe_case(0.15 * Q, K, [1.0, -0.2, -0.2], "roots on both sides"),
        _safe_case(border, K, [1 - 1e-12, 2.0, 1.0], AGAIN, "two close roots"),
        _safe_case(border, K, taylor(1), BORDER),
        _safe_case(*just_there, [5.0, 1.0], BORDER, "one exactly at the root"),
        _safe_case(0.15 * Q[:30], one_far, taylor(3), "one long key, the last"),
        _safe_case(0.3 * Q, K[:1], taylor(3), "a single key"),
        _safe_case(0.1 * rng.standard_normal((1000, 8)), rng.standard_normal((1000, 8)), taylor(3), MANY),
    ]


def _safe_case(Q: Array, K: Array, c: Sequence[float] | Array, *tags: str) -> Case:
    roots = Polynomial(c).roots()
    real = roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]
    reach = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()
    want = reach < abs(real).min(initial=np.inf)
    inputs = {"Q": Q, "K": K, "c": np.asarray(c, dtype=np.float64)}
    return Case(f"{', '.join(tags)}, N={len(Q)}", inputs, want, tags=frozenset(tags))


@trial_from_error
def _play_safe(student: Callable[..., Any], case: Case) -> Trial:
    """Run the function; with many tokens also measure the bytes held."""

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
    return f"row {wrong[0]} is called safe, but it is not" if len(wrong) else None


def _whenever_it_is(trial: Trial) -> str | None:
    said, want = _truths(trial), trial.case.expected
    if isinstance(said, WrongForm):
        return said
    missed = np.flatnonzero(want & ~said)
    return f"row {missed[0]} is safe, but it is not called safe" if len(missed) else None


def _told_apart(trial: Trial) -> str | None:
    """Test that no unsafe row is called safe, and that some row is: each of these cases has safe rows."""
    said = _truths(trial)
    if isinstance(said, WrongForm) or said.any():
        return _never_wrongly(trial)
    return f"{int(trial.case.expected.sum())} rows are safe, but none is called safe"


def _each_row(trial: Trial) -> str | None:
    return _never_wrongly(trial) or _whenever_it_is(trial)


def _truths(trial: Trial) -> NDArray[np.bool_] | WrongForm:
    said, rows = trial.value, len(trial.case.expected)
    found = one_array(said)
    if found is None or found.shape != (rows,) or not np.isin(found, (0, 1)).all():
        yours = describe_value(said) if found is None or found.shape != (rows,) else shortened(said)
        return WrongForm(f"expected True or False for each of {rows} rows, got {yours}")
    return found.astype(bool)


def _no_pairs(trial: Trial) -> str | None:
    """Test that the memory held is a few arrays of the size of the inputs, not N × N."""
    Q = trial.case.inputs["Q"]
    allowed = ONE_COLUMN * (Q.nbytes + 8 * len(Q))
    held = trial.held if isinstance(trial, HeldTrial) else 0
    if held <= allowed:
        return None
    return f"{held / 8:,.0f} words are held, expected at most {allowed / 8:,.0f}"


SAFE = exercise(
    "15D",
    cases=_safe_cases,
    properties=(
        idle(each("calls no unsafe row safe", _never_wrongly)),
        # idle, because it also holds for a function that always returns True
        idle(each("calls every safe row safe", _whenever_it_is)),
        idle(only_where("a polynomial without real roots is always safe", EVEN, _whenever_it_is)),
        only_where("positive roots count like negative ones", RIGHT, _told_apart),
        only_where("calls no row safe whose scores can reach beyond a root", AGAIN, _told_apart),
        only_where("each row is judged by its own length", BORDER, _each_row),
        as_traffic(only_where("does not compute the scores of all pairs", MANY, _no_pairs), "Q", "K"),
    ),
    run_case=_play_safe,
)


# ---------------------------------------------------------------------- 15E a schedule to repair
def columns_gone_wrong(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, phi: Features, psi: Features, Bd: int
) -> SlowArray:
    """Low-rank attention by columns of the state, with the two faults that exercise 15E repairs."""
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


def columns_in_turn(N: int, d: int, r: int, Bd: int, **_: Any) -> Ledger:
    """Return the closed form with resident row sums and Bd columns of V per iteration.

    Q and K are read once per iteration, V and O are moved once. Footprint: r(Bd + 1) for the state, and
    d + Bd + 1 for a query, its part of O and its row sum.
    """
    turns, columns = -(-d // Bd), min(Bd, d)
    words = N * d
    return Ledger(
        reads={"Q": turns * words, "K": turns * words, "V": words},
        writes={"O": words},
        peak=r * (columns + 1) + d + columns + 1,
        sizes=dict.fromkeys("QKVO", words),
    )


def _rest_of_a_row(d: int, Bd: int, **_: Any) -> int:
    """Return the allowance: the words of a complete row of V, so that each fault alone can be repaired."""
    return max(0, d - min(Bd, d) - 1)


def turn_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield equal and ragged iterations, single columns, one iteration, other weights, and one token."""
    asked: list[tuple[str, int, int, Sequence[float] | Array, int]] = [
        ("equal iterations", 9, 6, taylor(2), 2),
        ("a last iteration of fewer columns", 12, 5, taylor(2), 2),
        ("one column per iteration", 8, 3, taylor(3), 1),
        ("one iteration", 11, 4, taylor(2), 4),
        ("one iteration, larger Bd", 7, 3, taylor(1), 5),
        (OTHER, 13, 4, OTHERS, 2),
        (f"{OTHER}, negative", 8, 3, [-c for c in OTHERS], 2),
        ("one token", 1, 4, taylor(2), 2),
    ]
    for words, N, d, c, Bd in asked:
        one = _low_rank_sample(rng, words, N, d, c)
        yield replace(one, sizes={**one.sizes, "Bd": Bd}, inputs={**one.inputs, "Bd": Bd})


REPAIR = schedule_exercise(
    "15E",
    turn_inputs,
    equals=_low_rank_attention,
    moves=columns_in_turn,
    spare=_rest_of_a_row,
    values=(idle(LOW_RANK_VALUES), idle(PSI_USED)),
    loads=idle(every_input_loaded()),
    words=(
        *reads(V="once"),
        *map(
            idle, (*reads(Q="at most once per iteration", K="at most once per iteration"), *writes(O="once"))
        ),
    ),
    total=total_within("moves at most 2Nd words per iteration plus 2Nd"),
)

EXERCISES = (FEATURES, DEGREE, TWO_PASSES, SAFE, REPAIR)
