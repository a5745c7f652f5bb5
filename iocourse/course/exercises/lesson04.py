"""Exercises of lesson 04: three loop orders of FlashAttention's forward pass, and the choice of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import costs, exact
from ...ledger import Ledger
from ..exercise import Case, Exercise, Property, Trial, run_schedule
from ..judging import (
    LARGE,
    block_size,
    each,
    every_input_loaded,
    fits,
    one_temporary_of_each_kind,
    reads_within,
    total_within,
    values,
    values_in,
    values_where,
    writes_within,
)

Cost = Callable[..., Ledger]
Allowance = Callable[[int, int], int]


def _shapes(rng: np.random.Generator) -> list[tuple[int, int, int, int]]:
    """(N, d, Br, Bc): ragged in rows, in columns, in both; tiles larger than N; tiles of 1; one query."""
    Br, Bc = (int(rows) for rows in rng.choice(np.arange(3, 7), size=2, replace=False))  # never the same cut
    d = int(rng.integers(4, 9))
    N = Br * Bc * 2 + 1  # ragged for both tiles
    return [
        (N, d, Br, Bc),
        (N, d, Bc + 2, Br),
        (4 * Br, d, Br, 3 * Br),
        (5, d, 8, 8),
        (9, d, 1, 1),
        (1, d, Br, Bc),
    ]


def none_at_all(Br: int, Bc: int) -> int:
    """No word beyond the footprint: V_j must find room where K_j was."""
    return 0


def forward_cases(
    cost: Cost, allowance: Allowance = one_temporary_of_each_kind
) -> Callable[[np.random.Generator], list[Case]]:
    """Cases for a forward schedule with tiles Br and Bc; fast memory is the footprint and the allowance.

    Cases of the same N and d have the same Q, K and V: only then can the answers of two tiles be compared.
    The last case is the first one with Q so large that a softmax without its maximum overflows.
    """

    def cases(rng: np.random.Generator) -> list[Case]:
        shapes = _shapes(rng)
        inputs = {(N, d): rng.standard_normal((3, N, d)) for N, d, _, _ in shapes}
        found = [_case(inputs[N, d], cost, allowance, Br, Bc) for N, d, Br, Bc in shapes]
        N, d, Br, Bc = shapes[0]
        Q, K, V = inputs[N, d]
        large = _case(np.array([1e4 * Q, K, V]), cost, allowance, Br, Bc)
        return [*found, replace(large, label=f"{large.label}, {LARGE}")]

    return cases


def _case(QKV: np.ndarray, cost: Cost, allowance: Allowance, Br: int, Bc: int) -> Case:
    Q, K, V = QKV
    N, d = Q.shape
    budget = cost(N, d, Br=Br, Bc=Bc)
    inputs: dict[str, Any] = {"Q": Q, "K": K, "V": V, "Br": Br, "Bc": Bc}
    M = budget.peak + allowance(min(Br, N), min(Bc, N))
    return Case(f"N={N}, d={d}, Br={Br}, Bc={Bc}", inputs, exact.attention(Q, K, V), M, budget)


def _one_block_of_keys(case: Case) -> bool:
    return bool(case.inputs["Bc"] >= len(case.inputs["K"]) and LARGE not in case.label)


VALUES = (
    values_where("values are right where one block holds all keys", _one_block_of_keys),
    values(),
    block_size(),
    values_in(f"{LARGE} neither overflow nor vanish", LARGE),
)


# ------------------------------------------------------------------ 4.4: choosing the tile
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


def _tile(value: Any) -> tuple[int, int] | None:
    """(Br, Bc) where the answer is a pair of whole numbers of at least 1."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return None
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1 for n in value)
    return (int(value[0]), int(value[1])) if whole else None


def _on_tiles(name: str, judge: Callable[[Trial, Ledger], str | None]) -> Property:
    """A property of the closed form at the student's tile."""

    def on_trial(trial: Trial) -> str | None:
        tile = _tile(trial.value)
        if tile is None:
            return "there is no tile to look at"
        N, d = trial.case.inputs["N"], trial.case.inputs["d"]
        complaint = judge(trial, costs.flash_optimal(N, d, Br=tile[0], Bc=tile[1]))
        return complaint and f"yours Br={tile[0]}, Bc={tile[1]}: {complaint}"

    return each(name, on_trial)


def _is_tile(trial: Trial) -> str | None:
    return None if _tile(trial.value) else f"yours is {trial.value!r}"


