"""Fused kernels for large head sizes: d is split into slices, and fast memory holds a tile of scores
and one slice.

This is the emulator's `small_cache_fused`. A tile of scores is a sum over slices of d, and its product with V
is added slice by slice to O in slow memory. No N × N matrix is stored, but O is read and written once for
each tile of keys, because fast memory is smaller than d².
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
    """Load a slice (ROWS, BD) of one head, from row `start` and column `column` on; zeros out of bounds."""
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, BD)
    pointers = row_pointers(x, batch, head, start, ROWS, BD) + column
    return tl.load(pointers, mask=(rows[:, None] < n) & (columns[None, :] < d), other=0.0)


@triton.jit
def store_slice(tile, x, batch, head, start, n, column, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Store a slice (ROWS, BD) in the tensor's type, without the elements that are out of bounds."""
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, BD)
    pointers = row_pointers(x, batch, head, start, ROWS, BD) + column
    tl.store(pointers, tile.to(x.start.dtype.element_ty), mask=(rows[:, None] < n) & (columns[None, :] < d))


@triton.jit
def store_zeros(x, batch, head, start, n, d, ROWS: tl.constexpr, BD: tl.constexpr):
    """Store zeros in ROWS rows of one head, slice by slice: the result of rows without visible pairs."""
    for column in range(0, d, BD):
        nothing = tl.zeros((ROWS, BD), dtype=tl.float32)
        store_slice(nothing, x, batch, head, start, n, column, d, ROWS, BD)


@triton.jit
def product(
    A, a_head, a_start, n_a, B, b_head, b_start, n_b, batch, d,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Return a tile of A Bᵀ, (ROWS, COLUMNS) float32, summed over the slices of d."""
    # One slice of each operand is held at a time, so the tile's size does not depend on d.
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
    """Update Sum ← old ∘ Sum + weights B, slice by slice; if LAST, store `factor` ∘ this sum in Out instead.

    weights (ROWS, COLUMNS); old and factor (ROWS,). Sum is float32 in slow memory; if FIRST, it is taken as 0
    and not read.
    """
    weights = weights.to(B.start.dtype.element_ty)
    # FIRST and LAST are known at run time only. With a limit of 0 rows an access is masked completely, so one
    # loop serves all tiles, and Sum is neither read before its first value nor stored after its last.
    n_read, n_kept, n_out = tl.where(FIRST, 0, n), tl.where(LAST, 0, n), tl.where(LAST, n, 0)
    for column in range(0, d, TILE.BD):
        b = load_slice(B, batch, b_head, b_start, n_b, column, d, COLUMNS, TILE.BD)
        so_far = load_slice(Sum, batch, head, start, n_read, column, d, ROWS, TILE.BD)
        new = tl.dot(weights, b, so_far * old[:, None], input_precision=TILE.PRECISION)
        store_slice(new, Sum, batch, head, start, n_kept, column, d, ROWS, TILE.BD)
        store_slice(new * factor[:, None], Out, batch, head, start, n_out, column, d, ROWS, TILE.BD)
    tl.debug_barrier()  # a word of Sum may next be read by a thread that did not write it


@triton.jit
def sliced_place(
    program, shape, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """Return a program's index of batch and head together, its batch, its head, its first query, its `Pairs`,
    and the bounds begin … end - 1 of the keys that its queries attend to.
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
    """Compute O and LSE as `forward_kernel` does, for any d.

    O_sum (B, heads, n_q, d) float32: scratch memory for the unfinished O.
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
        # 1/l is used in the last tile only, when l is complete.
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
    """Compute dQ = scale · dS K for any d; dQ_sum (B, heads, n_q, d) float32: scratch memory."""
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
    """Compute dK = scale · dSᵀQ and dV = Pᵀ dO for any d; BN rows of both per program, for one key head.

    dK_sum and dV_sum (B, kv_heads, n_k, d) float32: scratch memory.
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
            # The sums continue over all query heads of the group.
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
