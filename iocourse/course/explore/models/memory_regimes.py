"""Data for `traffic_map`: traffic of each schedule against M, lower bounds, and memory regimes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import ceil, floor, inf, log2
from typing import NamedTuple

from .... import bounds, schedules, sweeps
from ....bounds.best_bound import DENSE, bounds_by_pass
from ....machine import FREE_REGISTERS
from ....schedules import Schedule
from ...guard import library_solution

PER_OCTAVE = 2  # values of M between M and 2M
LONGEST = 20  # characters of a title at the end of a line


SLOWEST, FASTEST = 0.05, 20.0  # range of x = d/√M; the regimes do not change outside it


# The formulas of the compulsory traffic, in words, for the passes with a map.
COMPULSORY_WORDS = {
    pass_: bounds_by_pass("any", DENSE)[pass_][0].formula.removeprefix(r"W \ge ").replace("^2", "²")
    for pass_ in ("forward", "backward", "gradient")
}
BLOCKED, STORED, ROWS = "blocked products", "N × N stored", "row blocks"


class Regime(NamedTuple):
    """A range of M from `start` to `stop` words: name of the best method and its leading traffic terms."""

    name: str
    words: str
    start: float
    stop: float


class ScheduleTraffic(NamedTuple):
    """The traffic and footprint of a schedule with the tiles that it selects for M."""

    schedule: Schedule
    tiles: tuple[tuple[str, int], ...]
    words: int
    footprint: int


@cache
def cost_envelope(pass_: str) -> tuple[sweeps.Piece, ...]:
    """Return the lower envelope of the traffic of all sequences of passes, from small to large M."""
    return tuple(reversed(sweeps.lower_envelope(pass_, SLOWEST, FASTEST)))


def search_all() -> None:
    """Fill the cache of `cost_envelope` for all passes; takes a quarter of a second once."""
    for pass_ in COMPULSORY_WORDS:
        cost_envelope(pass_)


def regime_borders(pass_: str) -> list[float]:
    """Return the values of M/d² at which the best sequence of passes changes, for N much larger than d."""
    return [1 / piece.x_from**2 for piece in cost_envelope(pass_)[:-1]]


def regimes(pass_: str, N: int, d: int, least: int, low: float, high: float) -> list[Regime]:
    """Return the regimes between M = low and high. Below `least` words no requested schedule fits."""
    least_words = [leading_words(piece) for piece in cost_envelope(pass_)]
    names = [BLOCKED, *[STORED] * (len(least_words) - 2), ROWS]
    named = [("nothing fits", ""), *zip(names, least_words, strict=True)]
    named.append(("compulsory", COMPULSORY_WORDS[pass_]))
    ends = [least, *(share * d * d for share in regime_borders(pass_)), N * d, high]
    found, start = list[Regime](), low
    for (name, words), end in zip(named, ends, strict=True):
        stop = min(max(end, start), high)
        if start < stop:
            found.append(Regime(name, words, start, stop))
        start = stop
    return found


def leading_words(piece: sweeps.Piece) -> str:
    """Format the leading terms of the traffic of a sequence of passes: "2N²d²/M + 2N²"."""
    terms = ((piece.a, "N²d²/M"), (piece.b, "N²d/√M"), (piece.c, "N²"))
    return " + ".join(f"{factor:.3g}{unit}" if factor != 1 else unit for factor, unit in terms if factor)


@lru_cache(maxsize=64)
def memories(low: int, high: int, per_octave: int = PER_OCTAVE) -> tuple[int, ...]:
    """Return the powers of √2 from low to high, and both ends; independent of N and d for the caches."""
    first, last = ceil(per_octave * log2(low)), floor(per_octave * log2(high))
    return tuple(sorted({round(2 ** (k / per_octave)) for k in range(first, last + 1)} | {low, high}))


@library_solution
def move(name: str, N: int, d: int, M: int) -> ScheduleTraffic | None:
    """Return the traffic of a schedule with M words of fast memory, or None if no tile fits."""
    return _move(name, N, d, M)


@lru_cache(maxsize=50_000)
def _move(name: str, N: int, d: int, M: int) -> ScheduleTraffic | None:
    schedule = schedules.get(name)
    if _smallest(name, N, d) > M:
        return None
    tiles = schedule.choose(N, d, M)  # faster than `tiles` and `cost`, which check their arguments
    ledger = schedule.cost_form(N, d, **tiles)
    return ScheduleTraffic(schedule, tuple(tiles.items()), ledger.total, ledger.peak)


@lru_cache(maxsize=10_000)
def _smallest(name: str, N: int, d: int) -> int:
    return schedules.get(name).smallest_M(N, d)


@library_solution
def schedules_by_traffic(asked: Sequence[Schedule], N: int, d: int, M: int) -> list[ScheduleTraffic]:
    """Return the traffic of each schedule that fits in M, the least first; ties by smallest footprint.

    Schedules that receive P as input come last, because the traffic to store P is not counted here.
    """
    found = [_move(schedule.name, N, d, M) for schedule in asked]
    ranked = (m for m in found if m is not None)
    return sorted(ranked, key=lambda m: (m.schedule.given_weights, m.words, m.footprint))


class BestScheduleRange(NamedTuple):
    """The schedule with the least traffic for M from `start` to `stop`."""

    schedule: Schedule
    start: int
    stop: int


@library_solution
def best_schedule_ranges(
    asked: Sequence[Schedule], N: int, d: int, at: Sequence[int]
) -> list[BestScheduleRange]:
    """Return the ranges of M in which one schedule has the least traffic, evaluated at the values `at`.

    In a tie the schedule of the previous range is kept. If the best schedule changes between two values, the
    range of the later one starts at the M from which the earlier is never better. Before that the two may
    alternate, and a third schedule may be better than both.
    """
    return list(_reigns(tuple(schedule.name for schedule in asked), N, d, tuple(at)))


@lru_cache(maxsize=1000)
def _reigns(asked: tuple[str, ...], N: int, d: int, at: tuple[int, ...]) -> list[BestScheduleRange]:
    found: list[BestScheduleRange] = []
    for M in at:
        ranked = schedules_by_traffic([schedules.get(name) for name in asked], N, d, M)
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
    """Return the M in (low, high] at which `later` has less traffic and after which `earlier` never has."""
    turns = _ahead(earlier, later, N, d, range(low + 1, high), at=-1)
    first = _ahead(later, earlier, N, d, range((turns or low) + 1, high), at=0)
    return first or high


def _ahead(one: Schedule, other: Schedule, N: int, d: int, memories: range, *, at: int) -> int | None:
    """Return the first (`at` 0) or last (`at` -1) M of a range at which `one` has less traffic than `other`.

    The range is bisected. Traffic never increases with M, so a part is skipped if `one` at its end moves at
    least as many words as `other` at its start.
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
        stretches += halves if at else halves[::-1]  # the last entry is examined next
    return None


