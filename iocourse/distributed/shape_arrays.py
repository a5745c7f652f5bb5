"""Arrays with a shape and a type but no values, for dry runs, which count a schedule without computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..sizes import Shape, words_in

ZERO = np.zeros(())  # one word, broadcast to any shape
FLOATS = ("float16", "bfloat16", "float32", "float64")


class ShapesOnly(TypeError):
    """Error of a dry run: an operation needs values, and only shapes are available."""


class ShapeArray:
    """An array with a shape and no values. Arithmetic returns ShapeArrays by NumPy's broadcasting rules.

    `kind` is the name of its type, "bfloat16" included. Types are promoted as torch does, where an integer
    never widens a float, because a dry run plans the buffers of a run on tensors. `changes` counts the writes
    to it, including writes through its slices. Raises ShapesOnly for operations that need values, and for
    NumPy functions that are not in `FUNCTIONS`.
    """

    __slots__ = ("__weakref__", "base", "changes", "kind", "shape")

    def __init__(self, shape: Shape, base: ShapeArray | None = None, kind: str = "float64") -> None:
        self.shape, self.base, self.changes, self.kind = shape, base, 0, kind

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of words."""
        return words_in(self.shape)

    @property
    def dtype(self) -> Any:
        """The data type; "bfloat16", which NumPy lacks, as a string."""
        return self.kind if self.kind == "bfloat16" else np.dtype(self.kind)

    @property
    def T(self) -> ShapeArray:
        """The transposed array, a view."""
        return self._view(self.shape[::-1])

    def _view(self, shape: Shape) -> ShapeArray:
        return ShapeArray(shape, self if self.base is None else self.base, self.kind)

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
        """Return a new array of the same shape and type that is not a view."""
        return ShapeArray(self.shape, kind=self.kind)

    def astype(self, dtype: Any, *, copy: bool = True) -> ShapeArray:
        """Return a new array of the same shape and another type; the array itself if nothing changes."""
        kind = dtype if dtype == "bfloat16" else np.dtype(dtype).name
        return self if kind == self.kind and not copy else ShapeArray(self.shape, kind=kind)

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
        """Return the sum over `axis`; integers and Booleans are summed in int64."""
        kind = self.kind if self.kind in FLOATS else "int64"
        return ShapeArray(_reduced(self.shape, axis, keepdims), kind=kind)

    def max(self, axis: Any = None, keepdims: bool = False) -> ShapeArray:
        """Return the maximum over `axis`; `min` and `mean` give the same shape."""
        return ShapeArray(_reduced(self.shape, axis, keepdims), kind=self.kind)

    min = mean = max

    def __matmul__(self, other: Any) -> ShapeArray:
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> ShapeArray:
        return _product(other, self)

    def _with(self, other: Any) -> ShapeArray:
        shape = np.broadcast_shapes(self.shape, np.shape(other))
        return ShapeArray(shape, kind=promoted(self, other))

    def _quotient(self, other: Any) -> ShapeArray:
        made = self._with(other)
        return made if made.kind in FLOATS else made.astype("float32")

    def _compared(self, other: Any) -> ShapeArray:
        return self._with(other).astype("bool")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = _with
    __truediv__ = __rtruediv__ = _quotient
    __gt__ = __ge__ = __lt__ = __le__ = _compared

    def _in_place(self, other: Any) -> ShapeArray:
        if np.broadcast_shapes(self.shape, np.shape(other)) != self.shape:
            raise ValueError(f"{np.shape(other)} cannot be added in place to an array of shape {self.shape}")
        self._changed()
        return self

    __iadd__ = __isub__ = __imul__ = __itruediv__ = _in_place

    def __neg__(self) -> ShapeArray:
        return self.copy()

    def __array__(self, *args: Any, **named: Any) -> Any:
        raise ShapesOnly('a dry run has only shapes, no values. Use on="count" instead')

    __bool__ = __float__ = __int__ = __array__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> ShapeArray:
        if method != "__call__" or "out" in named:
            raise ShapesOnly(f"a dry run does not support np.{ufunc.__name__}.{method} with these arguments")
        if ufunc is np.matmul:
            return _product(*inputs)
        shape = np.broadcast_shapes(*(np.shape(one) for one in inputs))
        return ShapeArray(shape, kind=_kind_after(ufunc, promoted(*inputs)))

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        known = FUNCTIONS.get(function.__name__)
        if known is None:
            raise ShapesOnly(
                f"a dry run does not support np.{function.__name__}, only {', '.join(sorted(FUNCTIONS))}"
            )
        return known(*args, **named)


