"""Tiles (arrays in fast memory, whose words count against M) and the arithmetic on them.

Tiles support ordinary NumPy expressions. Each new array uses words of fast memory; views and in-place
updates use none. The same code runs with values and dry, and raises the same errors of shape and type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..sizes import Shape, words_in
from .errors import MachineError, ShapeMismatch, UntrackedArray, UseAfterFree
from .slow_memory import SlowArray

Axis = int | tuple[int, ...] | None
Name = object  # used through str(), which builds the text only when it is printed
Number = (bool, int, float, np.bool_, np.integer, np.floating)
DIGITS = 4  # of a printed tile
MOST_ENTRIES = 100  # for more entries NumPy omits the middle of each axis


class LazyText(NamedTuple):
    """Text that is formatted only when it is printed: a format pattern and its arguments."""

    pattern: str
    parts: tuple[object, ...]

    def __str__(self) -> str:
        return self.pattern.format(*self.parts)


class TemporaryName(LazyText):
    """Name of a tile that is the result of an expression."""


class FastMemory(Protocol):
    """Interface of the machine, as tiles and their arithmetic use it."""

    @property
    def dry(self) -> bool: ...
    @property
    def _arithmetic(self) -> Arithmetic: ...
    @property
    def _resident(self) -> Mapping[int, object]: ...
    def _new_tile(self, name: Name, shape: Shape, dtype: np.dtype[Any], doing: Name) -> Tile: ...
    def _release(self, tile: Tile) -> None: ...


class Tile(NDArrayOperatorsMixin):
    """An array in fast memory. A `Machine` or an expression on tiles creates it.

    Leaving its `with` block or calling `free()` frees its words. A view (`t.T`, `t[2:4]`) uses no words and
    is valid as long as its base. On a dry machine a tile has a shape and no values.
    """

    # Slots, so that an answer can neither add attributes to a tile nor assign public ones.
    __slots__ = ("_base", "_data", "_dtype", "_flat", "_machine", "_name", "_serial", "_shape")
    _base: Tile | None
    _data: np.ndarray | None  # None on a dry machine, and after it was freed
    _dtype: np.dtype[Any]
    _flat: bool  # in C order without gaps, so that reshape returns a view
    _machine: FastMemory
    _name: Name
    _serial: int
    _shape: Shape

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UntrackedArray(
            "Tile(...) cannot be called; create tiles with machine.load, machine.zeros or machine.full"
        )

    # ------------------------------------------------------------------ what it is
    @property
    def name(self) -> str:
        """Name of the tile in error messages: its source, such as Q[0:4]."""
        return str(self._name)

    @property
    def shape(self) -> Shape:
        """Shape, as of a NumPy array."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of one entry. Every entry uses one word, for any type."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of words in this tile or view."""
        return words_in(self.shape)

    @property
    def words(self) -> int:
        """Words of fast memory that this tile uses: 0 for a view."""
        return 0 if self._base is not None else words_in(self.shape)

    @property
    def alive(self) -> bool:
        """True while the tile (for a view, its base) is in fast memory."""
        return self._serial in self._machine._resident

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"tile {self.name} has shape () and therefore no length")
        return self.shape[0]

    def __repr__(self) -> str:
        state = "" if self.alive else ", freed"
        return f"Tile({self.name}, shape {self.shape}{state})"

    # ------------------------------------------------------------------ how long it lives
    def free(self) -> None:
        """Free the words of this tile. Raises UseAfterFree if it was freed before, TypeError on a view."""
        if self._base is not None:
            raise TypeError(f"{self.name} is a view and uses no words; free its base, {self._base.name}")
        self._require_alive("freed a second time")
        self._machine._release(self)

    def __enter__(self) -> Tile:
        self._require_alive("entered in a with block")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._base is None and self._serial in self._machine._resident:
            self._machine._release(self)

    def __del__(self) -> None:
        # For temporaries in students' code; the schedules of the library do not rely on it.
        if getattr(self, "_base", self) is None and self._serial in self._machine._resident:
            self._machine._release(self)

    def _require_alive(self, what: str = "used") -> None:
        if self._serial not in self._machine._resident:
            gone = UseAfterFree(
                f"Use after free: tile {self.name} was {what}, but it is no longer in fast memory (its "
                "with block ended, free() or load(into=...) released it, or fast memory was emptied). "
                "Load it again"
            )
            gone.serial = self._serial
            raise gone

    # ------------------------------------------------------------------ what NumPy does with it
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))[0]
        unit = self._machine._arithmetic
        if getattr(np, ufunc.__name__, None) is not ufunc:
            self._refuse_bare(f"{ufunc.__name__}, which is not a NumPy function")
        if ufunc is np.matmul and method == "__call__" and not kwargs:
            return unit.matmul(inputs[0], inputs[1], out)
        if method == "__call__" and ufunc.nout == 1 and not kwargs:
            return unit.elementwise(ufunc, inputs, out)
        if method == "reduce" and len(inputs) == 1:
            return unit.reduce(ufunc, inputs[0], out=out, **kwargs)
        raise TypeError(
            f"np.{ufunc.__name__} with method {method!r} and options {sorted(kwargs)} is not supported on "
            "tiles. Use plain ufuncs, @, and .sum/.max/.min/.mean over an axis"
        )

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        handler = _FUNCTIONS.get(func)
        if handler is None:
            known = ", ".join(sorted(f"np.{f.__name__}" for f in _FUNCTIONS))
            raise TypeError(f"np.{func.__name__} is not supported on tiles. Use ufuncs, @, {known}")
        return handler(*args, **kwargs)

    def _refuse_bare(self, how: str) -> NoReturn:
        raise UntrackedArray(
            f"tile {self.name} would be converted to a Python or NumPy object by {how}, and its words would "
            "no longer be counted. Compute with the tile itself, or store it with machine.store(...)"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse_bare("np.asarray")

    def __float__(self) -> NoReturn:
        self._refuse_bare("float(...)")

    def __int__(self) -> NoReturn:
        self._refuse_bare("int(...)")

    def __index__(self) -> NoReturn:
        self._refuse_bare("an index")

    def __bool__(self) -> NoReturn:
        self._refuse_bare("a truth test (if, and, or)")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self._refuse_bare("copy or pickle")

    def tolist(self) -> NoReturn:
        """Always raises UntrackedArray; use `machine.store` to move words out of fast memory."""
        self._refuse_bare("tolist()")

    def item(self, *index: int) -> NoReturn:
        """Always raises UntrackedArray; use `machine.store` to move words out of fast memory."""
        self._refuse_bare("item()")

    def __contains__(self, value: object) -> NoReturn:
        self._refuse_bare("the operator in")

    # ------------------------------------------------------------------ views: no words
    def _view(self, shape: Shape, data: np.ndarray | None, *, name: Name = None, flat: bool = False) -> Tile:
        base = self if self._base is None else self._base
        view = make_tile(self._machine, name or self._name, shape, self._dtype, base._serial, base)
        view._data, view._flat = data, flat
        return view

    @property
    def T(self) -> Tile:
        """Transpose, as a view."""
        self._require_alive()
        data = None if self._data is None else self._data.T
        kind = TemporaryName if isinstance(self._name, TemporaryName) else LazyText
        return self._view(self._shape[::-1], data, name=kind("{}.T", (self._name,)))

    def __getitem__(self, index: Any) -> Tile:
        self._require_alive()
        entries = _view_index(self, index)
        if self._data is not None:
            data = self._data[entries]
            return self._view(data.shape, data)
        shape_only = np.ndarray(self.shape, np.bool_, b"\0", strides=(0,) * self.ndim)  # one byte, any shape
        return self._view(shape_only[entries].shape, None)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._machine._arithmetic.assign(self[index], value)

    def __iter__(self) -> Iterator[Tile]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any) -> Tile:
        """Return a view with another shape. Raises ValueError on a slice or transpose, which needs a copy."""
        self._require_alive()
        if not self._flat:
            raise ValueError(f"{self.name} is a slice or transpose and cannot be reshaped without a copy")
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if self._data is not None:
            data = self._data.reshape(wanted)
            return self._view(data.shape, data, flat=True)
        return self._view(np.empty(self.shape, dtype=np.bool_).reshape(wanted).shape, None, flat=True)

    # ------------------------------------------------------------------ arithmetic
    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tile:
        """Return the sum along `axis` as a new tile."""
        return self._machine._arithmetic.reduce(np.add, self, axis=axis, keepdims=keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tile:
        """Return the largest entry along `axis` as a new tile."""
        return self._machine._arithmetic.reduce(np.maximum, self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tile:
        """Return the smallest entry along `axis` as a new tile."""
        return self._machine._arithmetic.reduce(np.minimum, self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tile:
        """Return the mean along `axis` as a new tile."""
        total = self.sum(axis=axis, keepdims=keepdims)
        total *= total.size / self.size
        return total

    def copy(self) -> Tile:
        """Return a new tile with the same values; it uses as many words again."""
        return self._machine._arithmetic.copy(self)

    def dot(self, other: Tile) -> Tile:
        """Return the matrix product `self @ other` as a new tile."""
        return self._machine._arithmetic.matmul(self, other)

    def add_matmul(self, A: Tile, B: Tile) -> Tile:
        """Add A @ B to self in place, without a temporary, and return self."""
        self._machine._arithmetic.add_matmul(self, A, B)
        return self

    def multiply_by_matmul(self, A: Tile, B: Tile, *, less: Tile) -> Tile:
        """Multiply self by A @ B - less in place, without a temporary, and return self.

        `less` has shape (rows,). With the weights P, this computes dS = P∘(dO Vᵀ - D).
        """
        self._machine._arithmetic.multiply_by_matmul(self, A, B, less)
        return self

    def add_row_dots(self, A: Tile, B: Tile) -> Tile:
        """Add rowsum(A∘B) to self, of shape (rows,), in place and return self. No temporary is used."""
        self._machine._arithmetic.add_row_dots(self, A, B)
        return self


def make_tile(
    machine: FastMemory,
    name: Name,
    shape: Shape,
    dtype: np.dtype[Any],
    serial: int,
    base: Tile | None = None,
) -> Tile:
    """Create a Tile object without values. It uses no words until the machine counts it under `serial`."""
    tile = Tile.__new__(Tile)
    tile._machine, tile._name, tile._shape, tile._dtype = machine, name, shape, dtype
    tile._serial, tile._base, tile._data, tile._flat = serial, base, None, base is None
    return tile


def in_words(tile: Tile) -> str:
    """Return name, shape and rounded values (none if dry), as in "A[0:1] (1, 4): [[0. 2. 4. 6.]]"."""
    head = f"{tile.name} {tile.shape}"
    if tile._data is None:
        return f"{head}: no values on a dry machine"
    values = np.array2string(tile._data, precision=DIGITS, threshold=MOST_ENTRIES, max_line_width=100)
    return f"{head}:{chr(10) if chr(10) in values else ' '}{values}"


def _view_index(tile: Tile, index: Any) -> tuple[Any, ...]:
    """Return the index as a tuple that selects a view. Raises TypeError for an index that would copy."""
    entries = index if isinstance(index, tuple) else (index,)
    for entry in entries:
        plain = isinstance(entry, (int, np.integer, slice)) and not isinstance(entry, bool)
        if not (entry is None or entry is Ellipsis or plain):
            raise TypeError(
                f"{tile.name}[...] was indexed with {type(entry).__name__}; expected integers, slices, None "
                "or ..., which return a view. To select by a condition, use np.where"
            )
    return entries if Ellipsis in entries else (*entries, ...)  # a full index would give a scalar, not a view


def _where(condition: Any, yes: Any, no: Any) -> Tile:
    machine = next(t._machine for t in (condition, yes, no) if isinstance(t, Tile))
    return machine._arithmetic.where(condition, yes, no)


def _reducer(name: str) -> Callable[..., Tile]:
    def reduce(tile: Tile, axis: Axis = None, keepdims: bool = False) -> Tile:
        result: Tile = getattr(tile, name)(axis=axis, keepdims=keepdims)
        return result

    return reduce


def _dot(a: Any, b: Any) -> Tile:
    machine = next(t._machine for t in (a, b) if isinstance(t, Tile))
    return machine._arithmetic.matmul(a, b)


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: _reducer("sum"),
    np.max: _reducer("max"),
    np.amax: _reducer("max"),
    np.min: _reducer("min"),
    np.amin: _reducer("min"),
    np.mean: _reducer("mean"),
    np.where: _where,
    np.dot: _dot,
    np.transpose: lambda tile: tile.T,
    np.copy: lambda tile: tile.copy(),
    np.shape: lambda tile: tile.shape,
    np.ndim: lambda tile: tile.ndim,
    np.size: lambda tile: tile.size,
    np.reshape: lambda tile, shape: tile.reshape(shape),
}


# ------------------------------------------------------------------ arithmetic: each new result uses words
class Arithmetic:
    """Arithmetic on the tiles of one machine. It moves no words between slow and fast memory."""

    def __init__(self, machine: FastMemory) -> None:
        self._machine = machine

    # ------------------------------------------------------------------ checks of operands
    def tile(self, value: Any) -> Tile:
        """Return `value` if it is a tile of this machine in fast memory. Raises MachineError otherwise."""
        if not isinstance(value, Tile):
            self._refuse(value)
        if value._machine is not self._machine or value._serial not in self._machine._resident:
            value._require_alive()
            raise MachineError(f"tile {value.name} belongs to another machine")
        return value

    def _operand(self, value: Any) -> Any:
        """Return a number or the data of a tile (None if dry). Raises MachineError for any other operand."""
        if not isinstance(value, Tile) and isinstance(value, Number):
            return value
        return self.tile(value)._data

    def _refuse(self, value: Any) -> NoReturn:
        if isinstance(value, SlowArray):
            value._refuse()
        shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
        raise UntrackedArray(
            f"Expected a tile, got {type(value).__name__}{shape}. Only tiles are counted: create one with "
            "machine.load, machine.zeros or machine.full"
        )

    # ------------------------------------------------------------------ results
    def _result(
        self, name: TemporaryName, shape: Shape, dtype: np.dtype[Any], compute: Callable[[], Any], doing: Name
    ) -> Tile:
        tile = self._machine._new_tile(name, shape, dtype, doing)
        if not self._machine.dry:
            tile._data = np.asarray(_quietly(compute), order="C")  # so that reshape returns a view
        return tile

    def _target(self, out: Any, shape: Shape, doing: Name, *, exact: bool = False) -> Tile:
        if not isinstance(out, Tile):
            raise UntrackedArray(f"out of {doing} on tiles must be a tile, got {type(out).__name__}")
        self.tile(out)
        if (shape if exact else _broadcast(doing, out._shape, shape)) != out._shape:
            raise ShapeMismatch(
                f"{doing}: a result of shape {shape} does not fit {out.name} of shape {out.shape}"
            )
        return out

    # ------------------------------------------------------------------ elementwise
    def elementwise(self, ufunc: np.ufunc, inputs: tuple[Any, ...], out: Any = None) -> Tile:
        """Return ufunc(*inputs) as a new tile, or write it to the tile `out` and return that."""
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
        """Return a new tile with the same values."""
        data = self._operand(tile)
        name = _made('"{}.copy()"', tile)
        return self._result(name, tile.shape, tile.dtype, lambda: np.array(data), "a copy")

    def where(self, condition: Any, yes: Any, no: Any) -> Tile:
        """Return np.where of tiles and numbers as a new tile."""
        parts = (condition, yes, no)
        data = [self._operand(part) for part in parts]
        shape = _broadcast("np.where", *[part.shape for part in parts if isinstance(part, Tile)])
        dtype = np.result_type(*[part.dtype if isinstance(part, Tile) else part for part in (yes, no)])
        return self._result(_made('"np.where"'), shape, dtype, lambda: np.where(*data), "np.where")

    def assign(self, target: Tile, value: Any) -> None:
        """Assign a tile or number to every entry of `target`: target[...] = value."""
        data = self._operand(value)
        self._target(target, value.shape if isinstance(value, Tile) else (), "assignment")
        if target._data is not None:
            target._data[...] = data

    # ------------------------------------------------------------------ products
    def matmul(self, A: Any, B: Any, out: Any = None) -> Tile:
        """Return A @ B as a new tile."""
        shape = self._product_shape(A, B)
        if out is not None:
            raise TypeError("np.matmul(..., out=) is not supported on tiles; use out.add_matmul(A, B)")
        doing = LazyText("the product {} @ {}", (A._name, B._name))
        dtype = A._dtype if A._dtype is B._dtype else np.result_type(A.dtype, B.dtype)
        return self._result(_made('"{} @ {}"', A, B), shape, dtype, lambda: A._data @ B._data, doing)

    def add_matmul(self, target: Tile, A: Any, B: Any) -> None:
        """Add A @ B to `target` in place; the products accumulate in a register."""
        self._product_target(target, A, B)
        old = target._data
        if old is not None:
            _quietly(lambda: np.add(old, A._data @ B._data, out=old))

    def multiply_by_matmul(self, target: Tile, A: Any, B: Any, less: Any) -> None:
        """Multiply `target` by A @ B - less in place; each factor is computed in a register."""
        self._product_target(target, A, B)
        self._row_words(target, less)
        p = target._data
        if p is not None:
            _quietly(lambda: np.multiply(p, A._data @ B._data - less._data[:, None], out=p))

    def add_row_dots(self, target: Tile, A: Any, B: Any) -> None:
        """Add rowsum(A∘B) to `target` in place; each sum accumulates in a register."""
        for operand in (A, B):
            self.tile(operand)
            if operand.ndim != 2 or operand.shape != A.shape:
                raise ShapeMismatch(
                    f"{A.name} {A.shape} and {B.name} {B.shape} must be matrices of equal shape"
                )
        self._row_words(A, target)
        if target._serial in (A._serial, B._serial):
            raise MachineError(
                f"{target.name} cannot be updated in place with a sum over itself: "
                "its old words are still needed"
            )
        old = target._data
        if old is not None:
            _quietly(lambda: np.add(old, np.einsum("ij,ij->i", A._data, B._data), out=old))

    def _product_target(self, target: Tile, A: Any, B: Any) -> None:
        shape = self._product_shape(A, B)
        self._target(target, shape, LazyText("in-place update with {} @ {}", (A._name, B._name)), exact=True)
        if target._serial in (A._serial, B._serial):
            raise MachineError(
                f"{target.name} cannot be updated in place with a product of itself: "
                "its old words are still needed"
            )

    def _row_words(self, matrix: Tile, rows: Any) -> None:
        self.tile(rows)
        if matrix.ndim != 2 or rows.shape != matrix.shape[:1]:
            raise ShapeMismatch(
                f"{rows.name} has shape {rows.shape}; {matrix.name} {matrix.shape} needs one word per row"
            )

    def _product_shape(self, A: Any, B: Any) -> Shape:
        for operand in (A, B):
            self._operand(operand)
            if not isinstance(operand, Tile) or len(operand._shape) not in (1, 2):
                raise TypeError("@ needs two tiles with one or two axes each; to multiply by a number use *")
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
        """Return ufunc.reduce over one axis, several, or all (None) as a new tile or in the tile `out`."""
        doing = f"np.{ufunc.__name__}.reduce"
        if any(value is not None for value in other.values()):
            raise TypeError(f"{doing} on tiles accepts only axis and keepdims, got {sorted(other)}")
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


@np.errstate(all="ignore")  # a decorator costs 0.8 µs, a with block 1.4; all arithmetic is done here
def _quietly(compute: Callable[[], Any]) -> Any:
    """Return compute() without NumPy warnings, which would reveal values of words that are not counted.

    Overflow gives inf and 0/0 gives NaN.
    """
    return compute()


def _broadcast(doing: Name, *shapes: Shape) -> Shape:
    if len(set(shapes)) == 1:
        return shapes[0]
    try:
        return _common_shape(shapes)
    except ValueError:
        shown = " and ".join(str(shape) for shape in shapes)
        raise ShapeMismatch(f"{doing}: shapes {shown} cannot be broadcast") from None


@lru_cache(maxsize=1024)
def _common_shape(shapes: tuple[Shape, ...]) -> Shape:
    return np.broadcast_shapes(*shapes)


def _result_dtype(ufunc: np.ufunc, inputs: tuple[Any, ...], out: Tile | None) -> np.dtype[Any]:
    """Return NumPy's type of the result. Raises TypeError if it has none, or one that `out` cannot hold."""
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
    """Return the name of the result of an expression; operands that are temporaries appear as "…"."""
    return TemporaryName(f"(temporary from {expression})", tuple(map(_short, operands)))


def _short(value: Any) -> Name:
    if isinstance(value, Tile):
        return "…" if isinstance(value._name, TemporaryName) else value._name
    return f"{value:g}" if isinstance(value, float) else str(value)
