"""Closed forms of sparse attention: a mask of tiles, and a window that rolls along."""

from __future__ import annotations

from ..ledger import Ledger
from ..masks import Mask
from ..sizes import check_sizes, zero_or_more
from .parts import closed_form, row_sweep


def block_sparse(N: int, d: int, *, mask: Mask, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """F3's order where `mask` says which columns a block of rows needs: 2Nd + 2d Σ_i |columns(i)| words.

    With Br rows a tile of the mask that is 2Nd + 2d·Br·Bc·(number of tiles), ragged tiles by their own size.
    Footprint: the largest r(2d + 2 + c) + c·d over blocks of r rows and slices of c columns that meet.
    """
    check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    sweep = row_sweep(mask, N, Br)
    return closed_form(
        reads={"Q": N * d, "K": d * sweep.met, "V": d * sweep.met},
        writes={"O": N * d, "LSE": N * lse},
        peak=sweep.widest(lambda r, c: r * (2 * d + 2 + c) + c * d, Bc),
        shapes={**dict.fromkeys("QKVO", (N, d)), "LSE": (N,)},
    )


def window(N: int, d: int, *, w: int, lse: bool = False) -> Ledger:
    """Query i sees keys i - w … i + w, whose rows roll along in fast memory: 4Nd words, whatever w is.

    Footprint 2d·min(2w + 1, N) + 2d + 3.
    """
    check_sizes(N=N, d=d)
    keys = min(2 * zero_or_more("w", w) + 1, N)
    return closed_form(
        reads=dict.fromkeys("QKV", N * d),
        writes={"O": N * d, "LSE": N * lse},
        peak=2 * d * keys + 2 * d + 3,
        shapes={**dict.fromkeys("QKVO", (N, d)), "LSE": (N,)},
    )
