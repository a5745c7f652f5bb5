"""Ring attention with a causal mask for three layouts of the rows: contiguous, zigzag and striped.

Contiguous: keys are sent only to higher ranks, and the last rank has the most work. Zigzag: rank p owns the
blocks p and 2P - 1 - p, so all ranks have the same work. Striped: rank p owns the rows p, p + P, …, so every
rank needs nearly all keys.
"""

from __future__ import annotations

from ..partial_attention import Array, attend, merge
from ..rank import Rank
from .registry import rank_schedule


@rank_schedule(pass_="causal", regime="any P", source="Liu, Zaharia, Abbeel 2023", any_layout=False)
def causal_contiguous(me: Rank, Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Return (O, LSE) with a causal mask. Rank p receives K and V of the p lower ranks."""
    k, v, rows = K, V, me.rows()
    o, L = attend(Q, k, v, rows=rows, cols=rows)
    last = me.rank == me.size - 1
    for step in range(1, me.size):
        k, v = me.shift(K=None, V=None) if last else me.shift(K=k, V=v)
        if step <= me.rank:
            o, L = merge(o, L, *attend(Q, k, v))
    return o, L


@rank_schedule(
    pass_="causal",
    regime="any P",
    source="Zhu 2024; Llama 3",
    layout="zigzag",
    any_layout=False,
)
def causal_zigzag(me: Rank, Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Return (O, LSE) with a causal mask and two blocks per rank, an early and a late one.

    Each early block circulates through all ranks, because every rank needs it. Each late block is sent to
    the lower ranks only, where the late queries attend to it.
    """
    half, rows = len(me.blocks()[0]), me.rows()
    o, L = attend(Q, K, V, rows=rows, cols=rows)
    early, late = (K[:half], V[:half]), (K[half:], V[half:])
    for step in range(1, me.size):
        early = me.shift(K=early[0], V=early[1])
        late = me.shift(K=late[0], V=late[1], by=-1) if me.rank else me.shift(K=None, V=None, by=-1)
        # Early queries attend to early blocks of lower ranks only.
        first = 0 if step <= me.rank else half
        o[first:], L[first:] = merge(o[first:], L[first:], *attend(Q[first:], *early))
        if late[0] is not None:
            o[half:], L[half:] = merge(o[half:], L[half:], *attend(Q[half:], *late))
    return o, L


@rank_schedule(
    pass_="causal",
    regime="any P",
    source="Brandon et al. 2023",
    layout="striped",
    any_layout=False,
)
def causal_striped(me: Rank, Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Return (O, LSE) with a causal mask. A moving block drops the rows that no later rank attends to."""
    rows = me.rows()
    k, v = K, V
    o, L = attend(Q, k, v, rows=rows, cols=rows)
    for step in range(1, me.size):
        home = (me.rank - step + 1) % me.size  # owner of the block that is sent
        n = rows_still_seen(me, home, step)
        k, v = me.shift(K=k[:n], V=v[:n])
        cols = me.rows((me.rank - step) % me.size)[: len(k)]
        o, L = merge(o, L, *attend(Q, k, v, rows=rows, cols=cols))
    return o, L


def rows_still_seen(me: Rank, home: int, step: int) -> int:
    """Count the rows of rank `home` that at least one rank still attends to after step - 1 shifts."""
    to_come = [me.blocks((home + distance) % me.size)[0] for distance in range(step, me.size)]
    latest = max((rows[-1] for rows in to_come if rows), default=-1)
    return len(range(home, latest + 1, me.size))
