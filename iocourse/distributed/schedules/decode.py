"""Decoding on several ranks: each rank has all queries and a part of the keys; partial results are merged."""

from __future__ import annotations

from functools import reduce

from ..partial_attention import Array, attend, merge
from ..rank import Rank
from .registry import rank_schedule


@rank_schedule(pass_="decode", regime="any P", source="Lin et al. 2024", shared=("Q",))
def decode(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """Return O of the shared queries for the keys and values of all ranks.

    Each rank receives d + 1 words per query from every other rank, independent of the number of keys.
    """
    o, L = attend(Q, K, V)
    all_o, all_L = me.all_gather(O=o[None], L=L[None])  # (P, m, d) and (P, m)
    parts = [(all_o[rank], all_L[rank]) for rank in range(me.size)]
    return reduce(lambda one, other: merge(*one, *other), parts)[0]
