"""Backward kernel of dQ, first kernel of the two-pass backward pass: the tile of queries is resident,
keys are streamed.

It is the first pass of the emulator's `split_backward`. It also computes D from O and dO, and stores D and
the row log-sum-exps in base 2 for the second pass.
"""

import triton
import triton.language as tl

from .backward_delta import load_delta
from .jit_helpers import (
    LOG2_E,
    load_log_sums,
    load_rows,
    pattern,
    place_of_queries,
    row_numbers_of,
    sees,
    store_row_numbers,
    store_rows,
)


@triton.jit
def add_dq_of_keys(
    acc, q_tile, do_tile, total, delta, K, V, batch, head, start, first, last, k0, pairs, d, scale, lists,
    TILE: tl.constexpr, SEEN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return acc (BM, DIM) plus dS K over the keys first … last - 1, with dS = P ∘ (dO Vᵀ - D)."""
    BN: tl.constexpr = TILE.BN
    stop = k0 + pairs.n_k
    i = start + tl.arange(0, TILE.BM)
    for step in range(first, last, 1 if SEEN.LISTED else BN):
        at = tl.load(lists.entries + step) * BN if SEEN.LISTED else step
        k_tile = load_rows(
            K, batch, head, k0 + at, stop, d, BN, TILE.DIM, MASKED, TILE.PADDED, TILE.DESCRIPTORS
        )
        v_tile = load_rows(
            V, batch, head, k0 + at, stop, d, BN, TILE.DIM, MASKED, TILE.PADDED, TILE.DESCRIPTORS
        )
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        p = tl.exp2(s * scale - total[:, None])
        if MASKED:
            if SEEN.LISTED:
                seen = pattern(lists, step, TILE.BM, BN)
            else:
                j = at + tl.arange(0, BN)
                seen = sees(i[:, None], j[None, :], pairs, SEEN)
            p = tl.where(seen, p, 0.0)
        dp = tl.dot(do_tile, tl.trans(v_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        ds = p * (dp - delta[:, None])
        # K_j is a factor of the scores and of dQ, so it is loaded once for two products.
        acc = tl.dot(ds.to(k_tile.dtype), k_tile, acc, input_precision=TILE.PRECISION)
    return acc


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def backward_queries_kernel(
    Q, K, V, O, dO, LSE, dLSE, prepared, dQ, cu, lists, shape, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr,
):  # fmt: skip
    """Compute dQ = scale · dS K, BM rows per program, and prepare row statistics for the second pass."""
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    d = shape.d
    batch, head, start, q0, k0, pairs, borders = place_of_queries(
        shape, lists, cu, n_q, n_k, low, high, TILE, SEEN
    )
    LSE = row_numbers_of(LSE, batch, head, shape.heads, n_q, q0, SEEN.PACKED)
    if dLSE is not None:
        dLSE = row_numbers_of(dLSE, batch, head, shape.heads, n_q, q0, SEEN.PACKED)
    stop = q0 + pairs.n_q
    q_tile = load_rows(Q, batch, head, q0 + start, stop, d, BM, DIM, True, TILE.PADDED, False)
    total = load_log_sums(LSE, start, pairs.n_q, BM)
    do_tile, delta = load_delta(
        O, dO, dLSE, total, batch, head, start, q0, pairs.n_q, d, BM, DIM, TILE.PADDED
    )  # fmt: skip
    # Both statistics are in registers here, so storing them costs no extra launch.
    store_row_numbers(
        prepared, total, delta, batch, head, shape.heads, start, q0, pairs.n_q, BM, SEEN.PACKED
    )  # fmt: skip
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    CUT_LAST: tl.constexpr = SEEN.HAS_LOW or SEEN.HAS_HIGH or SEEN.RAGGED_K or SEEN.LISTED
    for part in tl.static_range(3):  # as in the forward pass
        if part == 1 or (part == 0 and SEEN.HAS_LOW) or (part == 2 and CUT_LAST):
            begin, end = borders[part], borders[part + 1]
            if not TILE.SKIPPING or begin < end:
                acc = add_dq_of_keys(
                    acc, q_tile, do_tile, total, delta, K, V, batch, head // shape.group, start, begin, end,
                    k0, pairs, d, scale * LOG2_E, lists, TILE, SEEN, part != 1,
                )  # fmt: skip
    store_rows(acc * scale, dQ, batch, head, q0 + start, stop, d, BM, DIM)
