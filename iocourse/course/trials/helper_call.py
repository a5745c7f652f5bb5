"""Run a kernel and test what its helper `weights_and_gradients` returns, which later exercises use too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...doctor.triton_missing import require_triton
from ..exercise import Case, Property, Trial, trial_from_error
from ..properties import each, idle
from .kernel_launch import KernelTrial, launch, replaced

HELPER = "weights_and_gradients"
NAME = f"{HELPER} returns p and ds in float32, 0 where not seen"


@dataclass(frozen=True)
class HelperTrial(KernelTrial):
    """A trial of a kernel; `helper` describes a wrong result of its helper, or is ""."""

    helper: str = ""


@trial_from_error
def launch_and_test_helper(student: Callable[..., Any], case: Case) -> Trial:
    """Run `launch` and test each p and ds that the helper returns."""
    require_triton()
    with _complaints() as found:
        trial = launch(student, case)
    return HelperTrial(**vars(trial), helper=found[0] if found else "")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Yield the complaints about the calls of the helper within the block."""
    from triton.runtime.interpreter import InterpretedFunction

    found, call = list[str](), InterpretedFunction.__call__

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        results = call(self, *args, **kwargs)
        if self.fn.__name__ == HELPER and not found:
            seen = kwargs.get("seen", args[7] if len(args) > 7 else None)
            found.extend(_wrong(results, seen))
        return results

    with replaced(InterpretedFunction, __call__=noted):
        yield found


def _wrong(results: Any, seen: Any) -> Iterator[str]:
    for name, tile in zip(("p", "ds"), results if isinstance(results, tuple) else (), strict=False):
        if not hasattr(tile, "handle"):  # a number, which the values of the kernel show
            continue
        data = tile.handle.data
        if (kind := str(tile.dtype)) != "fp32":
            yield f"it returns {name} in {kind}, expected float32: cast it in the caller"
        if seen is None or data.ndim != seen.handle.data.ndim:
            continue
        mask = np.broadcast_to(seen.handle.data, data.shape).astype(bool)
        if (data[~mask] != 0).any():
            yield f"it returns {name} that is not 0 for pairs that are not seen; exercise 12C uses it too"


def helper_is_right() -> Property:
    """Return the property that the helper, where a kernel calls it, returns p and ds as defined in 12B."""

    def judge(trial: Trial) -> str | None:
        return (trial.helper or None) if isinstance(trial, HelperTrial) else None

    return idle(each(NAME, judge))
