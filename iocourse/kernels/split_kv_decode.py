"""Split-KV decoding (Flash-Decoding): attention of one query to a long KV cache, split over the keys.

One query cannot fill a GPU. The keys are therefore split into parts, and each program reads one part for all
the query heads that share it, so each word of K and V is read once. The partial results (O, LSE) are merged
as in lesson 03: by a second launch, or in the same launch by the last program of a head to finish. Both call
the same function, but Triton compiles it for each kernel with another assignment of parts to threads, which
add them up in another order. Each result is the same in every run; the two may differ by a rounding.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .forward import average_keys, averaged, log_sums
from .jit_helpers import LOG2_E, LOWEST, Lengths, Place, inside, load_rows


class Parts(NamedTuple):
    """Shape of the decode grid: `parts` · `tiles` · B · `heads` programs. `heads` counts key heads, each
    shared by `group` query heads of size `d`.
    """

    parts: int
    tiles: int
    heads: int
    group: int
    d: int


class PartialResults(NamedTuple):
    """Partial results, float32: O (B · kv_heads, parts, group, d) and LSE (B · kv_heads, parts, group)."""

    O: Any
    LSE: Any


@triton.jit(do_not_specialize=["n_k", "length"])
def parts_kernel(
    Q, K, V, O_parts, LSE_parts, shape, scale, length, n_k, TILE: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """Store the `PartialResults` of each part of `length` keys; `shape`: a `Parts`.

    Q is viewed as (B, kv_heads, group, d): the query heads that share keys are the rows of a tile, BM at a
    time.
    """
    stored = PartialResults(O_parts, LSE_parts)
    store_part(Q, K, V, stored, shape=shape, scale=scale, length=length, n_k=n_k, TILE=TILE, MASK=MASK)


@triton.jit(do_not_specialize=["n_k", "length"])
def last_merges_kernel(
    Q, K, V, O_parts, LSE_parts, arrived, O, LSE, shape, scale, length, n_k,
    TILE: tl.constexpr, MASK: tl.constexpr, PARTS: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    """Do the work of `parts_kernel`; the last program of each tile to finish then calls `merge_row` per row.

    arrived: one int32 counter per tile of each key head, 0 before and after the launch.

    The stores of all programs are visible to the last one, for three reasons. (1) Within a program, each
    thread's stores precede the barrier, and the barrier precedes the atomic addition, which one thread
    executes. (2) The addition has acquire and release semantics for the whole GPU, and additions to one
    counter are totally ordered: the addition that returns parts - 1 is the last, so all earlier stores are
    visible to it. (3) The returned value reaches the other threads through shared memory after another
    barrier, so their loads are later still. Programs do not wait for each other, so they may run in any
    order, even one by one. The result does not depend on which program is last: it reads all parts from
    memory, its own included, in an order that the compiled kernel fixes.
    """
    stored = PartialResults(O_parts, LSE_parts)
    tile, start, batch_head = store_part(
        Q, K, V, stored, shape=shape, scale=scale, length=length, n_k=n_k, TILE=TILE, MASK=MASK
    )
    tl.debug_barrier()
    before = tl.atomic_add(arrived + tile, 1, sem="acq_rel", scope="gpu")
    if before == shape.parts - 1:
        for member in range(start, tl.minimum(start + TILE.BM, shape.group)):
            merge_row(
                stored, O, LSE, shape, batch_head, member, PARTS=PARTS, MORE=MORE, DIM=TILE.DIM
            )  # fmt: skip
        tl.store(arrived + tile, 0)  # for the next launch, which starts after this one ends


@triton.jit
def store_part(
    Q, K, V, stored, shape, scale, length, n_k, TILE: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """Store (O, LSE) of this program's part. Returns the index of its tile among the tiles of all heads, the
    tile's first row, and the index of its batch and key head together.
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    d, group, parts = shape.d, shape.group, shape.parts
    program = tl.program_id(0)
    part, tile = program % parts, program // parts
    start, batch_head = tile % shape.tiles * BM, tile // shape.tiles
    batch, head = batch_head // shape.heads, batch_head % shape.heads
    q_tile = load_rows(Q, Place(batch, head, 0, group, d), start, ROWS=BM, DIM=DIM, PADDED=TILE.PADDED)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    first = part * length
    stop = tl.minimum(first + length, n_k)
    # A part may begin past the last key; its number of keys is then 0 and not negative.
    whole = first + tl.maximum(stop - first, 0) // TILE.BN * TILE.BN
    for cut in tl.static_range(2):  # full tiles of keys, then the partial one at the end
        acc, m, l = average_keys(
            acc, m, l, q_tile, K, V, Place(batch, head, 0, n_k, d),
            start=0, begin=first if cut == 0 else whole, end=whole if cut == 0 else stop,
            lengths=Lengths(group, n_k, 0, 0), lists=None, scale=scale * LOG2_E,
            TILE=TILE, MASK=MASK, MASKED=cut == 1,
        )  # fmt: skip
    rows, columns = start + tl.arange(0, BM), tl.arange(0, DIM)
    # 64 bits, because this index is multiplied by d below.
    to = (batch_head * parts + part).to(tl.int64) * group + rows
    there = inside(start, group, d, BM, DIM)
    tl.store(stored.O + to[:, None] * d + columns[None, :], averaged(acc, l), mask=there)
    tl.store(stored.LSE + to, log_sums(m, l), mask=rows < group)
    return tile, start, batch_head