def _tile_fits(trial: Trial, ledger: Ledger) -> str | None:
    M = trial.case.inputs["M"]
    return None if ledger.peak <= M else f"footprint {ledger.peak:,}, M = {M:,}"


def _tile_is_best(trial: Trial, ledger: Ledger) -> str | None:
    assert trial.case.budget is not None, "a tile is judged against the best one"
    least = trial.case.budget.total
    return None if ledger.total <= least else f"{ledger.total:,} words, possible are {least:,}"


TILE_PROPERTIES = (
    each("returns two whole numbers of at least 1", _is_tile),
    _on_tiles("the tile fits in M words", _tile_fits),
    _on_tiles("no tile that fits moves fewer words", _tile_is_best),
)


def row_block_properties(room: Property) -> Sequence[Property]:
    """What F2 and F3 must do; `room` is their property about fast memory."""
    return (
        *VALUES,
        room,
        every_input_loaded("Q", "K", "V"),
        reads_within("Q", "Q is read once"),
        reads_within("K", "K is read ⌈N/Br⌉ times"),
        reads_within("V", "V is read ⌈N/Br⌉ times"),
        writes_within("O", "O is written once"),
        total_within(),
    )


EXERCISES = (
    Exercise(
        id="4.1",
        title="FlashAttention-1's loop order",
        function="my_flash1",
        difficulty=3,
        importance=4,
        minutes=20,
        hints=(
            "Two parts. Before anything is added, every row of O, m and l needs a value in slow memory. Then "
            "two loops: which arrays does the inner one bring in anew, and which of these change?",
            "First part: one loop over blocks of queries that stores zeros and fresh row statistics. Second "
            "part: blocks of keys outside, with k and v; blocks of queries inside, with q, o and the "
            "statistics loaded and, at the end of each round, o and both statistics stored again.",
            "What lies in slow memory is the divided output. So one inner round is: scale q; make o "
            "undivided again; scores; update with o; o takes in scores times v; divide; store three things.",
        ),
        cases=forward_cases(costs.flash1),
        properties=(
            *VALUES,
            fits(),
            every_input_loaded("Q", "K", "V"),
            reads_within("K", "K is read once"),
            reads_within("V", "V is read once"),
            reads_within("Q", "Q is read ⌈N/Bc⌉ times"),
            reads_within("O", "O is read ⌈N/Bc⌉ times"),
            writes_within("O", "O is written ⌈N/Bc⌉ + 1 times"),
            total_within(),
        ),
        play=run_schedule,
    ),
    Exercise(
        id="4.2",
        title="FlashAttention-2's loop order",
        function="my_flash2",
        difficulty=3,
        importance=5,
        minutes=10,
        hints=(
            "Which of Q, K, V, O does the inner loop not bring in anew? Load or make those once for "
            "each outer step.",
            "Outside: blocks of queries, with q, o and row statistics. Inside: blocks of keys and values.",
            "Inside: scores from q and k.T, the update with o, then o takes in scores times v. Dividing by "
            "the row sum, and the store, wait until the inner loop is over.",
        ),
        cases=forward_cases(costs.flash2),
        properties=tuple(row_block_properties(fits())),
        play=run_schedule,
    ),
    Exercise(
        id="4.3",
        title="V in K's place",
        function="my_flash_optimal",
        difficulty=2,
        importance=4,
        minutes=5,
        hints=(
            "Start from your answer to 4.2. What is the last line that needs k, and the first that needs v?",
            "Make the scores, then give k's room back, and only then bring v in. The scores outlive k, so "
            "they cannot be made in the same with line as k and v.",
            "The option into= of load does it: v arrives in the room of the tile it names. Mind the scores: "
            "if they are still there when the next ones are made, both count.",
        ),
        cases=forward_cases(costs.flash_optimal, none_at_all),
        properties=tuple(
            row_block_properties(replace(fits(), name="fits in Br(2d + 2 + Bc) + Bc·d words, to the word"))
        ),
        play=run_schedule,
    ),
    Exercise(
        id="4.4",
        title="The tile for a given M",
        function="my_best_tiles",
        difficulty=2,
        importance=5,
        minutes=10,
        hints=(
            "Which of the two sizes stands in the number of words, and which only in the footprint?",
            "Bc takes room and saves no word, so it is as small as a tile can be. Put it into the footprint.",
            "What is left is an inequality in Br alone: Br times something, plus something, at most M. Solve "
            "it and round down. More rows than there are queries are of no use.",
        ),
        cases=tile_cases,
        properties=TILE_PROPERTIES,
    ),
)
