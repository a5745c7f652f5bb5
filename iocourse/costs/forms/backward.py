"""Closed forms of the schedules of the backward pass (Q, K, V, dO and row statistics to dQ, dK, dV).

Each accepts a `mask`; None masks nothing. Schedules that recompute scores skip empty blocks and have the
short block at the end where it costs less (`Mask.short_first`). For schedules that store N x N matrices a
mask changes values but not the traffic.
"""

from __future__ import annotations

from functools import lru_cache

from ...ledger import Ledger
from ...masks import Mask
from ...sizes import Shape, check_sizes
from ..closed_form import ceil_div, closed_form, column_sweep, form, row_sweep


@lru_cache(maxsize=64)
def _shapes(N: int, d: int) -> dict[str, Shape]:
    return {
        **dict.fromkeys(("Q", "K", "V", "O", "dO", "dQ", "dK", "dV"), (N, d)),
        **dict.fromkeys(("LSE", "maxima", "sums", "D"), (N,)),
        **dict.fromkeys(("P", "dP", "dS"), (N, N)),
    }


@form
def standard_backward(
    N: int, d: int, *, Br: int, Bd: int, Bc: int, Bm: int, Bn: int, mask: Mask | None = None
) -> Ledger:
    """Traffic of the standard backward pass (2205.14135, Algorithm 3): P is an input, dP and dS are stored.

    Nd⌈N/Bn⌉ + Nd⌈N/Bm⌉ + N² (dP), 5N² (dS), and N²⌈d/Bd⌉ + Nd⌈N/Br⌉ + Nd for each of dV, dQ and dK.
    Footprint max(Bm·Bn + Bm + Bn, 2Bc + 1, Br·Bd + Br + Bd).
    """
    N, d, Br, Bd, Bc, Bm, Bn = check_sizes(N=N, d=d, Br=Br, Bd=Bd, Bc=Bc, Bm=Bm, Bn=Bn)
    r, e, c, mm, nn = min(Br, N), min(Bd, d), min(Bc, N), min(Bm, N), min(Bn, N)
    square, panel = N * N * ceil_div(d, Bd), N * d * ceil_div(N, Br)
    return closed_form(
        reads={
            "P": square + 2 * N * N,
            "dO": panel + N * d * ceil_div(N, Bn),
            "V": N * d * ceil_div(N, Bm),
            "dP": 2 * N * N,
            "dS": 2 * square,
            "K": panel,
            "Q": panel,
        },
        writes={"dP": N * N, "dS": N * N, "dQ": N * d, "dK": N * d, "dV": N * d},
        peak=max(mm * nn + mm + nn, 2 * c + 1, r * e + r + e),
        shapes=_shapes(N, d),
    )


@form
def flash1_backward(N: int, d: int, *, Br: int, Bc: int, mask: Mask | None = None) -> Ledger:
    """Traffic of FlashAttention-1's backward pass (2205.14135, Algorithm 4), K_j, V_j, dK_j, dV_j resident.

    7Nd + ⌈N/Bc⌉(5Nd + 2N) words; footprint 4Bc·d + Br(4d + 2 + Bc).
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    sweep = column_sweep(mask, N, Bc)
    return closed_form(
        reads={
            **dict.fromkeys(("Q", "O", "dO", "dQ"), d * sweep.met),
            **dict.fromkeys(("maxima", "sums"), sweep.met),
            "K": N * d,
            "V": N * d,
        },
        writes={"dQ": N * d + d * sweep.met, "dK": 2 * N * d, "dV": 2 * N * d},
        peak=max(sweep.widest(lambda c, r: 4 * c * d + r * (4 * d + 2 + c), Br), min(Br, N) * d),
        shapes=_shapes(N, d),
    )


def _columns_stay(N: int, d: int, Br: int, Bc: int, mask: Mask | None, row_words: int) -> Ledger:
    """Traffic with K_j, V_j, dK_j, dV_j resident; a row block uses `row_words` per row besides its scores."""
    sweep = column_sweep(mask, N, Bc)
    unseen = sum(stop - start for start, stop in mask.unseen_rows()) if mask else 0
    seen = N - unseen
    main = sweep.widest(lambda c, r: 4 * c * d + r * (row_words + c), Br)
    return closed_form(
        reads={
            "O": N * d,
            "dO": N * d + d * sweep.met,
            "Q": d * sweep.met,
            "LSE": sweep.met,
            "D": sweep.met,
            "dQ": d * (sweep.met - seen),
            "K": N * d,
            "V": N * d,
        },
        writes={"D": N, "dQ": d * (sweep.met + unseen), "dK": N * d, "dV": N * d},
        peak=max(main, min(Br, N) * (2 * d + 1)),
        shapes=_shapes(N, d),
    )


@form
def flash2_backward(N: int, d: int, *, Br: int, Bc: int, mask: Mask | None = None) -> Ledger:
    """Traffic of FlashAttention-2's backward pass (2307.08691, Algorithm 2); D first, dQ_i created, not read.

    5Nd + N + ⌈N/Bc⌉(4Nd + 2N) words; footprint 4Bc·d + Br(3d + 2 + Bc).
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    return _columns_stay(N, d, Br, Bc, mask, row_words=3 * d + 2)


