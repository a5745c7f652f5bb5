"""Schedules compared: the cheapest for M words, its distance from the lower bound, and where low rank
wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from math import inf
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .. import costs
from ..bounds import lower_bound
from ..console import table
from ..ledger import Ledger
from ..monomials import rank_of
from ..sizes import check_sizes, truth
from ..solution_guard import library_solution
from .registry import Schedule, Tiles, get, mask_of, of_pass

P = ParamSpec("P")
R = TypeVar("R")


class Choice(NamedTuple):
    """A schedule, the tiles it picks, and what it then moves."""

    schedule: Schedule
    tiles: Tiles
    cost: Ledger


def _also_with_the_pass_last(function: Callable[P, R]) -> Callable[P, R]:
    """Callable with the sizes first too, as the lessons do: the pass is the argument that is a word."""

    @wraps(function)
    def either(*asked: Any, **named: Any) -> R:
        if not asked or not isinstance(asked[0], str):
            pass_ = asked[3] if len(asked) == 4 else named.pop("pass_", "forward")
            asked = (pass_, *asked[:3])
        return function(*asked, **named)

    return either


@library_solution
@_also_with_the_pass_last
def best(pass_: str, N: int, d: int, M: int) -> Choice:
    """The cheapest dense schedule of a pass, one of `PASSES` ("forward", …), in a fast memory of M words.

    `best(N, d, M)` is that of the forward pass, `best(N, d, M, pass_)` the same as `best(pass_, N, d, M)`.
    Among equals the one with the smallest footprint. A schedule that is given P takes no part: its N² words
    were moved before. Raises ValueError where none fits, naming the smallest M that works.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    known = [schedule for schedule in of_pass(pass_) if not schedule.given_weights]
    fitting = [schedule for schedule in known if schedule.smallest_M(N, d) <= M]
    if not fitting:
        least = min(schedule.smallest_M(N, d) for schedule in known)
        raise ValueError(
            f"M = {M} is too small for every {pass_} schedule at N = {N}, d = {d}: {least} works"
        )
    return _cheapest(fitting, N, d, M)


def best_given_weights(pass_: str, N: int, d: int, M: int) -> Choice:
    """The cheapest schedule of those that are handed P. Raises ValueError where there is none that fits."""
    fitting = [s for s in of_pass(pass_) if s.given_weights and s.smallest_M(N, d) <= M]
    if not fitting:
        raise ValueError(f"no {pass_} schedule that is handed P fits M = {M} at N = {N}, d = {d}")
    return _cheapest(fitting, N, d, M)


def _cheapest(fitting: list[Schedule], N: int, d: int, M: int) -> Choice:
    """Of these schedules the one with the fewest words, among equals with the smallest footprint."""
    picked = [(schedule, schedule.tiles(N, d, M)) for schedule in fitting]
    choices = (Choice(schedule, tiles, schedule.cost(N, d, **tiles)) for schedule, tiles in picked)
    return min(choices, key=lambda choice: (choice.cost.total, choice.cost.peak))


# ------------------------------------------------------------------ against the lower bound
Chooser = Callable[[str, int, int, int], Choice]  # best(pass_, N, d, M)


class Comparison(NamedTuple):
    """A schedule at (N, d, M): its tiles, its words, and the best lower bound with its id."""

    schedule: str
    N: int
    d: int
    M: int
    tiles: Tiles
    words: int
    bound: int
    bound_id: str

    @property
    def ratio(self) -> float:
        """Words moved over words that cannot be avoided: 1 would be optimal, inf where none are known."""
        return self.words / self.bound if self.bound else inf


