"""Exercises of lesson 07: scores by columns, a small cache, one array at a time, a plan; dL/dX, a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ... import costs, exact
from ...ledger import Ledger
from ...machine import Block, Machine, SlowArray, Tile
from ..bound_ratio import attention_comparison, product_comparison
from ..exercise import Case, Sample, Trial, exercise, run_function, run_schedule, wrong_return
from ..guard import library_solution
from ..kinds.choice import choice_exercise
from ..kinds.schedule import schedule_exercise
from ..properties import (
    LARGE,
    TOLERANCE,
    Form,
    as_traffic,
    block_size,
    each,
    every_input_loaded,
    fits_in_fast_memory,
    idle,
    reads,
    several,
    values,
    values_in,
    whole,
    writes,
)
from ..trials.case_inputs import attention_inputs, exact_attention, named, samples_with_equal_arrays, tilings

Student = Callable[..., Any]


def _sizes(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return (N, d, Br, Bc, Bd), also with ragged columns; d is so large that complete rows do not fit."""
    sizes = tilings(rng, 9, 13)
    d = sizes[0][1]
    return [(*size, Bd) for size, Bd in zip(sizes, (2, 4, d + 3, d, 1, 2), strict=True)]


# ------------------------------------------------------------------ 7A: a tile of scores by columns
def tile_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return Q and K per tile."""
    sizes = [size[:4] for size in _sizes(rng)]
    return samples_with_equal_arrays(
        "N d Br Bc", sizes, lambda N, d: named("Q K", rng.standard_normal((2, N, d)))
    )


def _scores_by_columns(N: int, d: int, Br: int, Bc: int) -> Ledger:
    """Return the closed form of QKᵀ as the matrix product of lesson 02 with A = Q, B = Kᵀ, C = S."""
    form = costs.matmul(N, N, d, bm=Br, bn=Bc)
    return Ledger(
        reads={"Q": form.reads["A"], "K": form.reads["B"]},
        writes={"S": N * N},
        peak=form.peak,
        sizes={"Q": N * d, "K": N * d, "S": N * N},
    )


def tile_by_tile(student: Student) -> Student:
    """Return a schedule that stores all tiles of S computed by the student's function."""

    def all_scores(m: Machine, Q: SlowArray, K: SlowArray, *, Br: int, Bc: int) -> SlowArray:
        N = Q.shape[0]
        S = m.new("S", (N, N))
        for i in m.blocks(N, Br):
            for j in m.blocks(N, Bc):
                _keep(m, student(m, Q, K, i, j), S, i, j)
        return S

    return all_scores


def _keep(m: Machine, made: Any, S: SlowArray, i: Block, j: Block) -> None:
    """Store a tile and free it, in a separate function, so that no name keeps the base of a view alive."""
    if not isinstance(made, Tile):
        seen = f"expected a tile of shape {(i.size, j.size)}, got {type(made).__name__}"
        raise wrong_return(made, seen)
    with made:
        m.store(made, S, i, j)


COUNTED = (31 * 1024, 512)  # Q and K; their scores are counted with tiles for M = 32² words


# ------------------------------------------------------------------ 7B, 7C: attention in a small cache
def small_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples in which a second column of scores does not fit, and one with more rows than columns."""
    sizes = _sizes(rng)
    d = sizes[4][1]
    return attention_inputs(rng, "N d Br Bc Bd", [*sizes, (9, d, 2, 1, d), (10, 2, 5, 3, 2)])


def stored_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples in which rows of Q and of O do not fit together; the last tile is tall."""
    return attention_inputs(rng, "N d Br", [*(size[:3] for size in tilings(rng, 9, 13)), (11, 5, 6)])


def _all_scores(form: Callable[..., Ledger]) -> Callable[..., Ledger]:
    """Return the closed form with N² words as the size of S, because its few rows hold all scores in turn.

    A message then counts in sizes of all scores: "S is read once" if every score is.
    """

    def moves(N: int, d: int, **tiles: int) -> Ledger:
        counted = form(N, d, **tiles)
        return replace(counted, sizes={**counted.sizes, "S": N * N})

    return moves


def _four_words_a_row(N: int, Br: int, **_: int) -> int:
    return 4 * min(Br, N)


