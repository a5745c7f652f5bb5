"""Exercises of lesson 02: first schedules on the two-level machine, and the tile of a matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import costs
from ...costs import ceil_div
from ...ledger import Ledger
from ..bound_ratio import product
from ..exercise import Case, Trial, exercise, run_schedule
from ..properties import (
    Form,
    every_input_loaded,
    fits,
    idle,
    reads,
    reads_within,
    same_answer_from,
    total_within,
    two_whole,
    values,
    writes,
)


def _matrix(rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    """Entries around 1, so that neither a sum nor a mean is nearly zero."""
    return rng.standard_normal((rows, cols)) + 1.0


# ---------------------------------------------------------------------- 2A centred rows
def _centre_cases(rng: np.random.Generator) -> list[Case]:
    """One matrix in blocks of several sizes (ragged, a single row, larger than N), then a matrix of one row.

    Allowance: a block and two words for each of its rows; a second block does not fit, as d is at least 4.
    """
    b, d = int(rng.integers(3, 6)), int(rng.integers(4, 9))
    A = _matrix(rng, 3 * b + 1, d)
    inputs = [(A, b), (A, b + 1), (A, 1), (A, 4 * b), (_matrix(rng, 1, d), 1)]
    return [_centre_case(matrix, size) for matrix, size in inputs]


def _centre_case(A: np.ndarray, b: int) -> Case:
    N, d = A.shape
    rows = min(b, N)
    budget = Ledger(reads={"A": N * d}, writes={"Y": N * d}, sizes={"A": N * d, "Y": N * d})
    centred = A - A.mean(axis=1, keepdims=True)
    return Case(f"N={N}, d={d}, b={b}", {"A": A, "b": b}, centred, rows * d + 2 * rows, budget)


CENTRE = exercise(
    "2A",
    cases=_centre_cases,
    properties=(
        values("each row of Y is that row of A minus its mean"),
        same_answer_from("A"),
        fits(),
        every_input_loaded("A"),
        *reads(A="once"),
        *writes(Y="once"),
        reads_within("Y", "Y is not read back"),
        total_within(),
    ),
    run_case=run_schedule,
)


# ---------------------------------------------------------------------- 2B the blocked product
def _product_cases(rng: np.random.Generator) -> list[Case]:
    """One product in tiles of several shapes, ragged both ways; then other sizes, down to a single word.

    Fast memory is exactly the footprint: a tile of C, a piece of a column of A, a piece of a row of B.
    """
    bm, bn, depth = int(rng.integers(3, 6)), int(rng.integers(3, 6)), int(rng.integers(5, 9))
    A, B = _matrix(rng, 2 * bm + 1, depth), _matrix(rng, depth, 3 * bn + 2)
    flat, tall = _matrix(rng, 2, depth + 3), _matrix(rng, depth + 3, 9)
    word = _matrix(rng, 1, 1)
    shapes = [(A, B, bm, bn + 1), (A, B, bm + 2, bn), (A, B, 1, 1), (A, B, 50, 50)]
    shapes += [(flat, tall, 4, 2), (word, word, 1, 3)]
    return [_product_case(*shape) for shape in shapes]


def _product_case(A: np.ndarray, B: np.ndarray, bm: int, bn: int) -> Case:
    (m, k), n = A.shape, B.shape[1]
    budget = costs.matmul(m, n, k, bm=bm, bn=bn)
    inputs: dict[str, Any] = {"A": A, "B": B, "bm": bm, "bn": bn}
    return Case(f"m={m}, n={n}, k={k}, bm={bm}, bn={bn}", inputs, A @ B, budget.peak, budget)


SIDE = 128 * 255  # of the matrices whose product is counted


PRODUCT = exercise(
    "2B",
    cases=_product_cases,
    properties=(
        values("values equal A @ B"),
        same_answer_from("A"),
        fits(),
        every_input_loaded("A", "B"),
        *reads(A="⌈n/bn⌉ times", B="⌈m/bm⌉ times"),
        *writes(C="once"),
        reads_within("C", "C is not read back"),
        total_within(),
    ),
    run_case=run_schedule,
    comparison=product({"A": (SIDE, SIDE), "B": (SIDE, SIDE)}, SIDE, SIDE, SIDE, bm=255, bn=255),
)


# ---------------------------------------------------------------------- 2C the tile
def _tile_cases(rng: np.random.Generator) -> list[Case]:
    """Square, low, wide and small products, memory for one word of C, for all of it, and in between.

    In 24 words a 12 x 5 product has another best tile than one of 24 rows or columns, as has a 5 x 12 one;
    and beside 12 rows of C there is no room for a column.
    """
    side, low, long = int(rng.integers(60, 90)), int(rng.integers(3, 6)), int(rng.integers(200, 260))
    M = int(rng.integers(120, 400))
    sizes = [(side, side, side, M), (low, long, side, M), (long, low, side, M), (side, long, 30, 3)]
    sizes += [(low, 7, side, 4 * M), (1, 1, 1, 3), (1, long, 2, M), (side + 7, 2 * side, 11, 5 * M)]
    sizes += [(12, 5, 10, 24), (5, 12, 10, 24)]
    return [_tile_case(*size) for size in sizes]


def _tile_case(m: int, n: int, k: int, M: int) -> Case:
    return Case(f"m={m}, n={n}, k={k}, M={M}", {"m": m, "n": n, "k": k, "M": M})


def _words(trial: Trial, bm: int, bn: int) -> Ledger:
    sizes = trial.case.inputs
    return costs.matmul(sizes["m"], sizes["n"], sizes["k"], bm=bm, bn=bn)


def _fewest_words(trial: Trial) -> int:
    """Words of the cheapest tile: for each bm the largest bn that fits, one after the other."""
    m, n, M = (trial.case.inputs[name] for name in ("m", "n", "M"))
    tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, min(m, (M - 1) // 2) + 1)]
    return min(_words(trial, bm, bn).total for bm, bn in tiles)


def _tile_fits(trial: Trial, tile: tuple[int, int]) -> str | None:
    bm, bn = tile
    need, M = _words(trial, bm, bn).peak, trial.case.inputs["M"]
    return None if need <= M else f"your tile {bm} x {bn} needs {need:,} words"


def _tile_is_best(trial: Trial, tile: tuple[int, int]) -> str | None:
    bm, bn = tile
    got, best = _words(trial, bm, bn).total, _fewest_words(trial)
    return None if got <= best else f"your tile {bm} x {bn} moves {got:,} words, {best:,} are possible"


A_TILE = Form("returns two whole numbers of at least 1", two_whole, "a tile (bm, bn)")
TILE = exercise(
    "2C",
    cases=_tile_cases,
    properties=(
        A_TILE.kept(),
        idle(A_TILE.must("the tile, a column piece and a row piece fit in M words", _tile_fits)),
        A_TILE.must("no tile that fits moves fewer words", _tile_is_best),
    ),
)


# ---------------------------------------------------------------------- 2D a matrix times its own transpose
def _gram_cases(rng: np.random.Generator) -> list[Case]:
    """One matrix in blocks of several sizes, ragged first; then a row and a single word."""
    b, k = int(rng.integers(3, 6)), int(rng.integers(4, 8))
    A = _matrix(rng, 3 * b + 2, k)
    inputs = [(A, b), (A, b + 1), (A, 1), (A, 5 * b), (_matrix(rng, 4 * b, k), b), (_matrix(rng, 1, 1), 2)]
    return [_gram_case(matrix, size) for matrix, size in inputs]


def _gram_case(A: np.ndarray, b: int) -> Case:
    m, k = A.shape
    side, blocks = min(b, m), ceil_div(m, b)
    budget = Ledger(
        reads={"A": m * k * blocks},
        writes={"G": m * m},
        peak=side * side + 2 * side,
        sizes={"A": m * k, "G": m * m},
    )
    return Case(f"m={m}, k={k}, b={b}", {"A": A, "b": b}, A @ A.T, budget.peak, budget)


GRAM = exercise(
    "2D",
    cases=_gram_cases,
    properties=(
        values("values equal A @ A.T"),
        same_answer_from("A"),
        fits(),
        every_input_loaded("A"),
        *reads(A="⌈m/b⌉ times"),
        *writes(G="once"),
        reads_within("G", "G is not read back"),
        total_within(),
    ),
    run_case=run_schedule,
)

EXERCISES = (CENTRE, PRODUCT, TILE, GRAM)
