"""The causal ring on contiguous rows: keys go to the ranks above only; the last has the most to do."""

from __future__ import annotations

from ..partial_attention import Words, attend, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="causal", lesson=(19, 2, 1), regime="any P", source="Liu, Zaharia, Abbeel 2023")
def causal_contiguous(me: Rank, Q: Words, K: Words, V: Words) -> tuple[Words, Words]:
    """(O, LSE) under a causal mask: rank p receives K and V of the p ranks below it."""
    k, v, rows = K, V, me.rows()
    o, L = attend(Q, k, v, rows=rows, cols=rows)
    last = me.rank == me.size - 1
    for step in range(1, me.size):
        k, v = me.shift(K=None, V=None) if last else me.shift(K=k, V=v)
        if step <= me.rank:
            o, L = merge(o, L, *attend(Q, k, v))
    return o, L
