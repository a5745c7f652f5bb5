"""Preprocessing kernel of the backward pass: compute D = rowsum(dO ∘ O) (delta), one value per query row.

dS = P ∘ (dP - D). Precomputing D and the scaled log-sum-exps avoids repeating this work for every key block.
"""

import triton
import triton.language as tl

from .jit_helpers import (
    Place,
    load_log_sums,
    load_row_numbers,
    load_rows,
    program_place,
    row_numbers_of,
    store_row_numbers,
    store_rows,
    stretch,
)


@triton.jit
def load_delta(
    O, dO, dLSE, total, queries, start, BM: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Return dO's tile (BM, DIM) and D of its rows (BM,); `total`: their log-sum-exps, see `load_log_sums`.

    dLSE: the gradient of the log-sum-exp, or None. A loss that uses the log-sum-exp adds dLSE · P to dS,
    which is the same as subtracting dLSE from D.
    """
    o_tile = load_rows(O, queries, start, ROWS=BM, DIM=DIM, PADDED=PADDED)
    do_tile = load_rows(dO, queries, start, ROWS=BM, DIM=DIM, PADDED=PADDED)
    # In float32, because 16-bit products of O and dO would have only the digits of their type.
    delta = tl.sum(o_tile.to(tl.float32) * do_tile.to(tl.float32), 1)
    if dLSE is not None:
        # The log-sum-exp of a row without keys is the constant -∞, so its gradient is ignored.
        n_q = queries.stop - queries.first
        delta -= tl.where(total == float("inf"), 0.0, load_row_numbers(dLSE, start, n_q, 0.0, BM))
    return do_tile, delta


@triton.jit(do_not_specialize=["n_q"])
def row_products_kernel(
    O, dO, dLSE, LSE, prepared, dQ_sum, cu_q, shape, n_q,
    BM: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Store D = rowsum(dO ∘ O) - dLSE and LSE / log 2 in `prepared`, and zeros in dQ_sum (B, heads, n_q, d)
    float32 unless it is None. cu_q: the first rows of packed sequences, or None.
    """
    tile, _, batch, head = program_place(tl.program_id(0), shape, False)
    start = tile * BM
    PACKED: tl.constexpr = cu_q is not None
    q0, length = 0, n_q
    if PACKED:
        q0, length = stretch(cu_q, batch)
    queries = Place(batch, head, q0, q0 + length, shape.d)
    LSE = row_numbers_of(LSE, queries, shape.heads, n_q, PACKED)
    if dLSE is not None:
        dLSE = row_numbers_of(dLSE, queries, shape.heads, n_q, PACKED)
    if dQ_sum is not None:
        store_rows(tl.zeros((BM, DIM), dtype=tl.float32), dQ_sum, queries, start)
    total = load_log_sums(LSE, start, length, BM)
    _, delta = load_delta(O, dO, dLSE, total, queries, start, BM=BM, DIM=DIM, PADDED=PADDED)
    store_row_numbers(prepared, queries, start, total, delta, heads=shape.heads, PACKED=PACKED)
