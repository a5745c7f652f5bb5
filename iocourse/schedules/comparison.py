"""Comparisons of schedules: the cheapest for M words, ratios to the lower bound, break-even of low rank."""

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
from .registry import Schedule, Tiles, get, mask_of, of_pass

P = ParamSpec("P")
R = TypeVar("R")


class Choice(NamedTuple):
    """A schedule, its tile sizes, and its closed form with them."""

    schedule: Schedule
    tiles: Tiles
    cost: Ledger


def _also_with_the_pass_last(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap `function` so that the pass, its only string argument, may be the first or the last one."""

    @wraps(function)
    def either(*asked: Any, **named: Any) -> R:
        if not asked or not isinstance(asked[0], str):
            pass_ = asked[3] if len(asked) == 4 else named.pop("pass_", "forward")
            asked = (pass_, *asked[:3])
        return function(*asked, **named)

    return either


@_also_with_the_pass_last
def best(pass_: str, N: int, d: int, M: int) -> Choice:
    """Return the schedule of a pass with the least traffic in M words of fast memory, its tiles and its cost.

    Compares the dense schedules of the pass (one of `PASSES`: "forward", …). If their traffic is equal, it
    returns the one with the smallest footprint. Schedules with P as an input are excluded, because an earlier
    pass had to move its N² words. `best(N, d, M)` means the forward pass, and `best(N, d, M, pass_)` equals
    `best(pass_, N, d, M)`. Raises ValueError if none fits, naming the smallest M.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    known = [schedule for schedule in of_pass(pass_) if not schedule.given_weights]
    fitting = [schedule for schedule in known if schedule.smallest_M(N, d) <= M]
    if not fitting:
        least = min(schedule.smallest_M(N, d) for schedule in known)
        raise ValueError(
            f"M = {M:,} is too small for every {pass_} schedule with N = {N:,}, d = {d:,}. "
            f"At least M = {least:,} is needed"
        )
    return _cheapest(fitting, N, d, M)


def best_given_weights(pass_: str, N: int, d: int, M: int) -> Choice:
    """Return the schedule with the least traffic among those with P as an input, with tiles and cost.

    Raises ValueError if none fits.
    """
    fitting = [s for s in of_pass(pass_) if s.given_weights and s.smallest_M(N, d) <= M]
    if not fitting:
        raise ValueError(
            f"no {pass_} schedule with P as an input fits in M = {M:,} with N = {N:,}, d = {d:,}"
        )
    return _cheapest(fitting, N, d, M)


def _cheapest(fitting: list[Schedule], N: int, d: int, M: int) -> Choice:
    """Return the choice with the fewest words; if equal, with the smallest footprint."""
    picked = [(schedule, schedule.tiles(N, d, M)) for schedule in fitting]
    choices = (Choice(schedule, tiles, schedule.cost(N, d, **tiles)) for schedule, tiles in picked)
    return min(choices, key=lambda choice: (choice.cost.total, choice.cost.peak))


# ------------------------------------------------------------------ against the lower bound
Chooser = Callable[[str, int, int, int], Choice]  # best(pass_, N, d, M)


class Comparison(NamedTuple):
    """A schedule with N, d and M: its tile sizes, its words, and the best lower bound with its id."""

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
        """Ratio of the words moved to the lower bound: 1 is optimal, inf if the bound is 0."""
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
    """Compare a schedule, with its best tiles for M, with the best lower bound of its pass.

    Args:
        schedule: a schedule or its name.
        N: sequence length.
        d: head dimension.
        M: words of fast memory.
        recompute: False uses the bound for schedules that compute no product twice.
        whole_rows: True uses the bound for schedules that move complete rows.
        problem: `mask`, window width `w` or degree `g`, if the schedule needs one.

    Returns:
        A Comparison: tiles, words, bound and its id.

    Raises:
        ValueError: M is too small.
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
    """The best known schedule for M words of fast memory, its words, and the best lower bound with its id."""

    M: int
    schedule: str
    words: int
    bound: int
    bound_id: str

    @property
    def ratio(self) -> float:
        """Ratio of the words moved to the lower bound; above 1, the optimum is not known."""
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
    """Return the gap between the best schedule and the best lower bound, for each M of `at`.

    With `given_weights`, schedules and bounds are for a backward pass with P as an input. `chooser` selects
    the schedule in place of `best`. Raises ValueError if no schedule fits.
    """
    choose = chooser or (best_given_weights if given_weights else best)
    found = []
    for M in at:
        chosen = choose(pass_, N, d, M)
        bound, bound_id = lower_bound(pass_, N, d, M, given_weights=given_weights)
        found.append(Gap(M, chosen.schedule.name, chosen.cost.total, bound, bound_id))
    return found


def optimality_gap_table(found: Iterable[Gap], d: int) -> str:
    """Return the gaps as a text table, with M also in units of d²."""
    rows = [["M", "M/d²", "schedule", "words", "bound", "by", "ratio"]]
    for gap in found:
        sizes = [f"{gap.M:,}", f"{gap.M / d**2:.2f}"]
        rows.append(
            [*sizes, gap.schedule, f"{gap.words:,}", f"{gap.bound:,}", gap.bound_id, f"{gap.ratio:.2f}"]
        )
    return table(rows)


# ------------------------------------------------------------------ low rank against exact attention
class BreakEven(NamedTuple):
    """Smallest N (tokens) for which low rank moves fewer words; its rank and the tile sizes of its state."""

    N: int
    rank: int
    tiles: Tiles

    @property
    def ranks(self) -> float:
        """N in units of the rank."""
        return self.N / self.rank


def break_even_length(d: int, g: int, M: int, *, whole_rows: bool = False) -> BreakEven:
    """Return the smallest N for which `low_rank` of degree g moves fewer words than `flash_optimal`.

    Both use their best tiles for M words, and the counts are exact. Low rank moves the same number of words
    per token for every N, and FlashAttention never moves fewer per token for a larger N, so low rank moves
    fewer words for every N from the returned one on. `whole_rows=True` divides the state by rows only,
    Bd = d + 1, which increases its traffic by a factor of up to 2.5.
    Raises ValueError if M is too small for FlashAttention.
    """
    d, g, M = check_sizes(d=d, g=g, M=M)
    rank, flash_optimal, low_rank = rank_of(d, g), get("flash_optimal"), get("low_rank")
    least = flash_optimal.smallest_M(1, d)  # one word more than low rank with one complete row of the state
    if least > M:
        raise ValueError(f"M = {M:,} is too small to compare at d = {d:,}. At least M = {least:,} is needed")
    if truth("whole_rows", whole_rows):
        tiles = {"rc": min(rank, (M - 2 * d - 1) // (d + 1)), "Bd": d + 1}
    else:
        tiles = low_rank.tiles(1, d, M, g=g)
    words_a_token = costs.low_rank(1, d, g=g, **tiles).total
    # FlashAttention: 2d(1 + ⌈N/Br⌉) words per token, more than low rank from this number of blocks on.
    blocks = words_a_token // (2 * d)
    Br = flash_optimal.tiles(M, d, M)["Br"]  # N = M queries never fit, so this is the largest Br for M
    return BreakEven((blocks - 1) * Br + 1, rank, tiles)
