"""The grid: a × b ranks, each with the queries of its row and the keys of its column; then rows merge.

Backward, what a rank needs of its row and column is gathered, and what it adds is summed.
"""

from __future__ import annotations

from functools import reduce

from ..partial_attention import Array, attend, attend_backward, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="forward", lesson=(18, 5, 1), regime="a divides P", source="derived here")
def grid(me: Rank, Q: Array, K: Array, V: Array, *, a: int) -> tuple[Array, Array]:
    """(O, LSE) on a rows of P/a ranks: Q is gathered in a row, K and V in a column.

    Each rank makes its part of the row's results, and sends to every rank of the row the part that is due.
    """
    row, col = me.grid(a)
    q = row.all_gather(Q=Q)  # (N/a, d)
    k, v = col.all_gather(K=K, V=V)  # (N/b, d)
    o, L = attend(q, k, v)
    parts = zip(*row.all_to_all(O=row.cut(o), L=row.cut(L)), strict=True)
    return reduce(lambda one, other: merge(*one, *other), parts)


@schedule(pass_="backward", lesson=(18, 6, 3), regime="a divides P", source="derived here")
def grid_backward(
    me: Rank, Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array, *, a: int
) -> tuple[Array, Array, Array]:
    """(dQ, dK, dV) on a rows of P/a ranks. Rows carry three arrays, columns four: a : b = 3 : 4 is best."""
    row, col = me.grid(a)
    D = (dO * O).sum(-1)  # (n) or (n, H)
    q, do, lse, D = row.all_gather(Q=Q, dO=dO, LSE=LSE, D=D)  # N/a rows
    k, v = col.all_gather(K=K, V=V)  # N/b rows
    dq, dk, dv = attend_backward(q, k, v, do, lse, D)
    dQ = row.reduce_scatter(dQ=row.cut(dq))
    dK, dV = col.reduce_scatter(dK=col.cut(dk), dV=col.cut(dv))
    return dQ, dK, dV
