"""What can go wrong on the two-level machine, each with a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class MachineError(RuntimeError):
    """Something the two-level machine does not allow."""


class FastMemoryFull(MachineError):
    """A tile does not fit: `short` words are missing. Fast memory has been emptied, the machine is usable.

    `asked` says which tile. `advice`, where a schedule has set it, is worked out when the error is shown.
    """

    advice: Callable[[], str] | None = None

    def __init__(self, message: str, short: int, asked: str) -> None:
        super().__init__(message)
        self.short, self.asked = short, asked

    def __reduce__(self) -> tuple[Any, ...]:
        advice = partial(str, self.advice()) if self.advice else None  # worked out: it may know a whole run
        return type(self), (self.args[0], self.short, self.asked), {"advice": advice}

    def __str__(self) -> str:
        return super().__str__() + (f" {self.advice()}" if self.advice else "")


class UseAfterFree(MachineError):
    """A tile was used, or freed again, after its room was given back: the one made as number `serial`."""

    serial: int | None = None


class UninitialisedRead(MachineError):
    """Slow memory was read where nothing has been written yet."""


class MoveLimitExceeded(MachineError):
    """A run went past its limit of loads and stores: a schedule whose loop never ends, as a rule."""


class ShapeMismatch(MachineError, ValueError):
    """The shapes of a store, a product or an update do not match."""


class UntrackedArray(MachineError, TypeError):
    """Words were taken out of fast memory, or brought into it, past the machine's counting."""


class SlowMemoryArithmetic(MachineError, TypeError):
    """Arithmetic was tried on an array in slow memory."""


class SlowAttribute(SlowMemoryArithmetic, AttributeError):
    """A method of NumPy's arrays (sum, copy, T …) was asked of an array in slow memory."""
