"""Ring attention: the queries are resident on their rank; the keys and values circulate through all ranks.

A rank holds at most two blocks of other ranks at once. In the backward pass either the columns circulate (K,
V, dK, dV) or the rows (Q, dO, LSE, D, dQ).
"""

from __future__ import annotations

from ..partial_attention import Array, attend, attend_backward, merge, row_dot
from ..rank import Rank
from .registry import rank_schedule


@rank_schedule(pass_="forward", regime="any P", source="Liu, Zaharia, Abbeel 2023")
def ring(me: Rank, Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Return (O, LSE) after P - 1 shifts of K and V. A rank receives 2d words per row of the other ranks."""
    k, v = K, V
    o, L = attend(Q, k, v)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = merge(o, L, *attend(Q, k, v))
    return o, L


@rank_schedule(pass_="backward", regime="any P", source="derived here")
def ring_backward_columns(
    me: Rank, Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array
) -> tuple[Array, Array, Array]:
    """Return (dQ, dK, dV) after P - 1 shifts of K and V and P - 1 shifts of dK and dV.

    The sums dK and dV start at the first rank that receives the block of K and V, one step later. They end
    at the owner of the block, which adds its own part. So neither K, V nor dK, dV make a full circle.
    """
    D = row_dot(dO, O)  # (n) or (n, H)
    k, v = K, V
    dQ, dK, dV = attend_backward(Q, K, V, dO, LSE, D)
    for step in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        dq, dk_here, dv_here = attend_backward(Q, k, v, dO, LSE, D)
        dQ += dq
        if step == 1:
            dk, dv = dk_here, dv_here
        else:
            dk, dv = me.shift(dK=dk, dV=dv)
            dk += dk_here
            dv += dv_here
    if me.size > 1:
        dk, dv = me.shift(dK=dk, dV=dv)
        dK += dk
        dV += dv
    return dQ, dK, dV


@rank_schedule(pass_="backward", regime="any P", source="derived here; also BurstAttention, 2024")
def ring_backward_rows(
    me: Rank, Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array
) -> tuple[Array, Array, Array]:
    """Return (dQ, dK, dV) after P - 1 shifts of Q, dO, LSE and D and P - 1 shifts of dQ.

    This moves about a quarter fewer words than `ring_backward_columns`.
    """
    D = row_dot(dO, O)  # (n) or (n, H)
    q, do, lse = Q, dO, LSE
    dQ, dK, dV = attend_backward(Q, K, V, dO, LSE, D)
    for step in range(1, me.size):
        q, do, lse, D = me.shift(Q=q, dO=do, LSE=lse, D=D)
        dq_here, dk, dv = attend_backward(q, K, V, do, lse, D)
        dK += dk
        dV += dv
        if step == 1:
            dq = dq_here
        else:
            dq = me.shift(dQ=dq)
            dq += dq_here
    if me.size > 1:
        dq = me.shift(dQ=dq)
        dQ += dq
    return dQ, dK, dV
