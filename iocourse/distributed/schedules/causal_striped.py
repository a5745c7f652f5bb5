"""The causal ring on stripes: rank p has the rows p, p + P, …, so all need nearly all keys."""

from __future__ import annotations

from ..partial_attention import Words, attend, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="causal", lesson=(19, 2, 3), regime="any P", source="Brandon et al. 2023", layout="striped")
def causal_striped(me: Rank, Q: Words, K: Words, V: Words) -> tuple[Words, Words]:
    """(O, LSE) under a causal mask. A block goes round, without rows that no rank before its home can see."""
    rows = me.rows()
    k, v = K, V
    o, L = attend(Q, k, v, rows=rows, cols=rows)
    for step in range(1, me.size):
        home = (me.rank - step + 1) % me.size  # of the block that leaves
        n = rows_still_seen(me, home, step)
        k, v = me.shift(K=k[:n], V=v[:n])
        cols = me.rows((me.rank - step) % me.size)[: len(k)]
        o, L = merge(o, L, *attend(Q, k, v, rows=rows, cols=cols))
    return o, L


def rows_still_seen(me: Rank, home: int, step: int) -> int:
    """How many rows of rank `home` are seen from ranks that they have not visited after step - 1 shifts."""
    to_come = [me.blocks((home + distance) % me.size)[0] for distance in range(step, me.size)]
    latest = max((rows[-1] for rows in to_come if rows), default=-1)
    return len(range(home, latest + 1, me.size))
