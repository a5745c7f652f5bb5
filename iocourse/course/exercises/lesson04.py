"""Exercises of lesson 04: forward pass in two loop orders, choice of a tile, a schedule to repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ... import costs
from ...ledger import Ledger
from ..bound_ratio import attention_comparison
from ..exercise import Case, Sample, Trial
from ..kinds.choice import TileSizes, choice_exercise, tile_form
from ..kinds.schedule import one_more_of_each_kind, schedule_exercise
from ..properties import (
    LARGE,
    block_size,
    every_input_loaded,
    fits_in_fast_memory,
    idle,
    is_right,
    only_where,
    reads,
    total_within,
    values,
    values_in,
    writes,
    wrong_scale,
)
from ..trials.case_inputs import attention_inputs, exact_attention, named, tilings, with_long_blocks


# ------------------------------------------------------------------ 4A to 4C: forward schedules
def forward_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples of many tiles; for d >= 6 the allowance (five words for tiles of 1) holds no row."""
    return attention_inputs(rng, "N d Br Bc", with_long_blocks(tilings(rng, 6, 11)))


def _one_block_of_keys(case: Case) -> bool:
    return bool(case.inputs["Bc"] >= len(case.inputs["K"]) and not case.has(LARGE))


def _right_or_scaled(trial: Trial) -> str | None:
    """Test the values; if another factor than 1/√d explains a difference, name it."""
    complaint = is_right(trial)
    given = trial.case.inputs
    seen = complaint and wrong_scale(given["Q"], given["K"], given["V"], trial.value)
    return f"{complaint}; {seen}" if seen else complaint


VALUES = (
    only_where("is correct when one block holds all keys", _one_block_of_keys, _right_or_scaled),
    values(),
    block_size(),
    values_in(f"{LARGE} neither overflow nor vanish", LARGE),
)
ONE_Q = reads(Q="once")
KEYS_PASS = reads(K="at most ⌈N/Br⌉ times", V="at most ⌈N/Br⌉ times")
QUERIES_STAY = (*ONE_Q, *KEYS_PASS, *writes(O="once"))
KEYS_STAY = (
    *reads(K="once", V="once", Q="at most ⌈N/Bc⌉ times", O="at most ⌈N/Bc⌉ times"),
    *writes(O="at most ⌈N/Bc⌉ + 1 times"),
)
OVER_QUERIES, OVER_KEYS = "your outer loop is over queries", "your outer loop is over keys"
TIGHT = replace(fits_in_fast_memory(), name="fits in Br(2d + 2 + Bc) + Bc·d words")


# ------------------------------------------------------------------ 4D: choosing the tile
def borders(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield (N, d, M) at which one word changes the best tile, the smallest M, and an M for everything."""
    d, Br, blocks = int(rng.integers(3, 33)), int(rng.integers(5, 40)), int(rng.integers(3, 9))
    N, row = Br * blocks, 2 * d + 3
    M = Br * row + d  # exactly Br rows fit
    asked = [(N, d, M), (N, d, M + row - 1), (N, d, M - 1), (N, d, 3 * d + 3), (N, d, 2 * N * row), (1, d, M)]
    for size in asked:
        sizes = named("N d M", size)
        yield Sample(sizes, sizes)


def _least_columns(N: int, d: int, M: int) -> Iterator[TileSizes]:
    """Yield every Br with Bc = 1, which moves no more words than a larger Bc."""
    return ({"Br": Br, "Bc": 1} for Br in range(1, N + 1))


def _words_of_F3(tile: TileSizes, N: int, d: int, M: int) -> Ledger:
    return costs.flash_optimal(N, d, **tile)


EXERCISES = (
    schedule_exercise(
        "4A",
        forward_inputs,
        equals=exact_attention,
        moves=costs.flash2,
        spare=one_more_of_each_kind,
        values=VALUES,
        words=QUERIES_STAY,
        mistaken={OVER_KEYS: costs.flash1},
        comparison=attention_comparison("forward", N=2**20, d=64, Br=2016, Bc=1),
    ),
    schedule_exercise(
        "4B",
        forward_inputs,
        equals=exact_attention,
        moves=costs.flash1,
        spare=one_more_of_each_kind,
        values=VALUES,
        words=KEYS_STAY,
        mistaken={OVER_QUERIES: costs.flash2},
        comparison=attention_comparison("forward", N=2**20, d=64, Br=1, Bc=2016),
    ),
    schedule_exercise(
        "4C",
        forward_inputs,
        equals=exact_attention,
        moves=costs.flash_optimal,
        values=VALUES,
        room=TIGHT,
        words=QUERIES_STAY,
        mistaken={OVER_KEYS: costs.flash1},
        comparison=attention_comparison("forward", N=2**20, d=64, Br=2016, Bc=1),
    ),
    choice_exercise(
        "4D",
        borders,
        tile_form("Br", "Bc"),
        among=_least_columns,
        moves=_words_of_F3,
        fits="the tile fits in M words",
    ),
    schedule_exercise(
        "4E",
        forward_inputs,
        equals=exact_attention,
        moves=costs.flash_optimal,
        values=tuple(map(idle, VALUES)),
        room=replace(TIGHT, name="fits in the footprint of (4.3)"),
        loads=idle(every_input_loaded()),
        words=(*ONE_Q, *map(idle, (*KEYS_PASS, *writes(O="once")))),
        total=total_within("moves no more words than (4.3)"),
    ),
)
