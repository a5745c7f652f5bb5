"""Exercises of lesson 18: ring attention, a 2D grid, the ring backward pass, and Ulysses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import Case
from ..kinds.distributed import FAR, RankSample, distributed_exercise, normal_arrays, shards
from ..properties import LARGE
from ..trials.case_inputs import bottomless_queries_and_keys
from ..trials.rank_runs import MANY, RankCase, holds_within, nothing_else_moves, receives, sends

Array = NDArray[np.float64]

RING = distributed_exercise(
    "18A",
    "ring",
    exact.attention,
    shards,
    (
        receives("every rank receives K and V of the other ranks once", "K", "V"),
        nothing_else_moves(),
        holds_within("no rank holds more than two blocks of other ranks", copies_of=("K", "V")),
    ),
    where=FAR,
)


# ------------------------------------------------------------------ 18B the grid
def _grids(rng: np.random.Generator) -> Iterator[RankSample]:
    """Yield a square grid, 2 × 3 and 3 × 2, one row, one column, ragged shards, and scores far from 0."""
    # <!-- 2 × 3, 3 × 2 as input -->
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    sizes = [(4, 4 * n, d, 2), (6, 6 * n, d, 2), (6, 6 * n + 3, d, 3)]
    for P, N, columns, a in [*sizes, (3, 3 * n, d, 1), (3, 3 * n + 1, d + 1, 3)]:
        yield "", P, normal_arrays(rng, "Q K V", N, columns) | {"a": a}
    yield LARGE, 6, normal_arrays(rng, "Q K V", 9, d, large=True) | {"a": 2}
    Q, K = bottomless_queries_and_keys(rng, 9)
    yield LARGE, 6, {"Q": Q, "K": K, "V": rng.standard_normal(K.shape), "a": 2}


def _square(case: Case) -> bool:
    return isinstance(case, RankCase) and case.inputs["a"] ** 2 == case.P


GRID = distributed_exercise(
    "18B",
    "grid",
    lambda Q, K, V, a: exact.attention(Q, K, V),
    _grids,
    (
        receives("on a square grid, a rank receives the queries of its row once", "Q", where=_square),
        receives(
            "on any other grid, a rank receives the queries of its row once",
            "Q",
            where=lambda case: not _square(case),
        ),
        receives("a rank receives K and V of its column once", "K", "V"),
        sends("a rank sends its parts of O and L to their owners once", "O", "L"),
        nothing_else_moves(),
    ),
    where=FAR,
)


# ------------------------------------------------------------------ 18C query rows are sent
def _with_results(rng: np.random.Generator) -> Iterator[RankSample]:
    """Yield even and ragged shards, two ranks, one rank, and many ranks."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    sizes = [(4, 4 * n, d), (3, 3 * n + 2, d), (2, 2 * n, d + 1), (1, n, d), (24, 48, 4)]
    for P, N, columns in sizes:
        Q, K, V, dO = rng.standard_normal((4, N, columns))
        O, LSE = exact.attention(Q, K, V), exact.log_sum_exp(exact.scores(Q, K))
        yield MANY if P == 24 else "", P, {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "LSE": LSE}


def _gradients(Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array) -> tuple[Array, ...]:
    return tuple(exact.attention_backward(Q, K, V, dO))


def _two_blocks_of_rows(case: RankCase) -> int:
    """Return the words of two blocks of rows (in use and received), with 3d + 2 words per row."""
    N, d = map(int, case.inputs["Q"].shape)
    return 2 * (3 * d + 2) * -(-N // case.P)


ROWS = distributed_exercise(
    "18C",
    "ring_backward_rows",
    _gradients,
    _with_results,
    (
        receives("every rank receives Q and dO of the other ranks once", "Q", "dO"),
        receives("a rank receives at most one word per row of LSE and of D", "LSE", "D", fewer=True),
        sends("partial sums of dQ are sent P - 1 times", "dQ"),
        nothing_else_moves("sends no K, V, dK, dV or O"),
        holds_within(
            "no rank holds more than two blocks of rows", _two_blocks_of_rows, copies_of=("Q", "dO")
        ),
    ),
    values="dQ, dK and dV are exact",
)


# ------------------------------------------------------------------ 18D heads
def _heads(rng: np.random.Generator) -> Iterator[RankSample]:
    """Yield as many heads as ranks, more heads, ragged rows, one rank, ranks without rows, low scores."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    for P, N, H in [(4, 4 * n, 4), (2, 2 * n, 6), (3, 3 * n + 2, 6), (1, n, 2), (4, 3, 8)]:
        yield "", P, normal_arrays(rng, "Q K V", N, H, d)
    Q, K = (np.stack([x, x], axis=1) for x in bottomless_queries_and_keys(rng, 6))
    yield "", 2, {"Q": Q, "K": K, "V": rng.standard_normal(K.shape)}


def _of_heads(Q: Array, K: Array, V: Array) -> Array:
    q, k, v = (x.swapaxes(0, 1) for x in (Q, K, V))
    return np.asarray(exact.attention(q, k, v)).swapaxes(0, 1)


HEADS = distributed_exercise(
    "18D",
    "ulysses",
    _of_heads,
    _heads,
    (
        receives("a rank receives all rows of its heads once", "Q", "K", "V"),
        sends("a rank sends the outputs of its heads to their owners once", "O"),
        nothing_else_moves(),
    ),
)

EXERCISES = (RING, GRID, ROWS, HEADS)
