"""How many programs of a launch do nothing: they move no word, and the ledger does not see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....doctor.needs_triton import require_triton
from ...exercise import Case, Property, Trial, keeps_errors
from ...judging import each, idle
from .launching import launch_in_place
from .precision import KernelTrial


@dataclass
class Programs:
    """The programs of all launches, numbered as they begin, and those among them that stored a word."""

    begun: int = 0
    busy: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class ProgramsTrial(KernelTrial):
    """A trial of a kernel, and how many programs were launched and stored nothing."""

    idle: int = 0
    begun: int = 0


@keeps_errors
def launch_and_count_programs(student: Callable[..., Any], case: Case) -> Trial:
    """`launch_in_place`, with the programs counted that store no word."""
    require_triton()
    with _programs() as seen:
        trial = launch_in_place(student, case)
    return ProgramsTrial(**vars(trial), idle=seen.begun - len(seen.busy), begun=seen.begun)


@contextmanager
def _programs() -> Iterator[Programs]:
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen, begin, store = Programs(), Builder.set_grid_idx, Builder.create_masked_store

    def set_grid_idx(self: Any, *at: Any) -> Any:
        seen.begun += 1
        return begin(self, *at)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if np.any(mask.data):
            seen.busy.add(seen.begun)
        return store(self, ptrs, value, mask, *rest)  # an unmasked store comes here too, with a full mask

    Builder.set_grid_idx, Builder.create_masked_store = set_grid_idx, create_masked_store
    try:
        yield seen
    finally:
        Builder.set_grid_idx, Builder.create_masked_store = begin, store


def nothing_in_vain() -> Property:
    """Each program stores a word at least."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial, ProgramsTrial) or not trial.idle:
            return None
        return f"{trial.idle:,} of your {trial.begun:,} programs store nothing"

    return idle(each("every program has rows of its own", judge))
