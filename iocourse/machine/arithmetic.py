"""What the machine computes: expressions on tiles, each new result counted in fast memory.

The same code runs with values and dry. What NumPy would refuse (shapes, types) is refused on both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, Protocol

import numpy as np

from ..sizes import Shape
from .allocator import LazyText, Name, TemporaryName
from .errors import MachineError, ShapeMismatch, UntrackedArray
from .slow_memory import SlowArray
from .tiles import Axis, FastMemory, Tile

Number = (bool, int, float, np.bool_, np.integer, np.floating)


class Counting(FastMemory, Protocol):
    """What arithmetic asks of its machine: room for a result, and whether there are values at all."""

    @property
    def dry(self) -> bool: ...
    def _new_tile(self, name: Name, shape: Shape, dtype: np.dtype[Any], doing: Name) -> Tile: ...


class Arithmetic:
    """The arithmetic of one machine. Tiles call it; nothing here moves a word to or from slow memory."""

    def __init__(self, machine: Counting) -> None:
        self._machine = machine

    # ------------------------------------------------------------------ what may enter
    def tile(self, value: Any) -> Tile:
        """`value` where it is a live tile of this machine; otherwise an error that says what came."""
        if not isinstance(value, Tile):
            self._refuse(value)
        if value._machine is not self._machine or value._serial not in self._machine._resident:
            value._require_alive()
            raise MachineError(f"tile {value.name} belongs to another machine")
        return value

    def _operand(self, value: Any) -> Any:
        """The operand's data (None when dry). Only live tiles of this machine and plain numbers may enter."""
        if not isinstance(value, Tile) and isinstance(value, Number):
            return value
        return self.tile(value)._data

    def _refuse(self, value: Any) -> NoReturn:
        if isinstance(value, SlowArray):
            value._refuse()
        shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
        raise UntrackedArray(
            f"a bare {type(value).__name__}{shape} is not in fast memory. Make a tile instead: "
            "machine.load, machine.zeros or machine.full"
        )

    # ------------------------------------------------------------------ what comes out
    def _result(
        self, name: TemporaryName, shape: Shape, dtype: np.dtype[Any], compute: Callable[[], Any], doing: Name
    ) -> Tile:
        tile = self._machine._new_tile(name, shape, dtype, doing)
        if not self._machine.dry:
            tile._data = np.asarray(_quietly(compute), order="C")  # so that reshape makes a view
        return tile

    def _target(self, out: Any, shape: Shape, doing: Name, *, exact: bool = False) -> Tile:
        if not isinstance(out, Tile):
            raise UntrackedArray(f"the result of {doing} on tiles must be a tile, not a {type(out).__name__}")
        self.tile(out)
        if (shape if exact else _broadcast(doing, out._shape, shape)) != out._shape:
            raise ShapeMismatch(
                f"{doing}: a result of shape {shape} does not fit {out.name} of shape {out.shape}"
            )
        return out

    # ------------------------------------------------------------------ elementwise
    def elementwise(self, ufunc: np.ufunc, inputs: tuple[Any, ...], out: Any = None) -> Tile:
        """ufunc(*inputs), as a new tile or into the tile `out`."""
        doing = f"np.{ufunc.__name__}"
        data = [self._operand(value) for value in inputs]
        shape = _broadcast(doing, *[value.shape for value in inputs if isinstance(value, Tile)])
        if out is None:
            dtype = _result_dtype(ufunc, inputs, None)
            name = _expression(ufunc.__name__, inputs)
            return self._result(name, shape, dtype, lambda: ufunc(*data), doing)
        target = self._target(out, shape, doing)
        _result_dtype(ufunc, inputs, target)
        if target._data is not None:
            _quietly(lambda: ufunc(*data, out=target._data))
        return target

    def copy(self, tile: Tile) -> Tile:
        """A new tile with the same values."""
        data = self._operand(tile)
        name = _made('"{}.copy()"', tile)
        return self._result(name, tile.shape, tile.dtype, lambda: np.array(data), "a copy")

    def where(self, condition: Any, yes: Any, no: Any) -> Tile:
        """np.where on tiles and numbers: a new tile."""
        parts = (condition, yes, no)
        data = [self._operand(part) for part in parts]
        shape = _broadcast("np.where", *[part.shape for part in parts if isinstance(part, Tile)])
        dtype = np.result_type(*[part.dtype if isinstance(part, Tile) else part for part in (yes, no)])
        return self._result(_made('"np.where"'), shape, dtype, lambda: np.where(*data), "np.where")

    def assign(self, target: Tile, value: Any) -> None:
        """target[...] = value."""
        data = self._operand(value)
        self._target(target, value.shape if isinstance(value, Tile) else (), "assignment")
        if target._data is not None:
            target._data[...] = data

    # ------------------------------------------------------------------ products
    def matmul(self, A: Any, B: Any, out: Any = None) -> Tile:
        """A @ B as a new tile."""
        shape = self._product_shape(A, B)
        if out is not None:
            raise TypeError("np.matmul(..., out=) is not supported on tiles; use out.add_matmul(A, B)")
        doing = LazyText("the product {} @ {}", (A._name, B._name))
        dtype = A._dtype if A._dtype is B._dtype else np.result_type(A.dtype, B.dtype)
        return self._result(_made('"{} @ {}"', A, B), shape, dtype, lambda: A._data @ B._data, doing)

    def add_matmul(self, target: Tile, A: Any, B: Any) -> None:
        """target += A @ B, each product added in a register."""
        self._product_target(target, A, B)
        old = target._data
        if old is not None:
            _quietly(lambda: np.add(old, A._data @ B._data, out=old))

    def multiply_by_matmul(self, target: Tile, A: Any, B: Any, less: Any) -> None:
        """target *= A @ B - less, row by row, each product less its row's word in a register."""
        self._product_target(target, A, B)
        self._row_words(target, less)
        p = target._data
        if p is not None:
            _quietly(lambda: np.multiply(p, A._data @ B._data - less._data[:, None], out=p))

    def add_row_dots(self, target: Tile, A: Any, B: Any) -> None:
        """target += rowsum(A∘B), each sum grown in a register."""
        for operand in (A, B):
            self.tile(operand)
            if operand.ndim != 2 or operand.shape != A.shape:
                raise ShapeMismatch(f"rows of {A.name} {A.shape} and {B.name} {B.shape} do not match")
        self._row_words(A, target)
        if target._serial in (A._serial, B._serial):
            raise MachineError(f"{target.name} cannot take up a sum over itself in place")
        old = target._data
        if old is not None:
            _quietly(lambda: np.add(old, np.einsum("ij,ij->i", A._data, B._data), out=old))

    def _product_target(self, target: Tile, A: Any, B: Any) -> None:
        shape = self._product_shape(A, B)
        self._target(target, shape, LazyText("taking up the product {} @ {}", (A._name, B._name)), exact=True)
        if target._serial in (A._serial, B._serial):
            raise MachineError(
                f"{target.name} cannot take up a product of itself in place: its old words are still needed"
            )

    def _row_words(self, matrix: Tile, rows: Any) -> None:
        self.tile(rows)
        if matrix.ndim != 2 or rows.shape != matrix.shape[:1]:
            raise ShapeMismatch(
                f"{rows.name} has shape {rows.shape}; {matrix.name} {matrix.shape} needs one word a row"
            )

    def _product_shape(self, A: Any, B: Any) -> Shape:
        for operand in (A, B):
            self._operand(operand)
            if not isinstance(operand, Tile) or len(operand._shape) not in (1, 2):
                raise TypeError("@ needs two tiles with one or two axes; for a number use *")
        if A._shape[-1] != B._shape[0]:
            raise ShapeMismatch(f"{A.name} @ {B.name}: shapes {A.shape} and {B.shape} do not match")
        return (*A._shape[:-1], *B._shape[1:])

    # ------------------------------------------------------------------ reductions
    def reduce(
        self,
        ufunc: np.ufunc,
        tile: Tile,
        axis: Axis = 0,
        keepdims: bool = False,
        out: Any = None,
        **other: Any,
    ) -> Tile:
        """ufunc.reduce over one axis, some, or all (None): a new tile, or into the tile `out`."""
        doing = f"np.{ufunc.__name__}.reduce"
        if any(value is not None for value in other.values()):
            raise TypeError(f"{doing} on tiles takes axis and keepdims, not {sorted(other)}")
        data = self._operand(tile)
        shape = _reduced_shape(tile.shape, axis, keepdims)
        dtype = _reduced_dtype(ufunc, tile.dtype, tile.ndim, axis)
        if out is None:
            name = _made(f'"{ufunc.__name__} over {{}}"', tile)
            return self._result(
                name, shape, dtype, lambda: ufunc.reduce(data, axis=axis, keepdims=keepdims), doing
            )
        target = self._target(out, shape, doing, exact=True)
        if target._data is not None:
            _quietly(lambda: ufunc.reduce(data, axis=axis, keepdims=keepdims, out=target._data))
        return target


