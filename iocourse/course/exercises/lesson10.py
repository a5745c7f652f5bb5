"""Exercises of lesson 10: offsets of a tile; kernels for a transposed copy, row softmax and a product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import costs, exact
from ...ledger import Ledger
from ..exercise import Case, Sample, Trial, WrongForm, exercise
from ..kinds.function import EVERY
from ..kinds.kernel import kernel_exercise
from ..properties import LARGE, each, idle, several
from ..trials.kernel_launch import launch_and_count_programs, nothing_in_vain, words_exactly, words_within

SLICE, TURNED = "a slice of a larger matrix", "a transpose"
ONE_ROW = "one row"  # its transpose has its words in the same order, so a plain copy is right

Matrix = NDArray[np.float32]


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    return rng.standard_normal((rows, columns), dtype=np.float32)


def _slice(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    """Return a matrix whose row stride is larger than its number of columns."""
    return _matrix(rng, rows, columns + 9)[:, 4 : 4 + columns]


def _layout(X: Matrix) -> tuple[str, ...]:
    """Return the difficulty of the memory layout: none if the matrix is contiguous."""
    if X.flags.c_contiguous:
        return (ONE_ROW,) if len(X) == 1 else ()
    return (TURNED,) if X.flags.f_contiguous else (SLICE,)


# ---------------------------------------------------------------------- 10A offsets and mask of a tile
INNER, EDGE = "an inner tile", "a tile at the edge"


def _tile_cases(rng: np.random.Generator) -> list[Case]:
    """Return tiles inside a matrix and over each of its edges, with strides of rows, columns and a slice.

    Also: a tall tile of a tall matrix, a column stride of 0, a negative row stride, and a large row stride.
    """
    BM, BN = int(rng.integers(3, 6)), int(rng.integers(6, 9))
    rows, columns = 2 * BM + 2, 2 * BN + 3
    asked: list[tuple[str, int, int, int, int]] = [
        (INNER, 0, 0, columns, 1),
        (INNER, 1, 1, columns, 1),
        (f"{INNER} of {SLICE}", 1, 0, columns + 5, 1),
        (f"{INNER} of {TURNED}", 0, 1, 1, rows),
        (f"{EDGE} of {TURNED}", 2, 1, 1, rows + 2),
        (EDGE, 2, 0, columns, 1),
        (EDGE, 0, 2, columns, 1),
        (EDGE, 2, 2, columns + 1, 1),
        (f"{EDGE} of every second row and third column", 2, 2, 2 * 3 * columns, 3),
    ]
    sizes = {"rows": rows, "columns": columns}
    wide = [
        _tile_case(label, {"p": p, "q": q, **sizes, "s0": s0, "s1": s1, "BM": BM, "BN": BN})
        for label, p, q, s0, s1 in asked
    ]
    sizes = {"rows": columns, "columns": rows}
    high = [
        _tile_case(label, {"p": p, "q": q, **sizes, "s0": s0, "s1": s1, "BM": BN, "BN": BM})
        for label, p, q, s0, s1 in (
            (f"{EDGE} of a tall matrix", 2, 2, rows, 1),
            (f"{INNER} with column stride 0", 1, 1, 1, 0),
            (f"{EDGE} with negative row stride", 2, 1, -rows, 1),
            (f"{INNER} with a large row stride", 1, 1, 70_001, 1),
        )
    ]
    return wide + high


def _tile_case(label: str, at: dict[str, int]) -> Case:
    i = at["p"] * at["BM"] + np.arange(at["BM"])
    j = at["q"] * at["BN"] + np.arange(at["BN"])
    places = np.add.outer(i * at["s0"], j * at["s1"])
    mask = np.logical_and.outer(i < at["rows"], j < at["columns"])
    where = (
        f"program ({at['p']}, {at['q']}), {at['rows']} x {at['columns']}, strides ({at['s0']}, {at['s1']})"
    )
    return Case(f"{label}: {where}, tiles of {at['BM']} x {at['BN']}", at, (places, mask))


def _two_arrays(trial: Trial) -> str | None:
    shape = trial.case.expected[0].shape
    parts = several(trial.value, 2) or ()
    shapes = [np.shape(part) for part in parts]
    if shapes != [shape, shape]:
        return WrongForm(f"expected two arrays of shape {shape}, got {shapes or 'none'}")
    places, mask = (np.asarray(part).dtype for part in parts)
    if places.kind not in "iu" or not _tells_on_from_off(np.asarray(parts[1])):
        return f"expected integers and booleans, got {places} and {mask}"
    return None


def _tells_on_from_off(mask: NDArray[Any]) -> bool:
    """Return whether a mask has only True and False, or only 1 and 0."""
    return mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and bool(np.isin(mask, (0, 1)).all()))


def _right_mask(trial: Trial) -> str | None:
    wrong = np.asarray(trial.value[1], dtype=bool) != trial.case.expected[1]
    if not wrong.any():
        return None
    at = trial.case.inputs
    lane = a, b = tuple(int(x) for x in np.argwhere(wrong)[0])
    row, column = at["p"] * at["BM"] + a, at["q"] * at["BN"] + b
    beyond = [name for name, index in (("rows", row), ("columns", column)) if index >= at[name]]
    lies = f"out of bounds in {' and '.join(beyond)}" if beyond else "within bounds"
    return (
        f"the mask is wrong in {int(wrong.sum())} of {wrong.size} lanes, first in lane {lane}: "
        f"element ({row}, {column}) is {lies}"
    )


def _right_places(trial: Trial) -> str | None:
    places, mask = trial.case.expected
    got = np.asarray(trial.value[0])
    wrong = np.argwhere(mask & (got != places))
    if not len(wrong):
        return None
    first = tuple(int(x) for x in wrong[0])
    return f"{len(wrong)} offsets differ, first in lane {first}: got {got[first]}, expected {places[first]}"


TILE = exercise(
    "10A",
    cases=_tile_cases,
    properties=(
        idle(each("returns offsets and a mask, one value per lane", _two_arrays)),
        each("masks exactly the lanes that are out of bounds", _right_mask),
        each("every offset is that of its element", _right_places),
    ),
)


# ---------------------------------------------------------------------- 10B a transposed copy
def matrices(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield ragged matrices, slices, a transpose, complete tiles, one row, and a small matrix (twice)."""
    rows, columns = int(rng.integers(35, 47)), int(rng.integers(18, 31))
    for X, BM, BN in [
        (_matrix(rng, rows, columns), 16, 16),
        (_matrix(rng, rows, columns), 8, 32),
        (_slice(rng, rows, columns), 16, 8),
        (_matrix(rng, columns, rows).T, 16, 16),
        (_matrix(rng, 32, 16), 16, 16),
        (_matrix(rng, 1, columns), 16, 16),
        (_matrix(rng, 5, 3), 8, 4),
        (_matrix(rng, 5, 3), 8, 4),
    ]:
        tile = {"BM": BM, "BN": BN}
        words = Ledger(reads={"X": X.size}, writes={"Y": X.size})
        sizes = {"rows": X.shape[0], "columns": X.shape[1], **tile}
        yield Sample(sizes, {"X": X, **tile}, {"Y": X.T}, words, _layout(X))


