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
    Lengths,
    Place,
    inside,
    is_visible,
    keys_of,
    prepared_of,
    program_place,
    queries_of,
    row_numbers_of,
    row_pointers,
)


@triton.jit
def load_slice(x, place, at, column, ROWS: tl.constexpr, BD: tl.constexpr):
    """Load a slice (ROWS, BD) from row `at` and column `column` on; zeros out of bounds."""
    pointers = row_pointers(x, place, at, ROWS, BD) + column
    there = inside(place.first + at, place.stop, place.d, ROWS=ROWS, DIM=BD, column=column)
    return tl.load(pointers, mask=there, other=0.0)


@triton.jit
def store_slice(tile, x, place, at, column):
    """Store a slice (ROWS, BD) in the tensor's type, without the elements that are out of bounds."""
    ROWS: tl.constexpr = tile.shape[0]
    BD: tl.constexpr = tile.shape[1]
    to = row_pointers(x, place, at, ROWS, BD) + column
    tile = tile.to(x.start.dtype.element_ty)
    there = inside(place.first + at, place.stop, place.d, ROWS=ROWS, DIM=BD, column=column)
    tl.store(to, tile, mask=there)


@triton.jit
def store_zeros(x, place, at, ROWS: tl.constexpr, BD: tl.constexpr):
    """Store zeros in ROWS rows, slice by slice: the result of rows without visible pairs."""
    for column in range(0, place.d, BD):
        store_slice(tl.zeros((ROWS, BD), dtype=tl.float32), x, place, at, column)


@triton.jit
def product(
    A, a_place, a_at, B, b_place, b_at, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SLICE: tl.constexpr
):  # fmt: skip
    """Return a tile of A Bᵀ, (ROWS, COLUMNS) float32, summed over the slices of d."""
    # One slice of each operand is held at a time, so the tile's size does not depend on d.
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for column in range(0, a_place.d, SLICE.BD):
        a = load_slice(A, a_place, a_at, column, ROWS=ROWS, BD=SLICE.BD)
        b = load_slice(B, b_place, b_at, column, ROWS=COLUMNS, BD=SLICE.BD)
        total = tl.dot(a, tl.trans(b), total, input_precision=SLICE.PRECISION)
    return total


@triton.jit
def up_to(place, stop):
    """Return a place whose rows end at `stop`."""
    return Place(place.batch, place.head, place.first, stop, place.d)


@triton.jit
def add_product(
    weights, B, b_place, b_at, Sum, Out, place, start, old, factor, FIRST, LAST, SLICE: tl.constexpr
):  # fmt: skip
    """Update Sum ← old ∘ Sum + weights B, slice by slice; if LAST, store `factor` ∘ this sum in Out instead.

    weights (ROWS, COLUMNS); old and factor (ROWS,). Sum is float32 in slow memory; if FIRST, it is taken as 0
    and not read.
    """
    ROWS: tl.constexpr = weights.shape[0]
    COLUMNS: tl.constexpr = weights.shape[1]
    weights = weights.to(B.start.dtype.element_ty)
    # FIRST and LAST are known at run time only. With a limit of 0 rows an access is masked completely, so one
    # loop serves all tiles, and Sum is neither read before its first value nor stored after its last.
    read = up_to(place, tl.where(FIRST, 0, place.stop))
    kept = up_to(place, tl.where(LAST, 0, place.stop))
    out = up_to(place, tl.where(LAST, place.stop, 0))
    for column in range(0, place.d, SLICE.BD):
        b = load_slice(B, b_place, b_at, column, ROWS=COLUMNS, BD=SLICE.BD)
        so_far = load_slice(Sum, read, start, column, ROWS=ROWS, BD=SLICE.BD)
        new = tl.dot(weights, b, so_far * old[:, None], input_precision=SLICE.PRECISION)
        store_slice(new, Sum, kept, start, column)
        store_slice(new * factor[:, None], Out, out, start, column)
    tl.debug_barrier()  # a word of Sum may next be read by a thread that did not write it


