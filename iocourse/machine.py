"""The two-level memory: slow arrays that can only be loaded and stored, fast tiles that count against M.

Fast memory holds M words. Arithmetic happens on tiles only; up to four scalar registers are free, which
is what the row-by-row updates (`Tile.add_product`, `RowStats.update`) use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .exact import real_array
from .ledger import Ledger, Move, PhaseTotal
from .memory_errors import (
    BareArray,
    FastMemoryFull,
    MachineError,
    NeverWritten,
    SlowArithmetic,
    TileFreed,
    WrongShape,
)
from .tiles import RowStats, Shape, Tile, words_in

__all__ = [
    "BareArray",
    "Block",
    "FastMemoryFull",
    "Machine",
    "MachineError",
    "NeverWritten",
    "RowStats",
    "Run",
    "Slow",
    "SlowArithmetic",
    "Tile",
    "TileFreed",
    "WrongShape",
    "run",
]

FREE_REGISTERS = 4


def positive_int(name: str, value: Any) -> int:
    """`value` as an int, or an error that names the argument: sizes are whole numbers of at least 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number of at least 1, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


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


class Slow:
    """An array in slow memory: a name, a shape and a dtype. Its words are reached by `machine.load` only."""

    __slots__ = ("__weakref__", "_name", "_shape")

    # NumPy must not treat a slow array as an object scalar: it asks here first and is refused.
    def __init__(self, name: str, shape: Shape) -> None:
        self._name = name
        self._shape = shape

    @property
    def name(self) -> str:
        """The array's name, as it appears in the ledger."""
        return self._name

    @property
    def shape(self) -> Shape:
        """The array's shape; the number of words is its product."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of one word: float64 on the emulator."""
        return np.dtype(np.float64)

    def __repr__(self) -> str:
        return f"Slow({self.name}, shape {self.shape}, {self.dtype})"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SlowArithmetic(
            f"{self.name} is in slow memory, where there is no arithmetic and no indexing. Load a part of it first: "
            f"tile = machine.load({self.name}, rows)"
        )

    __array_ufunc__ = __array_function__ = __array__ = _refuse
    __getitem__ = __setitem__ = __iter__ = __len__ = __float__ = __int__ = __bool__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __pow__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    @property
    def T(self) -> NoReturn:
        """Refused: slow arrays are only loaded and stored."""
        self._refuse()


@dataclass
class _Cells:
    """What stands behind a slow array: its values, and which of them have been written."""

    data: np.ndarray | None  # None on a dry machine
    written: np.ndarray | None  # None where every word holds a value


