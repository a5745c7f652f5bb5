"""Decoding across ranks: each has some of the keys and all of the queries, and partial results are merged."""

from __future__ import annotations

from functools import reduce

from ..partial_attention import Array, attend, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="decode", lesson=(19, 4, 1), regime="any P", source="Lin et al. 2024", shared=("Q",))
def decode(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """O of queries that every rank has, from the keys and values of all: d + 1 words a query and other rank,
    however many keys there are.
    """
    o, L = attend(Q, K, V)
    all_o, all_L = me.all_gather(O=o[None], L=L[None])  # (P, m, d) and (P, m)
    parts = [(all_o[rank], all_L[rank]) for rank in range(me.size)]
    return reduce(lambda one, other: merge(*one, *other), parts)[0]
