"""On how many tiles of scores a student's kernel pays for a mask, counted while it is interpreted.

A mask moves no word: a kernel that masks every tile has the values and the ledger of one that masks only
where a pair is hidden. What differs is `tl.where` on whole tiles, and that can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import traffic
from ..needs_triton import require_triton
from .exercise import Case, Property, Trial
from .judging import each
from .kernel_trials import launch

A_TILE = 2  # uses of tl.where that one masked tile may cost: on scores, and once more on weights


@dataclass(frozen=True)
class MaskedTrial(Trial):
    """A trial of a kernel, and how often it chose between two values for all BM × BN scores of a tile."""

    choices: int = 0


def launch_and_count_choices(student: Callable[..., Any], case: Case) -> Trial:
    """`launch`, with every `tl.where` on a tile of BM × BN scores counted; the case says BM and BN.

    Counted is what has BM · BN elements: BM × d, or a row of a tile, must be of another size. Hiding pairs by
    arithmetic, without tl.where, is not seen.
    """
    scores = case.inputs["BM"] * case.inputs["BN"]
    try:
        require_triton()
        with _choices(scores) as sizes:
            trial = launch(student, case)
        return MaskedTrial(case, trial.value, trial.ledger, trial.error, choices=len(sizes))
    except Exception as error:
        return Trial(case, error=error)


@contextmanager
def _choices(scores: int) -> Iterator[list[int]]:
    """One entry for each `tl.where` whose result has so many elements.

    Raises:
        CannotCount: this Triton has no such function in its interpreter.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    native = getattr(builder, "create_select", None)
    if native is None:
        raise traffic.CannotCount("this triton keeps its tl.where elsewhere: masks cannot be counted")
    seen: list[int] = []

    def create_select(self: Any, condition: Any, one: Any, other: Any) -> Any:
        chosen = native(self, condition, one, other)
        if np.size(chosen.data) == scores:
            seen.append(scores)
        return chosen

    builder.create_select = create_select
    try:
        yield seen
    finally:
        builder.create_select = native


def masks_only(cut_tiles: Callable[[Case], int]) -> Property:
    """tl.where is used on no more tiles than those that need it, as `cut_tiles` counts them for a case."""

    def judge(trial: Trial) -> str | None:
        needed = cut_tiles(trial.case)
        if not isinstance(trial, MaskedTrial) or trial.choices <= A_TILE * needed:
            return None
        return f"{needed} tiles hold a hidden pair, and tl.where works on {trial.choices}"

    return each("tiles without a hidden pair pay for no mask", judge)