class Machine:
    """A fast memory of M words above a slow memory without limit. `ledger` counts every word that moves.

    `dry=True` runs the same schedule on shapes alone: tiles have no values, and `blocks` yields one
    block for many equal ones and multiplies the ledger, so counting does not get slower with N.
    `unroll=True` (dry only) yields every block, for a full trace without values. `trace` keeps the
    list of moves; `max_moves` ends a run early by raising `TraceFull`.
    Raises ValueError where M is not at least 1.
    """

    def __init__(
        self,
        M: int,
        *,
        dry: bool = False,
        unroll: bool = False,
        trace: bool | None = None,
        max_moves: int | None = None,
    ) -> None:
        self.M = positive_int("M", M)
        self.dry = dry
        self.unroll = unroll
        self.trace = trace if trace is not None else (not dry or unroll)
        self.max_moves = max_moves
        self.ledger = Ledger()
        self.used = 0
        self._times = 1
        self._phase = ""
        self._running = False
        self._cells: dict[Slow, _Cells] = {}
        self._resident: dict[int, Tile] = {}

    def __repr__(self) -> str:
        kind = "dry machine" if self.dry else "machine"
        return (
            f"{kind}: fast memory {self.used:,} of {self.M:,} words in use, {self.ledger.total:,} words moved"
        )

    @property
    def free_words(self) -> int:
        """Words of fast memory not in use."""
        return self.M - self.used

    @property
    def resident(self) -> list[tuple[str, int]]:
        """(name, words) of every tile in fast memory, oldest first."""
        return [(tile.name, tile.words) for tile in self._resident.values()]

    # ------------------------------------------------------------------ slow memory
    def slow(self, name: str, values: Any) -> Slow:
        """Place an input in slow memory (no words move). `values`: floating-point array, finite.

        On a dry machine a shape will do. Raises TypeError, ValueError, or BareArray inside a run.
        """
        if self._running:
            raise BareArray(
                f"{name} cannot be placed in slow memory during a run: inputs are there before it starts. "
                f"For scratch or results use machine.new({name!r}, shape) and store tiles into it"
            )
        if self.dry:
            shape = values if isinstance(values, tuple) else np.shape(values)
            cells = _Cells(None, None)
        else:
            array = real_array(name, values)
            shape, cells = array.shape, _Cells(array, None)
        return self._add(name, shape, cells)

    def new(self, name: str, shape: Shape) -> Slow:
        """An array in slow memory with nothing written yet (no words move)."""
        if self.dry:
            return self._add(name, shape, _Cells(None, np.zeros((), dtype=bool)))
        return self._add(name, shape, _Cells(np.zeros(shape), np.zeros(shape, dtype=bool)))

    def _add(self, name: str, shape: Shape, cells: _Cells) -> Slow:
        if len(shape) not in (1, 2):
            raise ValueError(f"{name} has shape {shape}; the machine holds vectors (N,) and matrices (N, d)")
        for axis in shape:
            positive_int(f"every axis of {name} (shape {shape})", axis)
        array = Slow(name, tuple(int(axis) for axis in shape))
        self._cells[array] = cells
        self.ledger.sizes[name] = words_in(array.shape)
        return array

    def take(self, array: Slow) -> np.ndarray:
        """A copy of a slow array's values, to look at after a run. Raises MachineError during one, NeverWritten."""
        if self._running:
            raise MachineError(
                f"take({array.name}) during a run would read slow memory uncounted; load it instead"
            )
        cells = self._find(array)
        if cells.data is None:
            raise MachineError("a dry machine has shapes and counts, but no values")
        self._require_written(array, cells, (slice(None),) * len(array.shape))
        return cells.data.copy()

    def _find(self, array: Slow) -> _Cells:
        if not isinstance(array, Slow):
            raise TypeError(f"expected an array in slow memory, got {type(array).__name__}")
        try:
            return self._cells[array]
        except KeyError:
            raise MachineError(f"{array.name} belongs to another machine") from None

    def _require_written(self, array: Slow, cells: _Cells, where: tuple[slice, ...]) -> None:
        mask = cells.written
        if mask is None:
            return
        if not (mask.all() if self.dry else mask[where].all()):
            raise NeverWritten(
                f"{_label(array, where)} was read, but {'none' if self.dry else 'not all'} of it has been written"
            )

    # ------------------------------------------------------------------ moves
    def load(self, array: Slow, rows: Any, cols: Any = None, *, into: Tile | None = None) -> Tile:
        """Copy rows (and columns) of a slow array into a new tile: as many words read as the tile has.

        `rows`, `cols`: a Block, a slice or (start, stop). `into` frees that tile first, so that the new one takes
        its place. Raises FastMemoryFull, NeverWritten, IndexError.
        """
        cells, where, shape = self._region(array, rows, cols)
        self._require_written(array, cells, where)
        if into is not None:
            into.free()
        label = _label(array, where)
        tile = self._allocate(label, shape, f"loading {label}")
        if cells.data is not None:
            tile._data = cells.data[where].copy()
        self._count(self.ledger.reads, array.name, tile.size)
        self._record("load", array.name, where, tile.size)
        return tile

    def store(self, tile: Tile, array: Slow, rows: Any, cols: Any = None) -> None:
        """Copy a tile (or view) to rows (and columns) of a slow array: as many words written. Raises WrongShape."""
        self._check_operand(tile)
        cells, where, shape = self._region(array, rows, cols)
        if tile.shape != shape:
            raise WrongShape(
                f"tile {tile.name} has shape {tile.shape}, but {_label(array, where)} has shape {shape}"
            )
        if cells.data is not None:
            cells.data[where] = tile._data
        if cells.written is not None:
            cells.written[() if self.dry else where] = True
        self._count(self.ledger.writes, array.name, tile.size)
        self._record("store", array.name, where, tile.size)

    def _region(self, array: Slow, rows: Any, cols: Any) -> tuple[_Cells, tuple[slice, ...], Shape]:
        cells = self._find(array)
        if cols is not None and len(array.shape) == 1:
            raise IndexError(f"{array.name} has one axis, but columns {cols} were asked for")
        where = [_range(array, "rows", rows, array.shape[0])]
        if len(array.shape) == 2:
            where.append(_range(array, "columns", cols, array.shape[1]))
        return cells, tuple(where), tuple(part.stop - part.start for part in where)

    def _count(self, counts: dict[str, int], name: str, words: int) -> None:
        moved = words * self._times
        counts[name] = counts.get(name, 0) + moved
        if self._phase:
            read, written = self.ledger.phases.get(self._phase, PhaseTotal(0, 0))
            is_read = counts is self.ledger.reads
            self.ledger.phases[self._phase] = PhaseTotal(
                read + moved * is_read, written + moved * (not is_read)
            )

    def _record(self, kind: str, name: str, where: tuple[slice, ...] | None, words: int) -> None:
        if not self.trace:
            return
        if self.max_moves is not None and len(self.ledger.moves) >= self.max_moves:
            raise TraceFull
        rows = (where[0].start, where[0].stop) if where else None
        cols = (where[1].start, where[1].stop) if where and len(where) > 1 else None
        self.ledger.moves.append(Move(kind, name, rows, cols, words, self.used, self._phase))

    # ------------------------------------------------------------------ fast memory
    def zeros(self, rows: Any, cols: Any = None) -> Tile:
        """A tile of zeros, (rows,) or (rows, cols); sizes are numbers or Blocks. Costs room, moves nothing."""
        return self.full(rows, cols, 0.0)

    def full(self, rows: Any, cols: Any = None, value: float = 0.0) -> Tile:
        """A tile filled with `value`, (rows,) or (rows, cols). Costs room, moves nothing."""
        shape = tuple(_length(name, n) for name, n in (("rows", rows), ("cols", cols)) if n is not None)
        tile = self._allocate(f"{value:g}-filled tile", shape, f"making a {shape} tile")
        if not self.dry:
            tile._data = np.full(shape, value)
        self._record("new", tile.name, None, tile.size)
        return tile

    def row_stats(self, rows: Any) -> RowStats:
        """Fresh online-softmax statistics for a block of rows: m = -inf and l = 0, 2·rows words."""
        stats = RowStats(self.full(rows, value=-np.inf), self.full(rows, value=0.0))
        stats.m.name, stats.l.name = "row maximum m", "row sum l"
        return stats

    def _allocate(self, name: str, shape: Shape, doing: str) -> Tile:
        words = words_in(shape)
        if words > self.M - self.used:
            self._overflow(doing, words)
        tile = Tile(self, name, shape, None)
        self._resident[id(tile)] = tile
        self.used += words
        if self.used > self.ledger.peak:
            self.ledger.peak = self.used
        return tile

    def _overflow(self, doing: str, words: int) -> NoReturn:
        free, resident = self.free_words, self.resident
        listing = ", ".join(f"{name} {size:,}" for name, size in resident) or "nothing"
        temporaries = any(name.startswith("(temporary") for name, _ in resident)
        remedy = "Free or update in place the temporaries" if temporaries else "Smaller tiles"
        self.empty()
        raise FastMemoryFull(
            f"{doing} needs {words:,} words, {free:,} are free of M = {self.M:,}. Resident: {listing}. {remedy}, "
            f"or at least {words - free:,} more words of M.",
            short=words - free,
        )

    def _release(self, tile: Tile) -> None:
        tile._alive = False
        tile._data = None
        if self._resident.pop(id(tile), None) is not None:
            self.used -= tile.words
            if self.trace and (self.max_moves is None or len(self.ledger.moves) < self.max_moves):
                self._record("free", tile.name, None, tile.words)

    def empty(self) -> None:
        """Free every tile. What is in slow memory, and the ledger, stay."""
        for tile in list(self._resident.values()):
            self._release(tile)

    # ------------------------------------------------------------------ loops and phases
    def blocks(self, n: int, b: int) -> Iterator[Block]:
        """Blocks of b that cover range(n); the last may be ragged, and b larger than n gives one block.

        On a dry machine one block stands for all the equal ones between the first and the last.
        """
        n, b = positive_int("n", n), positive_int("b", b)
        count = -(-n // b)
        if not self.dry or self.unroll:
            for i in range(count):
                yield Block(i * b, min(n, i * b + b), i == 0, i == count - 1)
            return
        outer = self._times
        try:
            for block in _representatives(n, b, count):
                self._times = outer * block.times
                yield block
        finally:
            self._times = outer

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Moves inside this block are also totalled under `name`."""
        outer, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = outer

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a schedule runs, slow memory is reached by load and store only; afterwards fast memory is empty."""
        self._running = True
        try:
            yield
        finally:
            self._running = False
            self.empty()

    # ------------------------------------------------------------------ arithmetic, called by tiles
    def _check_operand(self, value: Any) -> Any:
        """The operand's data (None when dry). Only live tiles of this machine and plain numbers may enter."""
        if isinstance(value, Tile):
            value._require_alive()
            if value._machine is not self:
                raise MachineError(f"tile {value.name} belongs to another machine")
            return value._data
        if isinstance(value, (int, float, np.integer, np.floating, bool)):
            return value
        if isinstance(value, Slow):
            value._refuse()
        raise BareArray(
            f"a bare {type(value).__name__}{_shape_text(value)} is not in fast memory. Make a tile instead: "
            "machine.load, machine.zeros or machine.full"
        )

    def _result(self, name: Callable[[], str], shape: Shape, doing: str) -> Tile:
        tile = self._allocate(f"(temporary from {name()})", shape, doing)
        self._record("new", tile.name, None, tile.size)
        return tile

    def _elementwise(self, ufunc: np.ufunc, inputs: tuple[Any, ...], out: Any) -> Tile:
        data = [self._check_operand(value) for value in inputs]
        shape = np.broadcast_shapes(*[value.shape for value in inputs if isinstance(value, Tile)])
        if out is not None:
            self._check_target(out, shape, f"np.{ufunc.__name__}")
            if not self.dry:
                ufunc(*data, out=out._data)
            return out
        tile = self._result(lambda: _expression(ufunc.__name__, inputs), shape, f"np.{ufunc.__name__}")
        if not self.dry:
            tile._data = ufunc(*data)
        return tile

    def _check_target(self, out: Any, shape: Shape, doing: str) -> None:
        if not isinstance(out, Tile):
            raise BareArray(f"the result of {doing} on tiles must be a tile, not a {type(out).__name__}")
        self._check_operand(out)
        if np.broadcast_shapes(out.shape, shape) != out.shape:
            raise WrongShape(
                f"{doing}: a result of shape {shape} does not fit {out.name} of shape {out.shape}"
            )

    def _matmul(self, A: Any, B: Any, out: Any = None) -> Tile:
        shape = self._product_shape(A, B)
        if out is not None:
            raise TypeError("np.matmul(..., out=) is not supported on tiles; use out.add_product(A, B)")
        tile = self._result(lambda: f'"{A.name} @ {B.name}"', shape, f"the product {A.name} @ {B.name}")
        if not self.dry:
            tile._data = A._data @ B._data
        return tile

    def _product_shape(self, A: Any, B: Any) -> Shape:
        for operand in (A, B):
            self._check_operand(operand)
            if not isinstance(operand, Tile) or operand.ndim not in (1, 2):
                raise TypeError("@ needs two tiles with one or two axes; for a number use *")
        if A.shape[-1] != B.shape[0]:
            raise WrongShape(f"{A.name} @ {B.name}: shapes {A.shape} and {B.shape} do not match")
        return (*A.shape[:-1], *B.shape[1:])

    def _add_product(self, target: Tile, A: Tile, B: Tile) -> None:
        shape = self._product_shape(A, B)
        self._check_operand(target)
        if target.shape != shape:
            raise WrongShape(
                f"{target.name} has shape {target.shape}; the product {A.name} @ {B.name} has {shape}"
            )
        if target._data is not None:
            target._data += A._data @ B._data  # type: ignore[operator]

    def _reduce(
        self,
        ufunc: np.ufunc,
        tile: Tile,
        axis: Any = 0,
        keepdims: bool = False,
        out: Any = None,
        **other: Any,
    ) -> Tile:
        if any(value is not None and value is not np._NoValue for value in other.values()):  # type: ignore[attr-defined]
            raise TypeError(
                f"np.{ufunc.__name__}.reduce on tiles takes axis and keepdims, not {sorted(other)}"
            )
        data = self._check_operand(tile)
        shape = _reduced_shape(tile.shape, axis, keepdims)
        if out is not None:
            self._check_target(out, shape, f"np.{ufunc.__name__}.reduce")
            if out.shape != shape:
                raise WrongShape(f"a reduction of shape {shape} does not fit {out.name} of shape {out.shape}")
            if not self.dry:
                ufunc.reduce(data, axis=axis, keepdims=keepdims, out=out._data)
            return out  # type: ignore[no-any-return]
        result = self._result(
            lambda: f'"{ufunc.__name__} over {tile.name}"', shape, f"np.{ufunc.__name__}.reduce"
        )
        if not self.dry:
            result._data = np.asarray(ufunc.reduce(data, axis=axis, keepdims=keepdims))
        return result

    def _where(self, *parts: Any) -> Tile:
        data = [self._check_operand(part) for part in parts]
        shape = np.broadcast_shapes(*[part.shape for part in parts if isinstance(part, Tile)])
        tile = self._result(lambda: '"np.where"', shape, "np.where")
        if not self.dry:
            tile._data = np.where(*data)
        return tile

    def _assign(self, target: Tile, value: Any) -> None:
        data = self._check_operand(value)
        self._check_target(target, value.shape if isinstance(value, Tile) else (), "assignment")
        if target._data is not None:
            target._data[...] = data

    # ------------------------------------------------------------------ row by row, in four registers
    def _online_softmax(self, stats: RowStats, s: Tile, o: Tile | None) -> None:
        for part in (stats.m, stats.l, s, *(() if o is None else (o,))):
            self._check_operand(part)
        if s.ndim != 2 or s.shape[0] != stats.m.shape[0] or (o is not None and o.shape[0] != s.shape[0]):
            raise WrongShape(
                f"row statistics for {stats.m.shape[0]} rows cannot take scores of shape {s.shape}"
            )
        if s._data is None:
            return
        m, l = stats.m._data, stats.l._data
        m_new = np.maximum(m, s._data.max(axis=1))  # type: ignore[arg-type]
        shift = np.where(np.isneginf(m_new), 0.0, m_new)  # a row that has seen only -inf stays at l = 0
        factor = np.exp(m - shift)  # type: ignore[operator]
        s._data -= shift[:, None]
        np.exp(s._data, out=s._data)
        l *= factor
        l += s._data.sum(axis=1)
        m[:] = m_new  # type: ignore[index]
        if o is not None:
            o._data *= factor[:, None]  # type: ignore[operator]

    def _scale_rows(self, o: Tile, l: Tile, *, divide: bool) -> None:
        self._check_operand(o)
        self._check_operand(l)
        if o.shape[0] != l.shape[0]:
            raise WrongShape(f"{o.name} has {o.shape[0]} rows, the row statistics have {l.shape[0]}")
        if o._data is None:
            return
        sums: np.ndarray = l._data  # type: ignore[assignment]
        if divide:
            factor = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
        else:
            factor = sums
        o._data *= factor[:, None]

    def _log_sum_exp(self, stats: RowStats) -> None:
        self._check_operand(stats.m)
        self._check_operand(stats.l)
        if stats.m._data is not None:
            with np.errstate(divide="ignore"):
                stats.m._data += np.log(stats.l._data)  # type: ignore[arg-type]


class TraceFull(Exception):
    """The trace reached `max_moves`; the run was cut short on purpose."""


def _representatives(n: int, b: int, count: int) -> Iterator[Block]:
    """First, one for all in the middle, last: enough for a schedule that treats its ends differently."""
    yield Block(0, min(n, b), True, count == 1)
    if count > 2:
        yield Block(b, 2 * b, False, False, count - 2)
    if count > 1:
        yield Block((count - 1) * b, n, False, True)


def _range(array: Slow, which: str, part: Any, extent: int) -> slice:
    if part is None:
        return slice(0, extent)
    if isinstance(part, (int, np.integer)) and not isinstance(part, bool):
        part = slice(int(part), int(part) + 1)
    if isinstance(part, tuple):
        part = slice(part[0], part[1])
    if not isinstance(part, slice) or part.step not in (None, 1):
        raise TypeError(f"{which} of {array.name}: expected a Block, a slice or (start, stop), got {part!r}")
    start = 0 if part.start is None else int(part.start)
    stop = extent if part.stop is None else int(part.stop)
    if not 0 <= start < stop <= extent:
        raise IndexError(f"{which} {start}:{stop} of {array.name} are not within 0:{extent}, or are empty")
    return slice(start, stop)


def _length(name: str, n: Any) -> int:
    return n.size if isinstance(n, Block) else positive_int(name, n)


def _label(array: Slow, where: tuple[slice, ...]) -> str:
    whole = [part == slice(0, extent) for part, extent in zip(where, array.shape, strict=True)]
    shown = where[:1] if all(whole[1:]) else where
    return f"{array.name}[{', '.join(f'{part.start}:{part.stop}' for part in shown)}]"


def _reduced_shape(shape: Shape, axis: Any, keepdims: bool) -> Shape:
    axes = range(len(shape)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    gone = {a % len(shape) for a in axes}
    kept = [1 if i in gone else n for i, n in enumerate(shape) if keepdims or i not in gone]
    return tuple(kept)


_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}


def _expression(ufunc: str, inputs: tuple[Any, ...]) -> str:
    names = [_short(value) for value in inputs]
    if ufunc in _SYMBOLS and len(names) == 2:
        return f'"{names[0]} {_SYMBOLS[ufunc]} {names[1]}"'
    return f'"{ufunc}({", ".join(names)})"'


def _short(value: Any) -> str:
    if isinstance(value, Tile):
        return "…" if value.name.startswith("(temporary") else value.name
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shape_text(value: Any) -> str:
    return f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""


class Run(NamedTuple):
    """What a run left behind: outputs in float64 (empty on a dry machine) and its ledger."""

    outputs: tuple[np.ndarray, ...]
    ledger: Ledger

    @property
    def O(self) -> np.ndarray:
        """The first output."""
        if not self.outputs:
            raise MachineError("a dry run has a ledger, but no values")
        return self.outputs[0]


def run(
    schedule: Callable[..., Any], *, M: int, dry: bool = False, trace: bool | None = None, **given: Any
) -> Run:
    """Run `schedule(machine, <arrays by name>, **tiles)` on a fresh machine of M words.

    Arrays (on a dry machine also shapes, as tuples) become slow arrays under their own name; numbers
    and options are passed on. `schedule` returns the slow array, or tuple of them, that it filled.
    Raises what the machine raises, and TypeError where nothing or something else was returned.
    """
    machine = Machine(M, dry=dry, trace=trace)
    arrays = {name: machine.slow(name, value) for name, value in given.items() if _is_array(value, dry)}
    options = {name: value for name, value in given.items() if name not in arrays}
    with machine.running():
        returned = schedule(machine, **arrays, **options)
    slow = returned if isinstance(returned, tuple) else (returned,)
    if not all(isinstance(array, Slow) for array in slow):
        raise TypeError(
            f"the schedule returned {type(returned).__name__}; it must return the slow array that holds its result"
        )
    outputs = () if dry else tuple(machine.take(array) for array in slow)
    return Run(outputs, machine.ledger)


def _is_array(value: Any, dry: bool) -> bool:
    return isinstance(value, (np.ndarray, list)) or (dry and isinstance(value, tuple))
