"""What is still open, in numbers: the best schedule over the best bound proved, for one M after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..bounds import lower_bound
from ..console import table
from .best import Choice, best
from .registry import of_pass

Chooser = Callable[[str, int, int, int], Choice]  # best(pass_, N, d, M)


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
    return [_gap(pass_, N, d, M, given_weights, choose) for M in at]


def _gap(pass_: str, N: int, d: int, M: int, given_weights: bool, choose: Chooser) -> Gap:
    chosen = choose(pass_, N, d, M)
    bound, bound_id = lower_bound(pass_, N, d, M, given_weights=given_weights)
    return Gap(M, chosen.schedule.name, chosen.cost.total, bound, bound_id)


def best_given_weights(pass_: str, N: int, d: int, M: int) -> Choice:
    """The cheapest schedule of those that are handed P. Raises ValueError where there is none that fits."""
    fitting = [s for s in of_pass(pass_) if s.given_weights and s.smallest_M(N, d) <= M]
    if not fitting:
        raise ValueError(f"no {pass_} schedule that is handed P fits M = {M} at N = {N}, d = {d}")
    tiles = [(s, s.tiles(N, d, M)) for s in fitting]
    choices = (Choice(s, picked, s.cost(N, d, **picked)) for s, picked in tiles)
    return min(choices, key=lambda choice: (choice.cost.total, choice.cost.peak))


def optimality_gap_table(found: Iterable[Gap], d: int) -> str:
    """The gaps as text, M in units of d² beside it."""
    rows = [["M", "M/d²", "schedule", "words", "bound", "by", "ratio"]]
    for gap in found:
        sizes = [f"{gap.M:,}", f"{gap.M / d**2:.2f}"]
        rows.append(
            [*sizes, gap.schedule, f"{gap.words:,}", f"{gap.bound:,}", gap.bound_id, f"{gap.ratio:.2f}"]
        )
    return table(rows)
