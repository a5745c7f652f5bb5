"""What every attention kernel is built of: tiles of rows in and out, and which keys a tile of queries sees.

A tensor is (B, H, N, d) with any strides; d is the fast axis, with stride 1. A tile is BLOCK rows of one
head, DIM columns wide: DIM is the power of two at or above d, and the columns from d on hold zeros.

A mask is a band: query i sees key j where low ≤ j - i ≤ high. Causal attention is high = 0 (with the keys
aligned to the right, high = Nk - Nq); a window of (left, right) keys is low = -left and high = right.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def row_pointers(x, strides, batch, head, start, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Pointers to the tile of rows start … start + ROWS - 1 of one head: (ROWS, DIM)."""
    # 64 bits from here on: batch · stride passes 2³¹ elements long before a GPU's memory is full.
    x += batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]
    rows = (start + tl.arange(0, ROWS)).to(tl.int64)  # (ROWS,)
    return x + rows[:, None] * strides[2] + tl.arange(0, DIM)[None, :]


@triton.jit
def inside(start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Which elements of a tile exist: rows below n, columns below d. (ROWS, DIM)."""
    rows = start + tl.arange(0, ROWS)
    return (rows[:, None] < n) & (tl.arange(0, DIM)[None, :] < d)


@triton.jit
def load_rows(
    x, strides, batch, head, start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr,
    CHECK_ROWS: tl.constexpr, CHECK_COLS: tl.constexpr, DESCRIPTOR: tl.constexpr,
):  # fmt: skip
    """One tile, with zeros where the tensor ends. (ROWS, DIM).

    A descriptor knows shape and strides itself: the copy engine of sm_90 computes the addresses and checks
    the ends, and no thread spends a register on them. A pointer asks for a mask, where there is an end.
    """
    if DESCRIPTOR:
        tile = x.load([batch, head, start, 0]).reshape(ROWS, DIM)
    else:
        pointers = row_pointers(x, strides, batch, head, start, ROWS, DIM)
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
def store_rows(tile, x, strides, batch, head, start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Write a tile's rows and columns that exist, in the tensor's own type."""
    pointers = row_pointers(x, strides, batch, head, start, ROWS, DIM)
    tl.store(pointers, tile.to(x.dtype.element_ty), mask=inside(start, n, d, ROWS, DIM))


@triton.jit
def sees(i, j, n_k, low, high, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr):
    """Whether query i sees key j; i and j broadcast. A key from n_k on is seen by nobody."""
    seen = j < n_k
    if HAS_LOW:
        seen = seen & (j - i >= low)
    if HAS_HIGH:
        seen = seen & (j - i <= high)
    return seen


@triton.jit
def sequence(cu, batch, n, PACKED: tl.constexpr):
    """Where a sequence begins among a tensor's rows, and its length: a batch, or a stretch of packed rows."""
    if PACKED:
        first = tl.load(cu + batch)
        length = tl.load(cu + batch + 1) - first
    else:
        first, length = 0, n
    return first, length


@triton.jit
def sequences(
    cu_q, cu_k, batch, n_q, n_k, low, high, PACKED: tl.constexpr, LOWER_RIGHT: tl.constexpr
):  # fmt: skip
    """A batch's queries and keys: where each begin and how many they are; and its band.

    In packed sequences the band's own diagonal may end in the lower right corner of each: LOWER_RIGHT.
    """
    q0, n_q = sequence(cu_q, batch, n_q, PACKED)
    k0, n_k = sequence(cu_k, batch, n_k, PACKED)
    if LOWER_RIGHT:
        low, high = low + n_k - n_q, high + n_k - n_q
    return q0, n_q, k0, n_k, low, high


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
def listed(lists, batch, head, tile):
    """The stretch of a block mask's list that belongs to one tile, as borders: whole tiles, then cut ones.

    `lists` is one side of a block mask (see `block_lists.Given`).
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
def keys_of(
    start, n_q, n_k, low, high, BM: tl.constexpr, BN: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr,
):  # fmt: skip
    """The keys that queries start … start + BM - 1 see, as borders of tiles of BN keys (see
    `split_range`).
    """
    stop = tl.minimum(start + BM, n_q)  # rows beyond the last query ask for nothing
    begin, whole_begin = 0, 0
    end, whole_end = n_k, n_k
    if HAS_LOW:
        begin, whole_begin = tl.maximum(0, start + low), tl.maximum(0, stop - 1 + low)
    if HAS_HIGH:
        end = tl.maximum(0, tl.minimum(n_k, stop + high))
        whole_end = tl.maximum(0, tl.minimum(n_k, start + 1 + high))
    return split_range(tl.minimum(begin, n_k), whole_begin, whole_end, end, BN)


@triton.jit
def queries_of(
    start, n_q, n_k, low, high, BM: tl.constexpr, BN: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr,
):  # fmt: skip
    """The queries that see keys start … start + BN - 1, as borders of tiles of BM queries.

    A tile of keys that passes the last key needs its mask everywhere. Queries past the last one need none:
    their rows of Q and dO are zeros and their log-sum-exp is +∞, so their weights are exactly 0.
    """
    stop = tl.minimum(start + BN, n_k)
    begin, whole_begin = 0, 0
    end, whole_end = n_q, (n_q + BM - 1) // BM * BM
    if HAS_HIGH:
        begin, whole_begin = tl.maximum(0, start - high), tl.maximum(0, stop - 1 - high)
    if HAS_LOW:
        end = tl.maximum(0, tl.minimum(n_q, stop - low))
        whole_end = tl.maximum(0, tl.minimum(whole_end, start + 1 - low))
    if start + BN > n_k:
        whole_begin = end
    return split_range(tl.minimum(begin, n_q), whole_begin, whole_end, end, BM)
