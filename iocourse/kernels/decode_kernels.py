"""One query against a long cache of keys, the decode step: split over the keys, then merged.

One query cannot fill a GPU. So the keys are cut into parts, and each program reads one part for all the query
heads that share it: a word of K or V is read once, however many heads ask for it. What the parts found,
(O, LSE), is merged as lesson 03 merges partial results.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .forward import average_keys, averaged, log_sums
from .pieces import LOG2_E, LOWEST, Pairs, inside, load_rows


class Parts(NamedTuple):
    """How programs share the work: `parts` · `tiles` · B · `heads` of keys, `group` of queries to each."""

    parts: int
    tiles: int
    heads: int
    group: int
    d: int


@triton.jit(do_not_specialize=["n_k", "length"])
def parts_kernel(
    Q, K, V, O_parts, LSE_parts, shape, scale, length, n_k, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """(O, LSE) of the keys of one part, `length` of them; `shape` (`Parts`) says for how many programs.

    Q stands as (B, kv_heads, group, d): the query heads that share keys are the rows of a tile, BM at a time.
    O_parts (B · kv_heads, parts, group, d) and LSE_parts (B · kv_heads, parts, group) are float32.
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    d, group, parts = shape.d, shape.group, shape.parts
    program = tl.program_id(0)
    part, rest = program % parts, program // parts
    tile, pair = rest % shape.tiles, rest // shape.tiles
    batch, head = pair // shape.heads, pair % shape.heads
    start = tile * BM
    q_tile = load_rows(Q, batch, head, start, group, d, BM, DIM, True, TILE.PADDED, False)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    first = part * length
    stop = tl.minimum(first + length, n_k)
    whole = first + tl.maximum(stop - first, 0) // TILE.BN * TILE.BN
    pairs = Pairs(group, n_k, 0, 0)
    for cut in tl.static_range(2):  # whole tiles of keys, then the one that the last key cuts
        acc, m, l = average_keys(
            acc, m, l, q_tile, K, V, batch, head, 0, first if cut == 0 else whole,
            whole if cut == 0 else stop, 0, pairs, d, scale * LOG2_E, None, TILE, SEEN, cut == 1,
        )  # fmt: skip
    rows, columns = start + tl.arange(0, BM), tl.arange(0, DIM)
    place = (pair * parts + part).to(tl.int64) * group + rows
    there = inside(start, group, d, BM, DIM)
    tl.store(O_parts + place[:, None] * d + columns[None, :], averaged(acc, l), mask=there)
    tl.store(LSE_parts + place, log_sums(m, l), mask=rows < group)


@triton.jit
def merge_kernel(O_parts, LSE_parts, O, LSE, shape, PARTS: tl.constexpr, DIM: tl.constexpr):
    """O = Σ exp(LSEₚ - LSE) Oₚ over the parts p, and LSE; B · kv_heads · group programs, one a query head."""
    d, group, parts = shape.d, shape.group, shape.parts
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
    batch, head = pair // shape.heads, pair % shape.heads * group + member
    to = O.start + batch.to(tl.int64) * O.batch + head.to(tl.int64) * O.head + columns
    tl.store(to, o.to(O.start.dtype.element_ty), mask=columns < d)
    tl.store(LSE + program, log_sums(m, l))
