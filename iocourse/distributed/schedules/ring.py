"""The ring: queries stay, keys and values go round. Each rank holds two blocks of others at most."""

from __future__ import annotations

from ..partial_attention import Words, attend, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="forward", lesson=(18, 3, 1), regime="any P", source="Liu, Zaharia, Abbeel 2023")
def ring(me: Rank, Q: Words, K: Words, V: Words) -> tuple[Words, Words]:
    """(O, LSE) after P - 1 shifts of K and V. Receives 2d words for each row of the other ranks."""
    k, v = K, V
    o, L = attend(Q, k, v)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = merge(o, L, *attend(Q, k, v))
    return o, L
