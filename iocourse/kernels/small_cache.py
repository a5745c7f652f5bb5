"""Head sizes that do not fit: attention with d cut into slices too, so that a tile holds scores and one slice.

The emulator's `small_cache_fused` (F6), kernel by kernel: a tile of scores is a sum over slices of d, and what it adds
to O is added slice by slice, to an O that lives in slow memory. No N × N matrix is written, and O is read and written
once for each tile of keys: that is the price of a fast memory smaller than d².
"""

import triton
import triton.language as tl

from .pieces import (
    LN_2,
    LOG2_E,
    keys_of,
    load_log_sums,
    load_row_numbers,
    queries_of,
    row_numbers_of,
    row_pointers,
    sees,
)


@triton.jit
def load_slice(x, strides, batch, head, start, n, column, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Rows start … and columns column … of one head, zeros where the tensor ends. (ROWS, BD)."""
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, BD)
    pointers = row_pointers(x, strides, batch, head, start, ROWS, BD) + column
    return tl.load(pointers, mask=(rows[:, None] < n) & (columns[None, :] < d), other=0.0)


@triton.jit
def store_slice(tile, x, strides, batch, head, start, n, column, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Write what exists of one slice, in the tensor's own type."""
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, BD)
    pointers = row_pointers(x, strides, batch, head, start, ROWS, BD) + column
    tl.store(pointers, tile.to(x.dtype.element_ty), mask=(rows[:, None] < n) & (columns[None, :] < d))


