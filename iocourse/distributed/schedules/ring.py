"""Ring attention: queries stay on their rank, and keys and values go round, two blocks of others at most.

Backward, either the columns go round (keys, values and their gradients) or the rows (queries and theirs).
"""

from __future__ import annotations

from ..partial_attention import Array, attend, attend_backward, merge
from ..rank import Rank
from .registry import schedule


@schedule(pass_="forward", lesson=(18, 3, 1), regime="any P", source="Liu, Zaharia, Abbeel 2023")
def ring(me: Rank, Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """(O, LSE) after P - 1 shifts of K and V. Receives 2d words for each row of the other ranks."""
    k, v = K, V
    o, L = attend(Q, k, v)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = merge(o, L, *attend(Q, k, v))
    return o, L


@schedule(pass_="backward", lesson=(18, 6, 1), regime="any P", source="derived here")
def ring_backward_columns(
    me: Rank, Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array
) -> tuple[Array, Array, Array]:
    """(dQ, dK, dV) in P - 1 shifts of K, V and as many of dK, dV.

    The sums begin at the first rank that K and V visit, a step behind them, and end at home, which adds its
    own part: so neither goes a whole round.
    """
    D = (dO * O).sum(-1)  # (n) or (n, H)
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


@schedule(
    pass_="backward", lesson=(18, 6, 2), regime="any P", source="derived here; also BurstAttention, 2024"
)
def ring_backward_rows(
    me: Rank, Q: Array, K: Array, V: Array, O: Array, dO: Array, LSE: Array
) -> tuple[Array, Array, Array]:
    """(dQ, dK, dV) in P - 1 shifts of Q, dO, LSE and D and as many of dQ: a quarter fewer words than with
    columns travelling.
    """
    D = (dO * O).sum(-1)  # (n) or (n, H)
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
