"""Every word that a run moves, one by one: where in slow memory, where in fast memory, and which way."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ... import schedules
from ...ledger import Ledger, Move
from ...machine import run
from ...schedules import Schedule
from .memory_states import resident


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
