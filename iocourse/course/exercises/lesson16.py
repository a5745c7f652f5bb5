"""Exercises of lesson 16: p times a matrix, the features pulled back, two sweeps, causal tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exact import real_numbers
from ...ledger import Ledger
from ...machine import Features
from ...monomials import Plan, coordinates, features, plan
from ..exercise import Case, Property, Sample, Trial, exercise
from ..guard import library_solution
from ..kinds.schedule import schedule_exercise
from ..properties import (
    as_general,
    as_traffic,
    difference,
    every_input_loaded,
    idle,
    only_where,
    reads,
    total_within,
    values,
    values_in,
    writes,
)
from ..side_effects import after, detect_side_effects, does_not_modify_inputs, does_not_modify_results
from ..trials.operation_count import ONCE, TWICE, WorkTrial, linear_work, run_counted

Array = NDArray[np.float64]


# ------------------------------------------------------------------ 16A p times a matrix
MANY, ONES = "many tokens", "x of ones"
WIDE, UNLIKE = "more columns of h than features", "other keys than queries"


def _product_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of N, 2N and 8N tokens, x of ones, unequal sizes, and one case after another one.

    Rows of f sum to 1.
    """
    N, r, d = int(rng.integers(140, 170)), int(rng.integers(10, 12)), int(rng.integers(6, 8))
    sizes = [
        (ONCE, N, N, r, d, 3),
        (TWICE, 2 * N, 2 * N, r, d, 3),
        (MANY, 8 * N, 8 * N, 2 * r, d, 2),  # Φ ⊘ Ge has then far more than d + 1 columns per column of x
        (WIDE, 9, 11, 2, 5, 4),
        (UNLIKE, 13, 7, 4, 3, 2),
        ("one token", 1, 1, 3, 2, 2),
    ]
    found = [_product_case(rng, *each_size) for each_size in sizes]
    unlike = (_product_case(rng, *sizes[4]) for _ in range(2))
    return [*found, _product_case(rng, ONES, 12, 10, 3, 2, 1, ones=True), after(*unlike)]


def _product_case(
    rng: np.random.Generator, label: str, N: int, Nk: int, r: int, d: int, columns: int, ones: bool = False
) -> Case:
    Phi, Psi = rng.random((N, r)), rng.random((Nk, r))
    Phi /= (Phi @ Psi.sum(axis=0))[:, None]
    G, h = rng.standard_normal((N, d)), rng.standard_normal((Nk, d))
    x = np.ones((Nk, columns)) if ones else rng.standard_normal((Nk, columns))
    f, q = Phi @ Psi.T, G @ h.T  # (N, Nk)
    p = f * q - (f * q).sum(axis=1, keepdims=True) * f
    inputs = {"Phi": Phi, "Psi": Psi, "G": G, "h": h, "x": x}
    said = f"{label}, N={N}, Nk={Nk}, r={r}, dv={d}"
    return Case(said, inputs, p @ x, tags=frozenset([label]))


def _little_memory(trial: Trial) -> str | None:
    """Test that the words held are at most 1.5 times those of all inputs."""
    # <!-- 1.5 as input -->
    inputs = sum(x.size for x in trial.case.inputs.values())
    held = trial.held // 8 if isinstance(trial, WorkTrial) else 0
    if held <= 1.5 * inputs:
        return None
    return f"{held:,} words are held, expected at most {1.5 * inputs:,.0f}"


PRODUCT = exercise(
    "16A",
    cases=_product_cases,
    properties=(
        values("p x is correct"),
        idle(values_in("rows of p sum to zero", ONES)),
        values_in("is correct when queries and keys differ in number", UNLIKE),
        values_in("is correct when h has more columns than features", WIDE),
        as_traffic(only_where("holds little more than its inputs", MANY, _little_memory)),
        linear_work("the work grows linearly with the number of tokens"),
    ),
    run_case=does_not_modify_results(detect_side_effects(partial(run_counted, watched=MANY))),
)


# ------------------------------------------------------------------ 16B gradients of the features
LINEAR, POWERS, DEEP = "degree 1", "one coordinate", "degree 4"
MANY_COORDINATES = "many coordinates"
PASSES = 10  # allowed operations per element of df; the gradients per coordinate need d times as many
DERIVED = 1e-12  # smaller than the error of finite differences


