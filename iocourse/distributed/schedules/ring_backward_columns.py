"""The ring backward with columns travelling: keys and values go round, and their gradients behind them."""

from __future__ import annotations

from ..partial_attention import Words, attend_backward
from ..rank import Rank
from .registry import schedule


@schedule(pass_="backward", lesson=(18, 6, 1), regime="any P", source="derived here")
def ring_backward_columns(
    me: Rank, Q: Words, K: Words, V: Words, O: Words, dO: Words, LSE: Words
) -> tuple[Words, Words, Words]:
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
