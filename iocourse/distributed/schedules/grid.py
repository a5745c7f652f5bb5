"""Attention on a grid of a × b ranks. Each rank combines the queries of its row with the keys of its column.

Forward, the partial results of a row are merged. Backward, the inputs of a row and of a column are gathered,
and the partial gradients are summed by a reduce-scatter.
"""

from __future__ import annotations

from functools import reduce

from ..partial_attention import Array, attend, attend_backward, merge, row_dot
from ..rank import Rank
from .registry import rank_schedule


@rank_schedule(pass_="forward", regime="a divides P", source="derived here")
def grid(me: Rank, Q: Array, K: Array, V: Array, *, a: int) -> tuple[Array, Array]:
    """Return (O, LSE) on a grid of `a` rows of P/a ranks: gather Q in each row, and K and V in each column.

    Each rank computes partial results for all queries of its row, and sends every rank of the row its part.
    """
    row, col = me.grid(a)
    q = row.all_gather(Q=Q)  # (N/a, d)
    k, v = col.all_gather(K=K, V=V)  # (N/b, d)
    o, L = attend(q, k, v)
    parts = zip(*row.all_to_all(O=row.cut(o), L=row.cut(L)), strict=True)
    return reduce(lambda one, other: merge(*one, *other), parts)


@rank_schedule(pass_="backward", regime="a divides P", source="derived here")
def grid_backward(
    me: Rank, Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array, *, a: int
) -> tuple[Array, Array, Array]:
    """Return (dQ, dK, dV) on a grid of `a` rows of P/a = b ranks.

    Rows exchange three arrays and columns four, so the grid with a/b = 3/4 moves the fewest words.
    """
    row, col = me.grid(a)
    D = row_dot(dO, O)  # (n) or (n, H)
    q, do, lse, D = row.all_gather(Q=Q, dO=dO, LSE=LSE, D=D)  # N/a rows
    k, v = col.all_gather(K=K, V=V)  # N/b rows
    dq, dk, dv = attend_backward(q, k, v, do, lse, D)
    dQ = row.reduce_scatter(dQ=row.cut(dq))
    dK, dV = col.reduce_scatter(dK=col.cut(dk), dV=col.cut(dv))
    return dQ, dK, dV
