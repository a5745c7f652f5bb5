"""The ring backward with rows travelling: keys, values and their gradients stay, queries go round."""

from __future__ import annotations

from ..partial_attention import Words, attend_backward
from ..rank import Rank
from .registry import schedule


@schedule(
    pass_="backward", lesson=(18, 6, 2), regime="any P", source="derived here; also BurstAttention, 2024"
)
def ring_backward_rows(
    me: Rank, Q: Words, K: Words, V: Words, O: Words, dO: Words, LSE: Words
) -> tuple[Words, Words, Words]:
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
