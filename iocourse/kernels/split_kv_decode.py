"""One query against a long cache of keys, the decode step: split over the keys, then merged.

One query cannot fill a GPU. So the keys are cut into parts, and each program reads one part for all the query
heads that share it: a word of K or V is read once, however many heads ask for it. What the parts found,
(O, LSE), is merged as lesson 03 merges partial results: by a second launch, or in the same launch by the
program of a head that finishes last. Both merge by the same function, in the same order.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .forward import average_keys, averaged, log_sums
from .jit_helpers import LOG2_E, LOWEST, Pairs, inside, load_rows


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
    store_part(Q, K, V, O_parts, LSE_parts, shape, scale, length, n_k, TILE, SEEN)


@triton.jit(do_not_specialize=["n_k", "length"])
def last_merges_kernel(
    Q, K, V, O_parts, LSE_parts, arrived, O, LSE, shape, scale, length, n_k,
    TILE: tl.constexpr, SEEN: tl.constexpr, PARTS: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    """The same, and then `merge_row` for each row of a tile, by whichever of its programs finishes last.

    arrived: one int32 for each tile of each head of keys, 0 before the launch and after it.

    Why the last program reads what all the others wrote. (1) Within a program, each thread's stores come
    before the barrier, and the barrier before the addition, which one thread makes. (2) The addition is a
    release and an acquire for the whole GPU, and additions to one counter are one sequence: the addition that
    finds parts - 1 comes after all the others, and what came before those is visible to its thread. (3) Its
    result goes to the other threads through shared memory, behind another barrier, so their loads come later
    still. Nothing waits for another program, so any order of programs will do, one after the other included.
    Which program is last changes nothing: it reads all parts from memory, its own as well, in order.
    """
    tile, start, pair = store_part(Q, K, V, O_parts, LSE_parts, shape, scale, length, n_k, TILE, SEEN)
    tl.debug_barrier()
    before = tl.atomic_add(arrived + tile, 1, sem="acq_rel", scope="gpu")
    if before == shape.parts - 1:
        for member in range(start, tl.minimum(start + TILE.BM, shape.group)):
            merge_row(O_parts, LSE_parts, O, LSE, shape, pair, member, PARTS, MORE, TILE.DIM)
        tl.store(arrived + tile, 0)  # for the next launch, which begins when this one has ended


@triton.jit
def store_part(
    Q, K, V, O_parts, LSE_parts, shape, scale, length, n_k, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """Leave (O, LSE) of a program's part. Returns the number of its tile among those of all heads, the tile's
    first row, and the number of its head of keys, all batches counted.
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    d, group, parts = shape.d, shape.group, shape.parts
    program = tl.program_id(0)
    part, tile = program % parts, program // parts
    start, pair = tile % shape.tiles * BM, tile // shape.tiles
    batch, head = pair // shape.heads, pair % shape.heads
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
    return tile, start, pair


@triton.jit
def merge_kernel(
    O_parts, LSE_parts, O, LSE, shape, PARTS: tl.constexpr, MORE: tl.constexpr, DIM: tl.constexpr
):  # fmt: skip
    """`merge_row` by B · kv_heads · group programs, one a query head."""
    pair, member = tl.program_id(0) // shape.group, tl.program_id(0) % shape.group
    merge_row(O_parts, LSE_parts, O, LSE, shape, pair, member, PARTS, MORE, DIM)


@triton.jit
def merge_row(
    O_parts, LSE_parts, O, LSE, shape, pair, member, PARTS: tl.constexpr, MORE: tl.constexpr,
    DIM: tl.constexpr,
):  # fmt: skip
    """O = Σ exp(LSEₚ - LSE) Oₚ over the parts p, and LSE, of one query head: PARTS at once; MORE: there are
    more than these. Each word is read once, for a running maximum scales what came before.
    """
    m, l, o = merge_parts(
        float("-inf"),
        0.0,
        tl.zeros((DIM,), tl.float32),
        O_parts,
        LSE_parts,
        shape,
        pair,
        member,
        0,
        PARTS,
        DIM,
    )
    if MORE:
        for first in range(PARTS, shape.parts, PARTS):
            m, l, o = merge_parts(m, l, o, O_parts, LSE_parts, shape, pair, member, first, PARTS, DIM)
    columns = tl.arange(0, DIM)
    batch, head = pair // shape.heads, pair % shape.heads * shape.group + member
    to = O.start + batch.to(tl.int64) * O.batch + head.to(tl.int64) * O.head + columns
    o = o / tl.where(l == 0.0, 1.0, l)
    tl.store(to, o.to(O.start.dtype.element_ty), mask=columns < shape.d)
    tl.store(LSE + pair * shape.group + member, log_sums(m, l))


@triton.jit
def merge_parts(
    m, l, o, O_parts, LSE_parts, shape, pair, member, first, PARTS: tl.constexpr, DIM: tl.constexpr
):  # fmt: skip
    """The maximum, the sum of weights and their sum of rows, with PARTS parts more, from the `first` on."""
    part, columns = first + tl.arange(0, PARTS), tl.arange(0, DIM)
    place = (pair.to(tl.int64) * shape.parts + part) * shape.group + member
    there = part < shape.parts
    totals = tl.load(LSE_parts + place, mask=there, other=float("-inf")) * LOG2_E  # (PARTS,)
    there = there[:, None] & (columns[None, :] < shape.d)
    found = tl.load(O_parts + place[:, None] * shape.d + columns[None, :], mask=there, other=0.0)
    m_new = tl.maximum(m, tl.max(totals, 0))
    shift = tl.where(m_new == float("-inf"), 0.0, m_new)
    weights, old = tl.exp2(totals - shift), tl.exp2(m - shift)
    return m_new, l * old + tl.sum(weights, 0), o * old + tl.sum(weights[:, None] * found, 0)