def against_bound(
    schedule: Schedule | str,
    N: int,
    d: int,
    M: int,
    *,
    recompute: bool = True,
    whole_rows: bool = False,
    **problem: Any,
) -> Comparison:
    """The schedule with the tiles it picks, beside the best bound of its pass at M.

    `recompute=False` asks for the bound that holds where no product is formed twice, `whole_rows=True` for
    the one where rows travel whole; whether P is handed over, the schedule knows. `problem` is the `mask` or
    the window `w` of a sparse schedule, or the degree `g`. Raises ValueError where M is too small.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    chosen = get(schedule) if isinstance(schedule, str) else schedule
    tiles = chosen.tiles(N, d, M, **problem)
    words = chosen.cost(N, d, **tiles, **problem).total
    mask = mask_of(N, problem)
    bound, bound_id = lower_bound(
        chosen.pass_,
        N,
        d,
        M,
        mask=mask,
        recompute=recompute,
        approximate=chosen.approximates is not None,
        given_weights=chosen.given_weights,
        whole_rows=whole_rows,
    )
    return Comparison(chosen.name, N, d, M, tiles, words, bound, bound_id)


class Gap(NamedTuple):
    """At M words of fast memory: the best schedule known, its words, and the best bound with its id."""

    M: int
    schedule: str
    words: int
    bound: int
    bound_id: str

    @property
    def ratio(self) -> float:
        """How many times the words that cannot be avoided the schedule moves; above 1 something is open."""
        return self.words / self.bound


def optimality_gaps(
    pass_: str,
    N: int,
    d: int,
    at: Iterable[int],
    *,
    given_weights: bool = False,
    chooser: Chooser | None = None,
) -> list[Gap]:
    """The gap between what is done and what is proved, for each M of `at`.

    With `given_weights` both sides are those of a backward pass that is handed P, else of one that is not.
    `chooser` picks the schedule in place of `best`. Raises ValueError where no schedule fits.
    """
    choose = chooser or (best_given_weights if given_weights else best)
    found = []
    for M in at:
        chosen = choose(pass_, N, d, M)
        bound, bound_id = lower_bound(pass_, N, d, M, given_weights=given_weights)
        found.append(Gap(M, chosen.schedule.name, chosen.cost.total, bound, bound_id))
    return found


def optimality_gap_table(found: Iterable[Gap], d: int) -> str:
    """The gaps as text, M in units of d² beside it."""
    rows = [["M", "M/d²", "schedule", "words", "bound", "by", "ratio"]]
    for gap in found:
        sizes = [f"{gap.M:,}", f"{gap.M / d**2:.2f}"]
        rows.append(
            [*sizes, gap.schedule, f"{gap.words:,}", f"{gap.bound:,}", gap.bound_id, f"{gap.ratio:.2f}"]
        )
    return table(rows)


# ------------------------------------------------------------------ low rank against exact attention
class BreakEven(NamedTuple):
    """The smallest N for which low rank is cheaper, in tokens; the rank, and the tiles of the state."""

    N: int
    rank: int
    tiles: Tiles

    @property
    def ranks(self) -> float:
        """The crossing in units of the rank."""
        return self.N / self.rank


@library_solution
def break_even_length(d: int, g: int, M: int, *, whole_rows: bool = False) -> BreakEven:
    """Where `low_rank` of degree g falls below `flash_optimal`, both with the tiles they pick for M words.

    Exact counts, no leading terms. Low rank costs as many words a token whatever N is, FlashAttention never
    fewer for larger N: below the crossing low rank moves as many words or more, from there on always fewer.
    `whole_rows=True` cuts the state into rows only, Bd = d + 1, which moves up to 2.5 times as many words.
    Raises ValueError where M is too small for FlashAttention.
    """
    d, g, M = check_sizes(d=d, g=g, M=M)
    rank, flash_optimal, low_rank = rank_of(d, g), get("flash_optimal"), get("low_rank")
    least = flash_optimal.smallest_M(1, d)  # a word more than low rank with one whole row of the state
    if least > M:
        raise ValueError(f"M = {M} is too small to compare at d = {d}: the smallest M that works is {least}")
    if truth("whole_rows", whole_rows):
        tiles = {"rc": min(rank, (M - 2 * d - 1) // (d + 1)), "Bd": d + 1}
    else:
        tiles = low_rank.tiles(1, d, M, g=g)
    words_a_token = costs.low_rank(1, d, g=g, **tiles).total
    # FlashAttention: 2d(1 + ⌈N/Br⌉) words a token, more than low rank's from this many blocks on.
    blocks = words_a_token // (2 * d)
    Br = flash_optimal.tiles(M, d, M)["Br"]  # N = M queries never fit: as many rows as M holds
    return BreakEven((blocks - 1) * Br + 1, rank, tiles)
