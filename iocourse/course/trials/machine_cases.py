"""Cases for schedules on the machine: sizes and tiles, the same input for all tiles, large scores last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..exercise import Case
from ..properties import LARGE
from .low_scores import low_queries_and_keys

STRETCH = 1e4  # of Q, for scores so large that a softmax without its maximum overflows
Tiling = tuple[int, int, int, int]  # (N, d, Br, Bc)


def tilings(rng: np.random.Generator, least_d: int, below_d: int) -> list[Tiling]:
    """(N, d, Br, Bc): ragged in both; exchanged; ragged in columns; larger than N; tiles of 1; one query.

    Tiles of 1 have rows longer by a word, so that a scale which is right for one d is wrong for the other.
    """
    Br, Bc = (int(rows) for rows in rng.choice(np.arange(3, 7), size=2, replace=False))  # never the same cut
    d = int(rng.integers(least_d, below_d))
    N = Br * Bc + 1  # ragged for both tiles
    return [
        (N, d, Br, Bc),
        (N, d, Bc + 2, Br),
        (4 * Br, d, Br, 3 * Br),
        (5, d, 8, 8),
        (9, d + 1, 1, 1),
        (1, d, Br, Bc),
    ]


def with_long_blocks(sizes: list[Tiling]) -> list[Tiling]:
    """The tilings and one more, whose blocks of queries are so long that no budget holds as many keys."""
    _, d, _, Bc = sizes[0]
    return [*sizes, (4 * Bc, d, 3 * Bc, Bc)]


def same_inputs(
    sizes: Sequence[tuple[int, ...]], draw: Callable[[int, int], Any], case: Callable[..., Case]
) -> list[Case]:
    """`case(inputs, *tiles)` for each (N, d, *tiles), with the same inputs for the same N and d.

    Only then can the answers of two tiles be compared.
    """
    inputs = {(N, d): draw(N, d) for N, d, *_ in sizes}
    return [case(inputs[N, d], *tiles) for N, d, *tiles in sizes]


def stretched(case: Case) -> np.ndarray:
    """Q, K and V of a case, (3, N, d), with Q `STRETCH` times as long."""
    Q, K, V = (case.inputs[name] for name in "QKV")
    return np.array([STRETCH * Q, K, V])


def far_below(rng: np.random.Generator, case: Case) -> np.ndarray:
    """Q, K and V (3, N, d) of the sizes of a case, the scores of every row far below zero."""
    N, d = case.inputs["Q"].shape
    return np.array([*low_queries_and_keys(rng, N, N, d), case.inputs["V"]])


def labelled_large(case: Case) -> Case:
    """The case, whose scores are large, with a label that says so."""
    return replace(case, label=f"{case.label}, {LARGE}")
