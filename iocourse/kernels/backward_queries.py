"""dQ, the first half of the split backward pass: a tile of queries stays, keys stream past.

It is the emulator's `split_backward`, first pass: D is computed from O and dO on the way and kept for the
second.
"""

import triton
import triton.language as tl

from .pieces import (
    LOG2_E,
    heaviest,
    keys_of,
    listed,
    load_log_sums,
    load_rows,
    pattern,
    row_numbers_of,
    sees,
    sequences,
    store_rows,
)
from .row_products import row_products


@triton.jit
def absorb_keys(
    acc, q_tile, do_tile, total, products, K, k_strides, V, v_strides,
    batch, head, start, first, last, k0, n_k, d, scale, low, high, lists,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, MASKED: tl.constexpr, LISTED: tl.constexpr,
    DESCRIPTORS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add dS K over the keys first … last - 1 to acc (BM, DIM), with dS = P ∘ (dO Vᵀ - D)."""
    i = start + tl.arange(0, BM)
    for step in range(first, last, 1 if LISTED else BN):
        at = tl.load(lists.entries + step) * BN if LISTED else step
        k_tile = load_rows(
            K, k_strides, batch, head, k0 + at, k0 + n_k, d, BN, DIM, MASKED, PADDED, DESCRIPTORS
        )
        v_tile = load_rows(
            V, v_strides, batch, head, k0 + at, k0 + n_k, d, BN, DIM, MASKED, PADDED, DESCRIPTORS
        )
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)  # (BM, BN)
        p = tl.exp2(s * scale - total[:, None])
        if MASKED:
            if LISTED:
                seen = pattern(lists, step, BM, BN)
            else:
                j = at + tl.arange(0, BN)
                seen = sees(i[:, None], j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
            p = tl.where(seen, p, 0.0)
        dp = tl.dot(do_tile, tl.trans(v_tile), input_precision=PRECISION)  # (BM, BN)
        ds = p * (dp - products[:, None])
        acc = tl.dot(ds.to(k_tile.dtype), k_tile, acc, input_precision=PRECISION)
    return acc


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def backward_queries_kernel(
    Q, q_strides, K, k_strides, V, v_strides, O, o_strides, dO, do_strides, LSE, dLSE, D, dQ, dq_strides,
    cu_q, cu_k, scale, low, high, lists, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, RAGGED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, HAS_DLSE: tl.constexpr, LISTED: tl.constexpr,
    PACKED: tl.constexpr, LOWER_RIGHT: tl.constexpr, DESCRIPTORS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ = scale · dS K, and D for the second pass; `tiles` · B · heads programs, BM rows of dQ each."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, head = pair // heads, pair % heads
    if HAS_HIGH:
        tile = tiles - 1 - tile  # most work first, as in the forward pass
    if LISTED:
        tile = heaviest(lists, batch, head, tile)
    start = tile * BM
    rows_of_all = n_q
    q0, n_q, k0, n_k, low, high = sequences(cu_q, cu_k, batch, n_q, n_k, low, high, PACKED, LOWER_RIGHT)
    LSE = row_numbers_of(LSE, batch, head, heads, rows_of_all, q0, PACKED)
    D = row_numbers_of(D, batch, head, heads, rows_of_all, q0, PACKED)
    if HAS_DLSE:
        dLSE = row_numbers_of(dLSE, batch, head, heads, rows_of_all, q0, PACKED)
    if PACKED:
        n_k = tl.where(start < n_q, n_k, 0)
    q_tile = load_rows(Q, q_strides, batch, head, q0 + start, q0 + n_q, d, BM, DIM, True, PADDED, False)
    do_tile, products = row_products(
        O, o_strides, dO, do_strides, dLSE, LSE, batch, head, start, q0, n_q, d, BM, DIM, PADDED, HAS_DLSE
    )
    rows = start + tl.arange(0, BM)
    tl.store(D + rows, products, mask=rows < n_q)
    total = load_log_sums(LSE, start, n_q, BM)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    if LISTED:
        borders = listed(lists, batch, head, tile)
    else:
        borders = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    for part in tl.static_range(3):  # as in the forward pass
        if part == 1 or (part == 0 and HAS_LOW) or (part == 2 and (HAS_LOW or HAS_HIGH or RAGGED or LISTED)):
            acc = absorb_keys(
                acc, q_tile, do_tile, total, products, K, k_strides, V, v_strides, batch, head // group,
                start, borders[part], borders[part + 1], k0, n_k, d, scale * LOG2_E, low, high,
                lists, BM, BN, DIM, PADDED, HAS_LOW, HAS_HIGH, part != 1, LISTED, DESCRIPTORS, PRECISION,
            )  # fmt: skip
    store_rows(acc * scale, dQ, dq_strides, batch, head, q0 + start, q0 + n_q, d, BM, DIM)
