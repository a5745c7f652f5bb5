"""Split-d kernels with the scores materialised: N × N matrices in slow memory, and tiled products with them.

These are the emulator's `small_cache` and `small_cache_backward`. Each tile of S is stored once and loaded
once per slice of O, whereas `small_cache_fused` loads and stores a slice of O per tile of S. Materialising
moves fewer words below M ≈ 0.81 d², and needs N² words of slow memory per head.
"""

import triton
import triton.language as tl

from .forward import log_sums
from .jit_helpers import (
    LOG2_E,
    LOWEST,
    Lengths,
    Place,
    add_weighted,
    as_rows,
    is_visible,
    load_log_sums,
    no_sums,
    prepared_of,
    program_place,
    queries_of,
    row_numbers_of,
)
from .sliced_head_dim import load_slice, product, sliced_place, store_slice


@triton.jit
def store_scores(tile, x, batch_head, row, column, lengths):
    """Store a tile of the scores x (B · heads, n_q, n_k); `batch_head`: index of batch and head together."""
    rows, columns = row + tl.arange(0, tile.shape[0]), column + tl.arange(0, tile.shape[1])
    to = x + (batch_head.to(tl.int64) * lengths.n_q + rows[:, None]) * lengths.n_k + columns[None, :]
    tile = tile.to(x.dtype.element_ty)
    tl.store(to, tile, mask=(rows[:, None] < lengths.n_q) & (columns[None, :] < lengths.n_k))


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def scores_kernel(
    Q, K, S, LSE, shape, scale, n_q, n_k, low, high, SLICE: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """Compute S = scale · log₂e · QKᵀ, float32 (B · heads, n_q, n_k), -∞ at masked pairs; and LSE
    (B, heads, n_q).

    Empty tiles (fully masked) are not stored.
    """
    BM: tl.constexpr = SLICE.BM
    BN: tl.constexpr = SLICE.BN
    lengths = Lengths(n_q, n_k, low, high)
    start, queries, keys, begin, end, batch_head = sliced_place(tl.program_id(0), shape, lengths, SLICE, MASK)
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, queries, start, K, keys, at, ROWS=BM, COLUMNS=BN, SLICE=SLICE)
        visible = is_visible(i[:, None], at + j[None, :], lengths, MASK)
        # Scaled before it is stored, so that the second kernel needs only 2ˢ⁻ᴸ of each score.
        s = tl.where(visible, s * (scale * LOG2_E), float("-inf"))
        store_scores(s, S, batch_head, row=start, column=at, lengths=lengths)
        m_new = tl.maximum(m, tl.max(s, 1))
        l = l * tl.exp2(m - m_new) + tl.sum(tl.exp2(s - m_new[:, None]), 1)
        m = m_new
    LSE = row_numbers_of(LSE, queries, shape.heads, n_q, False)
    tl.store(LSE + i, log_sums(m, l), mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def weights_kernel(
    Q, K, V, dO, prepared, P, dS, shape, scale, n_q, n_k, low, high, SLICE: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """Compute P = exp(S - LSE) and dS = P ∘ (dO Vᵀ - D), both (B · heads, n_q, n_k) in Q's type.

    P is not stored if it is None: dQ needs dS alone.
    """
    BM: tl.constexpr = SLICE.BM
    BN: tl.constexpr = SLICE.BN
    lengths = Lengths(n_q, n_k, low, high)
    start, queries, keys, begin, end, batch_head = sliced_place(tl.program_id(0), shape, lengths, SLICE, MASK)
    # Complete tiles can be loaded, because the statistics are padded (see `RowNumbers`).
    numbers = prepared_of(prepared, queries, shape.heads, False)
    total = tl.load(numbers.LSE2 + start + tl.arange(0, BM))
    delta = tl.load(numbers.D + start + tl.arange(0, BM))
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, queries, start, K, keys, at, ROWS=BM, COLUMNS=BN, SLICE=SLICE)
        visible = is_visible(i[:, None], at + j[None, :], lengths, MASK)
        p = tl.where(visible, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        if P is not None:
            store_scores(p, P, batch_head, row=start, column=at, lengths=lengths)
        dp = product(dO, queries, start, V, keys, at, ROWS=BM, COLUMNS=BN, SLICE=SLICE)
        store_scores(p * (dp - delta[:, None]), dS, batch_head, row=start, column=at, lengths=lengths)


@triton.jit
def load_weights(W, total, batch_head, row, column, lengths, SLICE: tl.constexpr, MASK: tl.constexpr):
    """Return a tile of weights (BM, BN), 0 at masked pairs, from W (B · heads, n_q, n_k). W holds scores if
    `total` has the row log-sum-exps, and weights if it is None.

    Empty tiles were not stored, so masked elements of W may be uninitialised: they are loaded and discarded.
    """
    rows, columns = row + tl.arange(0, SLICE.BM), column + tl.arange(0, SLICE.BN)
    at = W + (batch_head.to(tl.int64) * lengths.n_q + rows[:, None]) * lengths.n_k + columns[None, :]
    there = (rows[:, None] < lengths.n_q) & (columns[None, :] < lengths.n_k)
    tile = tl.load(at, mask=there, other=0.0)
    if total is not None:
        tile = tl.exp2(tile - total[:, None])
    return tl.where(is_visible(rows[:, None], columns[None, :], lengths, MASK), tile, 0.0)


@triton.jit
def weighted_slice(
    W, total, batch_head, start, X, keys, begin, end, column, lengths,
    SLICE: tl.constexpr, MASK: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Return W X (BM, BD) for one tile of rows of W and one slice of X."""
    acc = no_sums(SLICE.BM, SLICE.BD, TURNED)
    for at in range(begin, end, SLICE.BN):
        w = load_weights(
            W, total, batch_head, row=start, column=at, lengths=lengths, SLICE=SLICE, MASK=MASK
        )  # fmt: skip
        x = load_slice(X, keys, at, column, ROWS=SLICE.BN, BD=SLICE.BD)
        acc = add_weighted(acc, w, x, SLICE.PRECISION, TURNED)
    return as_rows(acc, TURNED)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def averages_kernel(
    S, LSE, V, O, shape, slices, n_q, n_k, low, high,
    SLICE: tl.constexpr, MASK: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Compute O = exp(S - LSE) V, one tile of rows and one slice of d per program; the grid has
    `slices` · `tiles` · B · heads programs.
    """
    program = tl.program_id(0)
    column = program % slices * SLICE.BD
    lengths = Lengths(n_q, n_k, low, high)
    start, queries, keys, begin, end, batch_head = sliced_place(
        program // slices, shape, lengths, SLICE, MASK
    )
    LSE = row_numbers_of(LSE, queries, shape.heads, n_q, False)
    total = load_log_sums(LSE, start, n_q, SLICE.BM)
    acc = weighted_slice(
        S, total, batch_head, start, V, keys, begin=begin, end=end, column=column, lengths=lengths,
        SLICE=SLICE, MASK=MASK, TURNED=TURNED,
    )  # fmt: skip
    store_slice(acc, O, queries, start, column)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def query_gradients_kernel(
    dS, K, dQ, shape, slices, scale, n_q, n_k, low, high,
    SLICE: tl.constexpr, MASK: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Compute dQ = scale · dS K, one tile of rows and one slice of d per program; the grid has
    `slices` · `tiles` · B · heads programs.
    """
    program = tl.program_id(0)
    column = program % slices * SLICE.BD
    lengths = Lengths(n_q, n_k, low, high)
    start, queries, keys, begin, end, batch_head = sliced_place(
        program // slices, shape, lengths, SLICE, MASK
    )
    acc = weighted_slice(
        dS, None, batch_head, start, K, keys, begin=begin, end=end, column=column, lengths=lengths,
        SLICE=SLICE, MASK=MASK, TURNED=TURNED,
    )  # fmt: skip
    store_slice(acc * scale, dQ, queries, start, column)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def key_gradients_kernel(
    P, dS, Q, dO, dK, dV, shape, slices, scale, n_q, n_k, low, high,
    SLICE: tl.constexpr, MASK: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Compute dK = scale · dSᵀ Q and dV = Pᵀ dO, one tile of rows and one slice of d per program.

    The grid has `slices` · `tiles` · B · kv_heads programs. Each adds up the query heads of its group one
    after the other.
    """
    BM: tl.constexpr = SLICE.BM
    BN: tl.constexpr = SLICE.BN
    BD: tl.constexpr = SLICE.BD
    group = shape.group
    program = tl.program_id(0)
    column = program % slices * BD
    tile, kv_batch_head, batch, kv_head = program_place(program // slices, shape, False)
    start = tile * BN
    keys = Place(batch, kv_head, 0, n_k, shape.d)
    lengths = Lengths(n_q, n_k, low, high)
    dk = no_sums(BN, BD, TURNED)
    dv = no_sums(BN, BD, TURNED)
    begin, _, _, end = queries_of(start, lengths, BM, BN, MASK)
    for member in range(group):
        batch_head = kv_batch_head * group + member
        queries = Place(batch, kv_head * group + member, 0, n_q, shape.d)
        for at in range(begin, end, BM):
            p = load_weights(
                P, None, batch_head, row=at, column=start, lengths=lengths, SLICE=SLICE, MASK=MASK
            )  # fmt: skip
            do = load_slice(dO, queries, at, column, ROWS=BM, BD=BD)
            dv = add_weighted(dv, tl.trans(p), do, SLICE.PRECISION, TURNED)
            ds = load_weights(
                dS, None, batch_head, row=at, column=start, lengths=lengths, SLICE=SLICE, MASK=MASK
            )  # fmt: skip
            q = load_slice(Q, queries, at, column, ROWS=BM, BD=BD)
            dk = add_weighted(dk, tl.trans(ds), q, SLICE.PRECISION, TURNED)
    store_slice(as_rows(dk, TURNED) * scale, dK, keys, start, column)
    store_slice(as_rows(dv, TURNED), dV, keys, start, column)
