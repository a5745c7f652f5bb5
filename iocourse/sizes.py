"""Checks of sizes: return integer arguments as Python ints, or raise an error that names the argument.

NumPy integers are accepted and converted to Python ints, which do not overflow.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1, or raise TypeError or ValueError that names the argument."""
    return _whole_number(name, value, least=1)


def zero_or_more(name: str, value: Any) -> int:
    """Return `value` as an int of at least 0, or raise TypeError or ValueError that names the argument."""
    return _whole_number(name, value, least=0)


def _whole_number(name: str, value: Any, least: int) -> int:
    if (
        type(value) is int and value >= least
    ):  # the common case first: searches evaluate some closed forms a million times
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_sizes(**sizes: Any) -> tuple[int, ...]:
    """Return the arguments as ints of at least 1, in order, or raise an error naming the first bad one."""
    return tuple([positive_int(name, value) for name, value in sizes.items()])


def truth(name: str, value: Any) -> bool:
    """Return `value` as a bool, or raise TypeError that names the argument; other types are not converted."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def plain_ints(record: object) -> None:
    """Convert NumPy integers among the fields of a frozen dataclass to Python ints, in place."""
    for name, value in vars(record).items():
        if isinstance(value, np.integer):
            object.__setattr__(record, name, int(value))


def words_in(shape: Shape) -> int:
    """Return the number of words of an array of this shape: the product of its axes."""
    return prod(shape)
