"""Closed form of low-rank attention: a polynomial in place of exp, its features made on the fly."""

from __future__ import annotations

from ..ledger import Ledger
from ..monomials import rank_of
from ..sizes import check_sizes
from .parts import ceil_div, closed_form


def low_rank(N: int, d: int, *, g: int, rc: int, Bd: int) -> Ledger:
    """Tiles rc x Bd of the state T = ψ(K)ᵀ[1, V], r x (d + 1) with r = C(d + g, g), one after another.

    With k = ⌈r/rc⌉ tiles down and c = ⌈(d + 1)/Bd⌉ across: 2Ndkc words of Q and K, Ndk of V, Nd(2k - 1) of O,
    and of the row sums l 2N(k - 1) where c = 1, else N(2k + c - 2). Footprint rc·Bd + Bd + d with the tile
    cut to the state; features live in a register.
    k = c = 1: 4Nd. Rows only, c = 1: about 5rNd²/M. Columns first, k = 1: 2Nd(c + 1) + Nc, about 2rNd²/M.
    """
    check_sizes(N=N, d=d, g=g, rc=rc, Bd=Bd)
    r = rank_of(d, g)
    down, across = ceil_div(r, rc), ceil_div(d + 1, Bd)
    rows, columns = min(rc, r), min(Bd, d + 1)
    return closed_form(
        reads={
            "Q": N * d * down * across,
            "K": N * d * down * across,
            "V": N * d * down,
            "O": N * d * (down - 1),
            "l": N * (down - 1 + across - 1),
        },
        writes={"O": N * d * down, "l": N * (down - 1 + (across > 1))},
        peak=rows * columns + d + columns,
        shapes={**dict.fromkeys("QKVO", (N, d)), "l": (N,)},
    )