def type_name(array: Any) -> str:
    """Return the name of the type of a NumPy array, a tensor or a ShapeArray, such as "bfloat16"."""
    return array.kind if isinstance(array, ShapeArray) else str(array.dtype).removeprefix("torch.")


def promoted(*arrays: Any) -> str:
    """Return the name of the type of an elementary operation on arrays and numbers, by torch's rules."""
    kinds = [type_name(one) for one in arrays if getattr(one, "ndim", 0)]
    kinds = kinds or [type_name(one) for one in arrays if hasattr(one, "dtype")]
    floats = {kind for kind in kinds if kind in FLOATS}
    if floats == {"float16", "bfloat16"}:
        return "float32"
    if floats:
        return max(floats, key=FLOATS.index)
    fraction = any(isinstance(one, float) for one in arrays)
    return "float32" if fraction else np.result_type(*kinds).name


def _kind_after(ufunc: np.ufunc, kind: str) -> str:
    """Return the type of the results of a ufunc on operands of this type."""
    kept = {given: made for given, made in (one.split("->") for one in ufunc.types)}
    if kept.get("d" * ufunc.nin, "d") == "?":
        return "bool"
    return kind if kind in FLOATS or "l" * ufunc.nin in kept else "float32"


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
    kind = promoted(a, b)
    if len(right) == 1:
        return ShapeArray(left[:-1], kind=kind)
    if len(left) == 1:
        return ShapeArray(right[:-2] + right[-1:], kind=kind)
    return ShapeArray((*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1]), kind=kind)


def _concatenated(arrays: Sequence[Any], axis: int = 0) -> ShapeArray:
    shapes = [np.shape(array) for array in arrays]
    at = axis % len(shapes[0])
    if len({shape[:at] + shape[at + 1 :] for shape in shapes}) > 1:
        raise ValueError(f"arrays of shapes {', '.join(map(str, shapes))} cannot be joined along axis {axis}")
    shape = (*shapes[0][:at], sum(one[at] for one in shapes), *shapes[0][at + 1 :])
    return ShapeArray(shape, kind=promoted(*arrays))


def _stacked(arrays: Sequence[Any], axis: int = 0) -> ShapeArray:
    shape = np.shape(arrays[0])
    at = axis % (len(shape) + 1)
    return ShapeArray((*shape[:at], len(arrays), *shape[at:]), kind=promoted(*arrays))


def _split(array: ShapeArray, parts: Any, axis: int = 0) -> list[ShapeArray]:
    return [array._view(piece.shape) for piece in np.array_split(array._hollow(), parts, axis)]


def _summed(array: ShapeArray, axis: Any = None, *, keepdims: bool = False) -> ShapeArray:
    return array.sum(axis, keepdims)


def _reduction(array: ShapeArray, axis: Any = None, *, keepdims: bool = False) -> ShapeArray:
    return array.max(axis, keepdims)


def _same(array: ShapeArray, *args: Any, **named: Any) -> ShapeArray:
    return array.astype(named.get("dtype") or array.kind)


def _chosen(condition: Any, one: Any, other: Any) -> ShapeArray:
    shape = np.broadcast_shapes(np.shape(condition), np.shape(one), np.shape(other))
    return ShapeArray(shape, kind=promoted(one, other) if np.ndim(one) or np.ndim(other) else "float32")


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
    "sum": _summed,
    **dict.fromkeys(("max", "min", "amax", "amin", "mean"), _reduction),
}
