"""Fast memory: which tiles are in it, and whether there is room for another."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple, NoReturn

from .errors import FastMemoryFull

Name = object  # its text is meant, which is put together only where somebody reads it


class LazyText(NamedTuple):
    """Text that most runs never read: a pattern, and what stands in it."""

    pattern: str
    parts: tuple[object, ...]

    def __str__(self) -> str:
        return self.pattern.format(*self.parts)


class TemporaryName(LazyText):
    """The name of a tile that an expression made."""


class Allocator:
    """M words, of which tiles take theirs under serial numbers. `used` words are taken now."""

    def __init__(self, M: int) -> None:
        self.M = M
        self.used = 0
        self.resident: dict[int, tuple[Name, int]] = {}  # serial number -> (name, words), oldest first
        self._serials = count(1)

    @property
    def free(self) -> int:
        """Words not in use."""
        return self.M - self.used

    def take(self, name: Name, words: int) -> int:
        """Room for a tile of so many words, which there must be; returns the tile's serial number."""
        serial = next(self._serials)
        self.resident[serial] = (name, words)
        self.used += words
        return serial

    def give_back(self, serial: int) -> tuple[Name, int]:
        """The room of this tile is free again; returns its name and words."""
        left = self.resident.pop(serial)
        self.used -= left[1]
        return left

    def refuse(self, doing: Name, words: int, empty: Callable[[], None]) -> NoReturn:
        """Raise FastMemoryFull: what is short, who is there, and a remedy. Fast memory is emptied first."""
        free, resident = self.free, list(self.resident.values())
        short = words - free
        listing = ", ".join(f"{name} {size:,}" for name, size in resident) or "nothing"
        temporaries = any(isinstance(name, TemporaryName) for name, _ in resident)
        in_place = temporaries or str(doing).startswith("np.")
        remedy = "Free or update in place the temporaries" if in_place else "Smaller tiles"
        empty()
        asked = f"{doing} needs {words:,} words, {free:,} are free of M = {self.M:,}"
        raise FastMemoryFull(
            f"{asked}. Resident: {listing}. "
            f"{remedy}, or at least {short:,} more word{'s' if short > 1 else ''} of M.",
            short,
            asked,
        )
