"""Closed forms of the schedules of the forward pass and of the matrix product."""

from __future__ import annotations

from functools import lru_cache

from ...ledger import Ledger
from ...sizes import Shape, check_sizes, truth
from ..closed_form import ceil_div, closed_form, form


@lru_cache(maxsize=64)
def _shapes(N: int, d: int) -> dict[str, Shape]:
    """Return shapes by name, including scratch arrays that only some schedules use."""
    return {
        **dict.fromkeys("QKVO", (N, d)),
        **dict.fromkeys(("LSE", "m", "l", "D"), (N,)),
        **dict.fromkeys("SPA", (N, N)),
    }


@form
def matmul(m: int, n: int, k: int, *, bm: int, bn: int) -> Ledger:
    """Traffic of C = AB with A (m, k), B (k, n): a bm x bn tile of C is resident, A and B are streamed.

    mk⌈n/bn⌉ + kn⌈m/bm⌉ + mn words; footprint bm·bn + bm + bn with tiles limited to the matrix.
    """
    m, n, k, bm, bn = check_sizes(m=m, n=n, k=k, bm=bm, bn=bn)
    am, an = min(bm, m), min(bn, n)
    return closed_form(
        reads={"A": m * k * ceil_div(n, bn), "B": k * n * ceil_div(m, bm)},
        writes={"C": m * n},
        peak=am * an + am + an,
        shapes={"A": (m, k), "B": (k, n), "C": (m, n)},
    )


@form
def naive(N: int, d: int, *, Br: int, Bc: int, Bm: int, Bn: int, lse: bool = False) -> Ledger:
    """Traffic of standard attention: Br rows of Q at a time, softmax in pieces of Bc, Bm x Bn tiles of O.

    Nd + Nd⌈N/Br⌉ + N² (scores), (p + 1)N² with p = 1 if a row fits and 2 otherwise (softmax),
    N²⌈d/Bn⌉ + Nd⌈N/Bm⌉ + Nd (output). Footprint max(Br·d + d + Br, Bc + 2, Bm·Bn + Bm + Bn).
    """
    N, d, Br, Bc, Bm, Bn = check_sizes(N=N, d=d, Br=Br, Bc=Bc, Bm=Bm, Bn=Bn)
    passes = 1 if Bc >= N else 2
    r, c, mm, nn = min(Br, N), min(Bc, N), min(Bm, N), min(Bn, d)
    return closed_form(
        reads={
            "Q": N * d,
            "K": N * d * ceil_div(N, Br),
            "S": passes * N * N,
            "P": N * N * ceil_div(d, Bn),
            "V": N * d * ceil_div(N, Bm),
        },
        writes={"S": N * N, "P": N * N, "O": N * d, "LSE": N * truth("lse", lse)},
        peak=max(r * d + d + r, c + 2, mm * nn + mm + nn),
        shapes=_shapes(N, d),
    )


@form
def flash1(N: int, d: int, *, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """Traffic of the FlashAttention-1 order (2205.14135, Algorithm 1): K_j and V_j are resident.

    3Nd + 2N + ⌈N/Bc⌉(3Nd + 4N) words; footprint 2Bc·d + Br(2d + 2 + Bc).
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    passes = ceil_div(N, Bc)
    r, c = min(Br, N), min(Bc, N)
    return closed_form(
        reads={
            "Q": N * d * passes,
            "O": N * d * passes,
            "m": N * passes,
            "l": N * passes,
            "K": N * d,
            "V": N * d,
        },
        writes={
            "O": N * d * (passes + 1),
            "m": N * (passes + 1),
            "l": N * (passes + 1),
            "LSE": N * truth("lse", lse),
        },
        peak=2 * c * d + r * (2 * d + 2 + c),
        shapes=_shapes(N, d),
    )


def _row_blocks(N: int, d: int, Br: int, lse: bool, peak: int) -> Ledger:
    passes = ceil_div(N, Br)
    return closed_form(
        reads={"Q": N * d, "K": N * d * passes, "V": N * d * passes},
        writes={"O": N * d, "LSE": N * truth("lse", lse)},
        peak=peak,
        shapes=_shapes(N, d),
    )


@form
def flash2(N: int, d: int, *, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """Traffic of the FlashAttention-2 order (2307.08691, Algorithm 1): Q_i, O_i resident, K and V streamed.

    2Nd + 2Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 2 + Bc) + 2Bc·d.
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    r, c = min(Br, N), min(Bc, N)
    return _row_blocks(N, d, Br, lse, r * (2 * d + 2 + c) + 2 * c * d)


