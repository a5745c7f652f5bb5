"""Data for the tile tuner: traffic, footprint, first moves and best tile of one state."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from .... import bounds, schedules
from ....costs import ceil_div, distinct_sizes
from ....ledger import Ledger, Move
from ....machine import Machine, positive_int
from ....schedules import Schedule
from ...guard import library_solution
from .memory_states import MemoryState, Range, dry_trace, frozen, memory_states, totals, visits
from .schedule_selection import row_tiled

MOVES = 400  # moves in the step player
FRONTIER = 24  # points on the line of the largest tiles that fit
SEARCHED = 8 * MOVES  # moves searched for the first tile of scores


Frontier = tuple[tuple[int, int], ...]


class TileTunerState(NamedTuple):
    """Values of all controls: sizes in words or rows, and `step`, the index of a move."""

    N: int
    d: int
    M: int
    Br: int
    Bc: int
    schedule: str
    step: int = 0

    def checked(self) -> TileTunerState:
        """Return this state. Raises ValueError or TypeError that names the invalid field."""
        row_tiled(self.schedule)
        for name in ("N", "d", "M", "Br", "Bc"):
            positive_int(name, getattr(self, name))
        return self


class Playback(NamedTuple):
    """The moves of the step player, without the `first` moves of the run before any tile of scores."""

    first: int
    moves: tuple[Move, ...]
    states: tuple[MemoryState, ...]
    visited: tuple[tuple[int, Range, Range], ...]  # (step, rows, columns) of each tile of scores


def all_tiles(schedule: Schedule, N: int, d: int, M: int, Br: int, Bc: int) -> dict[str, Any]:
    """Return all tile sizes: Br and Bc as given, others as the schedule selects them for M, or 1."""
    given = {"Br": Br, "Bc": Bc}
    others = [name for name in schedule.tile_names if name not in given]
    chosen: dict[str, int] = dict.fromkeys(others, 1)
    if others and schedule.smallest_M(N, d) <= M:
        chosen = schedule.tiles(N, d, M)
    return {name: given.get(name, chosen.get(name)) for name in schedule.tile_names}


def tile_sizes(s: TileTunerState) -> dict[str, Any]:
    """Return all tile sizes of a state."""
    N, d, M, Br, Bc, name, _ = s
    return all_tiles(schedules.get(name), N, d, M, Br, Bc)


def tile_ledger(s: TileTunerState) -> Ledger:
    """Return the closed-form traffic of a state per array, with the footprint as `peak`."""
    return schedules.get(s.schedule).cost(s.N, s.d, **tile_sizes(s))


def bound_of(s: TileTunerState) -> tuple[int, str]:
    """Return the lower bound in words, and the title of the largest bound."""
    least, name = bounds.lower_bound("forward", s.N, s.d, s.M)
    return least, bounds.BOUNDS[name].title


def ratio_to_bound(s: TileTunerState, of: str = "") -> str:
    """Return the ratio of the traffic to the lower bound in words, with `of` after it, or the M it needs.

    The bound holds for runs with M words of fast memory, so a tile that does not fit has no ratio.
    """
    ledger, (least, _) = tile_ledger(s), bound_of(s)
    if ledger.peak > s.M:
        return f"but this tile needs M = {ledger.peak:,}"
    return f"{ledger.total / least:.2f} times the lower bound{of}"


@lru_cache(maxsize=64)
def playback(name: str, N: int, d: int, tiles: tuple[tuple[str, int], ...]) -> Playback:
    """Return the first MOVES moves of a schedule, or those from its first tile of scores if that is later."""
    limit, begin = MOVES, None
    while begin is None and limit <= SEARCHED:
        found = memory_states(dry_trace(name, N, d, tiles, limit))
        begin = next((k for k, state in enumerate(found) if visits([state])), None)
        limit *= 2
    first = begin - 1 if begin and begin >= MOVES else 0
    moves = dry_trace(name, N, d, tiles, first + MOVES)
    found = memory_states(moves)[first:]
    return Playback(first, moves[first:], tuple(found), tuple(_visited(found)))


def _visited(found: Iterable[MemoryState]) -> Iterable[tuple[int, Range, Range]]:
    last = None
    for step, state in enumerate(found):
        for tile in visits([state]):
            if tile != last:
                yield (step, *tile)
                last = tile


def play(s: TileTunerState) -> Playback:
    """Return the moves that the player shows for a state."""
    return playback(s.schedule, s.N, s.d, frozen(tile_sizes(s)))


def first_at_work(s: TileTunerState) -> int:
    """Return the first step with a tile of scores in fast memory, the initial step of the player."""
    visited = play(s).visited
    return visited[0][0] if visited else 0


@lru_cache(maxsize=256)
def footprint_parts(name: str, N: int, d: int, tiles: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Return the words in fast memory at the peak by kind of tile; their sum is the footprint."""
    schedule, sizes = schedules.get(name), dict[str, Any](tiles)
    machine = Machine(schedule.cost(N, d, **sizes).peak, dry=True, trace=True)
    arrays = [machine.slow(array, (N, d)) for array in ("Q", "K", "V")]
    with machine.running():
        schedule(machine, *arrays, **sizes)
    return totals(max(memory_states(machine.ledger.moves), key=lambda state: state.words))


