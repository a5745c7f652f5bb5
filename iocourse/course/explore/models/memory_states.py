"""States of fast memory from a trace of moves: resident tiles after each move, and single words.

For each move: the tiles in fast memory and the current tile of scores. For each word: its place in slow
memory, its cell in fast memory, and the direction in which it moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from .... import schedules
from ....console import with_unit
from ....ledger import Ledger, Move
from ....machine import Machine, TraceFull, run
from ....schedules import Schedule

Range = tuple[int, int]

ROW_ARRAYS = frozenset({"Q", "O", "m", "l", "LSE"})  # row i of the scores belongs to row i of these
COLUMN_ARRAYS = frozenset({"K", "V"})
SCORE_ARRAYS = frozenset({"S", "P"})


class Resident(NamedTuple):
    """A tile in fast memory: its kind (array name or purpose), its name and its size in words."""

    kind: str
    name: str
    words: int


class MemoryState(NamedTuple):
    """Fast memory after a move: its tiles, and rows and columns of the current tile of scores (or None)."""

    tiles: tuple[Resident, ...]
    rows: Range | None
    columns: Range | None

    @property
    def words(self) -> int:
        """Words in fast memory."""
        return sum(tile.words for tile in self.tiles)


EMPTY = MemoryState((), None, None)


@lru_cache(maxsize=64)
def dry_trace(name: str, N: int, d: int, tiles: tuple[tuple[str, int], ...], limit: int) -> tuple[Move, ...]:
    """Return the first `limit` moves of a dry run with as much fast memory as the schedule needs."""
    schedule = schedules.get(name)
    sizes: dict[str, Any] = dict(tiles)
    machine = Machine(schedule.cost(N, d, **sizes).peak, dry=True, unroll=True, max_moves=limit)
    arrays = [machine.slow(array, shape) for array, shape in schedule.shapes(N, d, **sizes).items()]
    try:
        with machine.running():
            schedule(machine, *arrays, **sizes)
    except TraceFull:
        pass
    return tuple(machine.ledger.moves[:limit])


def memory_states(moves: Iterable[Move]) -> list[MemoryState]:
    """Return the state of fast memory after each move."""
    tiles: list[Resident] = []
    found: list[MemoryState] = []
    rows = columns = None
    for move in moves:
        if move.kind == "free":
            _take_out(tiles, move)
        elif move.kind != "store":
            tiles.append(resident(move))
        if move.kind in ("load", "store"):
            rows, columns = _at_work(move, rows, columns)
        if not tiles:
            rows = columns = None
        found.append(MemoryState(tuple(tiles), rows, columns))
    return found


def _at_work(move: Move, rows: Range | None, columns: Range | None) -> tuple[Range | None, Range | None]:
    if move.array in SCORE_ARRAYS:
        return move.rows, move.cols
    if move.array in ROW_ARRAYS:
        return move.rows, columns
    if move.array in COLUMN_ARRAYS:
        return rows, move.rows
    return rows, columns


def resident(move: Move) -> Resident:
    """Return the tile that a load or a computation adds to fast memory."""
    if move.kind == "load":
        return Resident(move.array, _place(move), move.words)
    if move.array in ("row maximum m", "row sum l"):
        return Resident("row statistics", move.array, move.words)
    if move.array.startswith("(temporary"):
        return Resident(_made_by(move.array), move.array, move.words)
    return Resident("accumulator", move.array, move.words)


def _made_by(temporary: str) -> str:
    """Return the kind of a temporary: "scores" for a product such as "q @ k.T", "product", or "temporary"."""
    if " @ " not in temporary:
        return "temporary"
    return "scores" if ".T" in temporary else "product"


def _take_out(tiles: list[Resident], move: Move) -> None:
    """Remove the tile that a move frees: by name, or the newest of equal size (tiles may be renamed)."""
    same = [k for k, tile in enumerate(tiles) if tile.words == move.words]
    named = [k for k in same if tiles[k].name == move.array or tiles[k].name.startswith(move.array + "[")]
    if same:
        tiles.pop((named or same)[-1])


def _place(move: Move) -> str:
    """Return the block of a move as the machine names it: "K[0:64]"."""
    if move.rows is None:
        return move.array
    return f"{move.array}[{move.rows[0]}:{move.rows[1]}]"


def moved_rows(ledger: Ledger) -> list[list[str]]:
    """Return table rows of a ledger: array, words read, words written; the last row is the total."""
    rows = [*ledger.rows(), ("total", ledger.read, ledger.written)]
    return [[name, f"{read:,}", f"{written:,}"] for name, read, written in rows]


def move_sentence(move: Move) -> str:
    """Format a move as a short sentence without the full stop."""
    part, moved = _place(move), with_unit(move.words, "word")
    if move.kind in ("load", "store"):
        if move.array in SCORE_ARRAYS and move.rows and move.cols:
            part = f"{move.array}[{move.rows[0]}:{move.rows[1]}, {move.cols[0]}:{move.cols[1]}]"
        return f"{move.kind} {part}, {moved}"
    if move.kind == "free":
        return f"free {_plain(move.array)}, {moved}"
    return f"make {_plain(move.array)}, {moved}"


def _plain(name: str) -> str:
    return name.removeprefix("(temporary from ").removesuffix(")").strip('"')


def totals(state: MemoryState) -> dict[str, int]:
    """Return the words in fast memory for each kind of tile, in the order of loading."""
    found: dict[str, int] = {}
    for tile in state.tiles:
        found[tile.kind] = found.get(tile.kind, 0) + tile.words
    return found


def visits(found: Iterable[MemoryState]) -> list[tuple[Range, Range]]:
    """Return the tiles of scores in the order of computation: each new pair of resident Q and K tiles."""
    order: list[tuple[Range, Range]] = []
    for state in found:
        kinds = {tile.kind for tile in state.tiles}
        if "Q" in kinds and "K" in kinds and state.rows and state.columns:
            tile = (state.rows, state.columns)
            if not order or order[-1] != tile:
                order.append(tile)
    return order


def frozen(tiles: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return tile sizes as a hashable argument for `dry_trace`."""
    return tuple(tiles.items())


