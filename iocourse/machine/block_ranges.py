"""Blocks: ranges of rows and columns that schedules loop over, and how a dry machine skips equal ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..sizes import Shape
from .errors import MachineError

Box = tuple[tuple[int, int], ...]  # a half-open range (start, stop) for each axis


class Block(NamedTuple):
    """A range of rows or columns. On a dry machine it stands for `times` blocks of the same size."""

    start: int
    stop: int
    first: bool = True
    last: bool = True
    times: int = 1

    @property
    def size(self) -> int:
        """Number of rows in the block."""
        return self.stop - self.start


def every_block(begin: int, end: int, b: int) -> Iterator[Block]:
    """Blocks of b that cover begin:end; the last may be ragged, and a larger b gives one block."""
    for start in range(begin, end, b):
        yield Block(start, min(end, start + b), start == begin, start + b >= end)


def representatives(begin: int, end: int, b: int) -> Iterator[Block]:
    """First, one for all in the middle, last: enough for a schedule that treats its ends differently."""
    count = -((begin - end) // b)
    yield Block(begin, min(end, begin + b), True, count == 1)
    if count > 2:
        yield Block(begin + b, begin + 2 * b, False, False, count - 2)
    if count > 1:
        yield Block(begin + (count - 1) * b, end, False, True)


class Loops:
    """The loops a machine is in. Where they are collapsed, one block stands for many: `times` of them."""

    def __init__(self, *, collapsed: bool) -> None:
        self.collapsed = collapsed
        self.leave()

    def leave(self) -> None:
        """Out of every loop."""
        self._blocks: tuple[Block, ...] = ()
        self.times = 1

    def over(self, begin: int, end: int, b: int, *, alike: bool) -> Iterator[Block]:
        """Blocks of b that cover begin:end: all, or representatives of `alike` ones where collapsed."""
        if not self.collapsed:
            return every_block(begin, end, b)
        return self._collapse((representatives if alike else every_block)(begin, end, b))

    def _collapse(self, found: Iterator[Block]) -> Iterator[Block]:
        outer, times = self._blocks, self.times
        try:
            for block in found:
                here = self._blocks = (*outer, block)
                self.times = times * block.times
                yield block
                if self._blocks is not here:
                    raise MachineError(
                        "loops over a dry machine's blocks must stand inside one another; use unroll=True"
                    )
        finally:
            self._blocks, self.times = outer, times

    def reach(self, box: Box, asked: tuple[Any, Any], shape: Shape, *, certain: bool) -> Box:
        """The words a move covers, with those of the blocks that its block stands for.

        A range worked out by hand in such a loop may go anywhere. For a store (not `certain`) it counts as
        the whole axis, for a load it is taken as it stands: a dry run may not refuse what a real one accepts.
        """
        if not self.collapsed:
            return box
        sides = zip(box, asked, shape, strict=False)  # a vector has no columns
        return tuple([self._reach(side, part, extent, certain) for side, part, extent in sides])

    def _reach(self, side: tuple[int, int], part: Any, extent: int, certain: bool) -> tuple[int, int]:
        if isinstance(part, Block):
            if part.times > 1 and part not in self._blocks:
                raise MachineError(
                    "a dry machine's block stands for many and is good only inside its own loop: write "
                    "for i in machine.blocks(...), without list or zip, or use unroll=True"
                )
            if not certain and self._in_one_of_many(part):
                return 0, extent
            return part.start, part.start + part.size * part.times
        return side if certain or self.times == 1 else (0, extent)

    def _in_one_of_many(self, part: Block) -> bool:
        """Whether a block was cut from another that stands for many: its twins in those are covered too."""
        around = (block for block in self._blocks if block.times > 1 and block != part)
        return any(block.start <= part.start and part.stop <= block.stop for block in around)
