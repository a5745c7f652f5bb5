"""Tiles: arrays that live in fast memory and are counted there.

A tile answers to ordinary NumPy expressions. Whatever makes a new array takes room in fast memory;
views and in-place updates take none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .memory_errors import BareArray, TileFreed, WrongShape

if TYPE_CHECKING:
    from .machine import Machine

Shape = tuple[int, ...]


def words_in(shape: Shape) -> int:
    """Number of words an array of this shape takes: the product of its axes."""
    count = 1
    for axis in shape:
        count *= axis
    return count


class Tile(NDArrayOperatorsMixin):
    """An array in fast memory, shape as NumPy's, `words` long. Made by a `Machine` or by an expression on tiles.

    Leaving a `with` block or calling `free()` gives its room back; a view (`t.T`, `t[2:4]`) costs
    nothing and lives as long as its base. On a dry machine a tile has a shape and no values.
    """

    def __init__(
        self, machine: Machine, name: str, shape: Shape, data: np.ndarray | None, base: Tile | None = None
    ) -> None:
        self._machine = machine
        self.name = name
        self.shape = shape
        self._data = data
        self._base = base
        self._alive = base is None

    # ------------------------------------------------------------------ what it is
    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of words in this tile or view."""
        return words_in(self.shape)

    @property
    def words(self) -> int:
        """Words this tile takes in fast memory: 0 for a view."""
        return 0 if self._base is not None else words_in(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"tile {self.name} is a single word and has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        state = "" if self.alive else ", freed"
        return f"Tile({self.name}, shape {self.shape}{state})"

    # ------------------------------------------------------------------ how long it lives
    @property
    def alive(self) -> bool:
        """True while the tile, or the base it is a view of, is in fast memory."""
        return self._alive if self._base is None else self._base.alive

    def free(self) -> None:
        """Give the room back. Raises TileFreed when that happened before, TypeError on a view."""
        if self._base is not None:
            raise TypeError(f"{self.name} is a view and takes no room; free its base, {self._base.name}")
        self._require_alive("freed a second time")
        self._machine._release(self)

    def __enter__(self) -> Tile:
        self._require_alive("entered in a with block")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._base is None and self._alive:
            self._machine._release(self)

    def __del__(self) -> None:
        # A convenience for students' temporaries; our own schedules never rely on it.
        if getattr(self, "_alive", False):
            self._machine._release(self)

    def _require_alive(self, what: str = "used") -> None:
        if not self.alive:
            raise TileFreed(
                f"tile {self.name} was {what} after it had been freed: its with block ended, free() was "
                "called, another tile took its place, or fast memory was emptied. Load it again"
            )

    # ------------------------------------------------------------------ what NumPy does with it
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))[0]
        if ufunc is np.matmul and method == "__call__" and not kwargs:
            return self._machine._matmul(*inputs, out=out)
        if method == "__call__" and ufunc.nout == 1 and not kwargs:
            return self._machine._elementwise(ufunc, inputs, out)
        if method == "reduce" and len(inputs) == 1:
            return self._machine._reduce(ufunc, inputs[0], out=out, **kwargs)
        raise TypeError(
            f"np.{ufunc.__name__} with method {method!r} and options {sorted(kwargs)} is not supported on "
            "tiles; plain ufuncs, @, and .sum/.max/.min/.mean over an axis are"
        )

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        handler = _FUNCTIONS.get(func)
        if handler is None:
            known = ", ".join(sorted(f"np.{f.__name__}" for f in _FUNCTIONS))
            raise TypeError(f"np.{func.__name__} is not supported on tiles; these are: ufuncs, @, {known}")
        return handler(*args, **kwargs)

    def _refuse_bare(self, how: str) -> NoReturn:
        raise BareArray(
            f"tile {self.name} was turned into a bare Python or NumPy object by {how}; its words may only be "
            "used in fast memory. Work on the tile itself, or store it with machine.store(...)"
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

    def tolist(self) -> NoReturn:
        """Always raises BareArray: words leave fast memory through `machine.store` only."""
        self._refuse_bare("tolist()")

    def item(self, *index: int) -> NoReturn:
        """Always raises BareArray: words leave fast memory through `machine.store` only."""
        self._refuse_bare("item()")

    def __contains__(self, value: object) -> NoReturn:
        self._refuse_bare("the operator in")

    # ------------------------------------------------------------------ views: no words
    def _view(self, name: str, shape: Shape, data: np.ndarray | None) -> Tile:
        base = self if self._base is None else self._base
        return Tile(self._machine, name, shape, data, base)

    @property
    def T(self) -> Tile:
        """The transpose, as a view."""
        self._require_alive()
        return self._view(f"{self.name}.T", self.shape[::-1], None if self._data is None else self._data.T)

    def __getitem__(self, index: Any) -> Tile:
        self._require_alive()
        shape = _indexed_shape(self, index)
        data = None if self._data is None else self._data[index if isinstance(index, tuple) else (index,)]
        if data is not None and not isinstance(data, np.ndarray):  # a full index gives a scalar, not a view
            data = self._data[(*(index if isinstance(index, tuple) else (index,)), ...)]  # type: ignore[index]
        return self._view(self.name, shape, data)

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        if isinstance(value, Tile) and value._data is target._data and value._base is target._base:
            return  # t[i] += x: the in-place operator has already written through the view
        self._machine._assign(target, value)

    def __iter__(self) -> Iterator[Tile]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any) -> Tile:
        """A view with another shape and the same words."""
        self._require_alive()
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        stand_in = np.broadcast_to(np.float64(0), self.shape) if self._data is None else self._data
        new_shape = np.empty(self.shape, dtype=np.bool_).reshape(wanted).shape
        data = None if self._data is None else stand_in.reshape(new_shape)
        if data is not None and not np.shares_memory(data, stand_in):
            raise ValueError(f"{self.name} cannot be reshaped to {new_shape} without a copy; copy it first")
        return self._view(self.name, new_shape, data)

    # ------------------------------------------------------------------ arithmetic
    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tile:
        """Sum along `axis`: a new tile."""
        return self._machine._reduce(np.add, self, axis=axis, keepdims=keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tile:
        """Largest entry along `axis`: a new tile."""
        return self._machine._reduce(np.maximum, self, axis=axis, keepdims=keepdims)

    def min(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tile:
        """Smallest entry along `axis`: a new tile."""
        return self._machine._reduce(np.minimum, self, axis=axis, keepdims=keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tile:
        """Mean along `axis`: a new tile."""
        total = self.sum(axis=axis, keepdims=keepdims)
        total *= total.size / self.size
        return total

    def copy(self) -> Tile:
        """A new tile with the same values, which takes room of its own."""
        return self._machine._elementwise(np.positive, (self,), None)

    def dot(self, other: Tile) -> Tile:
        """The matrix product, as `self @ other`."""
        return self @ other

    def add_product(self, A: Tile, B: Tile) -> Tile:
        """self += A @ B without a temporary: each product is added in a register (the twin of tl.dot's acc)."""
        self._machine._add_product(self, A, B)
        return self


def _indexed_shape(tile: Tile, index: Any) -> Shape:
    """Shape of `tile[index]` where the index makes a view; TypeError where it would copy."""
    entries = index if isinstance(index, tuple) else (index,)
    for entry in entries:
        plain = isinstance(entry, (int, np.integer, slice)) and not isinstance(entry, bool)
        if not (entry is None or entry is Ellipsis or plain):
            raise TypeError(
                f"{tile.name}[...] was indexed with {type(entry).__name__}; only integers, slices, None and ... make "
                "a view. Use np.where for a choice by condition"
            )
    return np.broadcast_to(np.float64(0), tile.shape)[
        (*entries, ...) if Ellipsis not in entries else entries
    ].shape


def _where(condition: Tile, yes: Any, no: Any) -> Tile:
    machine = next(t._machine for t in (condition, yes, no) if isinstance(t, Tile))
    return machine._where(condition, yes, no)


def _reducer(name: str) -> Callable[..., Tile]:
    def reduce(tile: Tile, axis: Any = None, keepdims: bool = False) -> Tile:
        result: Tile = getattr(tile, name)(axis=axis, keepdims=keepdims)
        return result

    return reduce


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: _reducer("sum"),
    np.max: _reducer("max"),
    np.amax: _reducer("max"),
    np.min: _reducer("min"),
    np.amin: _reducer("min"),
    np.mean: _reducer("mean"),
    np.where: _where,
    np.dot: lambda a, b: a @ b,
    np.transpose: lambda tile: tile.T,
    np.copy: lambda tile: tile.copy(),
    np.shape: lambda tile: tile.shape,
    np.ndim: lambda tile: tile.ndim,
    np.size: lambda tile: tile.size,
    np.reshape: lambda tile, shape: tile.reshape(shape),
}


class RowStats:
    """The running maximum m and running sum l of online softmax, one pair a row: 2·rows words.

    After any number of updates, l_i = Σ exp(s_ij - m_i) over all the scores seen. The update works
    row by row in at most four registers, so it takes no room in fast memory.
    """

    def __init__(self, m: Tile, l: Tile) -> None:
        if m.ndim != 1 or m.shape != l.shape:
            raise WrongShape(f"m has shape {m.shape} and l {l.shape}; both need one word for each row")
        self.m, self.l = m, l

    def __enter__(self) -> RowStats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.m.__exit__(kind, error, trace)
        self.l.__exit__(kind, error, trace)

    def free(self) -> None:
        """Give the room of both rows back."""
        self.m.free()
        self.l.free()

    def update(self, s: Tile, o: Tile | None = None) -> None:
        """Take in scores s of shape (rows, cols): s becomes exp(s - new m), and o is rescaled to the new m."""
        self.m._machine._online_softmax(self, s, o)

    def normalise(self, o: Tile) -> None:
        """o /= l, row by row; a row that saw no score (l = 0) becomes zeros."""
        self.m._machine._scale_rows(o, self.l, divide=True)

    def unnormalise(self, o: Tile) -> None:
        """o *= l, row by row: undo `normalise` before the next update."""
        self.m._machine._scale_rows(o, self.l, divide=False)

    def lse(self) -> Tile:
        """m becomes m + log l, the log-sum-exp L of each row, in place; call it last."""
        self.m._machine._log_sum_exp(self)
        return self.m
