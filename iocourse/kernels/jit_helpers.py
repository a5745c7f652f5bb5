"""Building blocks of the attention kernels: load and store tiles of rows, and find the visible pairs.

A tensor is (B, H, N, d) with any strides, except that the stride of d is 1. A tile is BLOCK rows of one head,
DIM columns wide: DIM is the power of two at or above d, and the columns from d on hold zeros.

A mask is a band, unless it is a block mask: query i attends to key j if low ≤ j - i ≤ high. Causal attention
is high = 0 (with the keys aligned to the right, high = Nk - Nq); a window of (left, right) keys is low =
-left and high = right.

Related arguments are one NamedTuple. The exceptions are n_q, n_k, low and high, which kernels take one by
one, because Triton (3.6 to 3.9) specialises on ones and multiples of 16 in every number of a tuple,
regardless of `do_not_specialize`, and would recompile a kernel for many lengths. Tuples are flat, because a
nested tuple loses strides that are 1 in Triton 3.6.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# Running maxima start here and not at -∞, because -∞ is a possible score, and -∞ - -∞ is NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32


# Arguments of kernels.


class Rows(NamedTuple):
    """A tensor (B, H, N, d): its first element, and its strides over B, H and N. The stride over d is 1."""

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
    """Row statistics, one number for each row of Q, that a backward kernel reads (see `store_row_numbers`).

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


class Tiling(NamedTuple):
    """Compile-time tile of a kernel: BM queries by BN keys, DIM columns.

    PADDED: columns from d on hold zeros. PRECISION: of float32 products. DESCRIPTORS, SKIPPING: see "Switches
    for the compiler of sm_90", at the end of this file.
    """

    BM: int
    BN: int
    DIM: int
    PADDED: bool
    DESCRIPTORS: bool
    PRECISION: str | None
    SKIPPING: bool = False


class Slicing(NamedTuple):
    """Compile-time tile of a kernel that splits d: BM queries by BN keys, BD columns per slice."""

    BM: int
    BN: int
    BD: int
    PRECISION: str | None


class MaskKind(NamedTuple):
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


# Values within a kernel.


class Lengths(NamedTuple):
    """Lengths of one sequence, n_q queries and n_k keys, and the limits of its band, low ≤ j - i ≤ high."""

    n_q: Any
    n_k: Any
    low: Any
    high: Any


class Place(NamedTuple):
    """Place of one sequence and head in a tensor: batch, head, rows first … stop - 1, and d columns."""

    batch: Any
    head: Any
    first: Any
    stop: Any
    d: Any


# Tiles of rows. `at` counts rows from the first row of the sequence.


