"""Exercises of lesson 04: the forward pass in two loop orders, the choice of a tile, a schedule to repair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import costs, exact
from ...ledger import Ledger
from ..bound_ratio import attention
from ..exercise import Case, Property, Trial, exercise, run_schedule
from ..properties import (
    LARGE,
    Form,
    block_size,
    budget_of,
    every_input_loaded,
    fits,
    idle,
    is_right,
    one_temporary_of_each_kind,
    only_where,
    reads,
    total_within,
    two_whole,
    values,
    values_in,
    writes,
    wrong_scale,
)
from ..trials.case_inputs import (
    far_below,
    labelled_large,
    same_inputs,
    stretched,
    tilings,
    with_long_blocks,
)

Cost = Callable[..., Ledger]
Allowance = Callable[[int, int], int]


def none_at_all(Br: int, Bc: int) -> int:
    """No word beyond the footprint: V_j must find room where K_j was."""
    return 0


def forward_cases(
    cost: Cost, allowance: Allowance = one_temporary_of_each_kind
) -> Callable[[np.random.Generator], list[Case]]:
    """Cases for a forward schedule with tiles Br and Bc; fast memory is the footprint and the allowance.

    The last cases are the first one with scores so large, or so low, that a softmax needs its maximum. From
    d = 6 on the allowance of tiles of 1, five words, never holds another (Br, d), whatever is drawn.
    """

    def case(QKV: np.ndarray, Br: int, Bc: int) -> Case:
        Q, K, V = QKV
        N, d = Q.shape
        budget = cost(N, d, Br=Br, Bc=Bc)
        M = budget.peak + allowance(min(Br, N), min(Bc, N))
        inputs: dict[str, Any] = {"Q": Q, "K": K, "V": V, "Br": Br, "Bc": Bc}
        return Case(f"N={N}, d={d}, Br={Br}, Bc={Bc}", inputs, exact.attention(Q, K, V), M, budget)

    def cases(rng: np.random.Generator) -> list[Case]:
        sizes = with_long_blocks(tilings(rng, 6, 11))
        found = same_inputs(sizes, lambda N, d: rng.standard_normal((3, N, d)), case)
        large = [stretched(found[0]), far_below(rng, found[0])]
        return [*found, *(labelled_large(case(QKV, *sizes[0][2:])) for QKV in large)]

    return cases


def _one_block_of_keys(case: Case) -> bool:
    return bool(case.inputs["Bc"] >= len(case.inputs["K"]) and not case.has(LARGE))


def _right_or_scaled(trial: Trial) -> str | None:
    """Whether the values are right and, where another factor than 1/√d explains them, which."""
    complaint = is_right(trial)
    given = trial.case.inputs
    seen = complaint and wrong_scale(given["Q"], given["K"], given["V"], trial.value)
    return f"{complaint}; {seen}" if seen else complaint


VALUES = (
    only_where("values are right where one block holds all keys", _one_block_of_keys, _right_or_scaled),
    values(),
    block_size(),
    values_in(f"{LARGE} neither overflow nor vanish", LARGE),
)


# ------------------------------------------------------------------ 4D: choosing the tile
def tile_cases(rng: np.random.Generator) -> list[Case]:
    """(N, d, M) where one word more or less changes the best tile; the smallest M; room for everything."""
    d, Br, blocks = int(rng.integers(3, 33)), int(rng.integers(5, 40)), int(rng.integers(3, 9))
    N, row = Br * blocks, 2 * d + 3
    M = Br * row + d  # room for exactly Br rows
    sizes = [(N, d, M), (N, d, M + row - 1), (N, d, M - 1), (N, d, 3 * d + 3), (N, d, 2 * N * row), (1, d, M)]
    return [_tile_case(*size) for size in sizes]


def _tile_case(N: int, d: int, M: int) -> Case:
    return Case(f"N={N}, d={d}, M={M}", {"N": N, "d": d, "M": M}, M=M, budget=_least_words(N, d, M))


def _least_words(N: int, d: int, M: int) -> Ledger:
    """The closed form with the fewest words among all tiles that fit: every Br, with the least Bc."""
    tried = (costs.flash_optimal(N, d, Br=Br, Bc=1) for Br in range(1, N + 1))
    return min((ledger for ledger in tried if ledger.peak <= M), key=lambda ledger: ledger.total)


A_TILE = Form("returns two whole numbers of at least 1", two_whole, "a tile (Br, Bc)")


def _at_the_tile(
    judge: Callable[[Trial, Ledger], str | None],
) -> Callable[[Trial, tuple[int, int]], str | None]:
    """Judge the closed form at the student's tile."""

    def of_tile(trial: Trial, tile: tuple[int, int]) -> str | None:
        N, d = trial.case.inputs["N"], trial.case.inputs["d"]
        complaint = judge(trial, costs.flash_optimal(N, d, Br=tile[0], Bc=tile[1]))
        return complaint and f"yours Br={tile[0]}, Bc={tile[1]}: {complaint}"

    return of_tile


