"""Linear attention across ranks: in place of keys a rank sends its state, sums over its own keys.

Under a causal mask a rank takes the states of the ranks below it, and its own pairs.
"""

from __future__ import annotations

from ..partial_attention import Array, tril
from ..rank import Rank, joined
from .registry import schedule


@schedule(
    pass_="states", lesson=(19, 5, 1), regime="weights q·k of features", source="Sun et al. 2025, LASP-2"
)
def states(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """O = (QKᵀ)V over the row sums of QKᵀ, for features Q and K of shape (n, r) whose products are positive.

    A rank's state is Kᵀ[V, 1], of shape (r, d + 1): every rank gets all of them, and adds them up.
    """
    state = me.all_gather(KV=own_state(K, V)[None]).sum(0)  # (r, d + 1)
    return normalised(Q @ state)


@schedule(
    pass_="states", lesson=(19, 5, 2), regime="weights q·k of features", source="Sun et al. 2025, LASP-2"
)
def states_causal(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """As `states`, where query i sees the keys up to i: O from the sum of the states below, and from the
    rank's own keys by their triangle.
    """
    gathered = me.all_gather(KV=own_state(K, V)[None])  # (P, r, d + 1)
    before = gathered[: me.rank].sum(0)  # (r, d + 1)
    return normalised(Q @ before + tril(Q @ K.T) @ with_ones(V))


def own_state(K: Array, V: Array) -> Array:
    """Kᵀ[V, 1], (r, d + 1)."""
    return K.T @ with_ones(V)


def with_ones(V: Array) -> Array:
    """[V, 1]: the last column makes the row sums."""
    return joined([V, V[:, :1] * 0 + 1.0], axis=1)


def normalised(o: Array) -> Array:
    """The first d columns over the last."""
    return o[:, :-1] / o[:, -1:]