def _pull_back_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of degree 1, one coordinate, features of features, and one case after another one."""
    n = int(rng.integers(4, 8))
    sizes = [
        (LINEAR, n, 4, 1),
        (POWERS, n, 1, 5),
        ("degree 2", n, 3, 2),
        (DEEP, n, 3, 4),
        ("one row", 1, 5, 3),
    ]
    sizes.append((MANY_COORDINATES, 3 * n, 14, 2))
    deep = (_pull_back_case(rng, *sizes[3]) for _ in range(2))
    return [*(_pull_back_case(rng, *each_size) for each_size in sizes), after(*deep)]


def _pull_back_case(rng: np.random.Generator, label: str, n: int, d: int, g: int) -> Case:
    p, x = plan(d, g), rng.standard_normal((n, d))
    df = rng.standard_normal((p.rank, n))
    inputs = {"df": df, "f": features(x, p), "x": x, "plan": p}
    return Case(f"{label}, n={n}, d={d}, g={g}", inputs, slopes(x, p, df), tags=frozenset([label]))


@library_solution
def slopes(x: Array, p: Plan, df: Array) -> Array:
    """Return the vector–Jacobian product of df (rank, n) with the features of x (n, d), factor by factor."""
    table = coordinates(p)  # (g, rank); coordinate d is the number 1
    factors = np.concatenate([x, np.ones((len(x), 1))], axis=1).T[table]  # (g, rank, n)
    found = np.zeros((x.shape[1] + 1, len(x)))
    for at in range(p.g):
        others = np.delete(factors, at, axis=0).prod(axis=0)  # (rank, n)
        np.add.at(found, table[at], df * others)
    return np.asarray(found[:-1].T)


def _one_pass(trial: Trial) -> str | None:
    df = trial.case.inputs["df"]
    work = trial.work if isinstance(trial, WorkTrial) else 0
    if work < df.size:
        return (
            f"only {work:,} operations were counted for {df.size:,} elements; compute with the passed arrays"
        )
    return (
        None
        if work <= PASSES * df.size
        else f"{work / df.size:.0f} operations per element of df, expected at most {PASSES}"
    )


PULL_BACK = exercise(
    "16B",
    cases=_pull_back_cases,
    properties=(
        values_in("is correct for features of degree 1", LINEAR, DERIVED),
        values_in("is correct for powers of one coordinate", POWERS, DERIVED),
        values_in("is correct for features computed from features", DEEP, DERIVED),
        values("the gradients of all features are correct", DERIVED),
        as_traffic(only_where("the number of passes does not grow with d", MANY_COORDINATES, _one_pass)),
    ),
    run_case=does_not_modify_results(detect_side_effects(run_counted, "df")),
)


# ------------------------------------------------------------------ 16C two sweeps
ODD = "odd degree"


def taylor_weights(p: Plan) -> Array:
    """Return 1/a! of each monomial (rank,); the features' product is then the Taylor polynomial of exp."""
    return np.asarray(p.multiplicities / np.array([factorial(int(l)) for l in p.degrees]))


def machine_features(p: Plan, weights: Array | None = None) -> Features:
    """Return the features of the plan for the machine, in its order; `weights` (rank,) are optional."""
    factors = [[int(axis) for axis in column if axis < p.d] for column in coordinates(p).T]
    return Features(factors, None if weights is None else weights.tolist())


