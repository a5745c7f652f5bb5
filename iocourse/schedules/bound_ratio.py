"""How close a schedule comes to what no schedule can beat."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from ..bounds import lower_bound
from ..sizes import check_sizes
from .registry import Schedule, Tiles, get, mask_of


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
        approximate=chosen.stands_for is not None,
        given_weights=chosen.given_weights,
        whole_rows=whole_rows,
    )
    return Comparison(chosen.name, N, d, M, tiles, words, bound, bound_id)
