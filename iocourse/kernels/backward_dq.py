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
    Lengths,
    load_log_sums,
    load_rows,
    place_of_queries,
    row_numbers_of,
    start_of_step,
    store_row_numbers,
    store_rows,
    stream_rows,
    visible_in_step,
)


@triton.jit
def add_dq_of_keys(
    acc, q_tile, do_tile, total, delta, K, V, keys, start, begin, end, lengths, lists, scale,
    TILE: tl.constexpr, MASK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return acc (BM, DIM) plus dS K over the keys begin … end - 1, with dS = P ∘ (dO Vᵀ - D), for the
    queries from `start` on. total, delta (BM,): their log-sum-exps in base 2, and D. MASKED: the tiles of
    this loop are partial.
    """
    BN: tl.constexpr = TILE.BN
    i = start + tl.arange(0, TILE.BM)
    for step in range(begin, end, 1 if MASK.LISTED else BN):
        at = start_of_step(lists, step, BN, MASK)
        k_tile = stream_rows(K, keys, at, ROWS=BN, TILE=TILE, CHECK_ROWS=MASKED)
        v_tile = stream_rows(V, keys, at, ROWS=BN, TILE=TILE, CHECK_ROWS=MASKED)
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        p = tl.exp2(s * scale - total[:, None])
        if MASKED:
            j = at + tl.arange(0, BN)
            visible = visible_in_step(i[:, None], j[None, :], lengths, lists, step, MASK=MASK)
            p = tl.where(visible, p, 0.0)
        dp = tl.dot(do_tile, tl.trans(v_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        ds = p * (dp - delta[:, None])
        # K_j is a factor of the scores and of dQ, so it is loaded once for two products.
        acc = tl.dot(ds.to(k_tile.dtype), k_tile, acc, input_precision=TILE.PRECISION)
    return acc


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def backward_queries_kernel(
    Q, K, V, O, dO, LSE, dLSE, prepared, dQ, cu, lists, shape, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Compute dQ = scale · dS K, BM rows per program, and store row statistics in `prepared`, a `RowNumbers`,
    for the second pass. The other arguments are those of `forward_kernel`.
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    start, queries, keys, lengths, borders = place_of_queries(
        shape, lists, cu, Lengths(n_q, n_k, low, high), TILE=TILE, MASK=MASK
    )
    LSE = row_numbers_of(LSE, queries, shape.heads, n_q, MASK.PACKED)
    if dLSE is not None:
        dLSE = row_numbers_of(dLSE, queries, shape.heads, n_q, MASK.PACKED)
    q_tile = load_rows(Q, queries, start, ROWS=BM, DIM=DIM, PADDED=TILE.PADDED)
    total = load_log_sums(LSE, start, lengths.n_q, BM)
    do_tile, delta = load_delta(O, dO, dLSE, total, queries, start, BM=BM, DIM=DIM, PADDED=TILE.PADDED)
    # Both statistics are in registers here, so storing them costs no extra launch.
    store_row_numbers(prepared, queries, start, total, delta, heads=shape.heads, PACKED=MASK.PACKED)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    CUT_LAST: tl.constexpr = MASK.HAS_LOW or MASK.HAS_HIGH or MASK.RAGGED_K or MASK.LISTED
    for part in tl.static_range(3):  # as in the forward pass
        if part == 1 or (part == 0 and MASK.HAS_LOW) or (part == 2 and CUT_LAST):
            begin, end = borders[part], borders[part + 1]
            if not TILE.SKIPPING or begin < end:
                acc = add_dq_of_keys(
                    acc, q_tile, do_tile, total, delta, K, V, keys,
                    start=start, begin=begin, end=end, lengths=lengths, lists=lists, scale=scale * LOG2_E,
                    TILE=TILE, MASK=MASK, MASKED=part != 1,
                )  # fmt: skip
    store_rows(acc * scale, dQ, queries, start)