def sweep_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield states smaller than K and V, with even and odd degrees, one token, and negative weights.

    With negative weights the row sums are negative too, so the signs cancel in the quotient.
    """
    N = int(rng.integers(30, 40))
    yield _sweep_sample(rng, "even degree", N, 3, 2)
    yield _sweep_sample(rng, ODD, N + 20, 2, 3)
    yield _sweep_sample(rng, "even degree", N + 30, 2, 4)
    yield _sweep_sample(rng, "one token", 1, 2, 2)
    yield _sweep_sample(rng, "negative weights", N, 2, 2, sign=-1.0)


def _sweep_sample(rng: np.random.Generator, words: str, N: int, d: int, g: int, sign: float = 1.0) -> Sample:
    Q, K = 0.5 * rng.standard_normal((2, N, d))
    V, dO = rng.standard_normal((2, N, d))
    p = plan(d, g)
    weights = sign * taylor_weights(p)
    T = weights[:, None] * (features(K, p) @ _beside_ones(V))  # (r, d + 1)
    inputs = {"Q": Q, "K": K, "V": V, "dO": dO, "T": T}
    options = {"phi": machine_features(p), "psi": machine_features(p, weights)}
    sizes = {"N": N, "d": d, "g": g}
    tags, facts = (ODD * (g % 2),), {"degree": g, "r": p.rank}
    return Sample(sizes, inputs | options, tags=tags, prefix=words, facts=facts)


def two_sweeps(N: int, d: int, r: int, **_: Any) -> Ledger:
    """Return the closed form of the gradient in two sweeps: 7Nd words and T; footprint 2r(d + 1) + 5d + 2."""
    reads = {**dict.fromkeys(("Q", "K", "V", "dO"), N * d), "T": r * (d + 1)}
    sizes = {**dict.fromkeys(("Q", "K", "V", "dO", "dQ", "dK", "dV"), N * d), "T": r * (d + 1)}
    return Ledger(
        reads=reads,
        writes=dict.fromkeys(("dQ", "dK", "dV"), N * d),
        peak=2 * r * (d + 1) + 5 * d + 2,
        sizes=sizes,
    )


def _two_rows(d: int, **_: Any) -> int:
    """Return the allowance: two rows of d + 1 words."""
    return 2 * (d + 1)


def _gradients(Q: Array, K: Array, V: Array, dO: Array, degree: int, **_: Any) -> tuple[Array, Array, Array]:
    return dense_gradients(Q, K, V, dO, degree)


def _beside_ones(x: Array) -> Array:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def taylor(S: Array, g: int) -> Array:
    """Return the Taylor polynomial of exp of degree g, elementwise."""
    return np.asarray(sum((S**l / factorial(l) for l in range(1, g + 1)), start=np.ones_like(S)))


@library_solution
def dense_gradients(Q: Array, K: Array, V: Array, dO: Array, g: int) -> tuple[Array, Array, Array]:
    """Return dQ, dK, dV of Σ dO ∘ O for O = weights V / row sums, with weights = taylor(QKᵀ, g)."""
    S = Q @ K.T  # (N, N)
    weights, slope = taylor(S, g), taylor(S, g - 1)
    total = weights.sum(axis=1, keepdims=True)
    O = weights @ V / total
    dS = slope * (dO @ V.T - (dO * O).sum(axis=1, keepdims=True)) / total
    return dS @ K, dS.T @ Q, (weights / total).T @ dO


SWEEPS = schedule_exercise(
    "16C",
    sweep_inputs,
    equals=_gradients,
    moves=two_sweeps,
    spare=_two_rows,
    values=(values("dQ, dK and dV are exact"), values_in("is exact for an odd degree", ODD)),
    loads=every_input_loaded("Q", "K", "V", "dO"),
    words=(*reads(Q="once", dO="once", K="once", V="once", T="once"), *writes(dQ="once", dK="once")),
    total=total_within("moves at most 7Nd words and the state"),
)


# ------------------------------------------------------------------ 16D causal, by tiles
INSIDE, RAGGED, NOW, LATER = "one tile", "ragged last tile", "original rows", "other later rows"
CUT = 17  # rows before it are the same in both
HIDDEN_HIGH = "large masked scores"
FIRST_TILE, LAST_KEYS = 8, 5  # keys from LAST_KEYS to the end of the tile are masked for earlier rows


def _causal_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of N and 2N tokens, a ragged tile, one tile, tiles of one token, other later rows."""
    d, B = int(rng.integers(2, 4)), int(rng.integers(5, 8))
    p = plan(d, 2)
    sizes = [
        (ONCE, 12 * B, B, p),
        (TWICE, 24 * B, B, p),
        (RAGGED, 4 * B + 2, B, plan(d, 3)),
        (INSIDE, B, 2 * B, p),
        ("tiles of one token", 9, 1, plan(d, 4)),
    ]
    found = [
        _causal_case(_small(rng, N, q.d, d if tag == RAGGED else d + 1), q, B, tag) for tag, N, B, q in sizes
    ]
    arrays = _small(rng, 27, d, d + 1)
    others = [x.copy() for x in arrays]
    for x, new in zip(others, _small(rng, 27, d, d + 1), strict=True):
        x[CUT:] = new[CUT:]
    found += [_causal_case(arrays, p, 5, NOW), _causal_case(others, p, 5, LATER)]
    low, high = _low_then_high(rng, d)
    found.append(_causal_case(low, p, FIRST_TILE, NOW, HIDDEN_HIGH))
    return [*found, _causal_case(high, p, FIRST_TILE, LATER, HIDDEN_HIGH)]