@form
def fused_backward(N: int, d: int, *, Br: int, Bc: int, mask: Mask | None = None) -> Ledger:
    """Traffic of the fused backward pass: FlashAttention-2's order with dQ_i in dO_i's buffer.

    5Nd + N + ⌈N/Bc⌉(4Nd + 2N) words; footprint 4Bc·d + Br(2d + 2 + Bc).
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    return _columns_stay(N, d, Br, Bc, mask, row_words=2 * d + 2)


@form
def split_backward(
    N: int, d: int, *, Br1: int, Bc1: int, Br2: int, Bc2: int, mask: Mask | None = None
) -> Ledger:
    """Traffic of the two-pass backward pass: query blocks resident for dQ, then key blocks for dK and dV.

    4Nd + 2N + 2Nd⌈N/Br1⌉ and 4Nd + ⌈N/Bc2⌉(2Nd + 2N) words.
    Footprint max(Br1(3d + 2 + Bc1) + 2Bc1·d, 4Bc2·d + Br2(2d + 2 + Bc2)).
    """
    N, d, Br1, Bc1, Br2, Bc2 = check_sizes(N=N, d=d, Br1=Br1, Bc1=Bc1, Br2=Br2, Bc2=Bc2)
    rows, columns = row_sweep(mask, N, Br1), column_sweep(mask, N, Bc2)
    first = rows.widest(lambda r, c: r * (3 * d + 2 + c) + 2 * c * d, Bc1)
    second = columns.widest(lambda c, r: 4 * c * d + r * (2 * d + 2 + c), Br2)
    return closed_form(
        reads={
            "Q": N * d + d * columns.met,
            "dO": N * d + d * columns.met,
            "O": N * d,
            "LSE": N + columns.met,
            "D": columns.met,
            "K": d * rows.met + N * d,
            "V": d * rows.met + N * d,
        },
        writes={"D": N, "dQ": N * d, "dK": N * d, "dV": N * d},
        peak=max(first, second),
        shapes=_shapes(N, d),
    )


@form
def small_cache_backward(
    N: int, d: int, *, Br: int, Bc: int, Bm: int, Bd: int, mask: Mask | None = None
) -> Ledger:
    """Traffic of the split-d backward pass: P and dS stored, five blocked products; for M below about d².

    2Nd + N (D), Nd(⌈N/Bc⌉ + ⌈N/Br⌉) + N + N² (P), the same + N² (dS), and N²⌈d/Bd⌉ + Nd⌈N/Bm⌉ + Nd for
    each of dV, dQ, dK. Footprint max(Br·Bc + 2Br + Bc, Bm·Bd + Bm + Bd).
    """
    N, d, Br, Bc, Bm, Bd = check_sizes(N=N, d=d, Br=Br, Bc=Bc, Bm=Bm, Bd=Bd)
    r, c, mm, e = min(Br, N), min(Bc, N), min(Bm, N), min(Bd, d)
    left, right = N * d * ceil_div(N, Bc), N * d * ceil_div(N, Br)
    square, panel = N * N * ceil_div(d, Bd), N * d * ceil_div(N, Bm)
    return closed_form(
        reads={
            "O": N * d,
            "dO": N * d + left + panel,
            "Q": left + panel,
            "K": right + panel,
            "V": right,
            "LSE": N,
            "D": N,
            "P": N * N + square,
            "dS": 2 * square,
        },
        writes={"D": N, "P": N * N, "dS": N * N, "dV": N * d, "dQ": N * d, "dK": N * d},
        peak=max(r * c + 2 * r + c, mm * e + mm + e, 3 * r),
        shapes=_shapes(N, d),
    )


# ------------------------------------------------------------------ weights or scores' gradients stored
# D = rowsum(dO∘O) is computed when dO is first streamed, which reads the Nd words of O; the N words of D are
# stored only if a second block of columns needs them.
@form
def score_gradients_stored(N: int, d: int, *, Br: int, Bc: int, mask: Mask | None = None) -> Ledger:
    """Traffic of the backward pass with dS stored: K_j, V_j, dK_j, dV_j resident first, then dQ_i.

    6Nd + ⌈N/Bc⌉(2Nd + 2N) + Nd⌈N/Br⌉ + 2N² words, N fewer if Bc ≥ N.
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
    """Traffic of the backward pass with P stored: K_j resident, then V_j, dV_j (dS over P), then dQ and dK.

    6Nd + (Nd + N)(⌈N/Bk⌉ + ⌈N/Bv⌉) + 2Nd⌈N/Bo⌉ + (3 + 2⌈d/Bd⌉)N² words, N fewer if Bv ≥ N.
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
    """Traffic of the backward pass with P precomputed: V_j, dV_j resident (dS stored), then dQ and dK tiles.

    5Nd + (Nd + N)⌈N/Bv⌉ + 2Nd⌈N/Bo⌉ + (2 + 2⌈d/Bd⌉)N² words, N fewer if Bv ≥ N.
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
def small_cache_precomputed(
    N: int, d: int, *, Br: int, Bc: int, Bm: int, Bd: int, mask: Mask | None = None
) -> Ledger:
    """Traffic of the split-d backward pass with P precomputed: dS stored, four blocked products.

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
    """Return the words of D that are written: none if there is only one block of columns."""
    return N if columns > 1 else 0
