"""What every attention kernel is built of: tiles of rows in and out, and which keys a tile of queries sees.

A tensor is (B, H, N, d) with any strides; d is the fast axis, with stride 1. A tile is BLOCK rows of one
head, DIM columns wide: DIM is the power of two at or above d, and the columns from d on hold zeros.

A mask is a band: query i sees key j where low ≤ j - i ≤ high. Causal attention is high = 0 (with the keys
aligned to the right, high = Nk - Nq); a window of (left, right) keys is low = -left and high = right.

What travels together is one NamedTuple. But n_q, n_k, low and high stand one by one where a kernel is given
them: Triton (3.6 to 3.9) looks for ones and multiples of 16 in every number of a tuple, whatever
`do_not_specialize` says, and would compile a kernel anew for many a length.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# Where the rows of packed sequences end for a descriptor, at any number of rows (see `corner`).
LAST_ROW = tl.constexpr(2**30)
# Running maxima start here, not at -∞: -∞ is a score like any other, and -∞ - -∞ would be NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32
# No score is as large, so it stands for one that is NaN and does not count.
HUGE = tl.constexpr(1e30)


class Rows(NamedTuple):
    """A tensor (B, H, N, d): where it begins, and the steps along B, H and N. Along d the step is 1.

    The steps stand one by one: a tuple within this one would lose, in triton 3.6, those that are 1.
    """

    start: Any
    batch: int
    head: int
    row: int


class Shape(NamedTuple):
    """How programs share the work: `tiles` · B · `heads` of them, `group` heads of queries to one of keys."""

    tiles: int
    heads: int
    group: int
    d: int


class RowNumbers(NamedTuple):
    """What a backward kernel needs of each row of Q, as the one before leaves it (see `store_row_numbers`).

    LSE2: log-sum-exps in units of log 2, +∞ for a row that sees no key. D: delta. Both are float32, `rows` of
    them a head, of which each sequence has whole tiles of `pad`; past its end LSE2 is +∞ and D is 0. So a
    loop over queries loads them as they lie, with nothing to mask, compare or multiply.
    """

    LSE2: Any
    D: Any
    rows: int
    pad: int


class Starts(NamedTuple):
    """Where packed sequences begin among the rows of Q and of K, and where the last one ends."""

    cu_q: Any
    cu_k: Any


class Pairs(NamedTuple):
    """The pairs of one sequence: n_q queries, n_k keys, and the band."""

    n_q: Any
    n_k: Any
    low: Any
    high: Any


class Tiling(NamedTuple):
    """What a kernel is compiled for: BM queries by BN keys, DIM columns.

    PADDED: columns from d on hold zeros. DESCRIPTORS: tiles that stream past come by tensor descriptor.
    PRECISION: of products of float32. SKIPPING: do not enter a loop with no iteration. On sm_90 no other
    instruction may set the sums next to a loop whose products are in flight; otherwise ptxas waits for every
    product of the kernel (its warning C7515). ROW_DESCRIPTORS: Q and O of the forward pass use
    descriptors, too.
    """

    BM: int
    BN: int
    DIM: int
    PADDED: bool
    DESCRIPTORS: bool
    PRECISION: str | None
    SKIPPING: bool = False
    ROW_DESCRIPTORS: bool = False


class Slicing(NamedTuple):
    """The same for kernels that cut d into slices of BD columns."""

    BM: int
    BN: int
    BD: int
    PRECISION: str | None


class Seeing(NamedTuple):
    """And for which pairs: a band with these limits, or LISTED, tiles that lists name.

    PACKED: sequences lie one behind the other in tensors of one batch. LOWER_RIGHT: the band's own diagonal
    ends in the lower right corner of each. RAGGED_Q, RAGGED_K: the last tile passes the end.
    """

    HAS_LOW: bool
    HAS_HIGH: bool
    LISTED: bool = False
    PACKED: bool = False
    LOWER_RIGHT: bool = False
    RAGGED_Q: bool = True
    RAGGED_K: bool = True


@triton.jit
def program_place(program, shape, LAST_FIRST: tl.constexpr):
    """A program's tile, pair of batch and head, and these two. LAST_FIRST: the last tiles have the most work,
    so they start, and the end is small work.
    """
    tile, pair = program % shape.tiles, program // shape.tiles
    if LAST_FIRST:
        tile = shape.tiles - 1 - tile
    return tile, pair, pair // shape.heads, pair % shape.heads


@triton.jit
def row_pointers(x, batch, head, start, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Pointers to the tile of rows start … start + ROWS - 1 of one head: (ROWS, DIM)."""
    # 64 bits from here on: batch · stride passes 2³¹ elements long before a GPU's memory is full.
    first = x.start + (batch.to(tl.int64) * x.batch + head.to(tl.int64) * x.head)
    rows = (start + tl.arange(0, ROWS)).to(tl.int64)  # (ROWS,)
    return first + rows[:, None] * x.row + tl.arange(0, DIM)[None, :]


