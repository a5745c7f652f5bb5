"""Exercises of lesson 10: places of a tile, and three kernels: transposed copy, row softmax, product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import costs, exact
from ...ledger import Ledger
from ..exercise import Case, Trial, WrongForm, exercise
from ..properties import LARGE, each, idle, several, values, values_in
from ..trials.kernel_launch import (
    any_order,
    full_products,
    launch_and_count_programs,
    launch_in_place,
    launches_kernels,
    nothing_in_vain,
    words_exactly,
)

SINGLE = 1e-5  # float32 against float64, for sums of up to a hundred products
SLICE, TURNED = "a slice of a larger matrix", "a transpose"

Matrix = NDArray[np.float32]


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    return rng.standard_normal((rows, columns), dtype=np.float32)


def _slice(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    """A matrix whose rows lie further apart than they are long."""
    return _matrix(rng, rows, columns + 9)[:, 4 : 4 + columns]


# ---------------------------------------------------------------------- 10A places and mask of a tile
INNER, EDGE = "a whole tile", "a tile at the edge"


def _tile_cases(rng: np.random.Generator) -> list[Case]:
    """Tiles within a matrix and over each of its edges, with the strides of rows, columns and a slice; a high
    tile of a high matrix; one column shown everywhere; rows from the last to the first, and far apart.
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
            (f"{EDGE} of a high matrix", 2, 2, rows, 1),
            (f"{INNER} of one column shown everywhere", 1, 1, 1, 0),
            (f"{EDGE} of rows from the last to the first", 2, 1, -rows, 1),
            (f"{INNER} of rows far apart", 1, 1, 70_001, 1),
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
        return f"expected whole numbers and True or False, got {places} and {mask}"
    return None


def _tells_on_from_off(mask: NDArray[Any]) -> bool:
    """True and False, or 1 and 0, as a mask may be for NumPy's products and for Triton."""
    return mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and bool(np.isin(mask, (0, 1)).all()))


def _right_mask(trial: Trial) -> str | None:
    wrong = np.asarray(trial.value[1], dtype=bool) != trial.case.expected[1]
    return f"{int(wrong.sum())} of {wrong.size} lanes are on or off by mistake" if wrong.any() else None


def _right_places(trial: Trial) -> str | None:
    places, mask = trial.case.expected
    got = np.asarray(trial.value[0])
    wrong = np.argwhere(mask & (got != places))
    if not len(wrong):
        return None
    first = tuple(int(x) for x in wrong[0])
    return f"{len(wrong)} places differ, first in lane {first}: yours {got[first]}, expected {places[first]}"


TILE = exercise(
    "10A",
    cases=_tile_cases,
    properties=(
        idle(each("returns places and mask, a word a lane", _two_arrays)),
        each("a lane is on where its element exists", _right_mask),
        each("every element is looked for where it lies", _right_places),
    ),
)


# ---------------------------------------------------------------------- 10B a transposed copy
def _transpose_cases(rng: np.random.Generator) -> list[Case]:
    """Ragged in both ways, slices, a transpose, tiles larger than the matrix, one row."""
    rows, columns = int(rng.integers(35, 47)), int(rng.integers(18, 31))
    asked: list[tuple[str, Matrix, int, int]] = [
        ("row by row", _matrix(rng, rows, columns), 16, 16),
        ("row by row", _matrix(rng, rows, columns), 8, 32),
        (SLICE, _slice(rng, rows, columns), 16, 8),
        (TURNED, _matrix(rng, columns, rows).T, 16, 16),
        ("whole tiles", _matrix(rng, 32, 16), 16, 16),
        ("one row", _matrix(rng, 1, columns), 16, 16),
        ("one tile", _matrix(rng, 5, 3), 8, 4),
        ("one tile, other numbers", _matrix(rng, 5, 3), 8, 4),
    ]
    return [_transpose_case(label, X, BM, BN) for label, X, BM, BN in asked]


def _transpose_case(label: str, X: Matrix, BM: int, BN: int) -> Case:
    rows, columns = X.shape
    budget = Ledger(reads={"X": X.size}, writes={"Y": X.size})
    return Case(
        f"{label}, {rows} x {columns}, tiles of {BM} x {BN}", {"X": X, "BM": BM, "BN": BN}, X.T, None, budget
    )


def _row_by_row(trial: Trial) -> str | None:
    lies = np.asarray(trial.value).flags.c_contiguous
    return None if lies else "the rows of what you return do not lie one behind the other: it is a view"


TRANSPOSE = exercise(
    "10B",
    cases=_transpose_cases,
    properties=(
        values("Y is the transpose of X", 0.0),
        idle(each("Y lies row by row", _row_by_row)),
        values_in("a slice is read where it lies", SLICE),
        values_in("both strides count", TURNED),
        launches_kernels("X"),
        words_exactly("each word is read once and written once"),
        nothing_in_vain("every program has words of its own"),
        any_order(lambda case: 0.0),
    ),
    run_case=launch_and_count_programs,
)


# ---------------------------------------------------------------------- 10C softmax of long rows
RISING, SHORT, LOW = "rising scores", "shorter than a block", "all far below zero"


def _low(rng: np.random.Generator, n: int) -> Matrix:
    """A row near -200; one at -1e25 and below, in steps of 1e23 down, so that a single weight is 1."""
    return np.stack([_matrix(rng, 1, n)[0] - 200, -1e25 - 1e23 * np.arange(n)]).astype(np.float32)


