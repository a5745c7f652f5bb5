"""Closed forms of schedules that must be told more than tiles: a mask, a window, a polynomial's degree."""

from __future__ import annotations

from ..ledger import Ledger
from ..masks import Mask
from ..monomials import rank_of
from ..sizes import check_sizes, truth, zero_or_more
from .parts import ceil_div, closed_form, form, row_sweep


@form
def block_sparse(N: int, d: int, *, mask: Mask, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """F3's order where `mask` says which columns a block of rows needs: 2Nd + 2d Σ_i |columns(i)| words.

    With Br rows a tile of the mask that is 2Nd + 2d·Br·Bc·(number of tiles), ragged tiles by their own size.
    Footprint: the largest r(2d + 2 + c) + c·d over blocks of r rows and slices of c columns that meet.
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    sweep = row_sweep(mask, N, Br)
    return closed_form(
        reads={"Q": N * d, "K": d * sweep.met, "V": d * sweep.met},
        writes={"O": N * d, "LSE": N * truth("lse", lse)},
        peak=sweep.widest(lambda r, c: r * (2 * d + 2 + c) + c * d, Bc),
        shapes={**dict.fromkeys("QKVO", (N, d)), "LSE": (N,)},
    )


@form
def window(N: int, d: int, *, w: int, lse: bool = False) -> Ledger:
    """Query i sees keys i - w … i + w, whose rows roll along in fast memory: 4Nd words, whatever w is.

    Footprint 2d·min(2w + 1, N) + 2d + 3.
    """
    N, d = check_sizes(N=N, d=d)
    keys = min(2 * zero_or_more("w", w) + 1, N)
    return closed_form(
        reads=dict.fromkeys("QKV", N * d),
        writes={"O": N * d, "LSE": N * truth("lse", lse)},
        peak=2 * d * keys + 2 * d + 3,
        shapes={**dict.fromkeys("QKVO", (N, d)), "LSE": (N,)},
    )


@form
def low_rank(N: int, d: int, *, g: int, rc: int, Bd: int) -> Ledger:
    """Low rank, a polynomial in place of exp: tiles rc x Bd of the state T = ψ(K)ᵀ[1, V], one after another.

    The state is r x (d + 1) with r = C(d + g, g), k = ⌈r/rc⌉ tiles down and c = ⌈(d + 1)/Bd⌉ across: 2Ndkc
    words of Q and K, Ndk of V, Nd(2k - 1) of O, and of the row sums l 2N(k - 1) where c = 1, else
    N(2k + c - 2). Footprint rc·Bd + Bd + d with the tile cut to the state; features live in a register.
    k = c = 1: 4Nd. Rows only, c = 1: about 5rNd²/M. Columns first, k = 1: 2Nd(c + 1) + Nc, about 2rNd²/M.
    """
    N, d, g, rc, Bd = check_sizes(N=N, d=d, g=g, rc=rc, Bd=Bd)
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
