"""Exercises of lesson 04: three loop orders of FlashAttention's forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import costs, exact
from ...ledger import Ledger
from ..exercise import Case, Exercise, run_schedule
from ..judging import (
    every_input_loaded,
    fits,
    reads_within,
    same_answer_for,
    total_within,
    values,
    writes_within,
)

Cost = Callable[..., Ledger]


def _shapes(rng: np.random.Generator) -> list[tuple[int, int, int, int]]:
    """(N, d, Br, Bc): ragged in rows, ragged in columns, both, and tiles larger than N."""
    Br, Bc = int(rng.integers(3, 7)), int(rng.integers(3, 7))
    d = int(rng.integers(2, 9))
    N = Br * Bc * 2 + 1  # ragged for both tiles
    return [(N, d, Br, Bc), (N, d, Bc + 2, Br), (4 * Br, d, Br, 3 * Br), (5, d, 8, 8), (N, d, 1, 1)]


def schedule_cases(cost: Cost) -> Callable[[np.random.Generator], list[Case]]:
    """Cases for a forward schedule with tiles Br and Bc.

    Allowance: fast memory is the closed form's footprint plus one more score tile and four words a row, so
    that a student may make one temporary of each kind, but never hold the N x N scores.
    """

    def cases(rng: np.random.Generator) -> list[Case]:
        return [_case(rng, cost, *shape) for shape in _shapes(rng)]

    return cases


def _case(rng: np.random.Generator, cost: Cost, N: int, d: int, Br: int, Bc: int) -> Case:
    Q, K, V = (rng.standard_normal((N, d)) for _ in range(3))
    budget = cost(N, d, Br=Br, Bc=Bc)
    allowance = min(Br, N) * min(Bc, N) + 4 * min(Br, N)
    inputs: dict[str, Any] = {"Q": Q, "K": K, "V": V, "Br": Br, "Bc": Bc}
    return Case(
        f"N={N}, d={d}, Br={Br}, Bc={Bc}", inputs, exact.attention(Q, K, V), budget.peak + allowance, budget
    )


BLOCK_SIZE = same_answer_for(
    "block size does not change the answer", lambda trial: trial.case.inputs["Q"].tobytes()
)

EXERCISES = (
    Exercise(
        id="4.2",
        title="FlashAttention-2's loop order",
        function="my_flash2",
        difficulty=3,
        importance=5,
        minutes=25,
        hints=(
            "Which of Q, K, V, O does the inner loop not touch anew? Load those once for each outer step.",
            "Outside: blocks of queries, with q, o and row statistics. Inside: blocks of keys and values.",
            "Inside: scores from q and k.T, stats.update(scores, o), then o takes in scores times v. "
            "Dividing by the row sum waits until the inner loop is over.",
        ),
        cases=schedule_cases(costs.flash2),
        properties=(
            values(),
            BLOCK_SIZE,
            fits(),
            every_input_loaded("Q", "K", "V"),
            reads_within("Q", "Q is read once"),
            reads_within("K", "K is read ⌈N/Br⌉ times"),
            reads_within("V", "V is read ⌈N/Br⌉ times"),
            writes_within("O", "O is written once"),
            total_within(),
        ),
        play=run_schedule,
    ),
)
