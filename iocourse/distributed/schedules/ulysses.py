"""Ulysses: an all-to-all gives each rank all rows of some heads; a second one returns the results. P ≤ H.

For more ranks than heads, `ulysses_ring` uses a grid of ranks: Ulysses in each row, a ring in each column.
"""

from __future__ import annotations

from ..layouts import even_part
from ..partial_attention import Array, attend, merge
from ..rank import Rank, joined
from .registry import rank_schedule


@rank_schedule(pass_="forward", regime="P divides H", source="Jacobs et al. 2023", heads=True)
def ulysses(me: Rank, Q: Array, K: Array, V: Array) -> Array:
    """Return O (n, H, d) from Q, K and V of shape (n, H, d): all_to_all from rows to heads, and back."""
    check_heads(heads_of(Q, K, V), me.size)
    sent = {"Q": by_heads(me, Q), "K": by_heads(me, K), "V": by_heads(me, V)}
    q, k, v = (joined(pieces) for pieces in me.all_to_all(**sent))  # (N, H/P, d)
    o, _ = attend(q, k, v)
    return joined(me.all_to_all(O=me.cut(o)), axis=1)  # (n, H, d)


@rank_schedule(
    pass_="forward",
    regime="a divides P, P/a divides H",
    source="Fang, Zhao 2024",
    heads=True,
)
def ulysses_ring(me: Rank, Q: Array, K: Array, V: Array, *, a: int) -> Array:
    """Return O (n, H, d) from Q, K and V of shape (n, H, d), on a grid of `a` rows of P/a ranks.

    The heads are distributed over the ranks of a row; K and V of these heads circulate within a column.
    """
    row, col = me.grid(a)
    check_heads(heads_of(Q, K, V), row.size)
    sent = {"Q": by_heads(row, Q), "K": by_heads(row, K), "V": by_heads(row, V)}
    q, k, v = (joined(pieces) for pieces in row.all_to_all(**sent))  # (N/a, H/b, d)
    o, L = attend(q, k, v)
    for _ in range(1, col.size):
        k, v = col.shift(K=k, V=v)
        o, L = merge(o, L, *attend(q, k, v))
    return joined(row.all_to_all(O=row.cut(o)), axis=1)  # (n, H, d)


def by_heads(me: Rank, a: Array) -> list[Array]:
    """Split an array (n, H, d) by heads into one part per rank."""
    parts = [even_part(a.shape[1], me.size, rank) for rank in range(me.size)]
    return [a[:, heads.start : heads.stop] for heads in parts]


def heads_of(*arrays: Array) -> int:
    """Return the number H of heads of arrays (n, H, d). Raises ValueError if they differ."""
    shapes = [tuple(a.shape) for a in arrays]
    if any(len(shape) != 3 or shape[1] != shapes[0][1] for shape in shapes):
        told = ", ".join(map(str, shapes))
        raise ValueError(f"Q, K and V must have shape (n, H, d) with the same H heads, got {told}")
    return int(shapes[0][1])


def check_heads(H: int, P: int) -> None:
    """Raise ValueError unless P divides H."""
    if H % P:
        fits = ", ".join(str(n) for n in range(1, H + 1) if H % n == 0)
        raise ValueError(
            f"H = {H} heads cannot be distributed evenly over {P} ranks. Use {fits} ranks, or a ring of "
            "groups (ulysses_ring)."
        )
