"""From which length on the low-rank schedule moves fewer words than exact attention."""

from __future__ import annotations

from typing import NamedTuple

from .. import costs
from ..monomials import rank_of
from ..sizes import check_sizes, truth
from ..solution_guard import library_solution
from .flash_optimal import flash_optimal
from .low_rank import low_rank
from .registry import Tiles


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
    rank = rank_of(d, g)
    least = flash_optimal.smallest_M(1, d)  # a word more than low rank with one whole row of the state
    if least > M:
        raise ValueError(f"M = {M} is too small to compare at d = {d}: the smallest M that works is {least}")
    tiles = _rows_only(d, g, M) if truth("whole_rows", whole_rows) else low_rank.tiles(1, d, M, g=g)
    words_a_token = costs.low_rank(1, d, g=g, **tiles).total
    # FlashAttention: 2d(1 + ⌈N/Br⌉) words a token, more than low rank's from this many blocks on.
    blocks = words_a_token // (2 * d)
    Br = flash_optimal.tiles(M, d, M)["Br"]  # N = M queries never fit: as many rows as M holds
    return BreakEven((blocks - 1) * Br + 1, rank, tiles)


def _rows_only(d: int, g: int, M: int) -> Tiles:
    return {"rc": min(rank_of(d, g), (M - 2 * d - 1) // (d + 1)), "Bd": d + 1}