def _scratch(trial: Trial) -> str | None:
    """Test that new arrays in slow memory have at most the words of the output and Br rows of scores."""
    N, d = trial.case.inputs["Q"].shape
    allowed = N * d + trial.case.inputs["Br"] * N
    made = sum(words for name, words in trial.ledger.sizes.items() if name not in "QKV")
    return None if made <= allowed else f"creates {made:,} words in slow memory, expected at most {allowed:,}"


LARGE_VALUES = values_in(f"{LARGE} neither overflow nor vanish", LARGE)
VALUES = (values(), block_size(), LARGE_VALUES)
SCRATCH = as_traffic(each("scratch in slow memory is at most Br rows of scores", _scratch))
OVER_BLOCKS = reads(K="at most ⌈N/Br⌉ times", V="at most ⌈N/Br⌉ times")


# ------------------------------------------------------------------ 7D: a plan for any M
class Plan(NamedTuple):
    """A schedule's name, its tiles, and its closed form for them."""

    name: str
    tiles: dict[str, int]
    ledger: Ledger

    def __str__(self) -> str:
        return f"{self.name} {self.tiles}"


FORMS: dict[str, tuple[Callable[..., Ledger], tuple[str, ...]]] = {
    "flash_optimal": (costs.flash_optimal, ("Br", "Bc")),
    "scores_stored": (costs.scores_stored, ("Br",)),
    "scores_stored_tiled": (costs.scores_stored_tiled, ("Br", "Bo", "Bd")),
    "small_cache": (costs.small_cache, ("Br", "Bc", "Bd")),
}


def _plan(name: str, N: int, d: int, *sizes: int) -> Plan:
    cost, names = FORMS[name]
    tiles = dict(zip(names, sizes, strict=True))
    return Plan(name, tiles, cost(N, d, **tiles))


