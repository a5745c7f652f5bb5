"""The causal ring on a zigzag: rank p has the blocks p and 2P - 1 - p, so all have the same work."""

from __future__ import annotations

from ..partial_attention import Words, attend, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="causal", lesson=(19, 2, 2), regime="any P", source="Zhu 2024; Llama 3", layout="zigzag")
def causal_zigzag(me: Rank, Q: Words, K: Words, V: Words) -> tuple[Words, Words]:
    """(O, LSE) under a causal mask. The early block of each rank goes up, and round, for all need it; the
    late one goes down, to the ranks below, whose late queries alone come after it.
    """
    half, rows = len(me.blocks()[0]), me.rows()
    o, L = attend(Q, K, V, rows=rows, cols=rows)
    early, late = (K[:half], V[:half]), (K[half:], V[half:])
    for step in range(1, me.size):
        early = me.shift(K=early[0], V=early[1])
        late = me.shift(K=late[0], V=late[1], by=-1) if me.rank else me.shift(K=None, V=None, by=-1)
        # Early queries come after the early blocks of the ranks below alone.
        first = 0 if step <= me.rank else half
        o[first:], L[first:] = merge(o[first:], L[first:], *attend(Q[first:], *early))
        if late[0] is not None:
            o[half:], L[half:] = merge(o[half:], L[half:], *attend(Q[half:], *late))
    return o, L
