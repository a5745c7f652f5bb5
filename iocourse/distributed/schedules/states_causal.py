"""States instead of keys under a causal mask: the states of the ranks below, and one's own pairs."""

from __future__ import annotations

from ..partial_attention import Words, tril
from ..rank import Rank
from .linear_attention import normalised, own_state, with_ones
from .registry import schedule


@schedule(
    pass_="states", lesson=(19, 5, 2), regime="weights q·k of features", source="Sun et al. 2025, LASP-2"
)
def states_causal(me: Rank, Q: Words, K: Words, V: Words) -> Words:
    """As `states`, where query i sees the keys up to i: O from the sum of the states below, and from the
    rank's own keys by their triangle.
    """
    gathered = me.all_gather(KV=own_state(K, V)[None])  # (P, r, d + 1)
    before = gathered[: me.rank].sum(0)  # (r, d + 1)
    return normalised(Q @ before + tril(Q @ K.T) @ with_ones(V))
