"""Head sizes that do not fit: attention with d cut into slices too, so that a tile is scores and one slice.

The emulator's `small_cache_fused` (F6): a tile of scores is a sum over slices of d, and what it adds to O is
added slice by slice, to an O that lives in slow memory. No N × N matrix is written; O is read and written
once for each tile of keys. That is the price of a fast memory smaller than d².
"""

import triton
import triton.language as tl

from .forward import log_sums
from .jit_helpers import (
    LOG2_E,
    LOWEST,
    Pairs,
    keys_of,
    prepared_of,
    program_place,
    queries_of,
    row_numbers_of,
    row_pointers,
    sees,
)


@triton.jit
def load_slice(x, batch, head, start, n, column, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Rows from `start` and columns from `column` on of one head, zeros where the tensor ends. (ROWS, BD)."""
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, BD)
    pointers = row_pointers(x, batch, head, start, ROWS, BD) + column
    return tl.load(pointers, mask=(rows[:, None] < n) & (columns[None, :] < d), other=0.0)


@triton.jit
def store_slice(tile, x, batch, head, start, n, column, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Write what exists of one slice, in the tensor's own type."""
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, BD)
    pointers = row_pointers(x, batch, head, start, ROWS, BD) + column
    tl.store(pointers, tile.to(x.start.dtype.element_ty), mask=(rows[:, None] < n) & (columns[None, :] < d))