def _row_by_row(trial: Trial) -> str | None:
    lies = np.asarray(trial.value).flags.c_contiguous
    return None if lies else "the rows of the result are not contiguous; is it a view of X?"


TRANSPOSE = kernel_exercise(
    "10B",
    "Y",
    matrices,
    {
        ("Y", EVERY): "Y is the transpose of X",
        ("Y", SLICE): "uses the row stride of a slice",
        ("Y", TURNED): "uses both strides",
    },
    loads="X",
    words=words_exactly("each word is read once and written once"),
    also=(
        idle(each("stores Y row by row", _row_by_row)),
        nothing_in_vain("every program stores part of the result"),
    ),
    products=False,
    compiles=False,  # exercise 10D introduces the compiler
    tolerance=0.0,
    run_case=launch_and_count_programs,
)


# ---------------------------------------------------------------------- 10C softmax of long rows
RISING, SHORT, LOW = "rising scores", "shorter than a block", "all far below zero"


def _largest_first(X: Matrix) -> Matrix:
    """Swap the largest and the first element of each row, so that the maximum never rises."""
    rows, largest = np.arange(len(X)), X.argmax(axis=1)
    X[rows, largest], X[:, 0] = X[:, 0], X[rows, largest]
    return X


def _low(rng: np.random.Generator, n: int) -> Matrix:
    """Return a row near -200, and rows down from -1e25 and -2.2e38, in which one weight is 1.

    Times log₂ e the last row is still in the range of float32, which ends at 3.4e38.
    """
    down = np.arange(n)
    rows = [_matrix(rng, 1, n)[0] - 200, -1e25 - 1e23 * down, -2.2e38 - 1e35 * down]
    return np.stack(rows).astype(np.float32)


def _large(rng: np.random.Generator, n: int) -> Matrix:
    """Return three rows between ±10,000 with large distances, so that one weight is 1."""
    steps = np.linspace(-1e4, 1e4, n, dtype=np.float32)
    return rng.permuted(np.stack([steps] * 3), axis=1)


