"""Ulysses: each rank gets all rows of some heads, and the results go home. P is at most H.

For more ranks than heads there are rows of ranks with Ulysses in them, and a ring in each column.
"""

from __future__ import annotations

from ..layouts import even_part
from ..partial_attention import Array, attend, merge
from ..rank import Rank, joined
from .registry import schedule


@schedule(pass_="forward", lesson=(18, 7, 1), regime="P divides H", source="Jacobs et al. 2023", heads=True)
def ulysses(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """O from Q, K and V of shape (n, H, d): all_to_all from rows to heads, and back."""
    check_heads(Q.shape[1] if Q.ndim == 3 else 1, me.size)
    sent = {"Q": by_heads(me, Q), "K": by_heads(me, K), "V": by_heads(me, V)}
    q, k, v = (joined(pieces) for pieces in me.all_to_all(**sent))  # (N, H/P, d)
    o, _ = attend(q, k, v)
    return joined(me.all_to_all(O=me.cut(o)), axis=1)  # (n, H, d)


@schedule(
    pass_="forward",
    lesson=(18, 7, 2),
    regime="a divides P, P/a divides H",
    source="Fang, Zhao 2024",
    heads=True,
)
def ulysses_ring(me: Rank, Q: Array, K: Array, V: Array, *, a: int) -> Array:
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


def by_heads(me: Rank, a: Array) -> list[Array]:
    """The heads of (n, H, d) in as many parts as there are ranks."""
    parts = [even_part(a.shape[1], me.size, rank) for rank in range(me.size)]
    return [a[:, heads.start : heads.stop] for heads in parts]


def check_heads(H: int, P: int) -> None:
    """Raise ValueError unless the heads can be dealt out evenly."""
    if H % P:
        fits = ", ".join(str(n) for n in range(1, H + 1) if H % n == 0)
        raise ValueError(
            f"H = {H} heads cannot be dealt out evenly to {P} ranks; allowed are {fits} ranks, or "
            "a ring of groups"
        )