@triton.jit
def store_zeros(x, batch, head, start, n, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Rows that see nothing, slice by slice."""
    for column in range(0, d, BD):
        nothing = tl.zeros((ROWS, BD), dtype=tl.float32)
        store_slice(nothing, x, batch, head, start, n, column, d, ROWS, BD)


@triton.jit
def product(
    A, a_head, a_start, n_a, B, b_head, b_start, n_b, batch, d,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A tile of A Bᵀ, slice by slice of d. (ROWS, COLUMNS), float32."""
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for column in range(0, d, TILE.BD):
        a = load_slice(A, batch, a_head, a_start, n_a, column, d, ROWS, TILE.BD)
        b = load_slice(B, batch, b_head, b_start, n_b, column, d, COLUMNS, TILE.BD)
        total = tl.dot(a, tl.trans(b), total, input_precision=TILE.PRECISION)
    return total


@triton.jit
def add_product(
    weights, old, B, b_head, b_start, n_b, Sum, Out, factor, head, start, n, batch, d, FIRST, LAST,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sum ← old ∘ Sum + weights B, slice by slice; the last time `factor` ∘ that goes to Out instead.

    weights (ROWS, COLUMNS); old and factor (ROWS,). Sum float32, in slow memory; the FIRST time nothing is in
    it, and nothing is read.
    """
    weights = weights.to(B.start.dtype.element_ty)
    n_read, n_kept, n_out = tl.where(FIRST, 0, n), tl.where(LAST, 0, n), tl.where(LAST, n, 0)
    for column in range(0, d, TILE.BD):
        b = load_slice(B, batch, b_head, b_start, n_b, column, d, COLUMNS, TILE.BD)
        so_far = load_slice(Sum, batch, head, start, n_read, column, d, ROWS, TILE.BD)
        new = tl.dot(weights, b, so_far * old[:, None], input_precision=TILE.PRECISION)
        store_slice(new, Sum, batch, head, start, n_kept, column, d, ROWS, TILE.BD)
        store_slice(new * factor[:, None], Out, batch, head, start, n_out, column, d, ROWS, TILE.BD)
    tl.debug_barrier()  # a word of Sum may be read next by another thread than the one that wrote it


@triton.jit
def sliced_place(
    program, shape, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """A program's pair of batch and head, these two and its first query; the pairs there are; and the keys
    it sees, begin … end - 1.
    """
    tile, pair, batch, head = program_place(program, shape, SEEN.HAS_HIGH)
    start = tile * TILE.BM
    pairs = Pairs(n_q, n_k, low, high)
    begin, _, _, end = keys_of(start, pairs, TILE.BM, TILE.BN, SEEN)
    return pair, batch, head, start, pairs, begin, end


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_forward_kernel(
    Q, K, V, O_sum, O, LSE, shape, scale, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """O and LSE as `forward_kernel` gives them, for any d.

    O_sum (B, heads, n_q, d) float32 holds O on the way.
    """
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    d = shape.d
    _, batch, head, start, pairs, begin, end = sliced_place(
        tl.program_id(0), shape, n_q, n_k, low, high, TILE, SEEN
    )
    kv_head = head // shape.group
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, head, start, n_q, K, kv_head, at, n_k, batch, d, BM, BN, TILE)
        s = tl.where(sees(i[:, None], at + j[None, :], pairs, SEEN), s * (scale * LOG2_E), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        m = m_new
        add_product(
            p, old, V, kv_head, at, n_k, O_sum, O, 1.0 / tl.where(l == 0.0, 1.0, l),
            head, start, n_q, batch, d, at == begin, at + BN >= end, BM, BN, TILE,
        )  # fmt: skip
    if begin == end:
        store_zeros(O, batch, head, start, n_q, d, BM, TILE.BD)
    LSE = row_numbers_of(LSE, batch, head, shape.heads, n_q, 0, False)
    tl.store(LSE + i, log_sums(m, l), mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_queries_kernel(
    Q, K, V, dO, prepared, dQ_sum, dQ, shape, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr,
):  # fmt: skip
    """dQ = scale · dS K for any d; dQ_sum (B, heads, n_q, d) float32 holds it on the way."""
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    d = shape.d
    _, batch, head, start, pairs, begin, end = sliced_place(
        tl.program_id(0), shape, n_q, n_k, low, high, TILE, SEEN
    )
    kv_head = head // shape.group
    sums, deltas = prepared_of(prepared, batch, head, shape.heads, 0, False)
    total, delta = tl.load(sums + start + tl.arange(0, BM)), tl.load(deltas + start + tl.arange(0, BM))
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    ones = tl.full((BM,), 1.0, dtype=tl.float32)
    for at in range(begin, end, BN):
        s = product(Q, head, start, n_q, K, kv_head, at, n_k, batch, d, BM, BN, TILE)
        dp = product(dO, head, start, n_q, V, kv_head, at, n_k, batch, d, BM, BN, TILE)
        seen = sees(i[:, None], at + j[None, :], pairs, SEEN)
        p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        add_product(
            p * (dp - delta[:, None]), ones, K, kv_head, at, n_k, dQ_sum, dQ, ones * scale,
            head, start, n_q, batch, d, at == begin, at + BN >= end, BM, BN, TILE,
        )  # fmt: skip
    if begin == end:
        store_zeros(dQ, batch, head, start, n_q, d, BM, TILE.BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_keys_kernel(
    Q, K, V, dO, prepared, dK_sum, dV_sum, dK, dV, shape, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr,
):  # fmt: skip
    """dK = scale · dSᵀQ and dV = Pᵀ dO for any d; a program computes BN rows of both, for one head of keys.

    dK_sum and dV_sum (B, kv_heads, n_k, d) float32 hold them on the way.
    """
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    d, group = shape.d, shape.group
    tile, _, batch, kv_head = program_place(tl.program_id(0), shape, False)
    start = tile * BN
    pairs = Pairs(n_q, n_k, low, high)
    begin, _, _, end = queries_of(start, pairs, BM, BN, SEEN)
    i, j = tl.arange(0, BM), start + tl.arange(0, BN)
    ones = tl.full((BN,), 1.0, dtype=tl.float32)
    for member in range(group):
        head = kv_head * group + member
        sums, deltas = prepared_of(prepared, batch, head, shape.heads * group, 0, False)
        for at in range(begin, end, BM):
            first, last = (at == begin) & (member == 0), (at + BM >= end) & (member == group - 1)
            s = product(K, kv_head, start, n_k, Q, head, at, n_q, batch, d, BN, BM, TILE)
            total = tl.load(sums + at + i)
            seen = sees(at + i[None, :], j[:, None], pairs, SEEN) & (at + i < n_q)[None, :]
            p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[None, :]), 0.0)
            add_product(
                p, ones, dO, head, at, n_q, dV_sum, dV, ones, kv_head, start, n_k, batch, d,
                first, last, BN, BM, TILE,
            )  # fmt: skip
            dp = product(V, kv_head, start, n_k, dO, head, at, n_q, batch, d, BN, BM, TILE)
            delta = tl.load(deltas + at + i)
            add_product(
                p * (dp - delta[None, :]), ones, Q, head, at, n_q, dK_sum, dK, ones * scale,
                kv_head, start, n_k, batch, d, first, last, BN, BM, TILE,
            )  # fmt: skip
    if begin == end:
        store_zeros(dK, batch, kv_head, start, n_k, d, BN, TILE.BD)
        store_zeros(dV, batch, kv_head, start, n_k, d, BN, TILE.BD)