def long_rows(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield rows of several pieces, ragged and not, short rows, one element, a slice, rising maxima, large
    scores, and a row longer than the largest block of Triton.
    """
    n = int(rng.integers(70, 95))
    drawn: list[tuple[Matrix, int]] = [
        (_largest_first(3 * _matrix(rng, 3, n)), 16),
        (_largest_first(3 * _matrix(rng, 4, 64)), 32),
        (_largest_first(_slice(rng, 4, n)), 32),
        (3 * _matrix(rng, 3, 21), 64),
        (_matrix(rng, 2, 1), 16),
        (3 * _matrix(rng, 3, 21), 64),  # the same sizes, other numbers
        (np.tile(np.arange(n, dtype=np.float32) / 2, (2, 1)), 16),
        (3 * _matrix(rng, 3, n), 16),
        (_low(rng, n), 32),
        (_large(rng, n), 32),
        (_largest_first(_matrix(rng, 1, 2**20 + n)), 2**16),
    ]
    for X, BLOCK in drawn:
        rows, length = X.shape
        words = Ledger(reads={"X": 2 * X.size}, writes={"Y": X.size})
        exactly = exact.softmax(X.astype(np.float64))
        sizes = {"rows": rows, "n": length, "BLOCK": BLOCK}
        yield Sample(sizes, {"X": X, "BLOCK": BLOCK}, {"Y": exactly}, words, _difficulty(X, BLOCK))


def _difficulty(X: Matrix, BLOCK: int) -> tuple[str, ...]:
    if (X.max(axis=1) < -100).all():
        return (LOW,)
    if np.abs(X).max() > 1000:
        return (LARGE,)
    if X.shape[1] < BLOCK:
        return (SHORT,)
    return (RISING,) if (X[:, :BLOCK].max(axis=1) < X.max(axis=1)).any() else _layout(X)


def _adds_up(trial: Trial) -> str | None:
    sums = np.asarray(trial.value, dtype=np.float64).sum(axis=-1)
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= 1e-5))  # of a million rounded numbers too
    return f"row {int(wrong[0])} sums to {sums[wrong[0]]:.6g}, expected 1" if wrong.size else None


LONG = kernel_exercise(
    "10C",
    "Y",
    long_rows,
    {
        ("Y", EVERY): "each row is the softmax of that row",
        ("Y", SHORT): "out-of-bounds lanes do not change the result",
        ("Y", RISING): "the sum is rescaled when the maximum rises",
        ("Y", SLICE): "uses the row stride of a slice",
        ("Y", LARGE): f"{LARGE} neither overflow nor vanish",
        ("Y", LOW): "is correct for a row far below zero",
    },
    loads="X",
    words=words_within("each word is read at most twice and written once", "(10.3)"),
    also=(each("every row sums to one", _adds_up),),
    products=False,
    compiles=False,  # exercise 10D introduces the compiler
)


# ---------------------------------------------------------------------- 10D the product in tiles
DEPTH, PIECES = "ragged depth", "several pieces of k"


def factors(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield several pieces of k, matrices with one ragged size each, all sizes ragged, slices, different
    tiles, and small matrices (twice, with equal sizes).
    """
    m, n, k = (int(x) for x in rng.integers(33, 47, size=3))
    for A, B, BM, BN, BK in [
        (_matrix(rng, 32, 32), _matrix(rng, 32, 48), 16, 16, 16),
        (_matrix(rng, m, 32), _matrix(rng, 32, 32), 32, 32, 32),
        (_matrix(rng, 32, 32), _matrix(rng, 32, n), 16, 32, 32),
        (_matrix(rng, 32, 33), _matrix(rng, 33, 32), 32, 32, 16),
        (_matrix(rng, m, k), _matrix(rng, k, n), 16, 32, 16),
        (_slice(rng, m, k), _slice(rng, k, n), 32, 32, 32),
        (_matrix(rng, 5, 7), _matrix(rng, 7, 3), 16, 16, 16),
        (_matrix(rng, 5, 7), _matrix(rng, 7, 3), 16, 16, 16),
    ]:
        (rows, depth), columns = A.shape, B.shape[1]
        tile = {"BM": BM, "BN": BN, "BK": BK}
        words = costs.matmul(rows, columns, depth, bm=BM, bn=BN)
        even = not rows % BM and not columns % BN
        depths = (DEPTH,) if depth % BK else (PIECES,) if depth > BK else ()
        yield Sample(
            {"m": rows, "n": columns, "k": depth, **tile},
            {"A": A, "B": B, **tile},
            {"C": A.astype(np.float64) @ B.astype(np.float64)},
            Ledger(reads=dict(words.reads), writes=dict(words.writes)),
            (even and depths) or _layout(A),
        )


PRODUCT = kernel_exercise(
    "10D",
    "C",
    factors,
    {
        ("C", EVERY): "C equals the product",
        ("C", PIECES): "adds up the products of all pieces of k",
        ("C", DEPTH): "out-of-bounds lanes in k add nothing",
        ("C", SLICE): "uses the row stride of a slice",
    },
    loads="A B",
    words=words_exactly("moves exactly the words of (10.4)"),
)

EXERCISES = (TILE, TRANSPOSE, LONG, PRODUCT)
