"""Inputs of cases: sizes and tiles of schedules, the same input for all tiles, and scores far below zero.

Only a softmax with its true maximum survives a row whose scores are all far below zero. A maximum that starts
at 0, or at any finite number above the row, leaves sums that vanish; exponentials of scores near -210 still
exist in float64 and are wrong by their unit, those below -745 are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import Case
from ..properties import LARGE
from ..sample import Sample

STRETCH = 1e4  # of Q, for scores so large that a softmax without its maximum overflows
Array = NDArray[np.float64]
Tiling = tuple[int, int, int, int]  # (N, d, Br, Bc)


def tilings(rng: np.random.Generator, least_d: int, below_d: int) -> list[Tiling]:
    """(N, d, Br, Bc): ragged in both; exchanged; ragged in columns; larger than N; tiles of 1; one query.

    Tiles of 1 have rows longer by a word, so that a scale which is right for one d is wrong for the other.
    """
    Br, Bc = (int(rows) for rows in rng.choice(np.arange(3, 7), size=2, replace=False))  # never the same cut
    d = int(rng.integers(least_d, below_d))
    N = Br * Bc + 1  # ragged for both tiles
    longer = Bc + 2 if Bc + 2 != Br else Bc + 3  # blocks of queries differ too, for whoever takes Br alone
    return [
        (N, d, Br, Bc),
        (N, d, longer, Br),
        (4 * Br, d, Br, 3 * Br),
        (5, d, 8, 8),
        (9, d + 1, 1, 1),
        (1, d, Br, Bc),
    ]


def with_long_blocks(sizes: list[Tiling]) -> list[Tiling]:
    """The tilings and one more, whose blocks of queries are so long that no budget holds as many keys."""
    _, d, _, Bc = sizes[0]
    return [*sizes, (4 * Bc, d, 3 * Bc, Bc)]


def named(names: str, values: Iterable[Any]) -> dict[str, Any]:
    """The values by name, for names separated by spaces."""
    return dict(zip(names.split(), values, strict=True))


def same_inputs(
    names: str, sizes: Iterable[Sequence[int]], draw: Callable[[int, int], Mapping[str, Any]]
) -> list[Sample]:
    """A sample for each (N, d, *tiles), with the same arrays for the same N and d.

    Only then can the answers of two tiles be compared. `names` are those of the sizes, such as "N d Br Bc".
    """
    listed = [named(names, size) for size in sizes]
    arrays = {(size["N"], size["d"]): draw(size["N"], size["d"]) for size in listed}
    return [
        Sample(size, {**arrays[size["N"], size["d"]], **{tile: size[tile] for tile in names.split()[2:]}})
        for size in listed
    ]


def attention_inputs(rng: np.random.Generator, names: str, sizes: Sequence[Sequence[int]]) -> list[Sample]:
    """Samples of Q, K and V for the sizes, and those of the first with scores that need their maximum."""
    found = same_inputs(names, sizes, lambda N, d: named("Q K V", rng.standard_normal((3, N, d))))
    return [*found, *hard_scores(rng, found[0])]


def exact_attention(Q: Array, K: Array, V: Array, **_: Any) -> Array:
    """What a forward schedule must return, of its inputs by name."""
    return exact.attention(Q, K, V)


def exact_gradients(Q: Array, K: Array, V: Array, dO: Array, **_: Any) -> tuple[Array, ...]:
    """dQ, dK and dV: what a backward schedule must return, of its inputs by name."""
    return tuple(exact.attention_backward(Q, K, V, dO))


def with_large(found: list[Sample], draw: Callable[..., Mapping[str, Any]]) -> list[Sample]:
    """The samples and the first once more, with the arrays of `draw(N, d, large=True)`."""
    first = found[0]
    large = draw(first.sizes["N"], first.sizes["d"], large=True)
    return [*found, replace(first, inputs={**first.inputs, **large}, tags=(LARGE,))]


def hard_scores(rng: np.random.Generator, sample: Sample) -> Iterator[Sample]:
    """The sample with other queries and keys: scores that overflow exp, scores far below zero, and scores
    below the finite numbers that are taken for minus infinity.
    """
    Q, K = sample.inputs["Q"], sample.inputs["K"]
    for q, k in (
        (STRETCH * Q, K),
        low_queries_and_keys(rng, len(Q), len(K), Q.shape[1]),
        bottomless_queries_and_keys(rng, len(Q), Q.shape[1]),
    ):
        yield replace(sample, inputs={**sample.inputs, "Q": q, "K": k}, tags=(LARGE,))


def labelled_large(case: Case) -> Case:
    """The case, whose scores are large, with a label and a tag that say so."""
    return replace(case, label=f"{case.label}, {LARGE}", tags=case.tags | {LARGE})


# ------------------------------------------------------------------ rows of scores far below zero
LEVELS = (-210.0, -800.0, -30_000.0)
BOTTOM = -(2.0**40)  # below -10¹²: lower than the finite numbers that are taken for minus infinity


def level_of_rows(rows: int, levels: Sequence[float] = LEVELS) -> Array:
    """The level of each row, one after the other in turn. (rows, 1)"""
    return np.resize(np.array(levels), (rows, 1))


def low_scores(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Scores (rows, columns), those of a row within a few units of its level."""
    return level_of_rows(rows) + rng.standard_normal((rows, columns))


def low_queries_and_keys(
    rng: np.random.Generator, Nq: int, Nk: int, d: int, *, levels: Sequence[float] = LEVELS
) -> tuple[Array, Array]:
    """Q (Nq, d) and K (Nk, d) whose scores qᵀk/√d are, row by row, within a few units of the row's level.

    Queries lie along a direction that all keys point away from; across it both are normal.
    """
    along = np.ones(d) / d**0.5
    reach = (max(map(abs, levels)) * d**0.5) ** 0.5  # length of a key, and of the queries farthest down
    Q = -level_of_rows(Nq, levels) * d**0.5 / reach * along + _across(rng, Nq, along)
    K = -reach * along + _across(rng, Nk, along)
    return Q, K


def bottomless_scores(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Scores (rows, columns): those of a row are `BOTTOM` times 1, 2, 3, …, in an order of its own.

    All the weight is on one of them, and no sum or difference is rounded.
    """
    steps = np.tile(np.arange(1.0, columns + 1), (rows, 1))
    return BOTTOM * rng.permuted(steps, axis=1)


def bottomless_queries_and_keys(rng: np.random.Generator, N: int, d: int = 4) -> tuple[Array, Array]:
    """Q and K (N, d) whose scores qᵀk/√d are 2/√d times `BOTTOM` times 1, 2, …, N, in one order for all
    queries.

    Their words are products of powers of two and small whole numbers; with d = 4 nothing is rounded.
    """
    Q, K = np.zeros((2, N, d))
    Q[:, 0], K[:, 0] = 2.0**20, BOTTOM / 2.0**19 * (1 + rng.permutation(N))
    return Q, K


def _across(rng: np.random.Generator, rows: int, along: Array) -> Array:
    """Standard normal rows without their part along a direction of length 1."""
    x = rng.standard_normal((rows, len(along)))
    return np.asarray(x - (x @ along)[:, None] * along)
