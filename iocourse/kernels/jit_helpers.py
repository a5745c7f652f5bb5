"""Building blocks of the attention kernels: load and store tiles of rows, and find the visible pairs.

A tensor is (B, H, N, d) with any strides, except that the stride of d is 1. A tile is BLOCK rows of one head,
DIM columns wide: DIM is the power of two at or above d, and the columns from d on hold zeros.

A mask is a band: query i attends to key j if low ≤ j - i ≤ high. Causal attention is high = 0 (with the keys
aligned to the right, high = Nk - Nq); a window of (left, right) keys is low = -left and high = right.

Related arguments are one NamedTuple. The exceptions are n_q, n_k, low and high, which kernels take one by
one, because Triton (3.6 to 3.9) specialises on ones and multiples of 16 in every number of a tuple,
regardless of `do_not_specialize`, and would recompile a kernel for many lengths.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# End of the row axis in descriptors of packed sequences, for any number of rows (see `corner`).
LAST_ROW = tl.constexpr(2**30)
# Running maxima start here and not at -∞, because -∞ is a possible score, and -∞ - -∞ is NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32


class Rows(NamedTuple):
    """A tensor (B, H, N, d): its first element, and its strides over B, H and N. The stride over d is 1.

    The strides are separate fields, because a nested tuple loses those that are 1 in Triton 3.6.
    """

    start: Any
    batch: int
    head: int
    row: int


class Shape(NamedTuple):
    """Shape of a grid: `tiles` · B · `heads` programs; `group` query heads per key head; head size `d`."""

    tiles: int
    heads: int
    group: int
    d: int


class RowNumbers(NamedTuple):
    """Row statistics that a backward kernel reads for each row of Q (stored by `store_row_numbers`).

    LSE2: log-sum-exps in base 2, +∞ for a row without visible keys. D: delta. Both are float32 with `rows`
    values per head. Each sequence is padded to a multiple of `pad` rows, where LSE2 is +∞ and D is 0, so a
    loop over queries loads them without a mask.
    """

    LSE2: Any
    D: Any
    rows: int
    pad: int


class Starts(NamedTuple):
    """First rows of packed sequences in Q and in K, then the end of the last: (sequences + 1,) each."""

    cu_q: Any
    cu_k: Any


class Pairs(NamedTuple):
    """Visible pairs of one sequence: n_q queries, n_k keys, and the band low ≤ j - i ≤ high."""

    n_q: Any
    n_k: Any
    low: Any
    high: Any


class Tiling(NamedTuple):
    """Compile-time tile of a kernel: BM queries by BN keys, DIM columns.

    PADDED: columns from d on hold zeros. DESCRIPTORS: streamed tiles are loaded by tensor descriptor.
    PRECISION: of float32 products. SKIPPING: do not enter a loop with no iteration. On sm_90 no other
    instruction may set the sums next to a loop whose products are in flight; otherwise ptxas waits
    for every product of the kernel (its warning C7515). ROW_DESCRIPTORS: Q and O of the forward pass
    use descriptors, too.
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
    """Compile-time tile of a kernel that splits d: BM queries by BN keys, BD columns per slice."""

    BM: int
    BN: int
    BD: int
    PRECISION: str | None


class Seeing(NamedTuple):
    """Compile-time description of the visible pairs: a band with these limits, or LISTED, a block mask.

    PACKED: sequences are concatenated in tensors of one batch. LOWER_RIGHT: the diagonal of the band ends in
    the lower right corner of each sequence. RAGGED_Q, RAGGED_K: the last tile is partly out of bounds.
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
    """Return a program's tile, its index of batch and head together, its batch and its head.

    LAST_FIRST: assign the last tiles, which have the most work, to the first programs, so that the last
    programs to run are short.
    """
    tile, pair = program % shape.tiles, program // shape.tiles
    if LAST_FIRST:
        tile = shape.tiles - 1 - tile
    return tile, pair, pair // shape.heads, pair % shape.heads


@triton.jit
def row_pointers(x, batch, head, start, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Return pointers (ROWS, DIM) to the rows start … start + ROWS - 1 of one head."""
    # 64 bits, because batch · stride can exceed 2³¹ elements long before a GPU's memory is full.
    first = x.start + (batch.to(tl.int64) * x.batch + head.to(tl.int64) * x.head)
    rows = (start + tl.arange(0, ROWS)).to(tl.int64)  # (ROWS,)
    return first + rows[:, None] * x.row + tl.arange(0, DIM)[None, :]


