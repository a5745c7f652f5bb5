"""Inputs of cases: sizes and tiles of schedules, equal inputs for all tiles, and very negative scores.

Rows of very negative scores expose a softmax whose running maximum does not start at -inf. If it starts at 0,
or at any number above the row, exp of scores near -210 is tiny but nonzero in float64, so the rescaled result
is wrong; exp underflows below about -745.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import Case, Sample
from ..properties import LARGE

STRETCH = 1e4  # factor for Q, so that a softmax without its maximum overflows
Array = NDArray[np.float64]
Tiling = tuple[int, int, int, int]  # (N, d, Br, Bc)


def tilings(rng: np.random.Generator, least_d: int, below_d: int) -> list[Tiling]:
    """Return (N, d, Br, Bc): ragged in both, exchanged, ragged in columns, above N, tiles of 1, one query.

    Tiles of 1 have one more column, so that a scale that is correct for one d is wrong for the other.
    """
    Br, Bc = (int(rows) for rows in rng.choice(np.arange(3, 7), size=2, replace=False))  # always different
    d = int(rng.integers(least_d, below_d))
    N = Br * Bc + 1  # ragged for both tiles
    longer = (
        Bc + 2 if Bc + 2 != Br else Bc + 3
    )  # blocks of queries differ too, for a function that uses only Br
    return [
        (N, d, Br, Bc),
        (N, d, longer, Br),
        (4 * Br, d, Br, 3 * Br),
        (5, d, 8, 8),
        (9, d + 1, 1, 1),
        (1, d, Br, Bc),
    ]


def with_long_blocks(sizes: list[Tiling]) -> list[Tiling]:
    """Return the tilings and one more, with query blocks so long that no budget holds as many keys."""
    _, d, _, Bc = sizes[0]
    return [*sizes, (4 * Bc, d, 3 * Bc, Bc)]


def named(names: str, values: Iterable[Any]) -> dict[str, Any]:
    """Return the values by name; `names` are separated by spaces."""
    return dict(zip(names.split(), values, strict=True))


def samples_with_equal_arrays(
    names: str, sizes: Iterable[Sequence[int]], draw: Callable[[int, int], Mapping[str, Any]]
) -> list[Sample]:
    """Return a sample per (N, d, *tiles), with equal arrays for equal N and d, to compare their results.

    `names` are the names of the sizes, such as "N d Br Bc".
    """
    listed = [named(names, size) for size in sizes]
    arrays = {(size["N"], size["d"]): draw(size["N"], size["d"]) for size in listed}
    return [
        Sample(size, {**arrays[size["N"], size["d"]], **{tile: size[tile] for tile in names.split()[2:]}})
        for size in listed
    ]


def attention_inputs(rng: np.random.Generator, names: str, sizes: Sequence[Sequence[int]]) -> list[Sample]:
    """Return samples of Q, K and V for the sizes, and the first size again with `hard_scores`."""
    found = samples_with_equal_arrays(
        names, sizes, lambda N, d: named("Q K V", rng.standard_normal((3, N, d)))
    )
    return [*found, *hard_scores(rng, found[0])]


def exact_attention(Q: Array, K: Array, V: Array, **_: Any) -> Array:
    """Return the exact result of a forward schedule, from its inputs by name."""
    return exact.attention(Q, K, V)


def exact_gradients(Q: Array, K: Array, V: Array, dO: Array, **_: Any) -> tuple[Array, ...]:
    """Return dQ, dK and dV, the exact results of a backward schedule, from its inputs by name."""
    return tuple(exact.attention_backward(Q, K, V, dO))


def with_large(found: list[Sample], draw: Callable[..., Mapping[str, Any]]) -> list[Sample]:
    """Return the samples and the first size again, with the arrays of `draw(N, d, large=True)`."""
    first = found[0]
    large = draw(first.sizes["N"], first.sizes["d"], large=True)
    return [*found, replace(first, inputs={**first.inputs, **large}, tags=(LARGE,))]


def hard_scores(rng: np.random.Generator, sample: Sample) -> Iterator[Sample]:
    """Yield the sample with other queries and keys.

    The scores overflow exp, are very negative, or are below the finite numbers often used for -inf.
    """
    Q, K = sample.inputs["Q"], sample.inputs["K"]
    for q, k in (
        (STRETCH * Q, K),
        low_queries_and_keys(rng, len(Q), len(K), Q.shape[1]),
        bottomless_queries_and_keys(rng, len(Q), Q.shape[1]),
    ):
        yield replace(sample, inputs={**sample.inputs, "Q": q, "K": k}, tags=(LARGE,))


def labelled_large(case: Case) -> Case:
    """Return the case with the tag `LARGE`, also in its label."""
    return replace(case, label=f"{case.label}, {LARGE}", tags=case.tags | {LARGE})


# ------------------------------------------------------------------ rows of very negative scores
LEVELS = (-210.0, -800.0, -30_000.0)
BOTTOM = -(
    2.0**130
)  # below -10³⁹, lower than every float32, so lower than the finite numbers often used for -inf


def level_of_rows(rows: int, levels: Sequence[float] = LEVELS) -> Array:
    """Return the level of each row, cyclically. (rows, 1)"""
    return np.resize(np.array(levels), (rows, 1))


def low_scores(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Return scores (rows, columns) within a few units of the level of their row."""
    return level_of_rows(rows) + rng.standard_normal((rows, columns))


def low_queries_and_keys(
    rng: np.random.Generator, Nq: int, Nk: int, d: int, *, levels: Sequence[float] = LEVELS
) -> tuple[Array, Array]:
    """Return Q (Nq, d) and K (Nk, d) whose scores qᵀk/√d are within a few units of the level of their row.

    Queries and keys point in opposite directions along one axis; orthogonal to it they are normal.
    """
    along = np.ones(d) / d**0.5
    reach = (
        max(map(abs, levels)) * d**0.5
    ) ** 0.5  # length of a key and of the queries with the lowest level
    Q = -level_of_rows(Nq, levels) * d**0.5 / reach * along + _across(rng, Nq, along)
    K = -reach * along + _across(rng, Nk, along)
    return Q, K


def bottomless_scores(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Return scores (rows, columns): each row has `BOTTOM` times 1, 2, 3, …, in random order.

    One score has all the weight, and no sum or difference is rounded.
    """
    steps = np.tile(np.arange(1.0, columns + 1), (rows, 1))
    return BOTTOM * rng.permuted(steps, axis=1)


def bottomless_queries_and_keys(rng: np.random.Generator, N: int, d: int = 4) -> tuple[Array, Array]:
    """Return Q and K (N, d) with scores 2/√d · `BOTTOM` · (1, 2, …, N), in the same order for all queries.

    The elements are products of powers of two and small integers; with d = 4 nothing is rounded.
    """
    Q, K = np.zeros((2, N, d))
    Q[:, 0], K[:, 0] = 2.0**20, BOTTOM / 2.0**19 * (1 + rng.permutation(N))
    return Q, K


def _across(rng: np.random.Generator, rows: int, along: Array) -> Array:
    """Return standard normal rows, projected orthogonally to a unit vector."""
    x = rng.standard_normal((rows, len(along)))
    return np.asarray(x - (x @ along)[:, None] * along)