def _large(rng: np.random.Generator, n: int) -> Matrix:
    """Three rows of numbers between ±10,000, so far apart that a single weight is 1, whatever is rounded."""
    steps = np.linspace(-1e4, 1e4, n, dtype=np.float32)
    return rng.permuted(np.stack([steps] * 3), axis=1)


def _softmax_cases(rng: np.random.Generator) -> list[Case]:
    """Many pieces with a ragged last one, whole pieces, less than one, one number, a slice; large scores."""
    n = int(rng.integers(70, 95))
    asked: list[tuple[str, Matrix, int]] = [
        ("", 3 * _matrix(rng, 3, n), 16),
        ("", 3 * _matrix(rng, 4, 64), 32),
        (SLICE, _slice(rng, 4, n), 32),
        (SHORT, 3 * _matrix(rng, 3, 21), 64),
        ("one number", _matrix(rng, 2, 1), 16),
        (SHORT, 3 * _matrix(rng, 3, 21), 64),
        (RISING, np.tile(np.arange(n, dtype=np.float32), (2, 1)), 16),
        (LOW, _low(rng, n), 32),
        (LARGE, _large(rng, n), 32),
        ("longer than any block of Triton's", _matrix(rng, 1, 2**20 + n), 2**16),
    ]
    return [_softmax_case(label, X, BLOCK) for label, X, BLOCK in asked]


def _softmax_case(label: str, X: Matrix, BLOCK: int) -> Case:
    rows, n = X.shape
    budget = Ledger(reads={"X": 2 * X.size}, writes={"Y": X.size})
    name = ", ".join(part for part in (f"{rows} rows of {n}, BLOCK={BLOCK}", label) if part)
    return Case(name, {"X": X, "BLOCK": BLOCK}, exact.softmax(X.astype(np.float64)), None, budget)


def _adds_up(trial: Trial) -> str | None:
    sums = np.asarray(trial.value, dtype=np.float64).sum(axis=-1)
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= SINGLE))
    return f"row {int(wrong[0])} adds up to {sums[wrong[0]]:.6g}" if wrong.size else None


LONG = exercise(
    "10C",
    cases=_softmax_cases,
    properties=(
        values("each row is the softmax of that row", SINGLE),
        each("each row adds up to 1", _adds_up),
        values_in("the sum is rescaled when the maximum rises", RISING, SINGLE),
        values_in("lanes that hang over count for nothing", SHORT, SINGLE),
        values_in("a slice is read where it lies", SLICE, SINGLE),
        values_in(f"{LARGE} neither overflow nor vanish", LARGE, SINGLE),
        values_in("a row far below zero is no exception", LOW, SINGLE),
        launches_kernels("X"),
        words_exactly("each number is read twice and written once"),
        any_order(lambda case: SINGLE),
    ),
    run_case=launch_in_place,
)


# ---------------------------------------------------------------------- 10D the product in tiles
def _product_cases(rng: np.random.Generator) -> list[Case]:
    """Each size ragged by itself, the depth by one; all of them, slices, unlike tiles, tiles larger than the
    matrices.
    """
    m, n, k = (int(x) for x in rng.integers(33, 47, size=3))
    asked: list[tuple[str, Matrix, Matrix, tuple[int, int, int]]] = [
        ("whole tiles", _matrix(rng, 32, 32), _matrix(rng, 32, 48), (16, 16, 16)),
        ("ragged rows", _matrix(rng, m, 32), _matrix(rng, 32, 32), (32, 32, 32)),
        ("ragged columns", _matrix(rng, 32, 32), _matrix(rng, 32, n), (16, 32, 32)),
        ("ragged depth", _matrix(rng, 32, 33), _matrix(rng, 33, 32), (32, 32, 16)),
        ("all ragged", _matrix(rng, m, k), _matrix(rng, k, n), (16, 32, 16)),
        (SLICE, _slice(rng, m, k), _slice(rng, k, n), (32, 32, 32)),
        ("one tile", _matrix(rng, 5, 7), _matrix(rng, 7, 3), (16, 16, 16)),
        ("one tile, other numbers", _matrix(rng, 5, 7), _matrix(rng, 7, 3), (16, 16, 16)),
    ]
    return [_product_case(label, A, B, tiles) for label, A, B, tiles in asked]


def _product_case(label: str, A: Matrix, B: Matrix, tiles: tuple[int, int, int]) -> Case:
    (m, k), n = A.shape, B.shape[1]
    BM, BN, BK = tiles
    words = costs.matmul(m, n, k, bm=BM, bn=BN)
    budget = Ledger(reads=dict(words.reads), writes=dict(words.writes))
    want = A.astype(np.float64) @ B.astype(np.float64)
    inputs = {"A": A, "B": B, "BM": BM, "BN": BN, "BK": BK}
    return Case(f"{label}, m={m}, n={n}, k={k}, tiles {BM} x {BN} x {BK}", inputs, want, None, budget)


PRODUCT = exercise(
    "10D",
    cases=_product_cases,
    properties=(
        values("C equals the product", SINGLE),
        values_in("what hangs over in k adds nothing", "ragged depth", SINGLE),
        values_in("a slice is read where it lies", SLICE, SINGLE),
        launches_kernels("A", "B"),
        words_exactly("the words are those of (10.3)"),
        full_products(),
        any_order(lambda case: SINGLE),
    ),
    run_case=launch_in_place,
)

EXERCISES = (TILE, TRANSPOSE, LONG, PRODUCT)
