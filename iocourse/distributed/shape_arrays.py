"""Arrays with a shape but no values, for dry runs, which count a schedule without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..sizes import Shape, words_in

ZERO = np.zeros(())  # one word, broadcast to any shape


class ShapesOnly(TypeError):
    """Error of a dry run: an operation needs values, and only shapes are available."""


class ShapeArray:
    """An array with a shape and no values. Arithmetic returns ShapeArrays by NumPy's broadcasting rules.

    `changes` counts the writes to it, including writes through its slices. Raises ShapesOnly for operations
    that need values, and for NumPy functions that are not in `FUNCTIONS`.
    """

    __slots__ = ("__weakref__", "base", "changes", "shape")

    def __init__(self, shape: Shape, base: ShapeArray | None = None) -> None:
        self.shape, self.base, self.changes = shape, base, 0

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of words."""
        return words_in(self.shape)

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Always float64, the data type of the course."""
        return np.dtype(np.float64)

    @property
    def T(self) -> ShapeArray:
        """The transposed array, a view."""
        return self._view(self.shape[::-1])

    def _view(self, shape: Shape) -> ShapeArray:
        return ShapeArray(shape, self if self.base is None else self.base)

    def _hollow(self) -> np.ndarray:
        """Return a NumPy array of this shape that needs one word of memory."""
        return np.broadcast_to(ZERO, self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> ShapeArray:
        return self._view(self._hollow()[index].shape)

    def __setitem__(self, index: Any, value: Any) -> None:
        np.broadcast_shapes(self._hollow()[index].shape, np.shape(value))
        self._changed()

    def _changed(self) -> None:
        (self if self.base is None else self.base).changes += 1

    def copy(self) -> ShapeArray:
        """Return a new array of the same shape that is not a view."""
        return ShapeArray(self.shape)

    def reshape(self, *shape: Any) -> ShapeArray:
        """Return a view with another shape, as NumPy does; one length may be -1."""
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return self._view(_reshaped(self.shape, wanted))

    def swapaxes(self, one: int, other: int) -> ShapeArray:
        """Return a view with two axes exchanged."""
        return self._view(self._hollow().swapaxes(one, other).shape)

    def transpose(self, *axes: int) -> ShapeArray:
        """Return a view with the axes in another order."""
        return self._view(self._hollow().transpose(*axes).shape)

    def sum(self, axis: Any = None, keepdims: bool = False) -> ShapeArray:
        """Return the array reduced over `axis`; `max`, `min` and `mean` give the same shape."""
        return ShapeArray(_reduced(self.shape, axis, keepdims))

    max = min = mean = sum

    def __matmul__(self, other: Any) -> ShapeArray:
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> ShapeArray:
        return _product(other, self)

    def _with(self, other: Any) -> ShapeArray:
        return ShapeArray(np.broadcast_shapes(self.shape, np.shape(other)))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _with
    __truediv__ = __rtruediv__ = __pow__ = __gt__ = __ge__ = __lt__ = __le__ = _with

    def _in_place(self, other: Any) -> ShapeArray:
        if np.broadcast_shapes(self.shape, np.shape(other)) != self.shape:
            raise ValueError(f"{np.shape(other)} cannot be added in place to an array of shape {self.shape}")
        self._changed()
        return self

    __iadd__ = __isub__ = __imul__ = __itruediv__ = _in_place

    def __neg__(self) -> ShapeArray:
        return ShapeArray(self.shape)

    def __array__(self, *args: Any, **named: Any) -> Any:
        raise ShapesOnly('a dry run has only shapes, no values. Use on="count" instead')

    __bool__ = __float__ = __int__ = __array__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> ShapeArray:
        if method != "__call__" or "out" in named:
            raise ShapesOnly(f"a dry run does not support np.{ufunc.__name__}.{method} with these arguments")
        if ufunc is np.matmul:
            return _product(*inputs)
        return ShapeArray(np.broadcast_shapes(*(np.shape(one) for one in inputs)))

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        known = FUNCTIONS.get(function.__name__)
        if known is None:
            raise ShapesOnly(
                f"a dry run does not support np.{function.__name__}, only {', '.join(sorted(FUNCTIONS))}"
            )
        return known(*args, **named)


def _reshaped(shape: Shape, wanted: Any) -> Shape:
    words, known = words_in(shape), words_in(tuple(n for n in wanted if n != -1))
    found = tuple(words // max(1, known) if n == -1 else n for n in wanted)
    if words_in(found) != words:
        raise ValueError(f"cannot reshape an array of shape {shape} to {tuple(wanted)}")
    return found


def _reduced(shape: Shape, axis: Any, keepdims: bool) -> Shape:
    axes = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    over = {at % len(shape) for at in axes}
    if keepdims:
        return tuple(1 if at in over else n for at, n in enumerate(shape))
    return tuple(n for at, n in enumerate(shape) if at not in over)


def _product(a: Any, b: Any) -> ShapeArray:
    left, right = np.shape(a), np.shape(b)
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
        raise ValueError(f"matmul: shapes {left} and {right} do not match")
    if len(right) == 1:
        return ShapeArray(left[:-1])
    if len(left) == 1:
        return ShapeArray(right[:-2] + right[-1:])
    return ShapeArray((*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1]))


def _concatenated(arrays: Sequence[Any], axis: int = 0) -> ShapeArray:
    shapes = [np.shape(array) for array in arrays]
    at = axis % len(shapes[0])
    if len({shape[:at] + shape[at + 1 :] for shape in shapes}) > 1:
        raise ValueError(f"arrays of shapes {', '.join(map(str, shapes))} cannot be joined along axis {axis}")
    return ShapeArray((*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :]))


def _stacked(arrays: Sequence[Any], axis: int = 0) -> ShapeArray:
    shape = np.shape(arrays[0])
    at = axis % (len(shape) + 1)
    return ShapeArray((*shape[:at], len(arrays), *shape[at:]))


def _split(array: ShapeArray, parts: Any, axis: int = 0) -> list[ShapeArray]:
    return [array._view(piece.shape) for piece in np.array_split(array._hollow(), parts, axis)]


def _reduction(array: ShapeArray, axis: Any = None, *, keepdims: bool = False) -> ShapeArray:
    return array.sum(axis, keepdims)


def _same(array: ShapeArray, *args: Any, **named: Any) -> ShapeArray:
    return ShapeArray(array.shape)


def _chosen(condition: Any, one: Any, other: Any) -> ShapeArray:
    return ShapeArray(np.broadcast_shapes(np.shape(condition), np.shape(one), np.shape(other)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concatenate": _concatenated,
    "vstack": _concatenated,
    "stack": _stacked,
    "array_split": _split,
    "split": _split,
    "where": _chosen,
    "swapaxes": ShapeArray.swapaxes,
    "reshape": ShapeArray.reshape,
    "shape": lambda array: array.shape,
    "ndim": lambda array: array.ndim,
    "copy": _same,
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like", "tril", "triu"), _same),
    **dict.fromkeys(("sum", "max", "min", "amax", "amin", "mean"), _reduction),
}
