"""One query a sequence against a long cache of keys: the decode step, split over the keys and merged.

One query cannot fill a GPU, so the keys are cut into parts, and each program reads one part for all the query heads
that share it: every word of K and V is read once, whatever the number of query heads. What a part found, (O, LSE), is
merged as lesson 03 merges partial results.
"""

import triton
import triton.language as tl

from .forward import absorb_keys
from .pieces import LN_2, LOG2_E, load_rows


@triton.jit(do_not_specialize=["n_k", "begin_at", "length"])
def decode_kernel(
    Q, q_strides, K, k_strides, V, v_strides, O_part, LSE_part,
    scale, parts, length, begin_at, kv_heads, group, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(O, LSE) of `length` keys from `begin_at` on, for one part; `parts` · B · kv_heads programs.

    Q is given as (B, kv_heads, group, d): the query heads that share keys are the rows of one tile, BM of them.
    O_part (B, kv_heads, parts, group, d) and LSE_part (B, kv_heads, parts, group), float32.
    """
    program = tl.program_id(0)
    part, pair = program % parts, program // parts
    batch, head = pair // kv_heads, pair % kv_heads
    first = begin_at + part * length
    stop = tl.minimum(first + length, n_k)
    q_tile = load_rows(Q, q_strides, batch, head, 0, group, d, BM, DIM, True, PADDED, False)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    whole = first + tl.maximum(stop - first, 0) // BN * BN
    for cut in tl.static_range(2):  # whole tiles of keys, then the one that passes the end of the part
        acc, m, l = absorb_keys(
            acc, m, l, q_tile, K, k_strides, V, v_strides, batch, head, 0,
            first if cut == 0 else whole, whole if cut == 0 else stop, 0, stop, d, scale * LOG2_E, 0, 0,
            None, BM, BN, DIM, PADDED, False, False, cut == 1, False, False, PRECISION,
        )  # fmt: skip
    nothing = l == 0.0
    rows, columns = tl.arange(0, BM), tl.arange(0, DIM)
    place = program.to(tl.int64) * group + rows
    there = (rows[:, None] < group) & (columns[None, :] < d)
    share = acc / tl.where(nothing, 1.0, l)[:, None]
    tl.store(O_part + place[:, None] * d + columns[None, :], share, mask=there)
    total = tl.where(nothing, float("-inf"), (m + tl.log2(tl.where(nothing, 1.0, l))) * LN_2)
    tl.store(LSE_part + place, total, mask=rows < group)


@triton.jit
def merge_kernel(
    O_part, LSE_part, O, o_strides, LSE, parts, kv_heads, group, d,
    PARTS: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """O = Σ exp(LSE_part - LSE) O_part over the parts, and LSE; one program a query head."""
    program = tl.program_id(0)
    pair, member = program // group, program % group
    part, columns = tl.arange(0, PARTS), tl.arange(0, DIM)
    place = (pair.to(tl.int64) * parts + part) * group + member
    totals = tl.load(LSE_part + place, mask=part < parts, other=float("-inf")) * LOG2_E  # (PARTS,)
    m = tl.max(totals, 0)
    shift = tl.where(m == float("-inf"), 0.0, m)
    weights = tl.exp2(totals - shift)
    l = tl.sum(weights, 0)
    there = (part[:, None] < parts) & (columns[None, :] < d)
    shares = tl.load(O_part + place[:, None] * d + columns[None, :], mask=there, other=0.0)
    o = tl.sum(weights[:, None] * shares, 0) / tl.where(l == 0.0, 1.0, l)
    batch, head = pair // kv_heads, pair % kv_heads * group + member
    to = O + batch.to(tl.int64) * o_strides[0] + head.to(tl.int64) * o_strides[1] + columns
    tl.store(to, o.to(O.dtype.element_ty), mask=columns < d)
    total = tl.where(l == 0.0, float("-inf"), (m + tl.log2(tl.where(l == 0.0, 1.0, l))) * LN_2)
    tl.store(LSE + program, total)
