"""Which words of a slow array have been written: word by word on a real machine, in boxes on a dry one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ..sizes import Shape

Box = tuple[tuple[int, int], ...]  # a half-open range (start, stop) for each axis


class WriteTracker(Protocol):
    """What a machine asks about an array that starts out unwritten."""

    def add(self, box: Box) -> None:
        """The words of `box` have been written."""

    def holds(self, box: Box) -> bool:
        """True where every word of `box` has been written."""


class BitmapTracker:
    """One flag a word."""

    def __init__(self, shape: Shape) -> None:
        self._flags = np.zeros(shape, dtype=bool)

    def add(self, box: Box) -> None:
        """The words of `box` have been written."""
        self._flags[slices(box)] = True

    def holds(self, box: Box) -> bool:
        """True where every word of `box` has been written."""
        part = self._flags[slices(box)]
        return bool(np.count_nonzero(part) == part.size)  # all() takes twice as long on a small tile


class BoxTracker:
    """A union of boxes, joined where they touch, so that its length does not grow with the array."""

    def __init__(self) -> None:
        self._boxes: list[Box] = []

    def add(self, box: Box) -> None:
        """The words of `box` have been written."""
        for other in self._boxes:
            joined = _join(other, box)
            if joined is not None:
                self._boxes.remove(other)
                return self.add(joined)
        self._boxes.append(box)

    def holds(self, box: Box) -> bool:
        """True where every word of `box` has been written."""
        missing = [box]
        for other in self._boxes:
            missing = [piece for part in missing for piece in _without(part, other)]
        return not missing


def slices(box: Box) -> tuple[slice, ...]:
    """The words of `box`, as an index."""
    return tuple([slice(start, stop) for start, stop in box])


def _join(a: Box, b: Box) -> Box | None:
    """The union of two boxes where it is a box and they touch, else None."""
    axes = [axis for axis, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if not axes:
        return a
    (start, stop), (begin, end) = a[axes[0]], b[axes[0]]
    if len(axes) > 1 or stop < begin or end < start:
        return None
    side = (min(start, begin), max(stop, end))
    return (*a[: axes[0]], side, *a[axes[0] + 1 :])


def _without(box: Box, hole: Box) -> Iterator[Box]:
    """`box` less `hole`, as disjoint boxes."""
    if any(h[1] <= b[0] or b[1] <= h[0] for b, h in zip(box, hole, strict=True)):
        yield box
        return
    for axis, ((start, stop), (begin, end)) in enumerate(zip(box, hole, strict=True)):
        for side in ((start, min(stop, begin)), (max(start, end), stop)):
            if side[0] < side[1]:
                yield (*box[:axis], side, *box[axis + 1 :])
        box = (*box[:axis], (max(start, begin), min(stop, end)), *box[axis + 1 :])
