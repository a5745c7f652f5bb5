"""D = rowsum(dO ∘ O): one number a row, which turns dP into dS. A kernel of its own before the fused backward
pass.
"""

import triton
import triton.language as tl

from .pieces import load_row_numbers, load_rows, row_numbers_of, sequence


@triton.jit
def row_products(
    O, o_strides, dO, do_strides, dLSE, LSE, batch, head, start, q0, n_q, d,
    BM: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, HAS_DLSE: tl.constexpr,
):  # fmt: skip
    """dO's tile (BM, DIM) and D of its rows (BM,).

    A loss that also uses the log-sum-exp adds dLSE · P to dS; that is the same as taking dLSE off D.
    """
    o_tile = load_rows(O, o_strides, batch, head, q0 + start, q0 + n_q, d, BM, DIM, True, PADDED, False)
    do_tile = load_rows(dO, do_strides, batch, head, q0 + start, q0 + n_q, d, BM, DIM, True, PADDED, False)
    products = tl.sum(o_tile.to(tl.float32) * do_tile.to(tl.float32), 1)
    if HAS_DLSE:
        total = load_row_numbers(LSE, start, n_q, float("-inf"), BM)
        # The log-sum-exp of a row without keys is the constant -∞: whatever its gradient, it reaches nothing.
        products -= tl.where(total == float("-inf"), 0.0, load_row_numbers(dLSE, start, n_q, 0.0, BM))
    return do_tile, products


@triton.jit(do_not_specialize=["n_q"])
def row_products_kernel(
    O, o_strides, dO, do_strides, dLSE, LSE, D, cu_q, tiles, heads, n_q, d,
    BM: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, HAS_DLSE: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """D = rowsum(dO ∘ O) - dLSE, float32 (B, heads, n_q); `tiles` · B · heads programs."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, head = pair // heads, pair % heads
    q0, length = sequence(cu_q, batch, n_q, PACKED)
    D = row_numbers_of(D, batch, head, heads, n_q, q0, PACKED)
    if HAS_DLSE:
        LSE = row_numbers_of(LSE, batch, head, heads, n_q, q0, PACKED)
        dLSE = row_numbers_of(dLSE, batch, head, heads, n_q, q0, PACKED)
    _, products = row_products(
        O, o_strides, dO, do_strides, dLSE, LSE, batch, head, tile * BM, q0, length, d,
        BM, DIM, PADDED, HAS_DLSE,
    )  # fmt: skip
    rows = tile * BM + tl.arange(0, BM)
    tl.store(D + rows, products, mask=rows < length)