@triton.jit
def inside(start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Return a mask (ROWS, DIM): True for elements of a tile in bounds, rows below n and columns below d."""
    rows = start + tl.arange(0, ROWS)
    return (rows[:, None] < n) & (tl.arange(0, DIM)[None, :] < d)


@triton.jit
def corner(x, batch, head, start, n):
    """Return a descriptor's coordinates of the tile that starts at row `start` of a head whose rows end at n.

    A descriptor of packed sequences (see `launches.streamed`) has five axes, and its row axis ends at
    LAST_ROW. The second axis shifts row n to LAST_ROW, so rows past a sequence's end are out of bounds for
    the copy engine, which loads zeros and stores nothing there. The first axis undoes the shift by LAST_ROW
    rows, modulo 2⁶⁴ elements.
    """
    packed: tl.constexpr = len(x.block_shape) == 5
    return (LAST_ROW, n, head, LAST_ROW - n + start, 0) if packed else (batch, head, start, 0)


@triton.jit
def load_rows(
    x, batch, head, start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr,
    CHECK_ROWS: tl.constexpr, CHECK_COLS: tl.constexpr, DESCRIPTOR: tl.constexpr,
):  # fmt: skip
    """Load a tile (ROWS, DIM), with zeros out of bounds.

    A descriptor holds shape and strides: the copy engine of sm_90 computes addresses and checks bounds, which
    costs no registers. Pointers need a mask if a tile can be out of bounds.
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
    """Store the elements of a tile that are in bounds, in the tensor's type."""
    if DESCRIPTOR:
        x.store(corner(x, batch, head, start, n), tile.to(x.dtype).reshape(x.block_shape))
    else:
        pointers = row_pointers(x, batch, head, start, ROWS, DIM)
        tl.store(pointers, tile.to(x.start.dtype.element_ty), mask=inside(start, n, d, ROWS, DIM))


@triton.jit
def sees(i, j, pairs, SEEN: tl.constexpr):
    """Return the mask of visible pairs: True if query i attends to key j. i and j broadcast; keys from n_k
    on are masked.
    """
    seen = j < pairs.n_k
    if SEEN.HAS_LOW:
        seen = seen & (j - i >= pairs.low)
    if SEEN.HAS_HIGH:
        seen = seen & (j - i <= pairs.high)
    return seen


@triton.jit
def stretch(cu, batch):
    """Return the first row of a packed sequence and its length."""
    first = tl.load(cu + batch)
    return first, tl.load(cu + batch + 1) - first


@triton.jit
def sequences(cu, batch, n_q, n_k, low, high, SEEN: tl.constexpr):
    """Return the first query row and key row of a batch (0 unless PACKED), and its `Pairs`."""
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
    """Return a program's batch, head and first query, its sequence (see `sequences`), and the four borders of
    the keys that it attends to (see `split_range`).
    """
    tile, _, batch, head = program_place(tl.program_id(0), shape, SEEN.HAS_HIGH)
    if SEEN.LISTED:
        tile = heaviest(lists, batch, head, tile)
    start = tile * TILE.BM
    q0, k0, pairs = sequences(cu, batch, n_q, n_k, low, high, SEEN)
    if SEEN.PACKED:
        # The grid covers the longest sequence; a shorter one may not have this tile, and then loads no key.
        there = tl.where(start < pairs.n_q, pairs.n_k, 0)
        pairs = Pairs(pairs.n_q, there, pairs.low, pairs.high)
    if SEEN.LISTED:
        borders = listed(lists, batch, head, tile)
    else:
        borders = keys_of(start, pairs, TILE.BM, TILE.BN, SEEN)
    return batch, head, start, q0, k0, pairs, borders


@triton.jit
def row_numbers_of(x, batch, head, heads, n, first, PACKED: tl.constexpr):
    """Return a pointer to one head's row statistics: n rows per head and batch, or, if PACKED, n per head for
    all sequences together, plus the sequence's `first` row.
    """
    return x + (head if PACKED else batch * heads + head).to(tl.int64) * n + first


@triton.jit
def load_row_numbers(x, start, n, other, ROWS: tl.constexpr):
    """Load one float32 value per row from `start` on, (ROWS,); `other` from row n on."""
    rows = start + tl.arange(0, ROWS)
    return tl.load(x + rows, mask=rows < n, other=other)


@triton.jit
def load_log_sums(lse, start, n, ROWS: tl.constexpr):
    """Load row log-sum-exps (ROWS,) in base 2, with +∞ for rows without visible keys and out of bounds.

    All weights 2ˢ⁻ᵒᵒ of such a row are 0, and not NaN.
    """
    natural = load_row_numbers(lse, start, n, float("inf"), ROWS)
    return tl.where(natural == float("-inf"), float("inf"), natural) * LOG2_E


@triton.jit
def prepared_of(prepared, batch, head, heads, first, PACKED: tl.constexpr):
    """Return pointers to LSE2 and D of one head, for the sequence whose first row is `first`."""
    # Each packed sequence is followed by padding for its last tile.
    at = first + batch * prepared.pad if PACKED else 0
    sums = row_numbers_of(prepared.LSE2, batch, head, heads, prepared.rows, at, PACKED)
    return sums, row_numbers_of(prepared.D, batch, head, heads, prepared.rows, at, PACKED)


@triton.jit
def store_row_numbers(
    prepared, total, delta, batch, head, heads, start, first, n, ROWS: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Store `total` and `delta` (ROWS,) of the rows from `start` on for the following kernels.

    In `total` and `delta`, rows from n on are +∞ and 0. The last program also fills the rest of the padding.
    """
    sums, deltas = prepared_of(prepared, batch, head, heads, first, PACKED)
    stop = tl.where(start < n, tl.cdiv(n, prepared.pad) * prepared.pad, 0)
    rows = tl.arange(0, ROWS)
    tl.store(sums + start + rows, total, mask=start + rows < stop)
    tl.store(deltas + start + rows, delta, mask=start + rows < stop)
    # The range is empty unless this program has the sequence's last row.
    for at in range(start + ROWS, tl.where(start + ROWS < n, 0, stop), ROWS):
        tl.store(sums + at + rows, tl.full((ROWS,), float("inf"), tl.float32))
        tl.store(deltas + at + rows, tl.zeros((ROWS,), tl.float32))


@triton.jit
def listed(lists, batch, head, tile):
    """Return the borders of one tile's entries in the list of a block mask: full tiles, then partial tiles.

    `lists` is one side of a block mask (see `host.launches.ListedSide`).
    """
    here = lists.spans + batch * lists.spans_batch + head * lists.spans_head + tile * lists.spans_tile
    begin = tl.load(here)
    return begin, begin, tl.load(here + 1), tl.load(here + 2)


@triton.jit
def heaviest(lists, batch, head, place):
    """Return the tile with the `place`-th most work. The longest run first, so that none runs last alone."""
    return tl.load(lists.order + batch * lists.order_batch + head * lists.order_head + place)


@triton.jit
def pattern(lists, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load the mask of visible pairs (ROWS, COLUMNS) of a partial tile."""
    at = lists.patterns + tl.load(lists.slots + step).to(tl.int64) * ROWS * COLUMNS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    return tl.load(at + rows[:, None] * lists.pattern_row + columns[None, :] * lists.pattern_column) != 0


@triton.jit
def split_range(begin, whole_begin, whole_end, end, BLOCK: tl.constexpr):
    """Split begin … end into three runs of tiles: masked, unmasked and masked tiles.

    Returns the four borders, multiples of BLOCK: `begin` rounded down, the borders of the tiles
    within whole_begin … whole_end, and `end` rounded up.
    """
    # Otherwise an empty range would become a tile: `begin` is rounded down and `end` up.
    nothing = end <= begin
    begin = begin // BLOCK * BLOCK
    end = tl.where(nothing, begin, tl.cdiv(end, BLOCK) * BLOCK)
    first = tl.minimum(tl.maximum(begin, tl.cdiv(whole_begin, BLOCK) * BLOCK), end)
    last = tl.minimum(tl.maximum(first, whole_end // BLOCK * BLOCK), end)
    return begin, first, last, end


@triton.jit
def keys_of(start, pairs, BM: tl.constexpr, BN: tl.constexpr, SEEN: tl.constexpr):
    """Return the keys that queries start … start + BM - 1 attend to, as borders of tiles of BN
    keys (see `split_range`).
    """
    n_k = pairs.n_k
    stop = tl.minimum(start + BM, pairs.n_q)  # rows past the last query need no keys
    begin, whole_begin = 0, 0
    end, whole_end = n_k, n_k
    if SEEN.HAS_LOW:
        # The limits move by one key per query. The lower limit of the first query begins the range, and that
        # of the last query the full tiles. At the upper limits the two queries change roles.
        begin, whole_begin = tl.maximum(0, start + pairs.low), tl.maximum(0, stop - 1 + pairs.low)
    if SEEN.HAS_HIGH:
        end = tl.maximum(0, tl.minimum(n_k, stop + pairs.high))
        whole_end = tl.maximum(0, tl.minimum(n_k, start + 1 + pairs.high))
    return split_range(tl.minimum(begin, n_k), whole_begin, whole_end, end, BN)


@triton.jit
def queries_of(start, pairs, BM: tl.constexpr, BN: tl.constexpr, SEEN: tl.constexpr):
    """Return the queries that attend to keys start … start + BN - 1, as borders of tiles of BM queries.

    A tile of keys that is partly out of bounds needs its mask in every iteration. Queries past the last one
    need no mask, because their log-sum-exp is +∞ and their scores are finite, so their weights are 0.
    """
    n_q, n_k = pairs.n_q, pairs.n_k
    stop = tl.minimum(start + BN, n_k)
    begin, whole_begin = 0, 0
    end, whole_end = n_q, (n_q + BM - 1) // BM * BM
    if SEEN.HAS_HIGH:
        # low ≤ j - i ≤ high solved for i: the upper limit bounds the queries from below.
        begin, whole_begin = tl.maximum(0, start - pairs.high), tl.maximum(0, stop - 1 - pairs.high)
    if SEEN.HAS_LOW:
        end = tl.maximum(0, tl.minimum(n_q, stop - pairs.low))
        whole_end = tl.maximum(0, tl.minimum(whole_end, start + 1 - pairs.low))
    if start + BN > n_k:
        whole_begin = end
    return split_range(tl.minimum(begin, n_q), whole_begin, whole_end, end, BM)