@library_solution
def _plans(N: int, d: int, M: int) -> Iterator[Plan]:
    """Yield the largest tiles that fit per number of rows or columns; one of them moves the fewest words."""
    both, one = (M - d) // (2 * d + 3), (M - d) // (d + 3)
    if both >= 1:
        yield _plan("flash_optimal", N, d, min(N, both), 1)
    if one >= 1:
        yield _plan("scores_stored", N, d, min(N, one))
        for Bd in range(1, d + 1):
            yield _plan("scores_stored_tiled", N, d, min(N, one), min(N, (M - Bd) // (Bd + 2)), Bd)
    for Br in reversed(
        costs.distinct_sizes(N)
    ):  # of sizes with equal block counts, the smallest leaves most words
        wide, columns = ((M - k * Br) // (Br + 1) for k in (3, 2))
        if wide >= 1:
            yield _plan("small_cache", N, d, Br, min(N, wide), min(d, columns))


@library_solution
def best_plan(N: int, d: int, M: int) -> Plan:
    """Return the plan with the least traffic for M >= 5 words of fast memory."""
    return min(_plans(N, d, M), key=lambda plan: plan.ledger.total)


def problems(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield, per schedule, an M at which it is best, and edge cases.

    An M at which one more row fits, and one word less; everything fits; many rows and a large M; one query;
    and every M of a small problem.
    """
    d, N = int(rng.integers(14, 21)), int(rng.integers(90, 131))
    memories = [int(M) for M in rng.permutation(np.linspace(12, 2 * d * d, 41).astype(int))]
    found = {best_plan(N, d, M).name: M for M in memories}
    both, one = d * d // (2 * d + 3) + 2, 3 * d * d // (4 * d + 12)
    edges = [both * (2 * d + 3) + d, one * (d + 3) + d]  # one more row fits: flash_optimal, scores_stored
    large = [*sorted(found.values()), d * d // 6, *edges, *(M - 1 for M in edges), 10**6]
    small_N, small_d = int(rng.integers(12, 15)), int(rng.integers(3, 5))
    asked = [
        *((N, d, M) for M in large),
        (4 * N, d, 6 * d * d),
        (11, 14, 108),  # small_cache is best with 11 rows of queries, more than √M
        (5, 4, 35),  # and here with 5, more than d
        (67, 5, 24),  # scores_stored_tiled is best with Bd = 3
        (103, 27, 279),  # and here with 14, neither a power of two nor half of d
        (1, d, 40),
        *((small_N, small_d, M) for M in range(5, 61)),
    ]
    for size in asked:
        sizes = named("N d M", size)
        yield Sample(sizes, sizes)


def _students_plan(trial: Trial) -> Plan | None:
    """Return the student's plan if it is a schedule's name with its tiles."""
    name, tiles = several(trial.value, 2) or (None, None)
    if not isinstance(name, str) or name not in FORMS or not isinstance(tiles, dict):
        return None
    if set(tiles) != set(FORMS[name][1]) or not all(whole(size) for size in tiles.values()):
        return None
    N, d = trial.case.inputs["N"], trial.case.inputs["d"]
    return _plan(name, N, d, *(int(tiles[key]) for key in FORMS[name][1]))


A_PLAN = Form("returns a schedule's name and its tiles", _students_plan, "a name and its tiles by name")


# ------------------------------------------------------------------ 7E: dL/dX
MASKED = "keys after the query left out"


def unscaled_attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, causal: bool = False) -> np.ndarray:
    """Return softmax(QKᵀ) V without 1/√d, as in the paper; the student's function gets it as `forward`."""
    return np.asarray(_weights(Q, K, causal) @ V, dtype=np.float64)


def unscaled_attention_backward(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, dO: np.ndarray, causal: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dQ, dK, dV of `unscaled_attention`; the student's function gets it as `backward`."""
    P, dP = _weights(Q, K, causal), dO @ V.T  # (N, N), (N, N)
    dS = P * (dP - (P * dP).sum(axis=1, keepdims=True))  # (N, N)
    return dS @ K, dS.T @ Q, P.T @ dO


def _weights(Q: np.ndarray, K: np.ndarray, causal: bool) -> np.ndarray:
    S = Q @ K.T  # (N, N)
    if causal:
        S = np.where(np.tri(*S.shape, dtype=np.bool_), S, -np.inf)
    P = np.exp(S - S.max(axis=1, keepdims=True))
    return np.asarray(P / P.sum(axis=1, keepdims=True), dtype=np.float64)


class Counted:
    """A function that counts its calls, also in the copy that is passed to the student's function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Counted:
        return self

    def __call__(self, *arrays: np.ndarray, **by_name: np.ndarray) -> Any:
        self.calls += 1
        return self.function(*arrays, **by_name)


@dataclass(frozen=True)
class CallsTrial(Trial):
    """A trial with the number of calls of each function passed to the student's function."""

    calls: Mapping[str, int] = field(default_factory=dict)


def call_and_count(student: Callable[..., Any], case: Case) -> Trial:
    """Call a plain function and record how often it calls the functions passed to it."""
    trial = run_function(student, case)
    calls = {name: case.inputs[name].calls for name in ("forward", "backward")}
    return CallsTrial(**vars(trial), calls=calls)


def _called_once(trial: Trial) -> str | None:
    made = trial.calls if isinstance(trial, CallsTrial) else {}
    told = ", ".join(f"{name} {calls}" for name, calls in made.items())
    return None if set(made.values()) == {1} else f"calls: {told}; expected 1 each"


def gradient_cases(rng: np.random.Generator) -> list[Case]:
    """Return small, square, tall and one-word problems, and three difficult ones.

    A small X between large A1 and A2 makes finite differences inaccurate. Very large scores overflow exp. A
    causal mask in forward and backward requires a result computed from their outputs.
    """
    n, d = int(rng.integers(6, 12)), int(rng.integers(2, 5))
    sizes = [(n, d), (d, d), (3 * n, d), (1, d), (n, 1)]
    found = [_gradient_case(rng, *size) for size in sizes]
    steep = [_gradient_case(rng, n, d, 1 / 16, 4.0), _gradient_case(rng, n, d, 2e3)]
    return [*found, *steep, _masked_case(rng, n, d)]


def _gradient_case(rng: np.random.Generator, n: int, d: int, scale: float = 1.0, sides: float = 1.0) -> Case:
    arrays = _problem(rng, n, d, scale, sides)
    inputs = {
        **arrays,
        "forward": Counted(unscaled_attention),
        "backward": Counted(unscaled_attention_backward),
    }
    label = f"n={n}, d={d}, X up to {abs(arrays['X']).max():.3g}"
    return Case(label, inputs, exact.grad_x(**arrays), tags=frozenset())


def _masked_case(rng: np.random.Generator, n: int, d: int) -> Case:
    """Return a case with the gradient by (7.10) and a mask in both passes."""
    X, A1, A2, A3, Y, E = (arrays := _problem(rng, n, d)).values()
    ahead, back = partial(unscaled_attention, causal=True), partial(unscaled_attention_backward, causal=True)
    Q, V = A1 @ X, A3 @ Y  # (n, d), (n, d)
    dQ = back(Q, A2, V, ahead(Q, A2, V) - E)[0]  # (n, d)
    inputs = {**arrays, "forward": Counted(ahead), "backward": Counted(back)}
    return Case(f"n={n}, d={d}, {MASKED}", inputs, A1.T @ dQ, tags=frozenset({MASKED}))


def _problem(
    rng: np.random.Generator, n: int, d: int, scale: float = 1.0, sides: float = 1.0
) -> dict[str, np.ndarray]:
    A1, A2, A3, E = rng.standard_normal((4, n, d))
    X, Y = rng.standard_normal((2, d, d))
    return {"X": scale * X, "A1": sides * A1, "A2": sides * A2, "A3": A3, "Y": Y, "E": E}


def _loss(inputs: Mapping[str, Any], X: np.ndarray) -> float:
    """Return L(X) with the forward pass of the case, without counting the call."""
    O = inputs["forward"].function(inputs["A1"] @ X, inputs["A2"], inputs["A3"] @ inputs["Y"])  # (n, d)
    return float(((O - inputs["E"]) ** 2).sum() / 2)


def _slope(inputs: Mapping[str, Any], way: np.ndarray) -> tuple[float, float]:
    """Return the slope of the loss along `way` by a central difference, and a bound on its error.

    With step h, the difference (L(X + h way) - L(X - h way)) / 2h has two errors. Both bounds hold with any
    mask, because a mask only removes keys, and each maximum is taken over all keys.

    Truncation: at most t h²/6, where t bounds the third derivative of L. In row i the scores change at rates
    b_j within c of their mid-range, and the entries of a column of V are within v of theirs. The derivatives
    of an output o are its joint cumulants with b under the weights: |o'| ≤ v c, |o''| ≤ 2 v c² and
    |o⁽³⁾| ≤ 7 v c³. With |o - e| ≤ far, the third derivative of Σ (o - e)²/2, which is
    Σ (o - e) o⁽³⁾ + 3 o' o'', is at most t = Σ c³ v (7 far + 6 v).

    Rounding: at most r/h, where r bounds the error of one loss. With unit roundoff u, a score has an error of
    at most u (2d + 2) s, where s is the sum of the absolute values of its terms. Weights, their sum and the
    products with V add at most u (2n + d + 8). Times the largest |V| this bounds the error of an output, and
    the sum of nd squares adds u (nd + 3) of the loss.

    The step h = (3r/t)^(1/3) minimises the sum of both bounds.
    """
    A1, A2, X = inputs["A1"], inputs["A2"], inputs["X"]  # (n, d), (n, d), (d, d)
    (n, d), u = A1.shape, np.finfo(np.float64).eps / 2
    V, largest = inputs["A3"] @ inputs["Y"], (np.abs(inputs["A3"]) @ np.abs(inputs["Y"])).max(axis=0)
    c, v = np.ptp(A1 @ way @ A2.T, axis=1, keepdims=True) / 2, np.ptp(V, axis=0) / 2  # (n, 1), (d,)
    far = largest + np.abs(inputs["E"])  # (n, d)
    s = (np.abs(A1) @ (np.abs(X) + np.abs(way)) @ np.abs(A2).T).max(axis=1, keepdims=True)  # (n, 1)
    t = float((c**3 * v * (7 * far + 6 * v)).sum())
    r = u * float(((2 * n + 2 * d + 10) * (1 + s) * far * largest + (n * d + 3) * far**2 / 2).sum())
    h = min(1.0, (3 * r / t) ** (1 / 3)) if t else 1.0  # t = 0: one key, whose weight is 1 for every X
    up, down = (_loss(inputs, X + step * way) for step in (h, -h))
    return (up - down) / (2 * h), t * h * h / 6 + r / h


def _by_nudging(trial: Trial) -> str | None:
    """Compare the gradient with a finite difference of the loss in one direction."""
    X = trial.case.inputs["X"]
    got = exact.real_numbers(trial.value)
    if got.shape != X.shape:
        return f"got shape {got.shape}, expected {X.shape} as X"
    way = np.cos(np.arange(X.size, dtype=np.float64)).reshape(X.shape)
    mine, (slope, error) = float((got * way).sum()), _slope(trial.case.inputs, way)
    # A correct gradient is rounded too. Each of its entries may be off by the tolerance of the values.
    error += TOLERANCE * (1 + np.abs(trial.case.expected).max()) * np.abs(way).sum()
    close = bool(abs(slope - mine) <= error)
    return None if close else f"the slope of the loss is {slope:.6g}, but the gradient gives {mine:.6g}"


# ------------------------------------------------------------------ 7F: a schedule to repair
def repair_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples in which the rows of Q, the tile of O, or the log-sum-exps take most of fast memory."""
    sizes = [*_sizes(rng), (12, 9, 4, 3, 3), (12, 3, 2, 12, 3), (11, 2, 1, 11, 1)]
    return attention_inputs(rng, "N d Br Bo Bd", sizes)


EXERCISES = (
    schedule_exercise(
        "7A",
        tile_inputs,
        equals=lambda Q, K, Br, Bc: exact.scores(Q, K),
        moves=_scores_by_columns,
        values=(values("the tile holds the scores of query block i and key block j"), block_size()),
        room=replace(fits_in_fast_memory(), name="fits in Br·Bc + Br + Bc words"),
        words=reads(Q="at most ⌈N/Bc⌉ times", K="at most ⌈N/Br⌉ times"),
        run_case=lambda student, case: run_schedule(tile_by_tile(student), case),
        comparison=product_comparison({"Q": COUNTED, "K": COUNTED}, COUNTED[0], *COUNTED, Br=31, Bc=31),
    ),
    schedule_exercise(
        "7B",
        small_inputs,
        equals=exact_attention,
        moves=_all_scores(costs.small_cache),
        spare=_four_words_a_row,
        values=VALUES,
        words=(
            SCRATCH,
            *reads(Q="at most ⌈N/Bc⌉ times"),
            *OVER_BLOCKS,
            *reads(S="at most ⌈d/Bd⌉ times"),
            *writes(S="once", O="once"),
        ),
        comparison=attention_comparison("forward", N=2**16, d=1024, Br=64, Bc=64, Bd=64),
    ),
    schedule_exercise(
        "7C",
        stored_inputs,
        equals=exact_attention,
        moves=_all_scores(costs.scores_stored),
        spare=_four_words_a_row,
        values=VALUES,
        words=(SCRATCH, *reads(Q="once"), *OVER_BLOCKS, *reads(S="once"), *writes(S="once", O="once")),
        comparison=attention_comparison("forward", N=2**20, d=256, Br=252),
    ),
    choice_exercise(
        "7D",
        problems,
        A_PLAN,
        among=_plans,
        moves=lambda plan, **_: plan.ledger,
        fits="the plan fits in M words",
        fewest="no plan that fits moves fewer words",
        clue=lambda best: f" with {best.name}",
    ),
    exercise(
        "7E",
        cases=gradient_cases,
        properties=(
            each("agrees with finite differences in X", _by_nudging),
            values("values equal the paper's formula A1ᵀ p A2"),
            values_in("is correct when forward and backward apply a mask", MASKED),
            # Each call is a pass over all pairs. Only through these calls does the result depend on K and V.
            as_traffic(each("calls forward once and backward once", _called_once), "A2", "A3", "Y"),
        ),
        run_case=call_and_count,
    ),
    schedule_exercise(
        "7F",
        repair_inputs,
        equals=exact_attention,
        moves=costs.scores_stored_tiled,
        values=(idle(values_in("values equal exact attention", "")), block_size(), idle(LARGE_VALUES)),
        room=replace(fits_in_fast_memory(), name="fits in the footprint of (7.6)"),
        loads=idle(every_input_loaded()),
        words=(
            *map(
                idle,
                reads(Q="once", K="at most ⌈N/Br⌉ times", V="at most ⌈N/Bo⌉ times", S="at most ⌈d/Bd⌉ times"),
            ),
            *reads(LSE="once"),
            *map(idle, writes(S="once", LSE="once", O="once")),
        ),
        comparison=attention_comparison("forward", N=2**20, d=256, Br=83, Bo=167, Bd=128),
    ),
)
