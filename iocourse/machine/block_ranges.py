"""Blocks of rows or columns for the loops of a schedule; on a dry machine one block represents equal ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..sizes import Shape
from .errors import MachineError

Box = tuple[tuple[int, int], ...]  # a half-open range (start, stop) for each axis


class Block(NamedTuple):
    """A half-open range of rows or columns. On a dry machine it represents `times` blocks of equal size."""

    start: int
    stop: int
    first: bool = True
    last: bool = True
    times: int = 1

    @property
    def size(self) -> int:
        """Number of rows in the block."""
        return self.stop - self.start


def every_block(begin: int, end: int, b: int, *, short_first: bool) -> Iterator[Block]:
    """Yield blocks of size b for begin:end; the last, or with `short_first` the first, may be smaller."""
    for start in range(_start(begin, end, b, short_first), end, b):
        yield Block(max(begin, start), min(end, start + b), start <= begin, start + b >= end)


def representatives(begin: int, end: int, b: int, *, short_first: bool) -> Iterator[Block]:
    """Yield the first block, one block with `times` set for all in the middle, and the last block.

    The first and last are separate because a schedule may treat them differently.
    """
    start = _start(begin, end, b, short_first)
    count = -((start - end) // b)
    yield Block(begin, min(end, start + b), True, count == 1)
    if count > 2:
        yield Block(start + b, start + 2 * b, False, False, count - 2)
    if count > 1:
        yield Block(start + (count - 1) * b, end, False, True)


def _start(begin: int, end: int, b: int, short_first: bool) -> int:
    """Return where the first block would start if it had b rows: before `begin` if it is a short one."""
    return begin - (begin - end) % b if short_first else begin


class Loops:
    """Nested block loops of one machine and their product of repetitions, `times` (1 unless collapsed)."""

    def __init__(self, *, collapsed: bool) -> None:
        self.collapsed = collapsed
        self.leave()

    def leave(self) -> None:
        """Leave all loops: no current block, `times` = 1."""
        self._blocks: tuple[Block, ...] = ()
        self.times = 1

    def over(self, begin: int, end: int, b: int, *, alike: bool, short_first: bool) -> Iterator[Block]:
        """Yield blocks of size b that cover begin:end; if collapsed, one block represents `alike` ones."""
        if not self.collapsed:
            return every_block(begin, end, b, short_first=short_first)
        return self._collapse(
            (representatives if alike else every_block)(begin, end, b, short_first=short_first)
        )

    def _collapse(self, found: Iterator[Block]) -> Iterator[Block]:
        outer, times = self._blocks, self.times
        try:
            for block in found:
                here = self._blocks = (*outer, block)
                self.times = times * block.times
                yield block
                if self._blocks is not here:
                    raise MachineError(
                        "loops over the blocks of a dry machine must be nested, not interleaved. "
                        "Nest them, or use unroll=True"
                    )
        finally:
            self._blocks, self.times = outer, times

    def reach(self, box: Box, asked: tuple[Any, Any], shape: Shape, *, certain: bool) -> Box:
        """Return the box that a move covers, extended to all blocks that its block represents.

        A range computed by hand inside a collapsed loop may differ in each iteration. A store (not `certain`)
        of such a range counts as the complete axis, and a load as the range itself, so that a dry run never
        rejects what a real run accepts.
        """
        if not self.collapsed:
            return box
        sides = zip(box, asked, shape, strict=False)  # a vector has no columns
        return tuple([self._reach(side, part, extent, certain) for side, part, extent in sides])

    def _reach(self, side: tuple[int, int], part: Any, extent: int, certain: bool) -> tuple[int, int]:
        if isinstance(part, Block):
            if part.times > 1 and part not in self._blocks:
                raise MachineError(
                    "a block of a dry machine represents many blocks and is valid only inside its own loop. "
                    "Write for i in machine.blocks(...), without list or zip, or use unroll=True"
                )
            if not certain and self._in_one_of_many(part):
                return 0, extent
            return part.start, part.start + part.size * part.times
        return side if certain or self.times == 1 else (0, extent)

    def _in_one_of_many(self, part: Block) -> bool:
        """Return True if `part` is inside a block that represents many, so the move covers all of them."""
        around = (block for block in self._blocks if block.times > 1 and block != part)
        return any(block.start <= part.start and part.stop <= block.stop for block in around)
