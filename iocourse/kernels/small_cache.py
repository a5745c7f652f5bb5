"""Head sizes that do not fit: attention with d cut into slices too, so that a tile is scores and one slice.

The emulator's `small_cache_fused` (F6): a tile of scores is a sum over slices of d, and what it adds to O is
added slice by slice, to an O that lives in slow memory. No N × N matrix is written; O is read and written
once for each tile of keys. That is the price of a fast memory smaller than d².
"""

import triton
import triton.language as tl

from .forward import log_sums
from .pieces import (
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
    """Rows from `start` and columns from `column` on of one head, zeros where the tensor ends. (ROWS, BD)."""
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
def store_zeros(x, strides, batch, head, start, n, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Rows that see nothing, slice by slice."""
    for column in range(0, d, BD):
        nothing = tl.zeros((ROWS, BD), dtype=tl.float32)
        store_slice(nothing, x, strides, batch, head, start, n, column, d, ROWS, BD)


@triton.jit
def product(
    A, a_strides, a_head, a_start, n_a, B, b_strides, b_head, b_start, n_b, batch, d,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of A Bᵀ, slice by slice of d. (ROWS, COLUMNS), float32."""
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for column in range(0, d, BD):
        a = load_slice(A, a_strides, batch, a_head, a_start, n_a, column, d, ROWS, BD)
        b = load_slice(B, b_strides, batch, b_head, b_start, n_b, column, d, COLUMNS, BD)
        total = tl.dot(a, tl.trans(b), total, input_precision=PRECISION)
    return total


@triton.jit
def add_product(
    weights, old, B, b_strides, b_head, b_start, n_b,
    Sum, sum_strides, Out, out_strides, factor, head, start, n, batch, d, FIRST, LAST,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum ← old ∘ Sum + weights B, slice by slice; the last time `factor` ∘ that goes to Out instead.

    weights (ROWS, COLUMNS) in B's type; old and factor (ROWS,). Sum float32, in slow memory; the FIRST time
    nothing is in it, and nothing is read.
    """
    n_read, n_kept, n_out = tl.where(FIRST, 0, n), tl.where(LAST, 0, n), tl.where(LAST, n, 0)
    for column in range(0, d, BD):
        b = load_slice(B, b_strides, batch, b_head, b_start, n_b, column, d, COLUMNS, BD)
        so_far = load_slice(Sum, sum_strides, batch, head, start, n_read, column, d, ROWS, BD)
        new = tl.dot(weights, b, so_far * old[:, None], input_precision=PRECISION)
        store_slice(new, Sum, sum_strides, batch, head, start, n_kept, column, d, ROWS, BD)
        store_slice(new * factor[:, None], Out, out_strides, batch, head, start, n_out, column, d, ROWS, BD)
    tl.debug_barrier()  # a word of Sum may be read next by another thread than the one that wrote it


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_forward_kernel(
    Q, q_strides, K, k_strides, V, v_strides, O_sum, sum_strides, O, o_strides, LSE,
    scale, low, high, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O and LSE as `forward_kernel` gives them, for any d; `tiles` · B · heads programs.

    O_sum (B, heads, n_q, d) float32 holds O on the way.
    """
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    if HAS_HIGH:
        tile = tiles - 1 - tile  # most work first, as in `forward_kernel`
    batch, head = pair // heads, pair % heads
    start = tile * BM
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(
            Q, q_strides, head, start, n_q, K, k_strides, head // group, at, n_k, batch, d,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
        seen = sees(i[:, None], at + j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
        s = tl.where(seen, s * (scale * LOG2_E), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(
            m_new == float("-inf"), 0.0, m_new
        )  # a row that has seen nothing yet, as in `forward`
        p = tl.exp2(s - shift[:, None])
        old = tl.exp2(m - shift)
        l = l * old + tl.sum(p, 1)
        m = m_new
        add_product(
            p.to(V.dtype.element_ty), old, V, v_strides, head // group, at, n_k,
            O_sum, sum_strides, O, o_strides, 1.0 / tl.where(l == 0.0, 1.0, l), head, start, n_q, batch, d,
            at == begin, at + BN >= end, BM, BN, BD, PRECISION,
        )  # fmt: skip
    if begin == end:
        store_zeros(O, o_strides, batch, head, start, n_q, d, BM, BD)
    tl.store(row_numbers_of(LSE, batch, head, heads, n_q, 0, False) + i, log_sums(m, l), mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_queries_kernel(
    Q, q_strides, K, k_strides, V, v_strides, dO, do_strides, LSE, D, dQ_sum, sum_strides, dQ, dq_strides,
    scale, low, high, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ = scale · dS K for any d; dQ_sum (B, heads, n_q, d) float32 holds it on the way."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    if HAS_HIGH:
        tile = tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    start = tile * BM
    total = load_log_sums(row_numbers_of(LSE, batch, head, heads, n_q, 0, False), start, n_q, BM)
    products = load_row_numbers(row_numbers_of(D, batch, head, heads, n_q, 0, False), start, n_q, 0.0, BM)
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    ones = tl.full((BM,), 1.0, dtype=tl.float32)
    for at in range(begin, end, BN):
        s = product(
            Q, q_strides, head, start, n_q, K, k_strides, head // group, at, n_k, batch, d,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
        dp = product(
            dO, do_strides, head, start, n_q, V, v_strides, head // group, at, n_k, batch, d,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
        seen = sees(i[:, None], at + j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
        p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        ds = p * (dp - products[:, None])
        add_product(
            ds.to(K.dtype.element_ty), ones, K, k_strides, head // group, at, n_k,
            dQ_sum, sum_strides, dQ, dq_strides, ones * scale, head, start, n_q, batch, d,
            at == begin, at + BN >= end, BM, BN, BD, PRECISION,
        )  # fmt: skip
    if begin == end:
        store_zeros(dQ, dq_strides, batch, head, start, n_q, d, BM, BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_keys_kernel(
    Q, q_strides, K, k_strides, V, v_strides, dO, do_strides, LSE, D,
    dK_sum, dV_sum, sum_strides, dK, dk_strides, dV, dv_strides,
    scale, low, high, tiles, kv_heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK = scale · dSᵀQ and dV = Pᵀ dO for any d; `tiles` · B · kv_heads programs.

    dK_sum and dV_sum (B, kv_heads, n_k, d), float32 and alike, hold them on the way.
    """
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, kv_head = pair // kv_heads, pair % kv_heads
    start = tile * BN
    begin, _, _, end = queries_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = tl.arange(0, BM), start + tl.arange(0, BN)
    ones = tl.full((BN,), 1.0, dtype=tl.float32)
    for member in range(group):
        head = kv_head * group + member
        log_sums_of_head = row_numbers_of(LSE, batch, head, kv_heads * group, n_q, 0, False)
        products_of_head = row_numbers_of(D, batch, head, kv_heads * group, n_q, 0, False)
        for at in range(begin, end, BM):
            first, last = (at == begin) & (member == 0), (at + BM >= end) & (member == group - 1)
            s = product(
                K, k_strides, kv_head, start, n_k, Q, q_strides, head, at, n_q, batch, d,
                BN, BM, BD, PRECISION,
            )  # fmt: skip
            total = load_log_sums(log_sums_of_head, at, n_q, BM)
            seen = sees(at + i[None, :], j[:, None], n_k, low, high, HAS_LOW, HAS_HIGH)
            p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[None, :]), 0.0)
            add_product(
                p.to(dO.dtype.element_ty), ones, dO, do_strides, head, at, n_q,
                dV_sum, sum_strides, dV, dv_strides, ones, kv_head, start, n_k, batch, d,
                first, last, BN, BM, BD, PRECISION,
            )  # fmt: skip
            dp = product(
                V, v_strides, kv_head, start, n_k, dO, do_strides, head, at, n_q, batch, d,
                BN, BM, BD, PRECISION,
            )  # fmt: skip
            products = load_row_numbers(products_of_head, at, n_q, 0.0, BM)
            ds = p * (dp - products[None, :])
            add_product(
                ds.to(Q.dtype.element_ty), ones, Q, q_strides, head, at, n_q,
                dK_sum, sum_strides, dK, dk_strides, ones * scale, kv_head, start, n_k, batch, d,
                first, last, BN, BM, BD, PRECISION,
            )  # fmt: skip
    if begin == end:
        store_zeros(dK, dk_strides, batch, kv_head, start, n_k, d, BN, BD)
        store_zeros(dV, dv_strides, batch, kv_head, start, n_k, d, BN, BD)
