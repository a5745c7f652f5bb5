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

from .... import traffic
from ....doctor.triton_missing import require_triton
from ...exercise import Case, Property, Trial, trial_from_error
from ...properties import each, idle
from .dot_precision import KernelTrial
from .launch import launch_in_place

PRODUCTS = 2  # uses of tl.dot on one tile: scores, and what its values add to the output


@dataclass(frozen=True)
class MaskedTrial(KernelTrial):
    """A trial of a kernel, and for how many tiles it chose between two values for all BM × BN scores."""

    masked: int = 0


@trial_from_error
def launch_and_count_masks(student: Callable[..., Any], case: Case) -> Trial:
    """`launch_in_place`, with the tiles counted on which `tl.where` works; the case says BM and BN.

    A tile is told from the next by its two products, so it may use tl.where as often as it likes. Counted is
    what has BM · BN elements: BM × d, or a row of a tile, must be of another size. Hiding pairs by
    arithmetic, without tl.where, is not seen.
    """
    scores = case.inputs["BM"] * case.inputs["BN"]
    require_triton()
    with _masked_tiles(scores) as tiles:
        trial = launch_in_place(student, case)
    return MaskedTrial(**vars(trial), masked=len(tiles))


@contextmanager
def _masked_tiles(scores: int) -> Iterator[set[int]]:
    """The number, in the order of their products, of each tile on which `tl.where` gave so many elements.

    Raises:
        CannotCount: this Triton has no such functions in its interpreter.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    choose, multiply = getattr(builder, "create_select", None), getattr(builder, "create_dot", None)
    if choose is None or multiply is None:
        raise traffic.CannotCount(
            "this triton keeps its tl.where or its tl.dot elsewhere: masks cannot be counted"
        )
    tiles: set[int] = set()
    products = 0

    def create_dot(self: Any, *factors: Any, **options: Any) -> Any:
        nonlocal products
        products += 1
        return multiply(self, *factors, **options)

    def create_select(self: Any, condition: Any, one: Any, other: Any) -> Any:
        chosen = choose(self, condition, one, other)
        if np.size(chosen.data) == scores:
            tiles.add(products // PRODUCTS)
        return chosen

    builder.create_select, builder.create_dot = create_select, create_dot
    try:
        yield tiles
    finally:
        builder.create_select, builder.create_dot = choose, multiply


def masks_only(cut_tiles: Callable[[Case], int]) -> Property:
    """tl.where is used on no more tiles than those that need it, as `cut_tiles` counts them for a case."""

    def judge(trial: Trial) -> str | None:
        needed = cut_tiles(trial.case)
        if not isinstance(trial, MaskedTrial) or trial.masked <= needed:
            return None
        return f"{needed} tiles hold a hidden pair, and tl.where works on {trial.masked}"

    return idle(each("tiles without a hidden pair pay for no mask", judge))
