"""The grid: a × b ranks, each with the queries of its row, the keys of its column; then rows merge."""

from __future__ import annotations

from functools import reduce

from ..partial_attention import Words, attend, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="forward", lesson=(18, 5, 1), regime="a divides P", source="derived here")
def grid(me: Rank, Q: Words, K: Words, V: Words, *, a: int) -> tuple[Words, Words]:
    """(O, LSE) on a rows of P/a ranks: Q is gathered in a row, K and V in a column.

    Each rank makes its part of the row's results, and sends to every rank of the row the part that is due.
    """
    row, col = me.grid(a)
    q = row.all_gather(Q=Q)  # (N/a, d)
    k, v = col.all_gather(K=K, V=V)  # (N/b, d)
    o, L = attend(q, k, v)
    parts = zip(*row.all_to_all(O=row.cut(o), L=row.cut(L)), strict=True)
    return reduce(lambda one, other: merge(*one, *other), parts)
