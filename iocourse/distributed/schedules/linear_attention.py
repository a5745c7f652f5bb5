"""Linear attention on several ranks: each rank sends its state (sums over its keys) instead of its keys.

With a causal mask a rank uses the states of the lower ranks, and computes its own query–key pairs directly.
"""

from __future__ import annotations

from ..partial_attention import Array, at_least_float32, tril
from ..rank import Rank, joined
from .registry import rank_schedule


@rank_schedule(pass_="states", regime="weights q·k of features", source="Sun et al. 2025, LASP-2")
def states(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """Return O = (QKᵀ)V divided by the row sums of QKᵀ; the products of the features Q and K are positive.

    Q and K have shape (n, r). The state of a rank is Kᵀ[V, 1] of shape (r, d + 1). Every rank gathers all
    states and adds them.
    """
    Q, K, V = at_least_float32(Q, K, V)  # sums of 16-bit features are float32
    state = me.all_gather(KV=own_state(K, V)[None]).sum(0)  # (r, d + 1)
    return normalised(Q @ state)


@rank_schedule(
    pass_="states",
    regime="weights q·k of features",
    source="Sun et al. 2025, LASP-2",
    any_layout=False,
)
def states_causal(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """Return O as `states` does, with a causal mask.

    The keys of lower ranks contribute through the sum of their states, the rank's own keys through the lower
    triangle of QKᵀ.
    """
    Q, K, V = at_least_float32(Q, K, V)
    gathered = me.all_gather(KV=own_state(K, V)[None])  # (P, r, d + 1)
    before = gathered[: me.rank].sum(0)  # (r, d + 1)
    return normalised(Q @ before + tril(Q @ K.T) @ with_ones(V))


def own_state(K: Array, V: Array) -> Array:
    """Return the state Kᵀ[V, 1] of this rank, (r, d + 1)."""
    return K.T @ with_ones(V)


def with_ones(V: Array) -> Array:
    """Return [V, 1]; the product with the last column gives the row sums."""
    return joined([V, V[:, :1] * 0 + 1.0], axis=1)


def normalised(o: Array) -> Array:
    """Divide the first d columns by the last one, the row sum."""
    return o[:, :-1] / o[:, -1:]