def _low_then_high(rng: np.random.Generator, d: int) -> tuple[list[Array], list[Array]]:
    """Return a first tile with scores near -60, without and with scores of 693 to 695 for its last keys.

    e^695 does not overflow, but weights of e^-60 divided by it underflow.
    """
    N, along = FIRST_TILE + 2, np.eye(d)[0]
    Q, K, V = _small(rng, N, d, d + 1)
    Q[:, 0], K[:, 0] = 0.0, 0.0
    Q[:FIRST_TILE] += 8.0 * along
    K[:FIRST_TILE] -= 7.5 * along
    later = K.copy()
    later[LAST_KEYS:FIRST_TILE] = np.array([[693], [695], [694]]) / 8.0 * along
    return [Q, K, V], [Q, later, V]


def _small(rng: np.random.Generator, N: int, d: int, dv: int) -> list[Array]:
    """Return Q and K with small scores and d columns, and V with dv columns."""
    return [
        0.5 * rng.standard_normal((N, d)),
        0.5 * rng.standard_normal((N, d)),
        rng.standard_normal((N, dv)),
    ]


def _causal_case(QKV: list[Array], p: Plan, B: int, *tags: str) -> Case:
    Q, K, V = QKV
    inputs = {"Q": Q, "K": K, "V": V, "phi": monomials_of(p), "w": taylor_weights(p)[:, None], "B": B}
    label = f"{', '.join(tags)}, N={len(Q)}, d={p.d}, g={p.g}, B={B}"
    return Case(label, inputs, causal_by_tiles(Q, K, V, p.g, B), tags=frozenset(tags))


def monomials_of(p: Plan) -> Callable[[Array], Array]:
    """Return a function of rows x (n, d) that returns their monomials (rank, n)."""
    return partial(_monomials, coordinates(p))


def _monomials(table: NDArray[np.int32], x: Array) -> Array:
    found: Array = np.concatenate([x, np.ones((len(x), 1))], axis=1).T[table].prod(axis=0)
    return found


@library_solution
def causal_by_tiles(Q: Array, K: Array, V: Array, g: int, B: int) -> Array:
    """Return causal attention with exp within a tile and the polynomial for earlier tiles, materialised."""
    S, i = Q @ K.T, np.arange(len(Q))
    tile = i // B
    near = (tile[:, None] == tile[None, :]) & (i[:, None] >= i[None, :])
    far = tile[:, None] > tile[None, :]
    weights = np.where(near, np.exp(S), np.where(far, taylor(S, g), 0.0))
    return np.asarray(weights @ V / weights.sum(axis=1, keepdims=True))


def _blind_to_the_future(trials: Sequence[Trial]) -> str | None:
    for more, cut in ([], CUT), ([HIDDEN_HIGH], LAST_KEYS):
        pair = frozenset([NOW, *more]), frozenset([LATER, *more])
        now, later = (next(t.value for t in trials if t.case.tags == tags) for tags in pair)
        now, later = real_numbers(now)[:cut], real_numbers(later)[:cut]
        complaint = difference(later, now, 1e-12, wanted="with other rows after them")
        if complaint or not np.isfinite(later).all():
            return f"rows before {cut} change if later rows change: {complaint}"
    return None


CAUSAL = exercise(
    "16D",
    cases=_causal_cases,
    properties=(
        # one tile does not use the state
        as_general(
            values_in("values equal attention with the causal weights", ""), lambda case: not case.has(INSIDE)
        ),
        values_in("uses the exact exp within a tile", INSIDE),
        values_in("is correct for a smaller last tile", RAGGED),
        idle(Property("no row depends on later rows", _blind_to_the_future)),
        linear_work("the work grows linearly with the number of tokens"),
        does_not_modify_inputs(),
    ),
    run_case=run_counted,
)

EXERCISES = (PRODUCT, PULL_BACK, SWEEPS, CAUSAL)
