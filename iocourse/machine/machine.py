"""The machine: load, store and allocate tiles, count every word, and raise FastMemoryFull beyond M words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from operator import index
from typing import Any, NoReturn, Protocol

import numpy as np

from ..exact import real_array
from ..ledger import Ledger, Move, PhaseTotal
from ..sizes import Shape, positive_int, truth, words_in
from .block_ranges import Block, Box, Loops
from .errors import (
    FastMemoryFull,
    MachineError,
    MoveLimitExceeded,
    ShapeMismatch,
    UninitialisedRead,
    UntrackedArray,
)
from .row_stats import RowStats
from .slow_memory import (
    BitmapTracker,
    BoxTracker,
    SlowArray,
    SlowBlock,
    WriteTracker,
    box_of,
    check_shape,
    slices,
)
from .tiles import Arithmetic, LazyText, Name, Number, TemporaryName, Tile, in_words, make_tile

FREE_REGISTERS = 4
TRACE_KEPT = 100_000  # moves: about 70 MB, more than any figure shows
WORD = np.dtype(np.float64)


Range = Block | tuple[int, int]  # half-open


class SeesPairs(Protocol):
    """Interface of a mask, as far as the machine uses it (see `iocourse.masks`)."""

    alike: bool  # no pair is masked

    def sees(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return True for each pair in which query i attends to key j; i and j are arrays of positions."""


class TraceFull(Exception):
    """The trace reached `max_moves`, which ends the run early on purpose."""


@dataclass
class _Cells:
    """Contents of a slow array: its values and a record of the words written."""

    data: np.ndarray | None  # None on a dry machine
    written: WriteTracker | None  # None if every word holds a value


