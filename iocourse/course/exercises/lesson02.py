"""Exercises of lesson 02: first schedules on the two-level machine, and the tile of a matrix product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ... import costs
from ...ledger import Ledger
from ..bound_ratio import product_comparison
from ..exercise import Sample
from ..kinds.choice import TileSizes, choice_exercise, tile_form
from ..kinds.schedule import schedule_exercise
from ..properties import reads, reads_within, same_answer_from, values, writes


def _matrix(rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    """Return a matrix with entries around 1, so that sums and means are not close to zero."""
    return rng.standard_normal((rows, cols)) + 1.0


# ---------------------------------------------------------------------- 2A centred rows
def _rows_in_blocks(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield a matrix in ragged blocks, single rows, and a block larger than N; then a matrix of one row."""
    b, d = int(rng.integers(3, 6)), int(rng.integers(4, 9))
    A = _matrix(rng, 3 * b + 1, d)
    for matrix, size in [(A, b), (A, b + 1), (A, 1), (A, 4 * b), (_matrix(rng, 1, d), 1)]:
        yield Sample({"N": len(matrix), "d": d, "b": size}, {"A": matrix, "b": size})


def _centring(N: int, d: int, b: int) -> Ledger:
    """Return the closed form; its peak is a block and two words per row, so a second block does not fit."""
    peak = min(b, N) * (d + 2)
    return Ledger(reads={"A": N * d}, writes={"Y": N * d}, peak=peak, sizes={"A": N * d, "Y": N * d})


# ---------------------------------------------------------------------- 2B the blocked product
def _products(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield one product in ragged tiles of several shapes, and products of other sizes, down to one word.

    Fast memory is exactly the footprint: a tile of C, a piece of a column of A, a piece of a row of B.
    """
    bm, bn, depth = int(rng.integers(3, 6)), int(rng.integers(3, 6)), int(rng.integers(5, 9))
    A, B = _matrix(rng, 2 * bm + 1, depth), _matrix(rng, depth, 3 * bn + 2)
    flat, tall = _matrix(rng, 2, depth + 3), _matrix(rng, depth + 3, 9)
    word = _matrix(rng, 1, 1)
    shapes = [(A, B, bm, bn + 1), (A, B, bm + 2, bn), (A, B, 1, 1), (A, B, 50, 50)]
    for left, right, rows, columns in [*shapes, (flat, tall, 4, 2), (word, word, 1, 3)]:
        tile = {"bm": rows, "bn": columns}
        (m, k), n = left.shape, right.shape[1]
        yield Sample({"m": m, "n": n, "k": k, **tile}, {"A": left, "B": right, **tile})


def _tiles_exchanged(m: int, n: int, k: int, bm: int, bn: int) -> Ledger:
    return costs.matmul(m, n, k, bm=bn, bn=bm)


SIDE = 128 * 255  # of the matrices whose product is counted


# ---------------------------------------------------------------------- 2C the tile
def _problems(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield square, wide, tall and small products, with memory for one word of C, for all of C, and between.

    With M = 15, only a tile that fills M holds all of a 3 × 3 product. With M = 24, the best tiles of a
    12 × 5 and a 5 × 12 product differ from those of 24 rows or columns, and 12 rows of C leave no words for a
    column.
    """
    # <!-- 3 × 3, 12 × 5, 5 × 12 as input -->
    side, low, long = int(rng.integers(60, 90)), int(rng.integers(3, 6)), int(rng.integers(200, 260))
    M = int(rng.integers(120, 400))
    asked = [(side, side, side, M), (low, long, side, M), (long, low, side, M), (side, long, 30, 3)]
    asked += [(low, 7, side, 4 * M), (1, 1, 1, 3), (1, long, 2, M), (side + 7, 2 * side, 11, 5 * M)]
    for one in [*asked, (3, 3, side, 15), (12, 5, 10, 24), (5, 12, 10, 24)]:
        sizes = dict(zip("mnkM", one, strict=True))
        yield Sample(sizes, sizes)


def _widest_tiles(m: int, n: int, k: int, M: int) -> Iterator[TileSizes]:
    """Yield, per bm, the largest bn that fits."""
    return ({"bm": bm, "bn": min(n, (M - bm) // (bm + 1))} for bm in range(1, min(m, (M - 1) // 2) + 1))


# ---------------------------------------------------------------------- 2D a matrix times its own transpose
def _squares(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield a matrix in blocks of several sizes, the first ragged; then one row and one word."""
    b, k = int(rng.integers(3, 6)), int(rng.integers(4, 8))
    A = _matrix(rng, 3 * b + 2, k)
    asked = [(A, b), (A, b + 1), (A, 1), (A, 5 * b), (_matrix(rng, 4 * b, k), b), (_matrix(rng, 1, 1), 2)]
    for matrix, size in asked:
        yield Sample({"m": len(matrix), "k": matrix.shape[1], "b": size}, {"A": matrix, "b": size})


def half_of_the_tiles(m: int, k: int, b: int) -> Ledger:
    """Return the traffic of exercise 2D, formula (2.7): G = AAᵀ with half of the tiles computed."""
    side, blocks = min(b, m), costs.ceil_div(m, b)
    return Ledger(
        reads={"A": m * k * blocks},
        writes={"G": m * m},
        peak=side * side + 2 * side,
        sizes={"A": m * k, "G": m * m},
    )


EXERCISES = (
    schedule_exercise(
        "2A",
        _rows_in_blocks,
        equals=lambda A, b: A - A.mean(axis=1, keepdims=True),
        moves=_centring,
        values=(values("each row of Y is that row of A minus its mean"), same_answer_from("A")),
        words=(*reads(A="once"), *writes(Y="once"), reads_within("Y", "Y is not read back")),
    ),
    schedule_exercise(
        "2B",
        _products,
        equals=lambda A, B, bm, bn: A @ B,
        moves=costs.matmul,
        values=(values("values equal A @ B"), same_answer_from("A")),
        words=(
            *reads(A="at most ⌈n/bn⌉ times", B="at most ⌈m/bm⌉ times"),
            *writes(C="once"),
            reads_within("C", "C is not read back"),
        ),
        mistaken={"your tiles of C have bn rows and bm columns": _tiles_exchanged},
        comparison=product_comparison(
            {"A": (SIDE, SIDE), "B": (SIDE, SIDE)}, SIDE, SIDE, SIDE, bm=255, bn=255
        ),
    ),
    choice_exercise(
        "2C",
        _problems,
        tile_form("bm", "bn"),
        among=_widest_tiles,
        moves=lambda tile, m, n, k, M: costs.matmul(m, n, k, **tile),
        fits="the tile, a column piece and a row piece fit in M words",
    ),
    schedule_exercise(
        "2D",
        _squares,
        equals=lambda A, b: A @ A.T,
        moves=half_of_the_tiles,
        values=(values("values equal A @ A.T"), same_answer_from("A")),
        words=(*reads(A="at most ⌈m/b⌉ times"), *writes(G="once"), reads_within("G", "G is not read back")),
    ),
)