def parts_of(s: TileTunerState) -> dict[str, int]:
    """Return the footprint of a state by kind of tile."""
    return footprint_parts(s.schedule, s.N, s.d, frozen(tile_sizes(s)))


@library_solution
def best_tiles(name: str, N: int, d: int, M: int) -> tuple[int, int] | None:
    """Return (Br, Bc) with the least traffic that fits in M, among these the fewest tiles; None if none fits.

    Larger tiles never increase the traffic, so only the largest Bc that fits is tried for each Br.
    """
    schedule = schedules.get(name)

    def ledger(Br: int, Bc: int) -> Ledger:
        return schedule.cost(N, d, **all_tiles(schedule, N, d, M, Br, Bc))

    def rank(pair: tuple[int, int]) -> tuple[int, int]:
        return ledger(*pair).total, ceil_div(N, pair[0]) * ceil_div(N, pair[1])

    fitting = [Br for Br in distinct_sizes(N) if ledger(Br, 1).peak <= M]
    pairs = [(Br, _largest(lambda Bc, Br=Br: ledger(Br, Bc).peak <= M, N)) for Br in fitting]
    return min(pairs, key=rank, default=None)


@lru_cache(maxsize=64)
def _least_words(name: str, N: int, d: int, M: int) -> int:
    schedule = schedules.get(name)
    tiles = schedule.tiles(N, d, max(M, schedule.smallest_M(N, d)))
    return schedule.cost(N, d, **tiles).total


def best_tile_words(s: TileTunerState) -> int:
    """Return the traffic with the tile that the schedule selects for M, or for its smallest M if larger."""
    return _least_words(s.schedule, s.N, s.d, s.M)


@lru_cache(maxsize=64)
def frontier(name: str, N: int, d: int, M: int) -> Frontier:
    """Return (Br, Bc) of the largest tiles that fit in M, the largest Br for some Bc; empty if none fits."""
    schedule = schedules.get(name)

    def fits(Br: int, Bc: int) -> bool:
        return schedule.cost(N, d, **all_tiles(schedule, N, d, M, Br, Bc)).peak <= M

    if not fits(1, 1):
        return ()
    widest = _largest(lambda Bc: fits(1, Bc), N)
    columns = {round(widest ** (k / FRONTIER)) for k in range(FRONTIER + 1)}
    return tuple((_largest(lambda Br, Bc=Bc: fits(Br, Bc), N), Bc) for Bc in sorted(columns))


def _largest(fits: Any, limit: int) -> int:
    """Return the largest value up to `limit` that fits; 1 must fit, and `fits` must be monotone."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def first_tiles(name: str, N: int, d: int, M: int) -> tuple[int, int]:
    """Return the initial (Br, Bc): the largest square tile that fits with a power-of-two side, or (1, 1)."""
    schedule, side = schedules.get(name), 1
    while side < N and schedule.cost(N, d, **all_tiles(schedule, N, d, M, 2 * side, 2 * side)).peak <= M:
        side *= 2
    return side, side
