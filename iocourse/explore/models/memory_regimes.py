"""Which schedule moves how many words at each size M of fast memory, the lower bounds, and the regimes of M.

What the figure `traffic_map` draws.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache, lru_cache
from math import ceil, floor, inf, log2
from typing import NamedTuple

from ... import bounds, schedules, sweeps
from ...bounds.best_bound import COMPULSORY, SEGMENT
from ...machine import FREE_REGISTERS
from ...schedules import Schedule
from ...solution_guard import library_solution

PER_OCTAVE = 2  # values of M between M and 2M
LONGEST = 20  # letters of a title beside the end of a line


SLOWEST, FASTEST = 0.05, 20.0  # x = d/√M at both ends of the search: beyond them nothing changes any more


COMPULSORY_WORDS = {"forward": "4Nd", "backward": "7Nd", "gradient": "4Nd + 3d²"}  # the passes with a map
BLOCKED, STORED, ROWS = "blocked products", "N × N stored", "row blocks"


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


@cache
def pieces(pass_: str) -> tuple[sweeps.Piece, ...]:
    """The least of all sequences of sweeps, from small M to large."""
    return tuple(reversed(sweeps.lower_envelope(pass_, SLOWEST, FASTEST)))


def search_all() -> None:
    """Search the sweeps of every pass: a quarter of a second, once, for whoever will ask for all of them."""
    for pass_ in COMPULSORY_WORDS:
        pieces(pass_)


def borders(pass_: str) -> list[float]:
    """M/d² where one sequence of sweeps becomes less than another, for N well above d."""
    return [1 / piece.x_from**2 for piece in pieces(pass_)[:-1]]


def regimes(pass_: str, N: int, d: int, least: int, low: float, high: float) -> list[Regime]:
    """The regimes between M = low and high; below `least` words no schedule that is asked for fits."""
    least_words = [leading_words(piece) for piece in pieces(pass_)]
    names = [BLOCKED, *[STORED] * (len(least_words) - 2), ROWS]
    named = [("nothing fits", ""), *zip(names, least_words, strict=True)]
    named.append(("compulsory", COMPULSORY_WORDS[pass_]))
    ends = [least, *(share * d * d for share in borders(pass_)), N * d, high]
    found, start = list[Regime](), low
    for (name, words), end in zip(named, ends, strict=True):
        stop = min(max(end, start), high)
        if start < stop:
            found.append(Regime(name, words, start, stop))
        start = stop
    return found


def leading_words(piece: sweeps.Piece) -> str:
    """The leading terms of a sequence of sweeps in words: 2N²d²/M + 2N²."""
    terms = ((piece.a, "N²d²/M"), (piece.b, "N²d/√M"), (piece.c, "N²"))
    return " + ".join(f"{factor:.3g}{unit}" if factor != 1 else unit for factor, unit in terms if factor)


@lru_cache(maxsize=64)
def memories(low: int, high: int, per_octave: int = PER_OCTAVE) -> tuple[int, ...]:
    """Powers of √2 from low to high, and both ends: the same for every N and d, so that few are new."""
    first, last = ceil(per_octave * log2(low)), floor(per_octave * log2(high))
    return tuple(sorted({round(2 ** (k / per_octave)) for k in range(first, last + 1)} | {low, high}))


@library_solution
def move(name: str, N: int, d: int, M: int) -> Move | None:
    """What a schedule moves in M words of fast memory; None where no tile fits."""
    return _move(name, N, d, M)


@lru_cache(maxsize=50_000)
def _move(name: str, N: int, d: int, M: int) -> Move | None:
    schedule = schedules.get(name)
    if _smallest(name, N, d) > M:
        return None
    tiles = schedule.choose(N, d, M)  # not `tiles` and `cost`: a map asks a thousand times, and has checked
    ledger = schedule.cost_form(N, d, **tiles)
    return Move(schedule, tuple(tiles.items()), ledger.total, ledger.peak)


@lru_cache(maxsize=10_000)
def _smallest(name: str, N: int, d: int) -> int:
    return schedules.get(name).smallest_M(N, d)


@library_solution
def moves(asked: Sequence[Schedule], N: int, d: int, M: int) -> list[Move]:
    """What each schedule that fits moves at M, the fewest words first; of equals the smallest footprint.

    A schedule that is given P comes last: P was stored for it, and nobody counts that here.
    """
    found = [_move(schedule.name, N, d, M) for schedule in asked]
    ranked = (m for m in found if m is not None)
    return sorted(ranked, key=lambda m: (m.schedule.given_weights, m.words, m.footprint))


class BestScheduleRange(NamedTuple):
    """The schedule that moves the fewest words from `start` to `stop`."""

    schedule: Schedule
    start: int
    stop: int


@library_solution
def best_schedule_ranges(
    asked: Sequence[Schedule], N: int, d: int, at: Sequence[int]
) -> list[BestScheduleRange]:
    """Who moves the fewest words, asked at the values `at` of M; of equals the one that did before.

    Where the answer changes between two of them, the later reigns from the M at which it overtakes the
    earlier for good. Before that the two may take turns, and a third may move fewer still.
    """
    return list(_reigns(tuple(schedule.name for schedule in asked), N, d, tuple(at)))


@lru_cache(maxsize=1000)
def _reigns(asked: tuple[str, ...], N: int, d: int, at: tuple[int, ...]) -> list[BestScheduleRange]:
    found: list[BestScheduleRange] = []
    for M in at:
        ranked = moves([schedules.get(name) for name in asked], N, d, M)
        if not ranked:
            continue
        least = [m.schedule for m in ranked if m.words == ranked[0].words]
        if not found:
            found.append(BestScheduleRange(least[0], M, M))
        elif found[-1].schedule in least:
            found[-1] = found[-1]._replace(stop=M)
        else:
            before = found.pop()
            start = _overtakes(least[0], before.schedule, N, d, before.stop, M)
            found += [before._replace(stop=start - 1), BestScheduleRange(least[0], start, M)]
    return found


def _overtakes(later: Schedule, earlier: Schedule, N: int, d: int, low: int, high: int) -> int:
    """The M in (low, high] at which `later` moves fewer words, and after which `earlier` never does."""
    turns = _ahead(earlier, later, N, d, range(low + 1, high), at=-1)
    first = _ahead(later, earlier, N, d, range((turns or low) + 1, high), at=0)
    return first or high


def _ahead(one: Schedule, other: Schedule, N: int, d: int, memories: range, *, at: int) -> int | None:
    """The first (`at` 0) or the last (`at` -1) M of a range at which `one` moves fewer words than `other`.

    By halving, but not blindly. No schedule moves more words in more memory: where `one` at the end of a
    stretch moves as many as `other` at its start, it is nowhere ahead in it, and nobody looks inside.
    """
    stretches = [memories] if memories else []
    while stretches:
        stretch = stretches.pop()
        if _words(one, N, d, stretch[-1]) >= _words(other, N, d, stretch[0]):
            continue
        if len(stretch) == 1:
            return stretch[0]
        half = _half(one, N, d, stretch)
        halves = [stretch[:half], stretch[half:]]
        stretches += halves if at else halves[::-1]  # what is looked at next stands last
    return None


def _half(one: Schedule, N: int, d: int, stretch: range) -> int:
    """About how many are half of a stretch: two that move equal words at times do so where `one` takes larger
    tiles, so a stretch had better begin there.
    """
    half = len(stretch) // 2
    found = _move(one.name, N, d, stretch[half - 1])
    larger = found.footprint - stretch.start if found else 0
    return larger if larger > 0 else half


def _words(schedule: Schedule, N: int, d: int, M: int) -> float:
    found = _move(schedule.name, N, d, M)
    return inf if found is None else found.words


# ---------------------------------------------------------------------- lower bounds
@cache
def bounds_of(pass_: str) -> tuple[str, ...]:
    """The ids of the bounds of a pass that are a number of words for (N, d, M) or (N, d)."""
    return tuple(
        bound.id
        for bound in bounds.BOUNDS.values()
        if pass_ in bound.passes and bound.in_words and _parameters(bound)[:2] == ["N", "d"]
    )


@cache
def usual_bounds(pass_: str) -> tuple[str, ...]:
    """The ids of the bounds whose largest is `bounds.lower_bound`."""
    return (COMPULSORY[pass_].id, *(bound.id for bound in SEGMENT[pass_]))


@cache
def _parameters(bound: bounds.Bound) -> list[str]:
    return list(inspect.signature(bound.evaluate).parameters)


def bound_label(name: str) -> str:
    """A bound's title, cut after the first word behind a comma; its id where that is still long."""
    if name.startswith("compulsory"):
        return "compulsory"
    title, _, more = bounds.BOUNDS[name].title.partition(", ")
    short = f"{title}, {more.split()[0]}" if more else title
    return short if len(short) <= LONGEST else name.replace("_", " ")


@library_solution
def bound_at(name: str, N: int, d: int, M: int) -> int:
    """A bound in words on a machine of M words, its free registers included; 0 where it says nothing."""
    return _bound_at(name, N, d, M)


@lru_cache(maxsize=50_000)
def _bound_at(name: str, N: int, d: int, M: int) -> int:
    bound = bounds.BOUNDS[name]
    try:
        return bound(N, d, M + FREE_REGISTERS) if "M" in _parameters(bound) else bound(N, d)
    except bounds.OutsideRegime:
        return 0


def best_bound(pass_: str, N: int, d: int, M: int) -> tuple[int, str]:
    """`bounds.lower_bound` in words, and the title of the bound that gives it."""
    name = max(usual_bounds(pass_), key=lambda name: bound_at(name, N, d, M))
    return bound_at(name, N, d, M), bounds.BOUNDS[name].title


CACHES = (_move, _smallest, _reigns, _bound_at)  # what a measurement of redrawing must forget