@triton.jit
def merge_kernel(
    O_parts, LSE_parts, O, LSE, shape, PARTS: tl.constexpr, MORE: tl.constexpr, DIM: tl.constexpr
):  # fmt: skip
    """Call `merge_row` in B · kv_heads · group programs, one per query head."""
    batch_head, member = tl.program_id(0) // shape.group, tl.program_id(0) % shape.group
    stored = PartialResults(O_parts, LSE_parts)
    merge_row(stored, O, LSE, shape, batch_head, member, PARTS=PARTS, MORE=MORE, DIM=DIM)


@triton.jit
def merge_row(
    stored, O, LSE, shape, batch_head, member, PARTS: tl.constexpr, MORE: tl.constexpr, DIM: tl.constexpr
):  # fmt: skip
    """Merge the parts p of one query head: store O = Σ exp(LSEₚ - LSE) Oₚ, and LSE.

    PARTS parts are merged at once; MORE: there are more than PARTS. Each word is read once, because a running
    maximum rescales the earlier parts.
    """
    m, l, o = float("-inf"), 0.0, tl.zeros((DIM,), tl.float32)
    m, l, o = merge_parts(m, l, o, stored, shape, batch_head, member, first=0, PARTS=PARTS)
    if MORE:
        for first in range(PARTS, shape.parts, PARTS):
            m, l, o = merge_parts(m, l, o, stored, shape, batch_head, member, first=first, PARTS=PARTS)
    columns = tl.arange(0, DIM)
    batch, head = batch_head // shape.heads, batch_head % shape.heads * shape.group + member
    to = O.start + batch.to(tl.int64) * O.batch + head.to(tl.int64) * O.head + columns
    o = o / tl.where(l == 0.0, 1.0, l)
    tl.store(to, o.to(O.start.dtype.element_ty), mask=columns < shape.d)
    tl.store(LSE + batch_head * shape.group + member, log_sums(m, l))


@triton.jit
def merge_parts(m, l, o, stored, shape, batch_head, member, first, PARTS: tl.constexpr):
    """Return m, l and o (DIM,) after PARTS more parts, from part `first` on: the running maximum, the sum of
    weights, and the weighted sum of rows.
    """
    part, columns = first + tl.arange(0, PARTS), tl.arange(0, o.shape[0])
    at = (batch_head.to(tl.int64) * shape.parts + part) * shape.group + member
    there = part < shape.parts
    totals = tl.load(stored.LSE + at, mask=there, other=float("-inf")) * LOG2_E  # (PARTS,)
    there = there[:, None] & (columns[None, :] < shape.d)
    found = tl.load(stored.O + at[:, None] * shape.d + columns[None, :], mask=there, other=0.0)
    m_new = tl.maximum(m, tl.max(totals, 0))
    # No part so far has a visible key: -∞ - -∞ would be NaN.
    shift = tl.where(m_new == float("-inf"), 0.0, m_new)
    weights, old = tl.exp2(totals - shift), tl.exp2(m - shift)
    return m_new, l * old + tl.sum(weights, 0), o * old + tl.sum(weights[:, None] * found, 0)
