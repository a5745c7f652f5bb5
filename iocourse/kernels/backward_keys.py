"""dK and dV: a tile of keys stays, queries stream past. With ADD_DQ also dQ: the whole backward pass in one
kernel.

Without ADD_DQ it is the second half of the split backward pass. With it, each tile of scores is computed once
and feeds five products instead of seven; dQ's rows then get a share from every tile of keys, by atomic
addition, and the order of the shares is the order in which programs happen to finish: fast, and not bit-equal
from run to run.
"""

import triton
import triton.language as tl

from .pieces import (
    LOG2_E,
    heaviest,
    listed,
    load_log_sums,
    load_row_numbers,
    load_rows,
    pattern,
    queries_of,
    row_numbers_of,
    row_pointers,
    sees,
    sequences,
    store_rows,
)


@triton.jit
def absorb_queries(
    dk, dv, k_tile, v_tile, Q, q_strides, dO, do_strides, LSE, D, dQ, dq_strides,
    batch, head, start, first, last, q0, n_q, n_k, d, scale, low, high, lists,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, HAS_LOW: tl.constexpr,
    HAS_HIGH: tl.constexpr, MASKED: tl.constexpr, LISTED: tl.constexpr, CHECK_ROWS: tl.constexpr,
    ADD_DQ: tl.constexpr, DESCRIPTORS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add what the queries first … last - 1 give to dk and dv (BN, DIM), and with ADD_DQ what they get.

    The tiles of scores are transposed, (BN, BM): Pᵀ and dSᵀ are the left factors of dV and dK as they stand.
    """
    j = start + tl.arange(0, BN)
    for step in range(first, last, 1 if LISTED else BM):
        at = tl.load(lists.entries + step) * BM if LISTED else step
        q_tile = load_rows(
            Q, q_strides, batch, head, q0 + at, q0 + n_q, d, BM, DIM, CHECK_ROWS, PADDED, DESCRIPTORS
        )
        total = load_log_sums(LSE, at, n_q, BM)
        s = tl.dot(k_tile, tl.trans(q_tile), input_precision=PRECISION)  # (BN, BM)
        p = tl.exp2(s * scale - total[None, :])
        if MASKED:
            if LISTED:
                seen = pattern(lists, step, BN, BM)
            else:
                i = at + tl.arange(0, BM)
                seen = sees(i[None, :], j[:, None], n_k, low, high, HAS_LOW, HAS_HIGH)
            p = tl.where(seen, p, 0.0)
        do_tile = load_rows(
            dO, do_strides, batch, head, q0 + at, q0 + n_q, d, BM, DIM, CHECK_ROWS, PADDED, DESCRIPTORS
        )
        dv = tl.dot(p.to(do_tile.dtype), do_tile, dv, input_precision=PRECISION)
        dp = tl.dot(v_tile, tl.trans(do_tile), input_precision=PRECISION)  # (BN, BM)
        products = load_row_numbers(D, at, n_q, 0.0, BM)
        ds = (p * (dp - products[None, :])).to(q_tile.dtype)
        dk = tl.dot(ds, q_tile, dk, input_precision=PRECISION)
        if ADD_DQ:
            share = tl.dot(tl.trans(ds), k_tile, input_precision=PRECISION)  # (BM, DIM)
            if DESCRIPTORS:
                dQ.atomic_add([batch, head, at, 0], share.reshape(1, 1, BM, DIM))
            else:
                rows, columns = at + tl.arange(0, BM), tl.arange(0, DIM)
                there = (rows[:, None] < n_q) & (columns[None, :] < d)
                to = row_pointers(dQ, dq_strides, batch, head, q0 + at, BM, DIM)
                tl.atomic_add(to, share, mask=there, sem="relaxed")
    return dk, dv


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def backward_keys_kernel(
    Q, q_strides, K, k_strides, V, v_strides, dO, do_strides, LSE, D,
    dQ, dq_strides, dK, dk_strides, dV, dv_strides,
    cu_q, cu_k, scale, low, high, lists, tiles, kv_heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    RAGGED: tl.constexpr, RAGGED_ROWS: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, LISTED: tl.constexpr, ADD_DQ: tl.constexpr,
    PACKED: tl.constexpr, LOWER_RIGHT: tl.constexpr, DESCRIPTORS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK = scale · dSᵀQ and dV = Pᵀ dO; `tiles` · B · kv_heads programs, BN rows of dK and dV each.

    A head of keys collects from the `group` heads of queries that share it, one after the other: no atomics.
    With ADD_DQ, dQ (B, H, n_q, d) float32 starts as zeros and gets dS K, not yet scaled.
    RAGGED: the last tile of keys passes the end; RAGGED_ROWS: the last tile of queries does.
    """
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles  # the first keys are seen by the most queries: they start
    batch, kv_head = pair // kv_heads, pair % kv_heads
    if LISTED:
        tile = heaviest(lists, batch, kv_head, tile)
    start = tile * BN
    rows_of_all = n_q
    q0, n_q, k0, n_k, low, high = sequences(cu_q, cu_k, batch, n_q, n_k, low, high, PACKED, LOWER_RIGHT)
    # A short sequence has no such tile of keys, and no query is read for it.
    seen_by = tl.where(start < n_k, n_q, 0) if PACKED else n_q
    k_tile = load_rows(K, k_strides, batch, kv_head, k0 + start, k0 + n_k, d, BN, DIM, True, PADDED, False)
    v_tile = load_rows(V, v_strides, batch, kv_head, k0 + start, k0 + n_k, d, BN, DIM, True, PADDED, False)
    dk = tl.zeros((BN, DIM), dtype=tl.float32)
    dv = tl.zeros((BN, DIM), dtype=tl.float32)
    for member in range(group):
        head = kv_head * group + member
        lse = row_numbers_of(LSE, batch, head, kv_heads * group, rows_of_all, q0, PACKED)
        products = row_numbers_of(D, batch, head, kv_heads * group, rows_of_all, q0, PACKED)
        if LISTED:
            borders = listed(lists, batch, head, tile)
        else:
            borders = queries_of(start, seen_by, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
        # Tiles that the diagonal cuts, or all of them where the last tile of keys passes the end; whole
        # tiles; tiles that the band's other edge cuts.
        for part in tl.static_range(3):
            if part == 1 or (part == 0 and (HAS_HIGH or RAGGED)) or (part == 2 and (HAS_LOW or LISTED)):
                dk, dv = absorb_queries(
                    dk, dv, k_tile, v_tile, Q, q_strides, dO, do_strides, lse, products, dQ, dq_strides,
                    batch, head, start, borders[part], borders[part + 1],
                    q0, n_q, n_k, d, scale * LOG2_E, low, high, lists,
                    BM, BN, DIM, PADDED, HAS_LOW, HAS_HIGH, part != 1, LISTED, RAGGED_ROWS or part != 1,
                    ADD_DQ, DESCRIPTORS, PRECISION,
                )  # fmt: skip
    store_rows(dk * scale, dK, dk_strides, batch, kv_head, k0 + start, k0 + n_k, d, BN, DIM)
    store_rows(dv, dV, dv_strides, batch, kv_head, k0 + start, k0 + n_k, d, BN, DIM)