@form
def flash_optimal(N: int, d: int, *, Br: int, Bc: int = 1, lse: bool = False) -> Ledger:
    """Traffic of the FlashAttention-2 order with V_j in K_j's buffer; constant 4 is optimal by Theorem A.

    2Nd + 2Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 2 + Bc) + Bc·d.
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    r, c = min(Br, N), min(Bc, N)
    return _row_blocks(N, d, Br, lse, r * (2 * d + 2 + c) + c * d)


@form
def square_tiling(N: int, d: int, *, B: int, lse: bool = False) -> Ledger:
    """Traffic of SquareTilingAttention (2402.07443, Algorithm 1): A = exp(S) stored, then blocked products.

    2Nd⌈N/B⌉ + N² + N (A and its row sums), N + N²⌈d/B⌉ + Nd⌈N/B⌉ + Nd (output).
    Footprint b² + 2be + b with b = min(B, N), e = min(B, d).
    """
    N, d, B = check_sizes(N=N, d=d, B=B)
    blocks, b, e = ceil_div(N, B), min(B, N), min(B, d)
    return closed_form(
        reads={
            "Q": N * d * blocks,
            "K": N * d * blocks,
            "A": N * N * ceil_div(d, B),
            "V": N * d * blocks,
            "D": N,
        },
        writes={"A": N * N, "D": N, "O": N * d, "LSE": N * truth("lse", lse)},
        peak=b * b + 2 * b * e + b,
        shapes=_shapes(N, d),
    )


@form
def small_cache(N: int, d: int, *, Br: int, Bc: int, Bd: int, lse: bool = False) -> Ledger:
    """Traffic of the split-d forward pass: raw scores of a row block stored, then output tiles of Bd columns.

    Nd⌈N/Bc⌉ + Nd⌈N/Br⌉ + N² (scores), N²⌈d/Bd⌉ + Nd⌈N/Br⌉ + Nd (output).
    Footprint max(Br·Bc + Bc + 3Br, Br·Bd + Bd + 2Br).
    """
    N, d, Br, Bc, Bd = check_sizes(N=N, d=d, Br=Br, Bc=Bc, Bd=Bd)
    row_blocks, r, c, e = ceil_div(N, Br), min(Br, N), min(Bc, N), min(Bd, d)
    return closed_form(
        reads={
            "Q": N * d * ceil_div(N, Bc),
            "K": N * d * row_blocks,
            "S": N * N * ceil_div(d, Bd),
            "V": N * d * row_blocks,
        },
        writes={"S": N * N, "O": N * d, "LSE": N * truth("lse", lse)},
        peak=max(r * c + c + 3 * r, r * e + e + 2 * r),
        shapes={**_shapes(N, d), "S": (r, N)},
    )


@form
def small_cache_fused(N: int, d: int, *, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """Traffic of the fused split-d forward pass; O is loaded and stored by slices for each block of keys.

    Nd(3⌈N/Bc⌉ - 1 + 2⌈N/Br⌉) words; footprint Br·Bc + 4Br + Bc.
    """
    N, d, Br, Bc = check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    row_blocks, passes, r, c = ceil_div(N, Br), ceil_div(N, Bc), min(Br, N), min(Bc, N)
    return closed_form(
        reads={
            "Q": N * d * passes,
            "K": N * d * row_blocks,
            "V": N * d * row_blocks,
            "O": N * d * (passes - 1),
        },
        writes={"O": N * d * passes, "LSE": N * truth("lse", lse)},
        peak=r * c + 4 * r + c,
        shapes=_shapes(N, d),
    )


@form
def scores_stored(N: int, d: int, *, Br: int, lse: bool = False) -> Ledger:
    """Traffic with raw scores of a row block stored: first Q_i, then O_i is resident.

    2Nd + 2Nd⌈N/Br⌉ + 2N² words (+ N for LSE); footprint Br(d + 3) + d.
    """
    N, d, Br = check_sizes(N=N, d=d, Br=Br)
    row_blocks, r = ceil_div(N, Br), min(Br, N)
    return closed_form(
        reads={"Q": N * d, "K": N * d * row_blocks, "S": N * N, "V": N * d * row_blocks},
        writes={"S": N * N, "O": N * d, "LSE": N * truth("lse", lse)},
        peak=r * (d + 3) + d,
        shapes={**_shapes(N, d), "S": (r, N)},
    )


@form
def scores_stored_tiled(N: int, d: int, *, Br: int, Bo: int, Bd: int, lse: bool = False) -> Ledger:
    """Traffic with all raw scores and the LSE stored (with or without `lse`), then Bo x Bd tiles of O.

    2Nd + 2N + Nd(⌈N/Br⌉ + ⌈N/Bo⌉) + (1 + ⌈d/Bd⌉)N² words; footprint max(Br(d + 3) + d, Bo·Bd + 2Bo + Bd).
    """
    N, d, Br, Bo, Bd = check_sizes(N=N, d=d, Br=Br, Bo=Bo, Bd=Bd)
    truth("lse", lse)
    r, b, e = min(Br, N), min(Bo, N), min(Bd, d)
    return closed_form(
        reads={
            "Q": N * d,
            "K": N * d * ceil_div(N, Br),
            "S": N * N * ceil_div(d, Bd),
            "V": N * d * ceil_div(N, Bo),
            "LSE": N,
        },
        writes={"S": N * N, "O": N * d, "LSE": N},
        peak=max(r * (d + 3) + d, b * e + 2 * b + e),
        shapes=_shapes(N, d),
    )


@form
def resident_keys(N: int, d: int, *, Br: int, places: int, lse: bool = False) -> Ledger:
    """Traffic of flash_optimal with Bc = 1 and C = places - 1 keys and values resident for the complete run.

    2Nd + 2Nd·k - 2Cd(k - 1) words with k = ⌈N/Br⌉ (+ N for LSE).
    Footprint 2Cd + Br(2d + 3) + d, without the last d if C ≥ N.
    """
    N, d, Br, places = check_sizes(N=N, d=d, Br=Br, places=places)
    r, C = min(Br, N), min(places - 1, N)
    keys = C * d + (N - C) * d * ceil_div(N, Br)
    return closed_form(
        reads={"Q": N * d, "K": keys, "V": keys},
        writes={"O": N * d, "LSE": N * truth("lse", lse)},
        peak=2 * C * d + r * (2 * d + 3) + d * (C < N),
        shapes=_shapes(N, d),
    )


@form
def shared_key_value(N: int, d: int, *, Br: int, lse: bool = False) -> Ledger:
    """Traffic of tied attention, K = V = X: a row of X is read once for both.

    2Nd + Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 3) + d.
    """
    N, d, Br = check_sizes(N=N, d=d, Br=Br)
    return closed_form(
        reads={"Q": N * d, "X": N * d * ceil_div(N, Br)},
        writes={"O": N * d, "LSE": N * truth("lse", lse)},
        peak=min(Br, N) * (2 * d + 3) + d,
        shapes={**_shapes(N, d), "X": (N, d)},
    )