class Machine:
    """Two-level memory: a fast memory of M words and an unlimited slow memory, with a count of words moved.

    `ledger` is the count. The attributes M, dry, unroll, trace and max_moves are read-only.

    Args:
        M: words of fast memory.
        dry: run on shapes only. Tiles have no values, and `blocks` yields one block for many equal ones and
            multiplies the counts, so the time to count does not grow with N.
        unroll: with `dry`, yield every block, for a full trace without values.
        trace: True keeps the list of moves, False does not. None: a machine that yields every block
            keeps it until it is longer than `TRACE_KEPT`, and then drops it.
        max_moves: moves after which the run ends early by raising `TraceFull`; None for no limit.
        watch: a function called with the words of each move.

    Raises:
        ValueError: M is less than 1.
    """

    M: int
    dry: bool
    unroll: bool
    trace: bool
    max_moves: int | None

    def __init__(
        self,
        M: int,
        *,
        dry: bool = False,
        unroll: bool = False,
        trace: bool | None = None,
        max_moves: int | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        dry, unroll = truth("dry", dry), truth("unroll", unroll)
        self._droppable = trace is None and max_moves is None
        trace = (not dry or unroll) if trace is None else truth("trace", trace)
        self.__dict__.update(M=positive_int("M", M), dry=dry, unroll=unroll, trace=trace, max_moves=max_moves)
        self._ledger = Ledger(measured=True)
        self._watch = watch
        self._arithmetic = Arithmetic(self)
        self._room = Allocator(self.M)
        self._resident = self._room.resident
        self._loops = Loops(collapsed=dry and not unroll)
        self._phase = ""
        self._running = False
        self._tracing = trace
        self._moves_left: Iterator[int] = count()
        self._most_moves = 0
        self._cells: dict[SlowArray, _Cells] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise MachineError(f"machine.{name} is read-only; create another Machine instead")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> NoReturn:
        raise MachineError(f"machine.{name} is read-only and cannot be deleted")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise MachineError("a machine cannot be copied or pickled; use load and store to reach its words")

    def __repr__(self) -> str:
        kind = "dry machine" if self.dry else "machine"
        moved = self._ledger.total
        return f"{kind}: fast memory {self.used:,} of {self.M:,} words in use, {moved:,} words moved"

    @property
    def ledger(self) -> Ledger:
        """A copy of the current traffic count; later moves do not change it."""
        return self._ledger.copy()

    @property
    def used(self) -> int:
        """Words of fast memory in use."""
        return self._room.used

    @property
    def free_words(self) -> int:
        """Words of fast memory not in use."""
        return self._room.free

    @property
    def resident(self) -> list[tuple[str, int]]:
        """(name, words) of every tile in fast memory, oldest first."""
        return [(str(name), words) for name, words in self._resident.values()]

    # ------------------------------------------------------------------ slow memory
    def slow(self, name: str, values: Any) -> SlowArray:
        """Place an input in slow memory, without moving words, and return it.

        Args:
            name: name of the array in the ledger.
            values: a finite floating-point array (N,) or (N, d); a vector of row statistics may hold -inf.
                On a dry machine a shape (a tuple) is enough.

        Raises:
            TypeError, ValueError: `values` is not such an array.
            UntrackedArray: called during a run.
        """
        if self._running:
            raise UntrackedArray(
                f"machine.slow({name!r}, ...) was called during a run, but inputs must be placed before it. "
                f"For scratch or results use machine.new({name!r}, shape) and store tiles into it"
            )
        if isinstance(values, tuple):
            if not self.dry:
                raise TypeError(
                    f"{name} must be an array, got the shape {values}; only a dry machine accepts shapes"
                )
            return self._add(name, values, _Cells(None, None))
        array = real_array(name, values, minus_inf=True)
        return self._add(name, array.shape, _Cells(None if self.dry else array, None))

    def new(self, name: str, shape: Shape) -> SlowArray:
        """Create an array in slow memory, without moving words. It must be written before it is read."""
        shape = check_shape(name, shape)
        written = BoxTracker() if self._loops.collapsed else BitmapTracker(shape)
        return self._add(name, shape, _Cells(None if self.dry else np.zeros(shape), written))

    def _add(self, name: str, shape: Shape, cells: _Cells) -> SlowArray:
        array = SlowArray(name, check_shape(name, shape))
        self._cells[array] = cells
        self._ledger.sizes[name] = words_in(array.shape)
        return array

    def take(self, array: SlowArray) -> np.ndarray:
        """Return a copy of the values of a slow array, after a run.

        Raises UninitialisedRead if not all of them have been written, and MachineError during a run.
        """
        if self._running:
            raise MachineError(
                "machine.take was called during a run, where it would read words without counting them. "
                "Load the array instead"
            )
        data = self._find(array).data
        if data is None:
            raise MachineError("a dry machine has shapes and counts, but no values; use dry=False")
        self._require_written(array, box_of(array, None, None))
        return data.copy()

    def _find(self, array: SlowArray) -> _Cells:
        if not isinstance(array, SlowArray):
            raise TypeError(f"expected an array in slow memory, got {type(array).__name__}")
        try:
            return self._cells[array]
        except KeyError:
            raise MachineError(f"{array.name} belongs to another machine") from None

    def _require_written(self, array: SlowArray, box: Box) -> None:
        _require_written(array, self._find(array), box)

    # ------------------------------------------------------------------ moves
    def load(self, array: SlowArray, rows: Any, cols: Any = None, *, into: Tile | None = None) -> Tile:
        """Copy rows (and columns) of a slow array into a new tile, count its words as read, and return it.

        `rows`, `cols`: a Block, a slice, (start, stop), or one position; None for all. `into`: a tile that is
        freed first, so that the new one can use its words.
        Raises FastMemoryFull, UninitialisedRead and IndexError.
        """
        cells, box = self._find(array), box_of(array, rows, cols)
        reach = self._loops.reach(box, (rows, cols), array.shape, certain=True)
        _require_written(array, cells, reach)
        if into is not None:
            self._arithmetic.tile(into).free()
        shape, part = _shape_of(box), SlowBlock(array, box)
        words = words_in(shape)
        if words > self._room.free:
            self._overflow(LazyText("loading {}", (part,)), words)
        tile = self._allocate(part, shape, words)
        if cells.data is not None:
            tile._data = cells.data[slices(box)].copy()
        self._count(self._ledger.reads, array._name, words)
        if self._tracing:
            self._record("load", array._name, box, words, tile._serial)
        return tile

    def store(self, tile: Tile, array: SlowArray, rows: Any, cols: Any = None) -> None:
        """Copy a tile or view to rows (and columns) of a slow array and count its words as written.

        `rows`, `cols`: as for `load`. Raises ShapeMismatch, UseAfterFree, UntrackedArray, IndexError.
        """
        self._arithmetic.tile(tile)
        cells, box = self._find(array), box_of(array, rows, cols)
        shape = _shape_of(box)
        if tile.shape != shape:
            raise ShapeMismatch(
                f"tile {tile.name} has shape {tile.shape}, but {SlowBlock(array, box)} has shape {shape}"
            )
        if cells.data is not None:
            cells.data[slices(box)] = tile._data
        if cells.written is not None:
            cells.written.add(self._loops.reach(box, (rows, cols), array.shape, certain=False))
        words = words_in(shape)
        self._count(self._ledger.writes, array._name, words)
        if self._tracing:
            self._record("store", array._name, box, words, tile._serial)

    def _count(self, counts: dict[str, int], name: str, words: int) -> None:
        if next(self._moves_left, None) is None:
            self._refuse_another_move()
        moved = words * self._loops.times
        counts[name] = counts.get(name, 0) + moved
        if self._watch:
            self._watch(moved)
        if self._phase:
            read, written = self._ledger.phases.get(self._phase, PhaseTotal(0, 0))
            is_read = counts is self._ledger.reads
            total = PhaseTotal(read + moved * is_read, written + moved * (not is_read))
            self._ledger.phases[self._phase] = total

    def _refuse_another_move(self) -> NoReturn:
        most = self._most_moves
        raise MoveLimitExceeded(
            f"the schedule needs more than {most:,} loads and stores. Check for an infinite loop. "
            f"To allow more, use run(..., max_moves={10 * most:_}), or max_moves=None for no limit"
        )

    def _record(self, kind: str, name: str, box: Box | None, words: int, tile: int) -> None:
        if self._droppable and len(self._ledger.moves) >= TRACE_KEPT:
            self._tracing = False
            self._ledger.moves.clear()  # a partial trace could be mistaken for a complete one
            return
        if self._trace_is_full:
            raise TraceFull
        rows = box[0] if box else None
        cols = box[1] if box and len(box) > 1 else None
        self._ledger.moves.append(Move(kind, name, rows, cols, words, self._room.used, self._phase, tile))

    @property
    def _trace_is_full(self) -> bool:
        return self.max_moves is not None and len(self._ledger.moves) >= self.max_moves

    # ------------------------------------------------------------------ fast memory
    def zeros(self, rows: Any, cols: Any = None) -> Tile:
        """Return a new tile of zeros, (rows,) or (rows, cols). It uses fast memory but moves no words.

        `rows`, `cols`: a number of rows or columns, or a Block or (start, stop) of that length.
        Raises FastMemoryFull.
        """
        return self.full(rows, cols, 0.0)

    def full(self, rows: Any, cols: Any = None, value: float = 0.0) -> Tile:
        """Return a new tile filled with `value`, as `zeros` does."""
        if not isinstance(value, Number):
            raise UntrackedArray(
                f"value must be a number, got {type(value).__name__}; use machine.load to read an array"
            )
        shape = tuple(_length(name, n) for name, n in (("rows", rows), ("cols", cols)) if n is not None)
        name = f"{'zeros' if value == 0 else f'full of {value:g}'} {shape}"
        return self._filled(name, shape, value)

    def row_stats(self, rows: Any) -> RowStats:
        """Return new online-softmax statistics of a block of rows, m = -inf and l = 0; 2·rows words."""
        shape = (_length("rows", rows),)
        return RowStats(self._filled("row maximum m", shape, -np.inf), self._filled("row sum l", shape, 0.0))

    def _filled(self, name: Name, shape: Shape, value: float) -> Tile:
        tile = self._new_tile(name, shape, WORD, name)
        if not self.dry:
            tile._data = np.full(shape, value, dtype=np.float64)
        return tile

    def _new_tile(self, name: Name, shape: Shape, dtype: np.dtype[Any], doing: Name) -> Tile:
        words = words_in(shape)
        if words > self._room.free:
            self._overflow(doing, words)
        tile = self._allocate(name, shape, words, dtype)
        if self._tracing:
            self._record("new", str(name), None, words, tile._serial)
        return tile

    def _allocate(self, name: Name, shape: Shape, words: int, dtype: np.dtype[Any] = WORD) -> Tile:
        tile = make_tile(self, name, shape, dtype, self._room.take(name, words))
        if self._room.used > self._ledger.peak:
            self._ledger.peak = self._room.used
        return tile

    def _overflow(self, doing: Name, words: int) -> NoReturn:
        self._room.refuse(doing, words, self.empty)

    def _release(self, tile: Tile) -> None:
        tile._data = None
        self._forget(tile._serial)

    def _forget(self, serial: int) -> None:
        name, words = self._room.give_back(serial)
        # Tiles are also freed after TraceFull was raised, which must not be raised again.
        if self._tracing and not self._trace_is_full:
            self._record("free", str(name), None, words, serial)

    def empty(self) -> None:
        """Free every tile. Slow memory and the ledger are unchanged."""
        for serial in list(self._resident):
            self._forget(serial)

    def show(self, tile: Tile | RowStats) -> None:
        """Print the name, shape and rounded values of a tile, or of both tiles of row statistics.

        For debugging a schedule: returns None, uses no fast memory and moves no words. Prints nothing during
        a check of the course. Raises SlowMemoryArithmetic, UseAfterFree and UntrackedArray.
        """
        print(*map(in_words, self._tiles_of(tile)), sep="\n")

    def _tiles_of(self, tile: Tile | RowStats) -> list[Tile]:
        parts = (tile.m, tile.l) if isinstance(tile, RowStats) else (tile,)
        return [self._arithmetic.tile(part) for part in parts]

    # ------------------------------------------------------------------ loops and phases
    def blocks(
        self, n: int | tuple[int, int], b: int, *, alike: bool = True, short_first: bool = False
    ) -> Iterator[Block]:
        """Yield blocks of size b that cover range(n), or n = (start, stop); the last may be smaller.

        With `short_first` the first one may be smaller instead of the last (see `Mask.short_first`).
        On a dry machine one block represents all equal ones between the first and the last. `alike=False`
        yields every block there too; use it if the work depends on the block, as under a causal mask.
        """
        begin, end = (index(n[0]), index(n[1])) if isinstance(n, tuple) else (0, positive_int("n", n))
        if not 0 <= begin < end:
            raise ValueError(f"n must be a number or a range with 0 <= start < stop, got {n}")
        return self._loops.over(begin, end, positive_int("b", b), alike=alike, short_first=short_first)

    def hide(self, s: Tile, rows: Range, cols: Range, mask: SeesPairs) -> None:
        """Set the scores of masked pairs to -inf in place. A mask is a rule on positions and uses no words.

        `s`: scores, one row per query and one column per key. `rows`, `cols`: their positions, each a Block
        or (start, stop). Raises TypeError and ShapeMismatch.
        """
        self._arithmetic.tile(s)
        i, j = _positions("rows", rows), _positions("cols", cols)
        if s.shape != (len(i), len(j)):
            raise ShapeMismatch(
                f"{s.name} has shape {s.shape}, but rows and cols have {len(i)} x {len(j)} pairs"
            )
        if s._data is not None and not mask.alike:
            sees = mask.sees(np.array(i)[:, None], np.array(j)[None, :])
            s._data[~sees] = -np.inf

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context manager: also total the moves inside its block under `name` in `ledger.phases`."""
        outer, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = outer

    @contextmanager
    def running(self, max_moves: int | None = None) -> Iterator[None]:
        """Context manager of one run: forbid `slow` and `take` inside, and free all tiles at the end.

        More than `max_moves` loads and stores raise MoveLimitExceeded (None: no limit).
        """
        if self._running:
            raise MachineError("a schedule is already running on this machine; create another Machine")
        self._running, self._most_moves = True, max_moves or 0
        self._moves_left = count() if max_moves is None else iter(range(max_moves))
        try:
            yield
        finally:
            self._running, self._phase, self._moves_left = False, "", count()
            self._loops.leave()
            self.empty()


def _require_written(array: SlowArray, cells: _Cells, box: Box) -> None:
    if cells.written is not None and not cells.written.holds(box):
        raise UninitialisedRead(
            f"Read of uninitialised memory: not every word of {SlowBlock(array, box)} has been written. "
            "Store to it before you load it"
        )


def _shape_of(box: Box) -> Shape:
    return tuple([stop - start for start, stop in box])


def _positions(name: str, part: Range) -> range:
    if not isinstance(part, tuple) or not (isinstance(part, Block) or len(part) == 2):
        raise TypeError(f"{name} must be a Block or (start, stop), got {part!r}")
    return range(part[0], part[1])


def _length(name: str, n: Any) -> int:
    if type(n) is int and n < 1:  # perhaps a position, as `load` accepts it
        rows = "rows; for one row use zeros(1, d)"
        many = rows if name == "rows" else "columns; for one column use zeros(n, 1)"
        raise ValueError(f"{name} must be at least 1, got {n}: it is a number of {many}")
    if isinstance(n, tuple) and len(n) == 2:  # (start, stop), as for `load`
        n = n[1] - n[0]
    return positive_int(name, n.size if isinstance(n, Block) else n)


# ------------------------------------------------------------------ which tiles are in fast memory
class Allocator:
    """Fast-memory allocator: M words, of which `used` belong to the tiles in `resident`, by serial number."""

    def __init__(self, M: int) -> None:
        self.M = M
        self.used = 0
        self.resident: dict[int, tuple[Name, int]] = {}  # serial number -> (name, words), oldest first
        self._serials = count(1)

    @property
    def free(self) -> int:
        """Number of words not in use."""
        return self.M - self.used

    def take(self, name: Name, words: int) -> int:
        """Allocate `words`, which must be free, to a tile called `name` and return its serial number."""
        serial = next(self._serials)
        self.resident[serial] = (name, words)
        self.used += words
        return serial

    def give_back(self, serial: int) -> tuple[Name, int]:
        """Free the words of tile `serial` and return its name and number of words."""
        left = self.resident.pop(serial)
        self.used -= left[1]
        return left

    def refuse(self, doing: Name, words: int, empty: Callable[[], None]) -> NoReturn:
        """Empty fast memory and raise FastMemoryFull: the words needed and free, the tiles in use, a remedy.

        `doing` names the operation that needs `words`.
        """
        free, resident = self.free, list(self.resident.values())
        short = words - free
        listing = (
            ", ".join(f"{name} ({size:,} word{'s' if size > 1 else ''})" for name, size in resident)
            or "nothing"
        )
        temporaries = any(isinstance(name, TemporaryName) for name, _ in resident)
        in_place = temporaries or str(doing).startswith("np.")
        remedy = "Free the temporaries or update them in place" if in_place else "Use smaller tiles"
        empty()
        asked = f"{doing} needs {words:,} words, but only {free:,} of M = {self.M:,} are free"
        raise FastMemoryFull(
            f"Out of fast memory: {asked}. In use: {listing}. "
            f"{remedy}, or increase M by at least {short:,} word{'s' if short > 1 else ''}.",
            short,
            asked,
        )