def _tile_fits(trial: Trial, ledger: Ledger) -> str | None:
    M = trial.case.inputs["M"]
    return None if ledger.peak <= M else f"footprint {ledger.peak:,}, M = {M:,}"


def _tile_is_best(trial: Trial, ledger: Ledger) -> str | None:
    least = budget_of(trial).total
    return None if ledger.total <= least else f"{ledger.total:,} words, possible are {least:,}"


TILE_PROPERTIES = (
    A_TILE.kept(),
    idle(A_TILE.must("the tile fits in M words", _at_the_tile(_tile_fits))),
    A_TILE.must("no tile that fits moves fewer words", _at_the_tile(_tile_is_best)),
)


def row_block_properties(room: Property) -> Sequence[Property]:
    """What F2 and F3 must do; `room` is their property about fast memory."""
    return (
        *VALUES,
        room,
        every_input_loaded("Q", "K", "V"),
        *reads(Q="once", K="⌈N/Br⌉ times", V="⌈N/Br⌉ times"),
        *writes(O="once"),
        total_within(),
    )


TIGHT = replace(fits(), name="fits in Br(2d + 2 + Bc) + Bc·d words, to the word")


# ------------------------------------------------------------------ 4E: right values, too many words
def with_right_values(name: str, *asked: Property) -> Property:
    """One property out of several, for an answer that must stay right while it is repaired."""

    def judge(trials: Sequence[Trial]) -> str | None:
        complaints = (one.judge(trials) for one in (values(), *asked))
        return next((complaint for complaint in complaints if complaint), None)

    return Property(name, judge, general=True)


REPAIRED = (
    with_right_values("right values, in the footprint of (4.3)", TIGHT),
    with_right_values("right values, with the words of (4.3)", reads(Q="once")[0], total_within()),
    # What is handed out has the values, and is worth nothing.
    *(idle(one) for one in row_block_properties(TIGHT) if one.name not in (TIGHT.name, total_within().name)),
)


EXERCISES = (
    exercise(
        "4A",
        cases=forward_cases(costs.flash2),
        properties=tuple(row_block_properties(fits())),
        run_case=run_schedule,
        comparison=attention("forward", N=2**20, d=64, Br=2016, Bc=1),
    ),
    exercise(
        "4B",
        cases=forward_cases(costs.flash1),
        properties=(
            *VALUES,
            fits(),
            every_input_loaded("Q", "K", "V"),
            *reads(K="once", V="once", Q="⌈N/Bc⌉ times", O="⌈N/Bc⌉ times"),
            *writes(O="⌈N/Bc⌉ + 1 times"),
            total_within(),
        ),
        run_case=run_schedule,
        comparison=attention("forward", N=2**20, d=64, Br=1, Bc=2016),
    ),
    exercise(
        "4C",
        cases=forward_cases(costs.flash_optimal, none_at_all),
        properties=tuple(row_block_properties(TIGHT)),
        run_case=run_schedule,
        comparison=attention("forward", N=2**20, d=64, Br=2016, Bc=1),
    ),
    exercise(
        "4D",
        cases=tile_cases,
        properties=TILE_PROPERTIES,
    ),
    exercise(
        "4E",
        cases=forward_cases(costs.flash_optimal, none_at_all),
        properties=REPAIRED,
        run_case=run_schedule,
    ),
)
