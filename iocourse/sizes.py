"""Sizes are whole numbers, most of at least 1; anything else is an error that names the argument."""

from __future__ import annotations

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
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_sizes(**sizes: Any) -> None:
    """Every argument is a size, or an error that names the first that is not."""
    for name, value in sizes.items():
        positive_int(name, value)


def words_in(shape: Shape) -> int:
    """Number of words an array of this shape takes: the product of its axes."""
    count = 1
    for axis in shape:
        count *= axis
    return count