@triton.jit
def product(
    A, a_strides, a_head, a_start, n_a, B, b_strides, b_head, b_start, n_b, batch, d,
    BA: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of A Bᵀ, slice by slice of d. (BA, BB), float32."""
    total = tl.zeros((BA, BB), dtype=tl.float32)
    for column in range(0, d, BD):
        a = load_slice(A, a_strides, batch, a_head, a_start, n_a, column, d, BA, BD)
        b = load_slice(B, b_strides, batch, b_head, b_start, n_b, column, d, BB, BD)
        total = tl.dot(a, tl.trans(b), total, input_precision=PRECISION)
    return total


@triton.jit
def add_product(
    weights, old, B, b_strides, b_head, b_start, n_b, S, s_strides, s_head, s_start, n_s, O, o_strides, factor,
    batch, d, FIRST, LAST, BS: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S ← old ∘ S + weights B, slice by slice, S float32 in slow memory; the last time `factor` ∘ that goes to O.

    weights (BS, BB) of B's type; old, factor (BS,). FIRST: there is nothing in S yet, and nothing is read.
    """
    for column in range(0, d, BD):
        b = load_slice(B, b_strides, batch, b_head, b_start, n_b, column, d, BB, BD)
        n_old = tl.where(FIRST, 0, n_s)  # a mask that lets nothing through reads nothing
        so_far = load_slice(S, s_strides, batch, s_head, s_start, n_old, column, d, BS, BD)
        new = tl.dot(weights, b, so_far * old[:, None], input_precision=PRECISION)
        n_kept, n_out = tl.where(LAST, 0, n_s), tl.where(LAST, n_s, 0)
        store_slice(new, S, s_strides, batch, s_head, s_start, n_kept, column, d, BS, BD)
        store_slice(new * factor[:, None], O, o_strides, batch, s_head, s_start, n_out, column, d, BS, BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def tiled_forward_kernel(
    Q, q_strides, K, k_strides, V, v_strides, O_sum, sum_strides, O, o_strides, LSE,
    scale, low, high, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O and LSE as `forward_kernel` gives them, for any d; O_sum (B, heads, n_q, d) float32 holds O on the way."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, head = pair // heads, pair % heads
    start = tile * BM
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(
            Q, q_strides, head, start, n_q, K, k_strides, head // group, at, n_k, batch, d, BM, BN, BD, PRECISION
        )
        seen = sees(i[:, None], at + j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
        s = tl.where(seen, s * scale * LOG2_E, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - shift[:, None])
        old = tl.exp2(m - shift)
        l = l * old + tl.sum(p, 1)
        m = m_new
        add_product(
            p.to(V.dtype.element_ty), old, V, v_strides, head // group, at, n_k, O_sum, sum_strides, head, start,
            n_q, O, o_strides, 1.0 / tl.where(l == 0.0, 1.0, l), batch, d, at == begin, at + BN >= end,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
    if begin == end:  # no key at all
        for column in range(0, d, BD):
            nothing = tl.zeros((BM, BD), dtype=tl.float32)
            store_slice(nothing, O, o_strides, batch, head, start, n_q, column, d, BM, BD)
    total = tl.where(l == 0.0, float("-inf"), (m + tl.log2(tl.where(l == 0.0, 1.0, l))) * LN_2)
    tl.store(row_numbers_of(LSE, batch, head, heads, n_q, 0, False) + i, total, mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def tiled_queries_kernel(
    Q, q_strides, K, k_strides, V, v_strides, dO, do_strides, LSE, D, dQ_sum, sum_strides, dQ, dq_strides,
    scale, low, high, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ = scale · dS K for any d; dQ_sum float32 holds it on the way."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, head = pair // heads, pair % heads
    start = tile * BM
    total = load_log_sums(row_numbers_of(LSE, batch, head, heads, n_q, 0, False), start, n_q, BM)
    products = load_row_numbers(row_numbers_of(D, batch, head, heads, n_q, 0, False), start, n_q, 0.0, BM)
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    ones = tl.full((BM,), 1.0, dtype=tl.float32)
    for at in range(begin, end, BN):
        s = product(
            Q, q_strides, head, start, n_q, K, k_strides, head // group, at, n_k, batch, d, BM, BN, BD, PRECISION
        )
        dp = product(
            dO, do_strides, head, start, n_q, V, v_strides, head // group, at, n_k, batch, d, BM, BN, BD, PRECISION
        )
        seen = sees(i[:, None], at + j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
        p = tl.where(seen, tl.exp2(s * scale * LOG2_E - total[:, None]), 0.0)
        ds = p * (dp - products[:, None])
        add_product(
            ds.to(K.dtype.element_ty), ones, K, k_strides, head // group, at, n_k, dQ_sum, sum_strides, head, start,
            n_q, dQ, dq_strides, ones * scale, batch, d, at == begin, at + BN >= end, BM, BN, BD, PRECISION,
        )  # fmt: skip
    if begin == end:
        for column in range(0, d, BD):
            nothing = tl.zeros((BM, BD), dtype=tl.float32)
            store_slice(nothing, dQ, dq_strides, batch, head, start, n_q, column, d, BM, BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def tiled_keys_kernel(
    Q, q_strides, K, k_strides, V, v_strides, dO, do_strides, LSE, D,
    dK_sum, dV_sum, sum_strides, dK, dk_strides, dV, dv_strides,
    scale, low, high, tiles, kv_heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK = scale · dSᵀQ and dV = PᵀdO for any d; dK_sum and dV_sum float32 hold them on the way."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, kv_head = pair // kv_heads, pair % kv_heads
    start = tile * BN
    begin, _, _, end = queries_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = tl.arange(0, BM), start + tl.arange(0, BN)
    ones = tl.full((BN,), 1.0, dtype=tl.float32)
    for member in range(group):
        head = kv_head * group + member
        lse = row_numbers_of(LSE, batch, head, kv_heads * group, n_q, 0, False)
        delta = row_numbers_of(D, batch, head, kv_heads * group, n_q, 0, False)
        for at in range(begin, end, BM):
            first, last = (at == begin) & (member == 0), (at + BM >= end) & (member == group - 1)
            total = load_log_sums(lse, at, n_q, BM)
            s = product(
                K, k_strides, kv_head, start, n_k, Q, q_strides, head, at, n_q, batch, d, BN, BM, BD, PRECISION
            )
            seen = sees(at + i[None, :], j[:, None], n_k, low, high, HAS_LOW, HAS_HIGH)
            p = tl.where(seen, tl.exp2(s * scale * LOG2_E - total[None, :]), 0.0)
            add_product(
                p.to(dO.dtype.element_ty), ones, dO, do_strides, head, at, n_q, dV_sum, sum_strides, kv_head, start,
                n_k, dV, dv_strides, ones, batch, d, first, last, BN, BM, BD, PRECISION,
            )  # fmt: skip
            dp = product(
                V, v_strides, kv_head, start, n_k, dO, do_strides, head, at, n_q, batch, d, BN, BM, BD, PRECISION
            )
            ds = p * (dp - load_row_numbers(delta, at, n_q, 0.0, BM)[None, :])
            add_product(
                ds.to(Q.dtype.element_ty), ones, Q, q_strides, head, at, n_q, dK_sum, sum_strides, kv_head, start,
                n_k, dK, dk_strides, ones * scale, batch, d, first, last, BN, BM, BD, PRECISION,
            )  # fmt: skip
    if begin == end:
        for column in range(0, d, BD):
            nothing = tl.zeros((BN, BD), dtype=tl.float32)
            store_slice(nothing, dK, dk_strides, batch, kv_head, start, n_k, column, d, BN, BD)
            store_slice(nothing, dV, dv_strides, batch, kv_head, start, n_k, column, d, BN, BD)
