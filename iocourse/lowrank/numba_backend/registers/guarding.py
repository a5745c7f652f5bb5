"""What the passes see of their numbers while these are in registers, for the checks of
`error_certificates`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .rows import sums_of
from .writer import Numbers, Program, Vector


class Extents:
    """The least of every column and of its negative, lane by lane, in room for 2 · many vectors."""

    def __init__(self, p: Program, room: Numbers, many: int) -> None:
        self.p, self.room, self.many = p, room, many
        for row in range(2 * many):
            room.put(row * p.lanes, p.vector(np.inf))

    def see(self, columns: Sequence[Vector]) -> None:
        """These numbers too."""
        for row, x in enumerate([*columns, *(-x for x in columns)]):
            at = row * self.p.lanes
            self.room.put(at, self.room.vector(at).least(x))

    def say(self, found: Numbers) -> None:
        """found (2 · many,) = the least numbers, and the least negative ones."""
        with self.p.loop(0, 2 * self.many) as row:
            found.put_number(row, self.room.number(row * self.p.lanes))
            with self.p.loop(1, self.p.lanes) as lane:
                x, least = self.room.number(row * self.p.lanes + lane), found.number(row)
                smaller = self.p.builder.fcmp_ordered("<", x, least)
                found.put_number(row, self.p.builder.select(smaller, x, least))


class Watch:
    """A sum, lane by lane, in room for a vector: of numbers, or of products with 0 (0 if all are finite)."""

    def __init__(self, p: Program, room: Numbers) -> None:
        self.p, self.room = p, room
        room.put(0, p.vector(0.0))

    def see(self, columns: Sequence[Vector]) -> None:
        """Add the products of these with 0."""
        zero, total = self.p.vector(0.0), self.room.vector()
        for x in columns:
            total = total.plus(x, zero)
        self.room.put(0, total)

    def add(self, columns: Sequence[Vector]) -> None:
        """Add these."""
        total = self.room.vector()
        for x in columns:
            total = total + x
        self.room.put(0, total)

    def say(self, found: Numbers) -> None:
        """found[0] = the sum over all lanes."""
        found.put_number(0, sums_of([self.room.vector()], self.p.vector(0.0))[0].lane(0))