@triton.jit
def sliced_place(program, shape, lengths, SLICE: tl.constexpr, MASK: tl.constexpr):
    """Return a program's first query; the `Place` of its queries, and that of their keys; the bounds
    begin … end - 1 of the keys that its queries attend to; and its index of batch and head together.
    """
    tile, batch_head, batch, head = program_place(program, shape, MASK.HAS_HIGH)
    start = tile * SLICE.BM
    begin, _, _, end = keys_of(start, lengths, SLICE.BM, SLICE.BN, MASK)
    queries = Place(batch, head, 0, lengths.n_q, shape.d)
    keys = Place(batch, head // shape.group, 0, lengths.n_k, shape.d)
    return start, queries, keys, begin, end, batch_head


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_forward_kernel(
    Q, K, V, O_sum, O, LSE, shape, scale, n_q, n_k, low, high, SLICE: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """Compute O and LSE as `forward_kernel` does, for any d.

    O_sum (B, heads, n_q, d) float32: scratch memory for the unfinished O.
    """
    BM: tl.constexpr = SLICE.BM
    BN: tl.constexpr = SLICE.BN
    lengths = Lengths(n_q, n_k, low, high)
    start, queries, keys, begin, end, _ = sliced_place(tl.program_id(0), shape, lengths, SLICE, MASK)
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, queries, start, K, keys, at, ROWS=BM, COLUMNS=BN, SLICE=SLICE)
        visible = is_visible(i[:, None], at + j[None, :], lengths, MASK)
        s = tl.where(visible, s * (scale * LOG2_E), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        m = m_new
        # 1/l is used in the last tile only, when l is complete.
        add_product(
            p, V, keys, at, Sum=O_sum, Out=O, place=queries, start=start, old=old,
            factor=1.0 / tl.where(l == 0.0, 1.0, l), FIRST=at == begin, LAST=at + BN >= end, SLICE=SLICE,
        )  # fmt: skip
    if begin == end:
        store_zeros(O, queries, start, BM, SLICE.BD)
    LSE = row_numbers_of(LSE, queries, shape.heads, n_q, False)
    tl.store(LSE + i, log_sums(m, l), mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_queries_kernel(
    Q, K, V, dO, prepared, dQ_sum, dQ, shape, scale, n_q, n_k, low, high,
    SLICE: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Compute dQ = scale · dS K for any d; dQ_sum (B, heads, n_q, d) float32: scratch memory."""
    BM: tl.constexpr = SLICE.BM
    BN: tl.constexpr = SLICE.BN
    lengths = Lengths(n_q, n_k, low, high)
    start, queries, keys, begin, end, _ = sliced_place(tl.program_id(0), shape, lengths, SLICE, MASK)
    numbers = prepared_of(prepared, queries, shape.heads, False)
    total = tl.load(numbers.LSE2 + start + tl.arange(0, BM))
    delta = tl.load(numbers.D + start + tl.arange(0, BM))
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    ones = tl.full((BM,), 1.0, dtype=tl.float32)
    for at in range(begin, end, BN):
        s = product(Q, queries, start, K, keys, at, ROWS=BM, COLUMNS=BN, SLICE=SLICE)
        dp = product(dO, queries, start, V, keys, at, ROWS=BM, COLUMNS=BN, SLICE=SLICE)
        visible = is_visible(i[:, None], at + j[None, :], lengths, MASK)
        p = tl.where(visible, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        add_product(
            p * (dp - delta[:, None]), K, keys, at, Sum=dQ_sum, Out=dQ, place=queries, start=start, old=ones,
            factor=ones * scale, FIRST=at == begin, LAST=at + BN >= end, SLICE=SLICE,
        )  # fmt: skip
    if begin == end:
        store_zeros(dQ, queries, start, BM, SLICE.BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def sliced_keys_kernel(
    Q, K, V, dO, prepared, dK_sum, dV_sum, dK, dV, shape, scale, n_q, n_k, low, high,
    SLICE: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Compute dK = scale · dSᵀQ and dV = Pᵀ dO for any d; BN rows of both per program, for one key head.

    dK_sum and dV_sum (B, kv_heads, n_k, d) float32: scratch memory.
    """
    BM: tl.constexpr = SLICE.BM
    BN: tl.constexpr = SLICE.BN
    group = shape.group
    tile, _, batch, kv_head = program_place(tl.program_id(0), shape, False)
    start = tile * BN
    keys = Place(batch, kv_head, 0, n_k, shape.d)
    lengths = Lengths(n_q, n_k, low, high)
    begin, _, _, end = queries_of(start, lengths, BM, BN, MASK)
    i, j = tl.arange(0, BM), start + tl.arange(0, BN)
    ones = tl.full((BN,), 1.0, dtype=tl.float32)
    for member in range(group):
        queries = Place(batch, kv_head * group + member, 0, n_q, shape.d)
        numbers = prepared_of(prepared, queries, shape.heads * group, False)
        for at in range(begin, end, BM):
            # The sums continue over all query heads of the group.
            first, last = (at == begin) & (member == 0), (at + BM >= end) & (member == group - 1)
            s = product(K, keys, start, Q, queries, at, ROWS=BN, COLUMNS=BM, SLICE=SLICE)
            total = tl.load(numbers.LSE2 + at + i)
            visible = is_visible(at + i[None, :], j[:, None], lengths, MASK) & (at + i < n_q)[None, :]
            p = tl.where(visible, tl.exp2(s * (scale * LOG2_E) - total[None, :]), 0.0)
            add_product(
                p, dO, queries, at, Sum=dV_sum, Out=dV, place=keys, start=start, old=ones, factor=ones,
                FIRST=first, LAST=last, SLICE=SLICE,
            )  # fmt: skip
            dp = product(V, keys, start, dO, queries, at, ROWS=BN, COLUMNS=BM, SLICE=SLICE)
            delta = tl.load(numbers.D + at + i)
            add_product(
                p * (dp - delta[None, :]), Q, queries, at, Sum=dK_sum, Out=dK, place=keys, start=start,
                old=ones, factor=ones * scale, FIRST=first, LAST=last, SLICE=SLICE,
            )  # fmt: skip
    if begin == end:
        store_zeros(dK, keys, start, BN, SLICE.BD)
        store_zeros(dV, keys, start, BN, SLICE.BD)
