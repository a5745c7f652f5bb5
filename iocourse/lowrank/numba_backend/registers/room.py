"""Room for the tiles of a pass, in one piece of memory."""

from __future__ import annotations

from .writer import Numbers, Word


class Room:
    """Memory that is given away piece by piece, from its beginning; sizes are multiples of a vector's."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def take(self, many: Word | int) -> Numbers:
        """Room for so many numbers."""
        taken, self.numbers = self.numbers, self.numbers + many
        return taken
