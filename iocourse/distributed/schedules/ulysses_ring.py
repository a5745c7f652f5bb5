"""Ulysses in rows of ranks and a ring in columns: for more ranks than heads."""

from __future__ import annotations

from ..partial_attention import Words, attend, merge
from ..rank import Rank, joined
from .registry import schedule
from .ulysses import by_heads, check_heads


@schedule(
    pass_="forward",
    lesson=(18, 7, 2),
    regime="a divides P, P/a divides H",
    source="Fang, Zhao 2024",
    heads=True,
)
def ulysses_ring(me: Rank, Q: Words, K: Words, V: Words, *, a: int) -> Words:
    """O from Q, K and V of shape (n, H, d): heads are dealt out in a row of P/a ranks, and K and V of those
    heads go round in a column of a ranks.
    """
    row, col = me.grid(a)
    check_heads(Q.shape[1] if Q.ndim == 3 else 1, row.size)
    sent = {"Q": by_heads(row, Q), "K": by_heads(row, K), "V": by_heads(row, V)}
    q, k, v = (joined(pieces) for pieces in row.all_to_all(**sent))  # (N/a, H/b, d)
    o, L = attend(q, k, v)
    for _ in range(1, col.size):
        k, v = col.shift(K=k, V=v)
        o, L = merge(o, L, *attend(q, k, v))
    return joined(row.all_to_all(O=row.cut(o)), axis=1)  # (n, H, d)
