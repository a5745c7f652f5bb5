"""What a trace of moves says: the tiles in fast memory after each move, and the scores at work; and word by
word, where each is in slow and in fast memory, and which way it moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ... import schedules
from ...console import with_unit
from ...ledger import Ledger, Move
from ...machine import Machine, TraceFull, run
from ...schedules import Schedule

Range = tuple[int, int]

ROW_ARRAYS = frozenset({"Q", "O", "m", "l", "LSE"})  # row i of the scores belongs to row i of these
COLUMN_ARRAYS = frozenset({"K", "V"})
SCORE_ARRAYS = frozenset({"S", "P"})


class Resident(NamedTuple):
    """A tile in fast memory: its kind (an array's name, or what it was made for), its name and its words."""

    kind: str
    name: str
    words: int


class State(NamedTuple):
    """Fast memory after a move: its tiles, and the rows and columns of the scores at work (or None)."""

    tiles: tuple[Resident, ...]
    rows: Range | None
    columns: Range | None

    @property
    def words(self) -> int:
        """Words in fast memory."""
        return sum(tile.words for tile in self.tiles)


EMPTY = State((), None, None)


@lru_cache(maxsize=64)
def dry_trace(name: str, N: int, d: int, tiles: tuple[tuple[str, int], ...], limit: int) -> tuple[Move, ...]:
    """The first `limit` moves of a schedule, counted on shapes. Memory is as large as the schedule needs."""
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


def states(moves: Iterable[Move]) -> list[State]:
    """The state of fast memory after each move."""
    tiles: list[Resident] = []
    found: list[State] = []
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
        found.append(State(tuple(tiles), rows, columns))
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
    """The tile that a load, or a tile made in fast memory, leaves there."""
    if move.kind == "load":
        return Resident(move.array, _place(move), move.words)
    if move.array in ("row maximum m", "row sum l"):
        return Resident("row statistics", move.array, move.words)
    if move.array.startswith("(temporary"):
        return Resident(_made_by(move.array), move.array, move.words)
    return Resident("accumulator", move.array, move.words)


def _made_by(temporary: str) -> str:
    """The kind of a temporary: rows times rows are scores, as in "q @ k.T"; any other product is one."""
    if " @ " not in temporary:
        return "temporary"
    return "scores" if ".T" in temporary else "product"


def _take_out(tiles: list[Resident], move: Move) -> None:
    """Remove the tile a move frees: by name, else the youngest with as many words (tiles may be renamed)."""
    same = [k for k, tile in enumerate(tiles) if tile.words == move.words]
    named = [k for k in same if tiles[k].name == move.array or tiles[k].name.startswith(move.array + "[")]
    if same:
        tiles.pop((named or same)[-1])


def _place(move: Move) -> str:
    """An array's part as the machine names it: K[0:64], or S[0:64, 3:4] where columns say more."""
    if move.rows is None:
        return move.array
    return f"{move.array}[{move.rows[0]}:{move.rows[1]}]"


def moved_rows(ledger: Ledger) -> list[list[str]]:
    """Array, words read and words written, and the total."""
    rows = [*ledger.rows(), ("total", ledger.read, ledger.written)]
    return [[name, f"{read:,}", f"{written:,}"] for name, read, written in rows]


def in_words(move: Move) -> str:
    """A move as a short sentence without its full stop."""
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


def totals(state: State) -> dict[str, int]:
    """Words in fast memory for each kind of tile, in the order in which they came."""
    found: dict[str, int] = {}
    for tile in state.tiles:
        found[tile.kind] = found.get(tile.kind, 0) + tile.words
    return found


def visits(found: Iterable[State]) -> list[tuple[Range, Range]]:
    """The tiles of scores in order: each time another Q tile and K tile are in fast memory together."""
    order: list[tuple[Range, Range]] = []
    for state in found:
        kinds = {tile.kind for tile in state.tiles}
        if "Q" in kinds and "K" in kinds and state.rows and state.columns:
            tile = (state.rows, state.columns)
            if not order or order[-1] != tile:
                order.append(tile)
    return order


def frozen(tiles: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Tile sizes as a key for `dry_trace`."""
    return tuple(tiles.items())


# ---------------------------------------------------------------------- word by word
class Word(NamedTuple):
    """A word that moved: its place in a slow array, its cell of fast memory, and whether it was loaded."""

    array: str
    row: int
    column: int
    cell: int
    loaded: bool


class Change(NamedTuple):
    """After so many words, a cell of fast memory holds something of this kind, or nothing ("")."""

    after: int
    cell: int
    kind: str


class MoveSequence(NamedTuple):
    """A run, word by word. Cells are numbered from 0 to M - 1; a word takes the first that is free.

    The model counts cells and does not number them, so which cell a word takes is for the picture alone.
    """

    schedule: Schedule
    tiles: dict[str, int]
    ledger: Ledger
    output: np.ndarray
    words: tuple[Word, ...]
    changes: tuple[Change, ...]

    def held(self, after: int) -> dict[int, str]:
        """What the cells of fast memory hold once so many words have moved."""
        cells: dict[int, str] = {}
        for change in self.changes[: bisect_right(self.changes, after, key=lambda one: one.after)]:
            cells[change.cell] = change.kind
        return {cell: kind for cell, kind in cells.items() if kind}

    def moved(self, after: int) -> dict[str, int]:
        """Words moved of each array, read and written together, once so many words have moved."""
        return dict(Counter(word.array for word in self.words[:after]))

    def stored(self, after: int) -> set[tuple[str, int, int]]:
        """The words written to slow memory by then, each as array, row and column."""
        return {word[:3] for word in self.words[:after] if not word.loaded}


@cache
def journey(name: str, N: int, d: int, M: int) -> MoveSequence:
    """A run of a forward schedule with its own tiles for M on normal random Q, K and V, the same each time.

    Raises ValueError for a name that no schedule has, FastMemoryFull where no tile fits M.
    """
    schedule = schedules.get(name)
    Q, K, V = np.random.default_rng(0).standard_normal((3, N, d))
    tiles = schedule.tiles(N, d, M)
    arguments: dict[str, Any] = {"Q": Q, "K": K, "V": V, **tiles}
    done = run(schedule, M=M, **arguments)
    words, changes = _word_by_word(done.ledger.moves, M)
    return MoveSequence(schedule, tiles, done.ledger, done.O, tuple(words), tuple(changes))


def _word_by_word(moves: Iterable[Move], M: int) -> tuple[list[Word], list[Change]]:
    free, cells = list(range(M)), dict[int, list[int]]()
    words, changes = list[Word](), list[Change]()
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


def _words(move: Move, cells: list[int]) -> list[Word]:
    """The words of a load or a store, row by row."""
    rows, columns = (range(*(side or (0, 1))) for side in (move.rows, move.cols))
    places = ((row, column) for row in rows for column in columns)
    loads = move.kind == "load"
    return [Word(move.array, *place, cell, loads) for place, cell in zip(places, cells, strict=True)]
