"""Exceptions of the two-level machine, one class per kind of error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class MachineError(RuntimeError):
    """An operation that the two-level machine does not allow."""


class FastMemoryFull(MachineError):
    """A tile does not fit: `short` words are missing. Fast memory has been emptied; the machine stays usable.

    `asked` names the tile, its words and the free words. `advice` is None or a function set by a schedule
    that returns tile sizes which fit; it is called when the error is printed.
    """

    advice: Callable[[], str] | None = None

    def __init__(self, message: str, short: int, asked: str) -> None:
        super().__init__(message)
        self.short, self.asked = short, asked

    def __reduce__(self) -> tuple[Any, ...]:
        advice = (
            partial(str, self.advice()) if self.advice else None
        )  # called now: a closure cannot be pickled
        return type(self), (self.args[0], self.short, self.asked), {"advice": advice}

    def __str__(self) -> str:
        return super().__str__() + (f" {self.advice()}" if self.advice else "")


class UseAfterFree(MachineError):
    """A freed tile was used or freed again. `serial` is its number in order of creation."""

    serial: int | None = None


class UninitialisedRead(MachineError):
    """Words of slow memory were read before they were written."""


class MoveLimitExceeded(MachineError):
    """A run exceeded its limit of loads and stores, usually because of an infinite loop."""


class ShapeMismatch(MachineError, ValueError):
    """The shapes of a store, a product or an update do not match."""


class UntrackedArray(MachineError, TypeError):
    """Words would enter or leave fast memory without being counted."""


class SlowMemoryArithmetic(MachineError, TypeError):
    """Arithmetic or indexing was attempted on an array in slow memory."""


class SlowAttribute(SlowMemoryArithmetic, AttributeError):
    """An attribute of NumPy arrays (sum, copy, T …) was used on an array in slow memory."""
