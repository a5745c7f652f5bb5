"""Closed forms of schedules with a mask, a window or a polynomial degree as an argument."""

from __future__ import annotations

from ...ledger import Ledger
from ...masks import Mask
from ...monomials import rank_of
from ...sizes import Shape, check_sizes, truth, zero_or_more
from ..closed_form import ceil_div, closed_form, form, row_sweep


@form
def block_sparse(N: int, d: int, *, mask: Mask, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """Traffic of block-sparse attention: 2Nd + 2d Σ_i |columns(i)| words, columns needed by row block i.

    The short block of rows is at the end where it costs less (`Mask.short_first`): the first under a causal
    mask, with 2Nd + 2d(kN - Br·k(k - 1)/2) words for k = ⌈N/Br⌉ blocks. If the tiles of the mask have Br
    rows, that is 2Nd + 2d·Br·Bc·(number of non-empty tiles), with smaller tiles at the edges. Footprint: the
    maximum of r(2d + 2 + c) + c·d over blocks of r rows and their slices of c columns.
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
    """Traffic of sliding-window attention (query i attends to keys i - w … i + w): 4Nd words for any w.

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
    """Traffic of low-rank attention, with rc x Bd tiles of the state T = ψ(K)ᵀ[1, V] one after another.

    The state is r x (d + 1) with r = C(d + g, g), in k = ⌈r/rc⌉ by c = ⌈(d + 1)/Bd⌉ tiles. Words: 2Ndkc of Q
    and K, Ndk of V, Nd(2k - 1) of O, and of the row sums l 2N(k - 1) if c = 1, otherwise N(2k + c - 2).
    Footprint rc·Bd + Bd + d with the tile limited to the state; features use a register only.
    k = c = 1: 4Nd. c = 1 (by rows): about 5rNd²/M. k = 1 (by columns): 2Nd(c + 1) + Nc, about 2rNd²/M.
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


@form
def low_rank_backward(N: int, d: int, *, g: int, rc: int, Bd: int) -> Ledger:
    """Traffic of the low-rank backward pass, with two states r x (d + 1): the input T = ψ(K)ᵀ[1, V], and U.

    If one tile is the complete state: T, and Nd each for Q, dO, K, V, dQ, dK and dV, in total 7Nd + r(d + 1);
    footprint 2r(d + 1) + 3d + 2. Otherwise, with k = ⌈r/rc⌉ by c = ⌈(d + 1)/Bd⌉ tiles of T and then of U:
    T twice; Nd words 3kc times of Q, 3k of dO, kc of K, k of V, 2kc - 1 of dQ and of dK, 2k - 1 of dV; row
    sums l and D are computed first, N(2k + 2kc) words of l and N(2k + 2kc - 1) of D. Footprint
    rc·Bd + Bd + 2d with the tile limited to the state. k = 1 (by columns): about 8Ndc, 8rNd²/M.
    """
    N, d, g, rc, Bd = check_sizes(N=N, d=d, g=g, rc=rc, Bd=Bd)
    r, Nd = rank_of(d, g), N * d
    shapes: dict[str, Shape] = dict.fromkeys(("Q", "K", "V", "dO", "dQ", "dK", "dV"), (N, d))
    if rc >= r and Bd > d:
        return closed_form(
            reads=dict.fromkeys(("Q", "K", "V", "dO"), Nd) | {"T": r * (d + 1)},
            writes=dict.fromkeys(("dQ", "dK", "dV"), Nd),
            peak=2 * r * (d + 1) + 3 * d + 2,
            shapes=shapes | {"T": (r, d + 1)},
        )
    down, across = ceil_div(r, rc), ceil_div(d + 1, Bd)
    tiles, columns = down * across, min(Bd, d + 1)
    return closed_form(
        reads={
            "T": 2 * r * (d + 1),
            "Q": 3 * Nd * tiles,
            "dO": 3 * Nd * down,
            "K": Nd * tiles,
            "V": Nd * down,
            "dQ": Nd * (tiles - 1),
            "dK": Nd * (tiles - 1),
            "dV": Nd * (down - 1),
            "l": N * (down + 2 * tiles),
            "D": N * (tiles - 1 + 2 * down),
        },
        writes={
            **dict.fromkeys(("dQ", "dK"), Nd * tiles),
            "dV": Nd * down,
            "l": N * down,
            "D": N * tiles,
        },
        peak=min(rc, r) * columns + 2 * d + columns,
        shapes=shapes | {"T": (r, d + 1), "l": (N,), "D": (N,)},
    )