# ---------------------------------------------------------------------- word by word
class MovedWord(NamedTuple):
    """A word that moved: its place in a slow array, its cell of fast memory, and whether it was loaded."""

    array: str
    row: int
    column: int
    cell: int
    loaded: bool


class Change(NamedTuple):
    """New content of a cell of fast memory after `after` moved words: a kind of tile, or "" if free."""

    after: int
    cell: int
    kind: str


class MoveSequence(NamedTuple):
    """A run, word by word. Cells are numbered from 0 to M - 1; a word takes the first free cell.

    The model only counts words in use, so the choice of the cell matters only for the figure.
    """

    schedule: Schedule
    tiles: dict[str, int]
    ledger: Ledger
    output: np.ndarray
    words: tuple[MovedWord, ...]
    changes: tuple[Change, ...]

    def held(self, after: int) -> dict[int, str]:
        """Return the kind of tile in each occupied cell after `after` moved words."""
        cells: dict[int, str] = {}
        for change in self.changes[: bisect_right(self.changes, after, key=lambda one: one.after)]:
            cells[change.cell] = change.kind
        return {cell: kind for cell, kind in cells.items() if kind}

    def moved(self, after: int) -> dict[str, int]:
        """Return the words read and written per array among the first `after` moved words."""
        return dict(Counter(word.array for word in self.words[:after]))

    def stored(self, after: int) -> set[tuple[str, int, int]]:
        """Return the words (array, row, column) stored to slow memory among the first `after` moved words."""
        return {word[:3] for word in self.words[:after] if not word.loaded}


@cache
def sample_run(name: str, N: int, d: int, M: int) -> MoveSequence:
    """Return a run of a forward schedule with its tiles for M, on fixed normal random Q, K and V.

    Raises:
        ValueError: unknown schedule.
        FastMemoryFull: no tile fits in M.
    """
    schedule = schedules.get(name)
    Q, K, V = np.random.default_rng(0).standard_normal((3, N, d))
    tiles = schedule.tiles(N, d, M)
    arguments: dict[str, Any] = {"Q": Q, "K": K, "V": V, **tiles}
    done = run(schedule, M=M, **arguments)
    words, changes = _word_by_word(done.ledger.moves, M)
    return MoveSequence(schedule, tiles, done.ledger, done.O, tuple(words), tuple(changes))


def _word_by_word(moves: Iterable[Move], M: int) -> tuple[list[MovedWord], list[Change]]:
    free, cells = list(range(M)), dict[int, list[int]]()
    words, changes = list[MovedWord](), list[Change]()
    for move in moves:
        if move.kind == "store":
            words += _words(move, cells[move.tile])
            continue
        if move.kind == "free":
            for cell in cells.pop(move.tile):
                heappush(free, cell)
                changes.append(Change(len(words), cell, ""))
            continue
        taken = cells[move.tile] = [heappop(free) for _ in range(move.words)]
        loads = move.kind == "load"
        kind = resident(move).kind
        changes += [Change(len(words) + (k + 1) * loads, cell, kind) for k, cell in enumerate(taken)]
        words += _words(move, taken) if loads else []
    return words, changes


def _words(move: Move, cells: list[int]) -> list[MovedWord]:
    """Return the words of a load or a store, row by row."""
    rows, columns = (range(*(side or (0, 1))) for side in (move.rows, move.cols))
    places = ((row, column) for row in rows for column in columns)
    loads = move.kind == "load"
    return [MovedWord(move.array, *place, cell, loads) for place, cell in zip(places, cells, strict=True)]
