"""Whether a function leaves the arrays it is given as they were: later cells of a notebook need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..exercise import Property, Trial
from ..judging import each, idle


@dataclass(frozen=True)
class Watched(Trial):
    """A trial that also knows which of its input arrays the function wrote into."""

    changed: tuple[str, ...] = ()


def changed(given: Mapping[str, Any], afterwards: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the arrays that are no longer as they were given."""
    arrays = {name: array for name, array in given.items() if isinstance(array, np.ndarray)}
    return tuple(n for n, x in arrays.items() if not np.array_equal(x, afterwards[n], equal_nan=True))


def inputs_untouched() -> Property:
    """No input array is written into."""

    def judge(trial: Trial) -> str | None:
        written = trial.changed if isinstance(trial, Watched) else ()
        return f"{', '.join(written)} was changed in place" if written else None

    return idle(each("the inputs are left as they were", judge))
