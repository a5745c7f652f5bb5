"""Arrays in slow memory, of which only the machine has the values, and records of their written words.

A real machine tracks written words with one flag per word, a dry machine with a list of boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..sizes import Shape, positive_int
from .block_ranges import Block, Box
from .errors import SlowAttribute, SlowMemoryArithmetic


class SlowArray:
    """An array in slow memory: name, shape and dtype. Only `machine.load` reads its words."""

    __slots__ = ("__weakref__", "_name", "_shape")

    def __init__(self, name: str, shape: Shape) -> None:
        self._name = name
        self._shape = shape

    @property
    def name(self) -> str:
        """Name of the array, as in the ledger."""
        return self._name

    @property
    def shape(self) -> Shape:
        """Shape of the array; the product of its axes is the number of words."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of one word: float64 on the emulator."""
        return np.dtype(np.float64)

    def __repr__(self) -> str:
        return f"SlowArray({self.name}, shape {self.shape}, {self.dtype})"

    def _text(self) -> str:
        return (
            f"{self.name} is in slow memory, which supports neither arithmetic nor indexing. Load a block "
            f"first: tile = machine.load({self.name}, rows)"
        )

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SlowMemoryArithmetic(self._text())

    # Defined so that NumPy raises an error instead of treating a slow array as an object scalar.
    __array_ufunc__ = __array_function__ = __array__ = _refuse
    __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = _refuse
    __float__ = __int__ = __complex__ = __index__ = __bool__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __matmul__ = __rmatmul__ = _refuse
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # probes of Python, NumPy and IPython
            raise AttributeError(f"a slow array has no attribute {name!r}")
        raise SlowAttribute(f"{self.name}.{name} is not available because {self._text()}")


def check_shape(name: str, shape: Any) -> Shape:
    """Return `shape` as a tuple of one or two positive ints, or raise an error that names the array."""
    if not isinstance(shape, tuple) or len(shape) not in (1, 2):
        raise ValueError(f"{name} must be a vector (N,) or a matrix (N, d), got shape {shape}")
    return tuple(positive_int(f"every axis of {name} (shape {shape})", axis) for axis in shape)


def box_of(array: SlowArray, rows: Any, cols: Any) -> Box:
    """Return `rows` and `cols` as half-open ranges. Raises IndexError or TypeError naming the array."""
    shape = array._shape
    if cols is not None and len(shape) == 1:
        raise IndexError(f"{array.name} has one axis, but cols = {cols} was passed; pass rows only")
    side = _side(array, "rows", rows, shape[0])
    return (side,) if len(shape) == 1 else (side, _side(array, "columns", cols, shape[1]))


def _side(array: SlowArray, which: str, part: Any, extent: int) -> tuple[int, int]:
    if part is None:
        return 0, extent
    start, stop = _ends(array, which, part, extent)
    if not 0 <= start < stop <= extent:
        raise IndexError(
            f"{which} of {array.name} must be a non-empty range within 0:{extent}, got {start}:{stop}"
        )
    return start, stop


def _ends(array: SlowArray, which: str, part: Any, extent: int) -> tuple[int, int]:
    try:
        if isinstance(part, tuple) and (isinstance(part, Block) or len(part) == 2):
            return index(part[0]), index(part[1])
        if isinstance(part, slice) and part.step in (None, 1):
            return index(part.start or 0), index(extent if part.stop is None else part.stop)
        if not isinstance(part, (bool, slice, tuple)):
            return index(part), index(part) + 1
    except TypeError:
        pass
    raise TypeError(f"{which} of {array.name} must be a Block, a slice or (start, stop), got {part!r}")


class SlowBlock(NamedTuple):
    """A box of a slow array. Its text is K[0:64], or C[0:4, 8:16] if it does not include every column."""

    array: SlowArray
    box: Box

    def __str__(self) -> str:
        array, box = self
        rows = f"{box[0][0]}:{box[0][1]}"
        if len(box) == 1 or box[1] == (0, array.shape[1]):
            return f"{array.name}[{rows}]"
        return f"{array.name}[{rows}, {box[1][0]}:{box[1][1]}]"


# ------------------------------------------------------------------ which words have been written
class WriteTracker(Protocol):
    """Interface of a record of the words written to one array."""

    def add(self, box: Box) -> None:
        """Record the words of `box` as written."""

    def holds(self, box: Box) -> bool:
        """Return True if every word of `box` has been written."""


class BitmapTracker:
    """Written words as one flag per word."""

    def __init__(self, shape: Shape) -> None:
        self._flags = np.zeros(shape, dtype=bool)

    def add(self, box: Box) -> None:
        """Record the words of `box` as written."""
        self._flags[slices(box)] = True

    def holds(self, box: Box) -> bool:
        """Return True if every word of `box` has been written."""
        part = self._flags[slices(box)]
        return bool(np.count_nonzero(part) == part.size)  # all() takes twice as long on a small tile


class BoxTracker:
    """Written words as a list of boxes. Adjacent boxes are joined, so it does not grow with the array."""

    def __init__(self) -> None:
        self._boxes: list[Box] = []

    def add(self, box: Box) -> None:
        """Record the words of `box` as written."""
        for other in self._boxes:
            joined = _join(other, box)
            if joined is not None:
                self._boxes.remove(other)
                return self.add(joined)
        self._boxes.append(box)

    def holds(self, box: Box) -> bool:
        """Return True if every word of `box` has been written."""
        missing = [box]
        for other in self._boxes:
            missing = [piece for part in missing for piece in _without(part, other)]
        return not missing


def slices(box: Box) -> tuple[slice, ...]:
    """Return `box` as a NumPy index: one slice per axis."""
    return tuple([slice(start, stop) for start, stop in box])


def _join(a: Box, b: Box) -> Box | None:
    """Return the union of two boxes if they touch and it is a box, otherwise None."""
    axes = [axis for axis, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if not axes:
        return a
    (start, stop), (begin, end) = a[axes[0]], b[axes[0]]
    if len(axes) > 1 or stop < begin or end < start:
        return None
    side = (min(start, begin), max(stop, end))
    return (*a[: axes[0]], side, *a[axes[0] + 1 :])


def _without(box: Box, hole: Box) -> Iterator[Box]:
    """Yield disjoint boxes that cover `box` without `hole`."""
    if any(h[1] <= b[0] or b[1] <= h[0] for b, h in zip(box, hole, strict=True)):
        yield box
        return
    for axis, ((start, stop), (begin, end)) in enumerate(zip(box, hole, strict=True)):
        for side in ((start, min(stop, begin)), (max(start, end), stop)):
            if side[0] < side[1]:
                yield (*box[:axis], side, *box[axis + 1 :])
        box = (*box[:axis], (max(start, begin), min(stop, end)), *box[axis + 1 :])