@np.errstate(all="ignore")  # a decorator costs 0.8 µs, a block 1.4, and all arithmetic passes here
def _quietly(compute: Callable[[], Any]) -> Any:
    """Overflow makes inf and 0/0 makes nan. No flag is raised, for a flag would tell of words uncounted."""
    return compute()


def _broadcast(doing: Name, *shapes: Shape) -> Shape:
    if len(set(shapes)) == 1:
        return shapes[0]
    try:
        return _common_shape(shapes)
    except ValueError:
        shown = " and ".join(str(shape) for shape in shapes)
        raise ShapeMismatch(f"{doing}: shapes {shown} do not match") from None


@lru_cache(maxsize=1024)
def _common_shape(shapes: tuple[Shape, ...]) -> Shape:
    return np.broadcast_shapes(*shapes)


def _result_dtype(ufunc: np.ufunc, inputs: tuple[Any, ...], out: Tile | None) -> np.dtype[Any]:
    """The type NumPy gives the result. Raises TypeError where it has none, or none that `out` can hold."""
    types = *map(_dtype_or_number, inputs), None if out is None else out._dtype
    return _resolved(ufunc, types)


@lru_cache(maxsize=1024)
def _resolved(ufunc: np.ufunc, types: tuple[Any, ...]) -> np.dtype[Any]:
    found: np.dtype[Any] = ufunc.resolve_dtypes(types)[-1]
    return found


