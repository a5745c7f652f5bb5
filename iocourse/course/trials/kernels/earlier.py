"""Whether a launcher leaves alone what it returned before: results need memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


# A launcher that keeps one output for each shape, and fills it anew, is right as long as nobody looks back.
@dataclass(frozen=True)
class _Returned:
    """A function, what it returned, and the numbers that were in it then."""

    function: Callable[..., Any]
    value: Any
    numbers: Any


_latest: list[_Returned] = []  # one at most


def earlier_holds(function: Callable[..., Any], value: Any, numbers: Any, read: Callable[[Any], Any]) -> None:
    """Note what a call returned, and compare what the call before it returned.

    Args:
        function: what was called.
        value: what it returned, as it lies in memory.
        numbers: `read(value)`, copies of the numbers in it.
        read: how copies are made.

    Raises:
        ValueError: the call changed what the same function returned before.
    """
    before = _latest.pop() if _latest else None
    _latest.append(_Returned(function, value, numbers))
    if before and before.function is function and not _same(read(before.value), before.numbers):
        raise ValueError(
            "this call changes what the one before it returned: results need memory of their own"
        )


def _same(now: Any, then: Any) -> bool:
    if isinstance(then, tuple):
        return all(map(_same, now, then))
    return not isinstance(then, np.ndarray) or np.array_equal(now, then, equal_nan=True)
