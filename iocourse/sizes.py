"""Sizes are whole numbers, most of at least 1; anything else is an error that names the argument.

NumPy's integers are welcome and leave as Python's, which do not overflow.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def positive_int(name: str, value: Any) -> int:
    """`value` as an int, or an error that names the argument: sizes are whole numbers of at least 1."""
    return _whole_number(name, value, least=1)


def zero_or_more(name: str, value: Any) -> int:
    """`value` as an int that may be 0, or an error that names the argument."""
    return _whole_number(name, value, least=0)


def _whole_number(name: str, value: Any, least: int) -> int:
    if type(value) is int and value >= least:  # nearly all, and some closed forms are asked a million times
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_sizes(**sizes: Any) -> tuple[int, ...]:
    """The arguments as ints of at least 1, in their order, or an error that names the first that is none."""
    return tuple([positive_int(name, value) for name, value in sizes.items()])


def truth(name: str, value: Any) -> bool:
    """`value` as a bool, or an error that names the argument: "no" is no False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def plain_ints(record: object) -> None:
    """NumPy's integers among the fields of a frozen record become Python's."""
    for name, value in vars(record).items():
        if isinstance(value, np.integer):
            object.__setattr__(record, name, int(value))


def words_in(shape: Shape) -> int:
    """Number of words an array of this shape takes: the product of its axes."""
    return prod(shape)
