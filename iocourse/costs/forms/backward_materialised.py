"""Closed forms of backward passes that store scores' gradients or weights instead of making them twice.

A mask changes values and saves no word. D = rowsum(dO∘O) is made where dO passes for the first time, so it
costs the Nd words of O; the N words of D are stored only where a second block of columns asks for them.
"""

from __future__ import annotations

from functools import lru_cache

from ...ledger import Ledger
from ...masks import Mask
from ...sizes import Shape, check_sizes
from ..closed_form import ceil_div, closed_form, form


@lru_cache(maxsize=64)
def _shapes(N: int, d: int) -> dict[str, Shape]:
    return {
        **dict.fromkeys(("Q", "K", "V", "O", "dO", "dQ", "dK", "dV"), (N, d)),
        **dict.fromkeys(("LSE", "D"), (N,)),
        **dict.fromkeys(("P", "dS"), (N, N)),
    }


@form
def score_gradients_stored(N: int, d: int, *, Br: int, Bc: int, mask: Mask | None = None) -> Ledger:
    """K_j, V_j, dK_j, dV_j stay while dS is stored; then dQ_i stays.

    6Nd + ⌈N/Bc⌉(2Nd + 2N) + Nd⌈N/Br⌉ + 2N² words, N fewer where Bc ≥ N.
    Footprint max(Bc(4d + 1) + 2d + 2, Br(d + 1) + d).
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    r, c, columns = min(Br, N), min(Bc, N), ceil_div(N, Bc)
    return closed_form(
        reads={
            "O": N * d,
            "dO": N * d * columns,
            "Q": N * d * columns,
            "K": N * d + N * d * ceil_div(N, Br),
            "V": N * d,
            "LSE": N * columns,
            "D": N * (columns - 1),
            "dS": N * N,
        },
        writes={"D": _stored(N, columns), "dS": N * N, "dQ": N * d, "dK": N * d, "dV": N * d},
        peak=max(c * (4 * d + 1) + 2 * d + 2, r * (d + 1) + d),
        shapes=_shapes(N, d),
    )


@form
def weights_stored(N: int, d: int, *, Bk: int, Bv: int, Bo: int, Bd: int, mask: Mask | None = None) -> Ledger:
    """K_j stays while P is stored; V_j, dV_j stay while dS is written over P; then dQ and dK, tile by tile.

    6Nd + (Nd + N)(⌈N/Bk⌉ + ⌈N/Bv⌉) + 2Nd⌈N/Bo⌉ + (3 + 2⌈d/Bd⌉)N² words, N fewer where Bv ≥ N.
    Footprint max(Bk(d + 1) + d + 1, Bv(2d + 1) + d + 1, Bo·Bd + Bo + Bd).
    """
    N, d, Bk, Bv, Bo, Bd = check_sizes(N=N, d=d, Bk=Bk, Bv=Bv, Bo=Bo, Bd=Bd)
    k, v, o, e = min(Bk, N), min(Bv, N), min(Bo, N), min(Bd, d)
    keys, values, panel = ceil_div(N, Bk), ceil_div(N, Bv), N * d * ceil_div(N, Bo)
    return closed_form(
        reads={
            "K": N * d + panel,
            "Q": N * d * keys + panel,
            "LSE": N * keys,
            "V": N * d,
            "O": N * d,
            "dO": N * d * values,
            "D": N * (values - 1),
            "P": N * N + 2 * N * N * ceil_div(d, Bd),
        },
        writes={"P": 2 * N * N, "D": _stored(N, values), "dV": N * d, "dQ": N * d, "dK": N * d},
        peak=max(k * (d + 1) + d + 1, v * (2 * d + 1) + d + 1, o * e + o + e),
        shapes=_shapes(N, d),
    )


@form
def weights_precomputed(N: int, d: int, *, Bv: int, Bo: int, Bd: int, mask: Mask | None = None) -> Ledger:
    """P given: V_j, dV_j stay while dS is stored; then dQ and dK, tile by tile.

    5Nd + (Nd + N)⌈N/Bv⌉ + 2Nd⌈N/Bo⌉ + (2 + 2⌈d/Bd⌉)N² words, N fewer where Bv ≥ N.
    Footprint max(Bv(2d + 1) + d + 1, Bo·Bd + Bo + Bd).
    """
    N, d, Bv, Bo, Bd = check_sizes(N=N, d=d, Bv=Bv, Bo=Bo, Bd=Bd)
    v, o, e = min(Bv, N), min(Bo, N), min(Bd, d)
    values, panel = ceil_div(N, Bv), N * d * ceil_div(N, Bo)
    return closed_form(
        reads={
            "P": N * N,
            "V": N * d,
            "O": N * d,
            "dO": N * d * values,
            "D": N * (values - 1),
            "dS": 2 * N * N * ceil_div(d, Bd),
            "K": panel,
            "Q": panel,
        },
        writes={"dS": N * N, "D": _stored(N, values), "dV": N * d, "dQ": N * d, "dK": N * d},
        peak=max(v * (2 * d + 1) + d + 1, o * e + o + e),
        shapes=_shapes(N, d),
    )


@form
def small_cache_weights_precomputed(
    N: int, d: int, *, Br: int, Bc: int, Bm: int, Bd: int, mask: Mask | None = None
) -> Ledger:
    """P given: dS written out, four blocked products; for fast memories below about d² words.

    Nd + Nd(⌈N/Bc⌉ + ⌈N/Br⌉) + 2N² (D and dS), and N²⌈d/Bd⌉ + Nd⌈N/Bm⌉ + Nd for each of dV, dQ, dK.
    Footprint max(Br·Bc + 2Br + max(Br, Bc), Bm·Bd + Bm + Bd).
    """
    N, d, Br, Bc, Bm, Bd = check_sizes(N=N, d=d, Br=Br, Bc=Bc, Bm=Bm, Bd=Bd)
    r, c, mm, e = min(Br, N), min(Bc, N), min(Bm, N), min(Bd, d)
    square, panel = N * N * ceil_div(d, Bd), N * d * ceil_div(N, Bm)
    return closed_form(
        reads={
            "O": N * d,
            "dO": N * d * ceil_div(N, Bc) + panel,
            "V": N * d * ceil_div(N, Br),
            "P": N * N + square,
            "dS": 2 * square,
            "K": panel,
            "Q": panel,
        },
        writes={"dS": N * N, "dV": N * d, "dQ": N * d, "dK": N * d},
        peak=max(r * c + 2 * r + max(r, c), mm * e + mm + e),
        shapes=_shapes(N, d),
    )


def _stored(N: int, columns: int) -> int:
    """The words of D that are written: none where the first block of columns is the last."""
    return N if columns > 1 else 0