@triton.jit
def inside(start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Which elements of a tile exist: rows below n, columns below d. (ROWS, DIM)."""
    rows = start + tl.arange(0, ROWS)
    return (rows[:, None] < n) & (tl.arange(0, DIM)[None, :] < d)


@triton.jit
def corner(x, batch, head, start, n):
    """Coordinates, for a descriptor, of the tile that begins at row `start` of a head whose rows end at n.

    Of packed sequences (see `launches.streamed`) it has five axes, and its axis of rows ends at LAST_ROW. The
    second axis shifts row n there, so what passes a sequence's end is out of bounds for the copy engine: it
    loads zeros and stores nothing. The first axis takes the shift by LAST_ROW rows back, modulo 2⁶⁴ elements.
    """
    packed: tl.constexpr = len(x.block_shape) == 5
    return (LAST_ROW, n, head, LAST_ROW - n + start, 0) if packed else (batch, head, start, 0)


@triton.jit
def load_rows(
    x, batch, head, start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr,
    CHECK_ROWS: tl.constexpr, CHECK_COLS: tl.constexpr, DESCRIPTOR: tl.constexpr,
):  # fmt: skip
    """One tile, with zeros where the tensor ends. (ROWS, DIM).

    A descriptor knows shape and strides itself: the copy engine of sm_90 computes the addresses and checks
    the ends, and no thread spends a register on them. A pointer asks for a mask, where there is an end.
    """
    if DESCRIPTOR:
        tile = x.load(corner(x, batch, head, start, n)).reshape(ROWS, DIM)
    else:
        pointers = row_pointers(x, batch, head, start, ROWS, DIM)
        rows = (start + tl.arange(0, ROWS))[:, None] < n
        columns = tl.arange(0, DIM)[None, :] < d
        if CHECK_ROWS and CHECK_COLS:
            tile = tl.load(pointers, mask=rows & columns, other=0.0)
        elif CHECK_ROWS:
            tile = tl.load(pointers, mask=rows, other=0.0)
        elif CHECK_COLS:
            tile = tl.load(pointers, mask=columns, other=0.0)
        else:
            tile = tl.load(pointers)
    return tile


@triton.jit
def store_rows(
    tile, x, batch, head, start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr, DESCRIPTOR: tl.constexpr = False
):  # fmt: skip
    """Write a tile's rows and columns that exist, in the tensor's own type."""
    if DESCRIPTOR:
        x.store(corner(x, batch, head, start, n), tile.to(x.dtype).reshape(x.block_shape))
    else:
        pointers = row_pointers(x, batch, head, start, ROWS, DIM)
        tl.store(pointers, tile.to(x.start.dtype.element_ty), mask=inside(start, n, d, ROWS, DIM))


@triton.jit
def sees(i, j, pairs, SEEN: tl.constexpr):
    """Whether query i sees key j; i and j broadcast. A key from n_k on is seen by nobody."""
    seen = j < pairs.n_k
    if SEEN.HAS_LOW:
        seen = seen & (j - i >= pairs.low)
    if SEEN.HAS_HIGH:
        seen = seen & (j - i <= pairs.high)
    return seen


@triton.jit
def stretch(cu, batch):
    """Where a packed sequence begins among a tensor's rows, and its length."""
    first = tl.load(cu + batch)
    return first, tl.load(cu + batch + 1) - first


@triton.jit
def sequences(cu, batch, n_q, n_k, low, high, SEEN: tl.constexpr):
    """Where a batch's queries and keys begin among the rows, and its pairs."""
    q0, k0 = 0, 0
    if SEEN.PACKED:
        q0, n_q = stretch(cu.cu_q, batch)
        k0, n_k = stretch(cu.cu_k, batch)
    if SEEN.LOWER_RIGHT:
        low, high = low + n_k - n_q, high + n_k - n_q
    return q0, k0, Pairs(n_q, n_k, low, high)


@triton.jit
def place_of_queries(
    shape, lists, cu, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """A program's batch, head and first query; its sequence (see `sequences`); and the keys it sees, as
    borders of tiles (see `split_range`).
    """
    tile, _, batch, head = program_place(tl.program_id(0), shape, SEEN.HAS_HIGH)
    if SEEN.LISTED:
        tile = heaviest(lists, batch, head, tile)
    start = tile * TILE.BM
    q0, k0, pairs = sequences(cu, batch, n_q, n_k, low, high, SEEN)
    if SEEN.PACKED:
        # A short sequence has no such tile, and no key is read for it.
        there = tl.where(start < pairs.n_q, pairs.n_k, 0)
        pairs = Pairs(pairs.n_q, there, pairs.low, pairs.high)
    if SEEN.LISTED:
        borders = listed(lists, batch, head, tile)
    else:
        borders = keys_of(start, pairs, TILE.BM, TILE.BN, SEEN)
    return batch, head, start, q0, k0, pairs, borders


@triton.jit
def row_numbers_of(x, batch, head, heads, n, first, PACKED: tl.constexpr):
    """Where one head's row numbers begin: n rows a head and batch, or n a head in all sequences together."""
    return x + (head if PACKED else batch * heads + head).to(tl.int64) * n + first


@triton.jit
def load_row_numbers(x, start, n, other, ROWS: tl.constexpr):
    """One float32 number for each of the rows from `start` on; `other` from row n on. (ROWS,)."""
    rows = start + tl.arange(0, ROWS)
    return tl.load(x + rows, mask=rows < n, other=other)


@triton.jit
def load_log_sums(lse, start, n, ROWS: tl.constexpr):
    """Row log-sum-exps in units of log 2, with +∞ where a row sees no key or does not exist. (ROWS,).

    2ˢ⁻ᵒᵒ is 0, so such a row has no weight anywhere, and nothing becomes NaN.
    """
    natural = load_row_numbers(lse, start, n, float("inf"), ROWS)
    return tl.where(natural == float("-inf"), float("inf"), natural) * LOG2_E


@triton.jit
def prepared_of(prepared, batch, head, heads, first, PACKED: tl.constexpr):
    """Where one head's prepared row numbers begin, for the sequence that begins at row `first`."""
    # Between packed sequences there is room for each one's last tile.
    at = first + batch * prepared.pad if PACKED else 0
    sums = row_numbers_of(prepared.LSE2, batch, head, heads, prepared.rows, at, PACKED)
    return sums, row_numbers_of(prepared.D, batch, head, heads, prepared.rows, at, PACKED)


@triton.jit
def store_row_numbers(
    prepared, total, delta, batch, head, heads, start, first, n, ROWS: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Leave `total` and `delta` (ROWS,) of the rows from `start` on for the kernels that follow.

    Rows from n on have +∞ and 0 there already. The last program also fills what is left of the last `pad`.
    """
    sums, deltas = prepared_of(prepared, batch, head, heads, first, PACKED)
    stop = tl.where(start < n, tl.cdiv(n, prepared.pad) * prepared.pad, 0)
    rows = tl.arange(0, ROWS)
    tl.store(sums + start + rows, total, mask=start + rows < stop)
    tl.store(deltas + start + rows, delta, mask=start + rows < stop)
    for at in range(start + ROWS, tl.where(start + ROWS < n, 0, stop), ROWS):
        tl.store(sums + at + rows, tl.full((ROWS,), float("inf"), tl.float32))
        tl.store(deltas + at + rows, tl.zeros((ROWS,), tl.float32))


@triton.jit
def listed(lists, batch, head, tile):
    """The stretch of a block mask's list that belongs to one tile, as borders: whole tiles, then cut ones.

    `lists` is one side of a block mask (see `host.launches.ListedSide`).
    """
    here = lists.spans + batch * lists.spans_batch + head * lists.spans_head + tile * lists.spans_tile
    begin = tl.load(here)
    return begin, begin, tl.load(here + 1), tl.load(here + 2)


@triton.jit
def heaviest(lists, batch, head, place):
    """The tile with the `place`-th most work: long rows first, so that no program is left with one alone."""
    return tl.load(lists.order + batch * lists.order_batch + head * lists.order_head + place)


@triton.jit
def pattern(lists, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which pairs of a cut tile are seen. (ROWS, COLUMNS)."""
    at = lists.patterns + tl.load(lists.slots + step).to(tl.int64) * ROWS * COLUMNS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    return tl.load(at + rows[:, None] * lists.pattern_row + columns[None, :] * lists.pattern_column) != 0


@triton.jit
def split_range(begin, whole_begin, whole_end, end, BLOCK: tl.constexpr):
    """Cut begin … end into tiles that need a mask, tiles that need none, and tiles that need a mask again.

    Returns the four borders, multiples of BLOCK: `begin` down, `end` up, and between them the borders of
    those tiles that lie within whole_begin … whole_end.
    """
    nothing = end <= begin
    begin = begin // BLOCK * BLOCK
    end = tl.where(nothing, begin, tl.cdiv(end, BLOCK) * BLOCK)
    first = tl.minimum(tl.maximum(begin, tl.cdiv(whole_begin, BLOCK) * BLOCK), end)
    last = tl.minimum(tl.maximum(first, whole_end // BLOCK * BLOCK), end)
    return begin, first, last, end


@triton.jit
def keys_of(start, pairs, BM: tl.constexpr, BN: tl.constexpr, SEEN: tl.constexpr):
    """The keys that queries start … start + BM - 1 see, as borders of tiles of BN keys (see
    `split_range`).
    """
    n_k = pairs.n_k
    stop = tl.minimum(start + BM, pairs.n_q)  # rows beyond the last query ask for nothing
    begin, whole_begin = 0, 0
    end, whole_end = n_k, n_k
    if SEEN.HAS_LOW:
        begin, whole_begin = tl.maximum(0, start + pairs.low), tl.maximum(0, stop - 1 + pairs.low)
    if SEEN.HAS_HIGH:
        end = tl.maximum(0, tl.minimum(n_k, stop + pairs.high))
        whole_end = tl.maximum(0, tl.minimum(n_k, start + 1 + pairs.high))
    return split_range(tl.minimum(begin, n_k), whole_begin, whole_end, end, BN)


@triton.jit
def queries_of(start, pairs, BM: tl.constexpr, BN: tl.constexpr, SEEN: tl.constexpr):
    """The queries that see keys start … start + BN - 1, as borders of tiles of BM queries.

    A tile of keys that passes the last key needs its mask everywhere. Queries past the last one need none
    here: their log-sum-exp is +∞ and their scores are no larger than `HUGE`, so their weights are exactly 0.
    """
    n_q, n_k = pairs.n_q, pairs.n_k
    stop = tl.minimum(start + BN, n_k)
    begin, whole_begin = 0, 0
    end, whole_end = n_q, (n_q + BM - 1) // BM * BM
    if SEEN.HAS_HIGH:
        begin, whole_begin = tl.maximum(0, start - pairs.high), tl.maximum(0, stop - 1 - pairs.high)
    if SEEN.HAS_LOW:
        end = tl.maximum(0, tl.minimum(n_q, stop - pairs.low))
        whole_end = tl.maximum(0, tl.minimum(whole_end, start + 1 - pairs.low))
    if start + BN > n_k:
        whole_begin = end
    return split_range(tl.minimum(begin, n_q), whole_begin, whole_end, end, BM)