@triton.jit
def row_pointers(x, place, at, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Return pointers (ROWS, DIM) to the rows of a sequence from row `at` on."""
    # 64 bits, because batch · stride can exceed 2³¹ elements long before a GPU's memory is full.
    start = x.start + (place.batch.to(tl.int64) * x.batch + place.head.to(tl.int64) * x.head)
    rows = (place.first + at + tl.arange(0, ROWS)).to(tl.int64)  # (ROWS,)
    return start + rows[:, None] * x.row + tl.arange(0, DIM)[None, :]


@triton.jit
def inside(start, n, d, ROWS: tl.constexpr, DIM: tl.constexpr, column=0):
    """Return a mask (ROWS, DIM): True for the elements of a tile from row `start` and column `column` on that
    are in bounds, rows below n and columns below d.
    """
    rows, columns = start + tl.arange(0, ROWS), column + tl.arange(0, DIM)
    return (rows[:, None] < n) & (columns[None, :] < d)


@triton.jit
def load_rows(
    x, place, at, ROWS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, CHECK_ROWS: tl.constexpr = True
):  # fmt: skip
    """Load a tile (ROWS, DIM) from row `at` of a sequence on, with zeros out of bounds.

    CHECK_ROWS: the tile may have rows out of bounds. PADDED: it has columns out of bounds.
    """
    pointers = row_pointers(x, place, at, ROWS, DIM)
    rows = (place.first + at + tl.arange(0, ROWS))[:, None] < place.stop
    columns = tl.arange(0, DIM)[None, :] < place.d
    if CHECK_ROWS and PADDED:
        tile = tl.load(pointers, mask=rows & columns, other=0.0)
    elif CHECK_ROWS:
        tile = tl.load(pointers, mask=rows, other=0.0)
    elif PADDED:
        tile = tl.load(pointers, mask=columns, other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def store_rows(tile, x, place, at):
    """Store the elements of a tile that are in bounds, in the tensor's type."""
    ROWS: tl.constexpr = tile.shape[0]
    DIM: tl.constexpr = tile.shape[1]
    to = row_pointers(x, place, at, ROWS, DIM)
    tile = tile.to(x.start.dtype.element_ty)
    tl.store(to, tile, mask=inside(place.first + at, place.stop, place.d, ROWS, DIM))


# Row statistics.


@triton.jit
def row_numbers_of(x, place, heads, n, PACKED: tl.constexpr):
    """Return a pointer to the row statistics of a sequence and head: n rows per head and batch, or, if
    PACKED, n per head for all sequences together.
    """
    head = place.head if PACKED else place.batch * heads + place.head
    return x + head.to(tl.int64) * n + place.first


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
def prepared_of(prepared, queries, heads, PACKED: tl.constexpr):
    """Return the `RowNumbers` of the sequence and head at `queries`."""
    # Each packed sequence is followed by padding for its last tile.
    first = queries.first + queries.batch * prepared.pad if PACKED else 0
    here = Place(queries.batch, queries.head, first, queries.stop, queries.d)
    sums = row_numbers_of(prepared.LSE2, here, heads, prepared.rows, PACKED)
    deltas = row_numbers_of(prepared.D, here, heads, prepared.rows, PACKED)
    return RowNumbers(sums, deltas, prepared.rows, prepared.pad)


@triton.jit
def store_row_numbers(prepared, queries, start, total, delta, heads, PACKED: tl.constexpr):
    """Store `total` and `delta` (ROWS,) of the rows from `start` on for the following kernels.

    In `total` and `delta`, rows past the last one are +∞ and 0. The last program also fills the rest of the
    padding.
    """
    ROWS: tl.constexpr = total.shape[0]
    n = queries.stop - queries.first
    here = prepared_of(prepared, queries, heads, PACKED)
    stop = tl.where(start < n, tl.cdiv(n, here.pad) * here.pad, 0)
    rows = tl.arange(0, ROWS)
    tl.store(here.LSE2 + start + rows, total, mask=start + rows < stop)
    tl.store(here.D + start + rows, delta, mask=start + rows < stop)
    # The range is empty unless this program has the sequence's last row.
    for at in range(start + ROWS, tl.where(start + ROWS < n, 0, stop), ROWS):
        tl.store(here.LSE2 + at + rows, tl.full((ROWS,), float("inf"), tl.float32))
        tl.store(here.D + at + rows, tl.zeros((ROWS,), tl.float32))


# Visible pairs.


@triton.jit
def is_visible(i, j, lengths, MASK: tl.constexpr):
    """Return the mask of visible pairs: True if query i attends to key j. i and j broadcast; keys from n_k
    on are masked.
    """
    visible = j < lengths.n_k
    if MASK.HAS_LOW:
        visible = visible & (j - i >= lengths.low)
    if MASK.HAS_HIGH:
        visible = visible & (j - i <= lengths.high)
    return visible


@triton.jit
def visible_in_step(i, j, lengths, lists, step, MASK: tl.constexpr):
    """Return the mask of visible pairs of a partial tile: from the lists if LISTED, otherwise `is_visible`.

    One of i and j is a column and the other a row.
    """
    if MASK.LISTED:
        visible = pattern(lists, step, i.shape[0] * j.shape[0], i.shape[1] * j.shape[1])
    else:
        visible = is_visible(i, j, lengths, MASK)
    return visible


@triton.jit
def start_of_step(lists, step, BLOCK: tl.constexpr, MASK: tl.constexpr):
    """Return the first row of the tile of BLOCK rows that a loop visits at its counter `step`, which is an
    entry of the lists if LISTED, otherwise the row itself.
    """
    return tl.load(lists.entries + step) * BLOCK if MASK.LISTED else step


@triton.jit
def split_range(begin, whole_begin, whole_end, end, BLOCK: tl.constexpr):
    """Split begin … end into three runs of tiles: partial, full and partial tiles.

    Returns the four borders, multiples of BLOCK: `begin` rounded down, the borders of the tiles
    within whole_begin … whole_end, and `end` rounded up.

    A kernel has one loop for each run, so only the first and the last loop compute a mask. It writes them as
    one call in `tl.static_range(3)`, which is unrolled at compile time; a loop that this kind of mask never
    needs is not compiled. Each loop starts where the one before it ends.
    """
    # Otherwise an empty range would become a tile: `begin` is rounded down and `end` up.
    nothing = end <= begin
    begin = begin // BLOCK * BLOCK
    end = tl.where(nothing, begin, tl.cdiv(end, BLOCK) * BLOCK)
    first = tl.minimum(tl.maximum(begin, tl.cdiv(whole_begin, BLOCK) * BLOCK), end)
    last = tl.minimum(tl.maximum(first, whole_end // BLOCK * BLOCK), end)
    return begin, first, last, end


@triton.jit
def keys_of(start, lengths, BM: tl.constexpr, BN: tl.constexpr, MASK: tl.constexpr):
    """Return the keys that queries start … start + BM - 1 attend to, as borders of tiles of BN
    keys (see `split_range`).
    """
    n_k = lengths.n_k
    stop = tl.minimum(start + BM, lengths.n_q)  # rows past the last query need no keys
    begin, whole_begin = 0, 0
    end, whole_end = n_k, n_k
    if MASK.HAS_LOW:
        # The limits move by one key per query. The lower limit of the first query begins the range, and that
        # of the last query the full tiles. At the upper limits the two queries change roles.
        begin, whole_begin = tl.maximum(0, start + lengths.low), tl.maximum(0, stop - 1 + lengths.low)
    if MASK.HAS_HIGH:
        end = tl.maximum(0, tl.minimum(n_k, stop + lengths.high))
        whole_end = tl.maximum(0, tl.minimum(n_k, start + 1 + lengths.high))
    return split_range(tl.minimum(begin, n_k), whole_begin, whole_end, end, BN)


@triton.jit
def queries_of(start, lengths, BM: tl.constexpr, BN: tl.constexpr, MASK: tl.constexpr):
    """Return the queries that attend to keys start … start + BN - 1, as borders of tiles of BM queries.

    A tile of keys that is partly out of bounds needs its mask in every iteration. Queries past the last one
    need no mask, because their log-sum-exp is +∞ and their scores are finite, so their weights are 0.
    """
    n_q, n_k = lengths.n_q, lengths.n_k
    stop = tl.minimum(start + BN, n_k)
    begin, whole_begin = 0, 0
    end, whole_end = n_q, (n_q + BM - 1) // BM * BM
    if MASK.HAS_HIGH:
        # low ≤ j - i ≤ high solved for i: the upper limit bounds the queries from below.
        begin, whole_begin = tl.maximum(0, start - lengths.high), tl.maximum(0, stop - 1 - lengths.high)
    if MASK.HAS_LOW:
        end = tl.maximum(0, tl.minimum(n_q, stop - lengths.low))
        whole_end = tl.maximum(0, tl.minimum(whole_end, start + 1 - lengths.low))
    if start + BN > n_k:
        whole_begin = end
    return split_range(tl.minimum(begin, n_q), whole_begin, whole_end, end, BM)


# Lists of a block mask. `lists` is one side of it (see `host.launches.ListedSide`).


@triton.jit
def listed(lists, batch, head, tile):
    """Return the borders of one tile's entries in the lists: full tiles, then partial tiles."""
    here = lists.spans + batch * lists.spans_batch + head * lists.spans_head + tile * lists.spans_tile
    begin = tl.load(here)
    return begin, begin, tl.load(here + 1), tl.load(here + 2)


@triton.jit
def heaviest(lists, batch, head, rank):
    """Return the tile with the `rank`-th most work. The longest run first, so that none runs last alone."""
    return tl.load(lists.order + batch * lists.order_batch + head * lists.order_head + rank)


@triton.jit
def pattern(lists, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load the mask of visible pairs (ROWS, COLUMNS) of a partial tile."""
    at = lists.patterns + tl.load(lists.slots + step).to(tl.int64) * ROWS * COLUMNS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    return tl.load(at + rows[:, None] * lists.pattern_row + columns[None, :] * lists.pattern_column) != 0


# The part of the problem that a program computes.


@triton.jit
def program_place(program, shape, LAST_FIRST: tl.constexpr):
    """Return a program's tile, its index of batch and head together, its batch and its head.

    LAST_FIRST: assign the last tiles, which have the most work, to the first programs, so that the last
    programs to run are short.
    """
    tile, batch_head = program % shape.tiles, program // shape.tiles
    if LAST_FIRST:
        tile = shape.tiles - 1 - tile
    return tile, batch_head, batch_head // shape.heads, batch_head % shape.heads


@triton.jit
def stretch(cu, batch):
    """Return the first row of a packed sequence and its length."""
    first = tl.load(cu + batch)
    return first, tl.load(cu + batch + 1) - first


@triton.jit
def sequences(cu, batch, lengths, MASK: tl.constexpr):
    """Return the first query row and key row of a batch (0 unless PACKED), and its `Lengths`."""
    q0, k0 = 0, 0
    n_q, n_k, low, high = lengths.n_q, lengths.n_k, lengths.low, lengths.high
    if MASK.PACKED:
        q0, n_q = stretch(cu.cu_q, batch)
        k0, n_k = stretch(cu.cu_k, batch)
    if MASK.LOWER_RIGHT:
        low, high = low + n_k - n_q, high + n_k - n_q
    return q0, k0, Lengths(n_q, n_k, low, high)


@triton.jit
def place_of_queries(shape, lists, cu, lengths, TILE: tl.constexpr, MASK: tl.constexpr):
    """Return a program's first query; the `Place` of its queries, and that of their keys; the `Lengths` of
    its sequence; and the four borders of the keys that its queries attend to (see `split_range`).
    """
    # With an upper limit, as in causal attention, the last queries attend to the most keys.
    tile, _, batch, head = program_place(tl.program_id(0), shape, MASK.HAS_HIGH)
    if MASK.LISTED:
        tile = heaviest(lists, batch, head, tile)
    start = tile * TILE.BM
    q0, k0, lengths = sequences(cu, batch, lengths, MASK)
    if MASK.PACKED:
        # The grid covers the longest sequence; a shorter one may not have this tile, and then loads no key.
        there = tl.where(start < lengths.n_q, lengths.n_k, 0)
        lengths = Lengths(lengths.n_q, there, lengths.low, lengths.high)
    if MASK.LISTED:
        borders = listed(lists, batch, head, tile)
    else:
        borders = keys_of(start, lengths, TILE.BM, TILE.BN, MASK)
    queries = Place(batch, head, q0, q0 + lengths.n_q, shape.d)
    keys = Place(batch, head // shape.group, k0, k0 + lengths.n_k, shape.d)
    return start, queries, keys, lengths, borders


# Switches for the compiler of sm_90. None of the four changes a result. The examples are kernels in bfloat16,
# causal except for the last one, compiled with Triton 3.7.1 (3.6.0).
#
# DESCRIPTORS: streamed tiles are loaded by a tensor descriptor, which holds shape and strides. The copy
# engine of sm_90 and later computes the addresses and checks the bounds, which costs no registers: 156 (148)
# per thread in the forward pass at d = 128 instead of 183 (183).
#
# SKIPPING: a kernel does not enter a loop without iterations. Otherwise the compiler may set the sums to zero
# next to the first loop, for that case. If another instruction sets the sums next to a loop whose products
# are in flight, ptxas waits for every product of the kernel (its warning C7515): in `backward_keys_kernel`
# at d = 64 with a window 24 (24) times per iteration instead of 2 (2).
#
# CROWDED: the loop keeps no values that were computed before it. They stay in registers during the loop, and
# from 128 columns on the products of the backward pass need these registers. At d = 128 one iteration of the
# fused pass otherwise has 18 (23) loads and stores of spilled registers, and now it has none.
#
# TURNED: sums are held transposed, and a step adds Xᵀ Wᵀ instead of W X. A product reads its second factor
# from shared memory, and its first one from there or from registers. W is computed, so as the first factor it
# is kept in registers, and then part of the product is still in flight when a step ends, and ptxas waits as
# above: in `averages_kernel` at d = 512 for each of 4 (4) products instead of once. X is copied to shared
# memory, so as the first factor it needs no registers, and no product is in flight when a step ends.
# (SKIPPING does not help here: with Triton 3.6.0 ptxas still waits, and with 3.7.1 registers are spilled.)

# End of the row axis in descriptors of packed sequences, for any number of rows.
LAST_ROW = tl.constexpr(2**30)


@triton.jit
def corner(x, place, at):
    """Return a descriptor's coordinates of the tile that starts at row `at` of a sequence.

    A descriptor of packed sequences (see `launches.streamed`) has five axes, and its row axis ends at
    LAST_ROW. The second axis shifts the end of the sequence to LAST_ROW, so rows past it are out of bounds
    for the copy engine, which loads zeros and adds nothing there. The first axis undoes the shift by LAST_ROW
    rows, modulo 2⁶⁴ elements.
    """
    PACKED: tl.constexpr = len(x.block_shape) == 5
    head, row, stop = place.head, place.first + at, place.stop
    return (LAST_ROW, stop, head, LAST_ROW - stop + row, 0) if PACKED else (place.batch, head, row, 0)


@triton.jit
def stream_rows(x, place, at, ROWS: tl.constexpr, TILE: tl.constexpr, CHECK_ROWS: tl.constexpr):
    """Load a tile of a streamed tensor: as `load_rows` does, or by a descriptor."""
    if TILE.DESCRIPTORS:
        tile = x.load(corner(x, place, at)).reshape(ROWS, TILE.DIM)
    else:
        tile = load_rows(x, place, at, ROWS=ROWS, DIM=TILE.DIM, PADDED=TILE.PADDED, CHECK_ROWS=CHECK_ROWS)
    return tile


@triton.jit
def add_rows(tile, x, place, at, TILE: tl.constexpr):
    """Add the elements of a tile that are in bounds to a float32 tensor atomically."""
    if TILE.DESCRIPTORS:
        x.atomic_add(corner(x, place, at), tile.reshape(x.block_shape))
    else:
        ROWS: tl.constexpr = tile.shape[0]
        there = inside(at, place.stop - place.first, place.d, ROWS, TILE.DIM)
        to = row_pointers(x, place, at, ROWS, TILE.DIM)
        # Relaxed: no program of this launch reads the tensor, so no access must be ordered.
        tl.atomic_add(to, tile, mask=there, sem="relaxed")


@triton.jit
def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr, TURNED: tl.constexpr):
    """Return zeros (ROWS, COLUMNS) float32 to accumulate in; (COLUMNS, ROWS) if TURNED."""
    return tl.zeros((COLUMNS, ROWS) if TURNED else (ROWS, COLUMNS), dtype=tl.float32)


@triton.jit
def add_weighted(sums, w, x, PRECISION: tl.constexpr, TURNED: tl.constexpr):
    """Return sums + w x, with w rounded to the type of x. TURNED: sums + xᵀ wᵀ."""
    # Factors of one type for the tensor cores; the sums are float32.
    w = w.to(x.dtype)
    if TURNED:
        sums = tl.dot(tl.trans(x), tl.trans(w), sums, input_precision=PRECISION)
    else:
        sums = tl.dot(w, x, sums, input_precision=PRECISION)
    return sums


@triton.jit
def as_rows(sums, TURNED: tl.constexpr):
    """Return the sums as (ROWS, COLUMNS): transposed back if TURNED."""
    return tl.trans(sums) if TURNED else sums
