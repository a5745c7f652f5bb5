"""What the map of words against memory knows: who moves how many words at each M, and where a regime ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor, log2, sqrt
from typing import NamedTuple

from ... import schedules
from ...guard import library_answer
from ...ledger import Ledger
from ...schedules import Schedule

PER_OCTAVE = 2  # values of M between M and 2M


class Leading(NamedTuple):
    """Leading terms of a pass's best schedules, as their closed forms say, and what every schedule must move.

    Blocked products move `blocked`·N²d/√M + `scores`·N² words, row blocks `rows`·N²d²/M.
    """

    blocked: int
    scores: int
    rows: int
    rows_name: str
    compulsory: str


LEADING = {
    "forward": Leading(4, 1, 4, "row blocks", "4Nd"),
    "backward": Leading(10, 3, 14, "row and column blocks", "7Nd"),
    "gradient": Leading(8, 3, 10, "row blocks", "4Nd + 3d²"),
}


class Regime(NamedTuple):
    """Values of M from `start` to `stop` words, what does best there, and about how many words it moves."""

    name: str
    words: str
    start: float
    stop: float


class Move(NamedTuple):
    """What a schedule moves with the tiles it picks for M."""

    schedule: Schedule
    tiles: tuple[tuple[str, int], ...]
    words: int
    footprint: int


def crossover(pass_: str) -> float:
    """M/d² where blocked products and row blocks move equally many words, for N well above d.

    With x = d/√M: rows·x² = blocked·x + scores.
    """
    a, b, c = LEADING[pass_].rows, LEADING[pass_].blocked, LEADING[pass_].scores
    return (2 * a / (b + sqrt(b * b + 4 * a * c))) ** 2


def regimes(pass_: str, N: int, d: int, least: int, low: float, high: float) -> list[Regime]:
    """The regimes between M = low and high; below `least` words no schedule that is asked for fits."""
    told = LEADING[pass_]
    ends = [least, crossover(pass_) * d * d, N * d, high]
    named = [
        ("nothing fits", ""),
        ("blocked products", f"{told.blocked}N²d/√M + {_times(told.scores)}N²"),
        (told.rows_name, f"{told.rows}N²d²/M"),
        ("compulsory", told.compulsory),
    ]
    found, start = list[Regime](), low
    for (name, words), end in zip(named, ends, strict=True):
        stop = min(max(end, start), high)
        if start < stop:
            found.append(Regime(name, words, start, stop))
        start = stop
    return found


def _times(factor: int) -> str:
    return "" if factor == 1 else str(factor)


def memories(low: int, high: int) -> list[int]:
    """Powers of √2 from low to high, and both ends: the same for every N and d, so that few are new."""
    first, last = ceil(PER_OCTAVE * log2(low)), floor(PER_OCTAVE * log2(high))
    return sorted({round(2 ** (k / PER_OCTAVE)) for k in range(first, last + 1)} | {low, high})


@library_answer
def move(name: str, N: int, d: int, M: int) -> Move | None:
    """What a schedule moves in M words of fast memory; None where no tile fits."""
    return _move(name, N, d, M)


@lru_cache(maxsize=50_000)
def _move(name: str, N: int, d: int, M: int) -> Move | None:
    schedule = schedules.get(name)
    if _smallest(name, N, d) > M:
        return None
    tiles = schedule.tiles(N, d, M)
    ledger: Ledger = schedule.cost(N, d, **tiles)
    return Move(schedule, tuple(tiles.items()), ledger.total, ledger.peak)


@lru_cache(maxsize=10_000)
def _smallest(name: str, N: int, d: int) -> int:
    return schedules.get(name).smallest_M(N, d)


CACHES = (_move, _smallest)  # what a measurement of redrawing must forget


def moves(asked: Sequence[Schedule], N: int, d: int, M: int) -> list[Move]:
    """What each schedule that fits moves at M, the fewest words first; of equals the smallest footprint.

    A schedule that is given P comes last: P was stored for it, and nobody counts that here.
    """
    found = [move(schedule.name, N, d, M) for schedule in asked]
    ranked = (m for m in found if m is not None)
    return sorted(ranked, key=lambda m: (m.schedule.given_weights, m.words, m.footprint))


class Reign(NamedTuple):
    """The schedule that moves the fewest words from `start` to `stop`."""

    schedule: Schedule
    start: int
    stop: int


def reigns(asked: Sequence[Schedule], N: int, d: int, at: Sequence[int]) -> list[Reign]:
    """Who moves the fewest words along the values `at` of M; of equals the one that did before."""
    found: list[Reign] = []
    for M in at:
        ranked = moves(asked, N, d, M)
        if not ranked:
            continue
        least = [m.schedule for m in ranked if m.words == ranked[0].words]
        if found and found[-1].schedule in least:
            found[-1] = found[-1]._replace(stop=M)
        else:
            found.append(Reign(least[0], M, M))
    return found
