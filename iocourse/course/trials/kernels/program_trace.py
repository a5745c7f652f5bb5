"""What each program of a launch does: the ledger adds up their words and sees neither those that move none,
nor which comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from ....doctor.triton_missing import require_triton
from ...exercise import Case, Property, Trial, trial_from_error
from ...properties import each, idle
from .dot_precision import KernelTrial
from .launch import launch_in_place


@dataclass
class Programs:
    """The programs of all launches, numbered as they begin; those among them that stored a word; for each
    launch, how often `tl.dot` was used in each.
    """

    begun: int = 0
    busy: set[int] = field(default_factory=set)
    products: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class ProgramsTrial(KernelTrial):
    """A trial of a kernel, how many programs were launched and stored nothing, and for each launch how many
    products of tiles each program made, as they began.
    """

    idle: int = 0
    begun: int = 0
    products: tuple[tuple[int, ...], ...] = ()


@trial_from_error
def launch_and_count_programs(student: Callable[..., Any], case: Case) -> Trial:
    """`launch_in_place`, with the programs counted that store no word, and the products of each."""
    require_triton()
    with _programs() as seen:
        trial = launch_in_place(student, case)
    return ProgramsTrial(
        **vars(trial),
        idle=seen.begun - len(seen.busy),
        begun=seen.begun,
        products=tuple(map(tuple, seen.products)),
    )


@contextmanager
def _programs() -> Iterator[Programs]:
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen, begin, store = Programs(), Builder.set_grid_idx, Builder.create_masked_store
    multiply = Builder.create_dot

    def set_grid_idx(self: Any, *at: Any) -> Any:
        seen.begun += 1
        if not any(at):  # the first of a launch
            seen.products.append([])
        seen.products[-1].append(0)
        return begin(self, *at)

    def create_dot(self: Any, *factors: Any, **options: Any) -> Any:
        seen.products[-1][-1] += 1
        return multiply(self, *factors, **options)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if np.any(mask.data):
            seen.busy.add(seen.begun)
        return store(self, ptrs, value, mask, *rest)  # an unmasked store comes here too, with a full mask

    Builder.set_grid_idx, Builder.create_masked_store = set_grid_idx, create_masked_store
    Builder.create_dot = create_dot
    try:
        yield seen
    finally:
        Builder.set_grid_idx, Builder.create_masked_store, Builder.create_dot = begin, store, multiply


def nothing_in_vain(name: str = "every program has rows of its own") -> Property:
    """Each program stores a word at least."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial, ProgramsTrial) or not trial.idle:
            return None
        return f"{trial.idle:,} of your {trial.begun:,} programs store nothing"

    return idle(each(name, judge))


def heavy_first() -> Property:
    """Programs begin in the order of their products of tiles, most first."""

    def judge(trial: Trial) -> str | None:
        for products in trial.products if isinstance(trial, ProgramsTrial) else ():
            for at, (one, after) in enumerate(pairwise(products)):
                if one < after:
                    return f"program {at} makes {one} products of tiles, and program {at + 1} makes {after}"
        return None

    return idle(each("the programs with the most tiles begin first", judge))
