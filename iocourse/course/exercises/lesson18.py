"""Exercises of lesson 18: a ring, a grid, rows that travel backward, heads that are dealt out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import Case, exercise
from ..properties import LARGE, values_in
from ..trials.rank_runs import (
    RankCase,
    holds_blocks,
    holds_within,
    nothing_else_moves,
    rank_case,
    receives,
    right_on_every_rank,
    run_distributed,
    sends,
)

Array = NDArray[np.float64]
RAGGED, FEW, SQUARE = "ragged", "more ranks than rows", "square"
FAR = f"{LARGE} neither overflow nor vanish"


# ------------------------------------------------------------------ 18A the ring
def _ring_cases(rng: np.random.Generator) -> list[Case]:
    """Even shards; ragged ones; two ranks; one; ranks without a row; scores far from 0."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    sizes = [("", 4, 4 * n, d), (RAGGED, 5, 5 * n + 3, d), ("", 2, 2 * n + 1, d + 1), ("", 1, n, d)]
    return [_ring_case(rng, *one) for one in (*sizes, (FEW, 4, 3, d), (LARGE, 3, 7, d))]


def _drawn(rng: np.random.Generator, label: str, N: int, d: int) -> Array:
    """Q, K and V, (3, N, d); where scores are large, the largest of each query is 10,000."""
    Q, K, V = 2 * rng.standard_normal((3, N, d))
    if label == LARGE:
        Q *= 10_000 * np.sqrt(d) / (Q @ K.T).max(axis=1, keepdims=True)
    return np.stack([Q, K, V])


def _ring_case(rng: np.random.Generator, label: str, P: int, N: int, d: int) -> Case:
    Q, K, V = _drawn(rng, label, N, d)
    return rank_case("ring", P, {"Q": Q, "K": K, "V": V}, exact.attention(Q, K, V), label=label)


RING = exercise(
    "18A",
    cases=_ring_cases,
    properties=(
        right_on_every_rank(),
        values_in(FAR, LARGE),
        receives("every rank receives the keys and values of the others once", "K", "V"),
        nothing_else_moves(),
        holds_blocks("no rank holds more than two blocks of others", 2),
    ),
    run_case=run_distributed,
)


# ------------------------------------------------------------------ 18B the grid
def _grid_cases(rng: np.random.Generator) -> list[Case]:
    """A square; 2 × 3 and 3 × 2, ragged within a row of the grid; one row; one column; scores far from 0."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    sizes = [(SQUARE, 4, 4 * n, d, 2), ("", 6, 6 * n, d, 2), (RAGGED, 6, 6 * n + 3, d, 3)]
    sizes += [("", 3, 3 * n, d, 1), ("", 3, 3 * n + 1, d + 1, 3), (LARGE, 6, 9, d, 2)]
    return [_grid_case(rng, *one) for one in sizes]


def _grid_case(rng: np.random.Generator, label: str, P: int, N: int, d: int, a: int) -> Case:
    Q, K, V = _drawn(rng, label, N, d)
    return rank_case("grid", P, {"Q": Q, "K": K, "V": V, "a": a}, exact.attention(Q, K, V), label=label)


def _oblong(case: Case) -> bool:
    return not case.has(SQUARE)


GRID = exercise(
    "18B",
    cases=_grid_cases,
    properties=(
        right_on_every_rank(),
        values_in(FAR, LARGE),
        receives("on a square, a rank receives the queries of its row once", "Q", where=SQUARE),
        receives("where a is not b, too", "Q", where=_oblong),
        receives("a rank receives the keys and values of its column once", "K", "V"),
        sends("a rank sends its part of O and L to whom it is due, once", "O", "L"),
        nothing_else_moves(),
    ),
    run_case=run_distributed,
)


# ------------------------------------------------------------------ 18C rows travel
def _backward_cases(rng: np.random.Generator) -> list[Case]:
    """Even shards; ragged ones; two ranks; one."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    sizes = [("", 4, 4 * n, d), (RAGGED, 3, 3 * n + 2, d), ("", 2, 2 * n, d + 1), ("", 1, n, d)]
    return [_backward_case(rng, *one) for one in sizes]


def _backward_case(rng: np.random.Generator, label: str, P: int, N: int, d: int) -> Case:
    Q, K, V, dO = rng.standard_normal((4, N, d))
    O, LSE = exact.attention(Q, K, V), exact.log_sum_exp(exact.scores(Q, K))
    inputs = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "LSE": LSE}
    gradients = tuple(exact.attention_backward(Q, K, V, dO))
    return rank_case("ring_backward_rows", P, inputs, gradients, label=label)


def _two_blocks_of_rows(case: RankCase) -> int:
    """Words of all that travels, for the rows in use and for those that arrive: 3d + 2 a row."""
    N, d = map(int, case.inputs["Q"].shape)
    return 2 * (3 * d + 2) * -(-N // case.P)


ROWS = exercise(
    "18C",
    cases=_backward_cases,
    properties=(
        right_on_every_rank("dQ, dK and dV equal the exact gradients"),
        receives("every rank receives Q and dO of the others once", "Q", "dO"),
        receives("of O and of the scores a rank receives one number a row each", "LSE", "D"),
        sends("sums of dQ make P - 1 hops", "dQ"),
        nothing_else_moves("keys and values, their gradients and O stay at home"),
        holds_within("no rank holds more than two blocks of rows", _two_blocks_of_rows),
    ),
    run_case=run_distributed,
)


# ------------------------------------------------------------------ 18D heads
def _heads_cases(rng: np.random.Generator) -> list[Case]:
    """As many heads as ranks; more; ragged rows; one rank; ranks without a row."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    sizes = [
        ("", 4, 4 * n, 4, d),
        ("", 2, 2 * n, 6, d),
        (RAGGED, 3, 3 * n + 2, 6, d),
        ("", 1, n, 2, d),
        (FEW, 4, 3, 8, d),
    ]
    return [_heads_case(rng, *one) for one in sizes]


def _heads_case(rng: np.random.Generator, label: str, P: int, N: int, H: int, d: int) -> Case:
    Q, K, V = rng.standard_normal((3, N, H, d))
    q, k, v = (x.swapaxes(0, 1) for x in (Q, K, V))
    expected = np.asarray(exact.attention(q, k, v)).swapaxes(0, 1)
    return rank_case("ulysses", P, {"Q": Q, "K": K, "V": V}, expected, label=label)


HEADS = exercise(
    "18D",
    cases=_heads_cases,
    properties=(
        right_on_every_rank(),
        receives("a rank receives all rows of its heads once", "Q", "K", "V"),
        sends("a rank sends the outputs of its heads home once", "O"),
        nothing_else_moves(),
    ),
    run_case=run_distributed,
)

EXERCISES = (RING, GRID, ROWS, HEADS)
