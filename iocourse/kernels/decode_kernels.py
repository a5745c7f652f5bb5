"""One query against a long cache of keys, the decode step: split over the keys, then merged.

One query cannot fill a GPU. So the keys are cut into parts, and each program reads one part for all the query
heads that share it: a word of K or V is read once, however many heads ask for it. What the parts found,
(O, LSE), is merged as lesson 03 merges partial results.
"""

import triton
import triton.language as tl

from .forward import absorb_keys, averaged, log_sums
from .pieces import LOG2_E, inside, load_rows


@triton.jit(do_not_specialize=["n_k", "length"])
def parts_kernel(
    Q, q_strides, K, k_strides, V, v_strides, O_parts, LSE_parts,
    scale, parts, length, tiles, kv_heads, group, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(O, LSE) of the keys of one part, `length` of them; `parts` · `tiles` · B · kv_heads programs.

    Q stands as (B, kv_heads, group, d): the query heads that share keys are the rows of a tile, BM at a time.
    O_parts (B · kv_heads, parts, group, d) and LSE_parts (B · kv_heads, parts, group) are float32.
    """
    program = tl.program_id(0)
    part, rest = program % parts, program // parts
    tile, pair = rest % tiles, rest // tiles
    batch, head = pair // kv_heads, pair % kv_heads
    start = tile * BM
    q_tile = load_rows(Q, q_strides, batch, head, start, group, d, BM, DIM, True, PADDED, False)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    first = part * length
    stop = tl.minimum(first + length, n_k)
    whole = first + tl.maximum(stop - first, 0) // BN * BN
    for cut in tl.static_range(2):  # whole tiles of keys, then the one that the last key cuts
        acc, m, l = absorb_keys(
            acc, m, l, q_tile, K, k_strides, V, v_strides, batch, head, 0,
            first if cut == 0 else whole, whole if cut == 0 else stop, 0, n_k, d, scale * LOG2_E, 0, 0, None,
            BM, BN, DIM, PADDED, False, False, cut == 1, False, False, PRECISION,
        )  # fmt: skip
    rows, columns = start + tl.arange(0, BM), tl.arange(0, DIM)
    place = (pair * parts + part).to(tl.int64) * group + rows
    there = inside(start, group, d, BM, DIM)
    tl.store(O_parts + place[:, None] * d + columns[None, :], averaged(acc, l), mask=there)
    tl.store(LSE_parts + place, log_sums(m, l), mask=rows < group)


@triton.jit
def merge_kernel(
    O_parts, LSE_parts, O, o_strides, LSE, parts, kv_heads, group, d,
    PARTS: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """O = Σ exp(LSEₚ - LSE) Oₚ over the parts p, and LSE; B · kv_heads · group programs, one a query head."""
    program = tl.program_id(0)
    pair, member = program // group, program % group
    part, columns = tl.arange(0, PARTS), tl.arange(0, DIM)
    place = (pair.to(tl.int64) * parts + part) * group + member
    totals = tl.load(LSE_parts + place, mask=part < parts, other=float("-inf")) * LOG2_E  # (PARTS,)
    m = tl.max(totals, 0)
    weights = tl.exp2(totals - tl.where(m == float("-inf"), 0.0, m))
    l = tl.sum(weights, 0)
    there = (part[:, None] < parts) & (columns[None, :] < d)
    found = tl.load(O_parts + place[:, None] * d + columns[None, :], mask=there, other=0.0)  # (PARTS, DIM)
    o = tl.sum(weights[:, None] * found, 0) / tl.where(l == 0.0, 1.0, l)
    batch, head = pair // kv_heads, pair % kv_heads * group + member
    to = O + batch.to(tl.int64) * o_strides[0] + head.to(tl.int64) * o_strides[1] + columns
    tl.store(to, o.to(O.dtype.element_ty), mask=columns < d)
    tl.store(LSE + program, log_sums(m, l))
