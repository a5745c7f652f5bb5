"""The machine itself: a fast memory of M words that is enforced, above a slow memory without limit."""

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
from ..solution_guard import are_solutions_blocked
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
TRACE_KEPT = 100_000  # moves: some 70 MB, more than any picture shows
WORD = np.dtype(np.float64)


Range = Block | tuple[int, int]  # half-open


class SeesPairs(Protocol):
    """What a machine asks a mask (see `iocourse.masks`)."""

    alike: bool  # nothing is hidden

    def sees(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Whether query i sees key j, for arrays of positions."""


class TraceFull(Exception):
    """The trace reached `max_moves`; the run was cut short on purpose."""


@dataclass
class _Cells:
    """What stands behind a slow array: its values, and which of them have been written."""

    data: np.ndarray | None  # None on a dry machine
    written: WriteTracker | None  # None where every word holds a value


class Machine:
    """A fast memory of M words above a slow memory without limit. `ledger` counts every word that moves.

    `dry=True` runs the same schedule on shapes alone: tiles have no values, and `blocks` yields one
    block for many equal ones and multiplies the ledger, so counting does not get slower with N.
    `unroll=True` (dry only) yields every block, for a full trace without values. `trace=True` keeps the
    list of moves, False none; left out, a machine with every block keeps it until it is longer than
    `TRACE_KEPT`, and then drops it. `max_moves` ends a run early by raising `TraceFull`. `watch` is told each
    move's words.
    Raises ValueError where M is not at least 1. What a machine shows can be read, not assigned.
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
            raise MachineError(f"machine.{name} can be read, not assigned; make another Machine instead")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> NoReturn:
        raise MachineError(f"machine.{name} cannot be deleted")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise MachineError("a machine cannot be copied or pickled: its words are reached by load and store")

    def __repr__(self) -> str:
        kind = "dry machine" if self.dry else "machine"
        moved = self._ledger.total
        return f"{kind}: fast memory {self.used:,} of {self.M:,} words in use, {moved:,} words moved"

    @property
    def ledger(self) -> Ledger:
        """What has moved so far: a copy, which later moves do not change."""
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
        """Place an input in slow memory (no words move). `values`: floating-point array, finite (a vector of
        row statistics may hold -inf).

        On a dry machine a shape (a tuple) will do. Raises TypeError, ValueError, or UntrackedArray inside a
        run.
        """
        if self._running:
            raise UntrackedArray(
                f"{name} cannot be placed in slow memory during a run: inputs are there before it starts. "
                f"For scratch or results use machine.new({name!r}, shape) and store tiles into it"
            )
        if isinstance(values, tuple):
            if not self.dry:
                raise TypeError(
                    f"{name} is a shape, {values}; only a dry machine runs on shapes: pass an array"
                )
            return self._add(name, values, _Cells(None, None))
        array = real_array(name, values, minus_inf=True)
        return self._add(name, array.shape, _Cells(None if self.dry else array, None))

    def new(self, name: str, shape: Shape) -> SlowArray:
        """An array in slow memory with nothing written yet (no words move)."""
        shape = check_shape(name, shape)
        written = BoxTracker() if self._loops.collapsed else BitmapTracker(shape)
        return self._add(name, shape, _Cells(None if self.dry else np.zeros(shape), written))

    def _add(self, name: str, shape: Shape, cells: _Cells) -> SlowArray:
        array = SlowArray(name, check_shape(name, shape))
        self._cells[array] = cells
        self._ledger.sizes[name] = words_in(array.shape)
        return array

    def take(self, array: SlowArray) -> np.ndarray:
        """A copy of a slow array's values after a run. Raises UninitialisedRead, and MachineError in a
        run.
        """
        if self._running:
            raise MachineError(
                "take(...) during a run would read slow memory uncounted; load the array instead"
            )
        data = self._find(array).data
        if data is None:
            raise MachineError("a dry machine has shapes and counts, but no values")
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
        """Copy rows (and columns) of a slow array into a new tile: as many words read as the tile has.

        `rows`, `cols`: a Block, a slice, (start, stop), or a number, which is a position. `into` frees that
        tile first, so that the new one takes its place. Raises FastMemoryFull, UninitialisedRead, IndexError.
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
        """Copy a tile or view to rows (and columns) of a slow array: as many words written.

        Raises ShapeMismatch, UseAfterFree, UntrackedArray, IndexError.
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
            f"{most:,} loads and stores, and the schedule goes on: does a loop never end? One that "
            f"needs more is run with run(..., max_moves={10 * most:_}), or max_moves=None for no limit"
        )

    def _record(self, kind: str, name: str, box: Box | None, words: int, tile: int) -> None:
        if self._droppable and len(self._ledger.moves) >= TRACE_KEPT:
            self._tracing = False
            self._ledger.moves.clear()  # part of a trace would pass for the whole
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
        """A tile of zeros, (rows,) or (rows, cols). Costs room, moves nothing.

        `rows`, `cols`: a Block, (start, stop), or a number, which says how many there are.
        """
        return self.full(rows, cols, 0.0)

    def full(self, rows: Any, cols: Any = None, value: float = 0.0) -> Tile:
        """A tile filled with `value`, (rows,) or (rows, cols). Costs room, moves nothing."""
        if not isinstance(value, Number):
            raise UntrackedArray(
                f"value must be a number, got {type(value).__name__}: words enter by machine.load"
            )
        shape = tuple(_length(name, n) for name, n in (("rows", rows), ("cols", cols)) if n is not None)
        name = f"{'zeros' if value == 0 else f'full of {value:g}'} {shape}"
        return self._filled(name, shape, value)

    def row_stats(self, rows: Any) -> RowStats:
        """Fresh online-softmax statistics for a block of rows: m = -inf and l = 0, 2·rows words."""
        shape = (_length("rows", rows),)
        return RowStats(self._filled("row maximum m", shape, -np.inf), self._filled("row sum l", shape, 0.0))

    def _filled(self, name: Name, shape: Shape, value: float) -> Tile:
        tile = self._new_tile(name, shape, WORD, LazyText("making {}", (name,)))
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
        # Freeing happens while a run is cut short, and must not cut it again.
        if self._tracing and not self._trace_is_full:
            self._record("free", str(name), None, words, serial)

    def empty(self) -> None:
        """Free every tile. What is in slow memory, and the ledger, stay."""
        for serial in list(self._resident):
            self._forget(serial)

    def show(self, tile: Tile | RowStats) -> None:
        """Print a tile, or both rows of row statistics: name, shape and rounded values.

        For looking while a schedule is written: returns nothing, takes no room and moves no word. Prints
        nothing while a check runs. Raises SlowMemoryArithmetic, UseAfterFree and UntrackedArray.
        """
        parts = (tile.m, tile.l) if isinstance(tile, RowStats) else (tile,)
        tiles = [self._arithmetic.tile(part) for part in parts]
        if not are_solutions_blocked():  # what is printed, or formatted, can be caught and read
            print(*map(in_words, tiles), sep="\n")

    # ------------------------------------------------------------------ loops and phases
    def blocks(self, n: int | tuple[int, int], b: int, *, alike: bool = True) -> Iterator[Block]:
        """Blocks of b that cover range(n), or n = (start, stop); the last may be ragged.

        On a dry machine one block stands for all the equal ones between the first and the last. Where what
        happens inside depends on the block (a causal mask, say), `alike=False` yields every block there too.
        """
        begin, end = (index(n[0]), index(n[1])) if isinstance(n, tuple) else (0, positive_int("n", n))
        if not 0 <= begin < end:
            raise ValueError(f"n = {n} is no range of rows or columns; expected 0 <= start < stop")
        return self._loops.over(begin, end, positive_int("b", b), alike=alike)

    def hide(self, s: Tile, rows: Range, cols: Range, mask: SeesPairs) -> None:
        """Scores of pairs that `mask` hides become -inf. A mask is a rule on positions: it takes no words.

        `rows`, `cols`: a Block or (start, stop), the positions of s. Raises TypeError and ShapeMismatch.
        """
        self._arithmetic.tile(s)
        i, j = _positions("rows", rows), _positions("cols", cols)
        if s.shape != (len(i), len(j)):
            raise ShapeMismatch(f"{s.name} has shape {s.shape}, but the pairs are {len(i)} x {len(j)}")
        if s._data is not None and not mask.alike:
            sees = mask.sees(np.array(i)[:, None], np.array(j)[None, :])
            s._data[~sees] = -np.inf

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Moves inside this block are also totalled under `name`."""
        outer, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = outer

    @contextmanager
    def running(self, max_moves: int | None = None) -> Iterator[None]:
        """While a schedule runs, slow memory is reached by load and store only; then tiles are freed.

        More than `max_moves` loads and stores raise MoveLimitExceeded.
        """
        if self._running:
            raise MachineError("a schedule is running on this machine already")
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
            f"{SlowBlock(array, box)} was read, but not all of it has been written; store there first"
        )


def _shape_of(box: Box) -> Shape:
    return tuple([stop - start for start, stop in box])


def _positions(name: str, part: Range) -> range:
    if not isinstance(part, tuple) or not (isinstance(part, Block) or len(part) == 2):
        raise TypeError(f"{name} must be a Block or (start, stop), got {part!r}")
    return range(part[0], part[1])


def _length(name: str, n: Any) -> int:
    if type(n) is int and n < 1:  # a position, as `load` takes it?
        rows = "rows; for one row write zeros(1, d)"
        many = rows if name == "rows" else "columns; for one column write zeros(n, 1)"
        raise ValueError(f"{name} must be at least 1, got {n}: a number here is how many {many}")
    if isinstance(n, tuple) and len(n) == 2:  # (start, stop), as `load` takes it
        n = n[1] - n[0]
    return positive_int(name, n.size if isinstance(n, Block) else n)


# ------------------------------------------------------------------ which tiles are in fast memory
class Allocator:
    """M words, of which tiles take theirs under serial numbers. `used` words are taken now."""

    def __init__(self, M: int) -> None:
        self.M = M
        self.used = 0
        self.resident: dict[int, tuple[Name, int]] = {}  # serial number -> (name, words), oldest first
        self._serials = count(1)

    @property
    def free(self) -> int:
        """Words not in use."""
        return self.M - self.used

    def take(self, name: Name, words: int) -> int:
        """Room for a tile of so many words, which there must be; returns the tile's serial number."""
        serial = next(self._serials)
        self.resident[serial] = (name, words)
        self.used += words
        return serial

    def give_back(self, serial: int) -> tuple[Name, int]:
        """The room of this tile is free again; returns its name and words."""
        left = self.resident.pop(serial)
        self.used -= left[1]
        return left

    def refuse(self, doing: Name, words: int, empty: Callable[[], None]) -> NoReturn:
        """Raise FastMemoryFull: what is short, who is there, and a remedy. Fast memory is emptied first."""
        free, resident = self.free, list(self.resident.values())
        short = words - free
        listing = ", ".join(f"{name} {size:,}" for name, size in resident) or "nothing"
        temporaries = any(isinstance(name, TemporaryName) for name, _ in resident)
        in_place = temporaries or str(doing).startswith("np.")
        remedy = "Free or update in place the temporaries" if in_place else "Smaller tiles"
        empty()
        asked = f"{doing} needs {words:,} words, {free:,} are free of M = {self.M:,}"
        raise FastMemoryFull(
            f"{asked}. Resident: {listing}. "
            f"{remedy}, or at least {short:,} more word{'s' if short > 1 else ''} of M.",
            short,
            asked,
        )