@lru_cache(maxsize=1024)
def _reduced_dtype(ufunc: np.ufunc, dtype: np.dtype[Any], axes: int, axis: Axis) -> np.dtype[Any]:
    return np.asarray(ufunc.reduce(np.ones((1,) * axes, dtype), axis=axis)).dtype


def _dtype_or_number(value: Any) -> Any:
    if isinstance(value, (Tile, np.generic)):
        return value.dtype
    return np.dtype(bool) if isinstance(value, bool) else type(value)  # Python's int and float adapt


def _reduced_shape(shape: Shape, axis: Axis, keepdims: bool) -> Shape:
    axes = tuple(range(len(shape))) if axis is None else axis
    gone = np.lib.array_utils.normalize_axis_tuple(axes, len(shape))
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keepdims or i not in gone)


_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}


def _expression(ufunc: str, inputs: tuple[Any, ...]) -> TemporaryName:
    if ufunc in _SYMBOLS and len(inputs) == 2:
        return _made(f'"{{}} {_SYMBOLS[ufunc]} {{}}"', *inputs)
    return _made(f'"{ufunc}({", ".join(["{}"] * len(inputs))})"', *inputs)


def _made(expression: str, *operands: Any) -> TemporaryName:
    """The name of what an expression makes; tiles in it that were made so themselves are "…"."""
    return TemporaryName(f"(temporary from {expression})", tuple(map(_short, operands)))


def _short(value: Any) -> Name:
    if isinstance(value, Tile):
        return "…" if isinstance(value._name, TemporaryName) else value._name
    return f"{value:g}" if isinstance(value, float) else str(value)