def _half(one: Schedule, N: int, d: int, stretch: range) -> int:
    """Return the length of the first part when a range is split.

    The split is near the middle, moved to an M at which `one` selects larger tiles, because ties between two
    schedules begin there.
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
    """Return the ids of the bounds of a pass that give words for (N, d, M) or (N, d)."""
    return tuple(
        bound.id
        for bound in bounds.BOUNDS.values()
        if pass_ in bound.passes and bound.in_words and {*bound.sizes} <= {*DENSE}
    )


@cache
def usual_bounds(pass_: str) -> tuple[str, ...]:
    """Return the ids of the bounds whose maximum is `bounds.lower_bound`."""
    return tuple(
        bound.id for schedules in ("any", "exact") for bound in bounds_by_pass(schedules, DENSE)[pass_]
    )


def bound_label(name: str) -> str:
    """Return the title of a bound up to the first word after a comma, or its id if that is too long."""
    bound = bounds.BOUNDS[name]
    if bound.schedules == "any":
        return "compulsory"
    title, _, more = bound.title.partition(", ")
    short = f"{title}, {more.split()[0]}" if more else title
    return short if len(short) <= LONGEST else name.replace("_", " ")


@library_solution
def bound_at(name: str, N: int, d: int, M: int) -> int:
    """Return a bound in words for M words plus the free registers; 0 outside the regime of the bound."""
    return _bound_at(name, N, d, M)


@lru_cache(maxsize=50_000)
def _bound_at(name: str, N: int, d: int, M: int) -> int:
    try:
        return bounds.BOUNDS[name].at({"N": N, "d": d, "M": M + FREE_REGISTERS})
    except bounds.OutsideRegime:
        return 0


def best_bound(pass_: str, N: int, d: int, M: int) -> tuple[int, str]:
    """Return `bounds.lower_bound` in words, and the title of the largest bound."""
    name = max(usual_bounds(pass_), key=lambda name: bound_at(name, N, d, M))
    return bound_at(name, N, d, M), bounds.BOUNDS[name].title


CACHES = (_move, _smallest, _reigns, _bound_at)  # cleared by the benchmark of redrawing
