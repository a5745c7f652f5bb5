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
    Pairs,
    load_log_sums,
    prepared_of,
    program_place,
    queries_of,
    row_numbers_of,
    sees,
)
from .sliced_head_dim import load_slice, product, sliced_place, store_slice


@triton.jit
def store_scores(tile, x, pair, row, column, n_q, n_k, TILE: tl.constexpr):
    """Store a tile of the scores x (B · heads, n_q, n_k); `pair`: index of batch and head together."""
    rows, columns = row + tl.arange(0, TILE.BM), column + tl.arange(0, TILE.BN)
    to = x + (pair.to(tl.int64) * n_q + rows[:, None]) * n_k + columns[None, :]
    tl.store(to, tile.to(x.dtype.element_ty), mask=(rows[:, None] < n_q) & (columns[None, :] < n_k))


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def scores_kernel(
    Q, K, S, LSE, shape, scale, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """Compute S = scale · log₂e · QKᵀ, float32 (B · heads, n_q, n_k), -∞ at masked pairs; and LSE
    (B, heads, n_q).

    Empty tiles (fully masked) are not stored.
    """
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    pair, batch, head, start, pairs, begin, end = sliced_place(
        tl.program_id(0), shape, n_q, n_k, low, high, TILE, SEEN
    )
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, head, start, n_q, K, head // shape.group, at, n_k, batch, shape.d, BM, BN, TILE)
        # Scaled before it is stored, so that the second kernel needs only 2ˢ⁻ᴸ of each score.
        s = tl.where(sees(i[:, None], at + j[None, :], pairs, SEEN), s * (scale * LOG2_E), float("-inf"))
        store_scores(s, S, pair, start, at, n_q, n_k, TILE)
        m_new = tl.maximum(m, tl.max(s, 1))
        l = l * tl.exp2(m - m_new) + tl.sum(tl.exp2(s - m_new[:, None]), 1)
        m = m_new
    LSE = row_numbers_of(LSE, batch, head, shape.heads, n_q, 0, False)
    tl.store(LSE + i, log_sums(m, l), mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def weights_kernel(
    Q, K, V, dO, prepared, P, dS, shape, scale, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """Compute P = exp(S - LSE) and dS = P ∘ (dO Vᵀ - D), both (B · heads, n_q, n_k) in Q's type.

    P is not stored if it is None: dQ needs dS alone.
    """
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    d = shape.d
    pair, batch, head, start, pairs, begin, end = sliced_place(
        tl.program_id(0), shape, n_q, n_k, low, high, TILE, SEEN
    )
    kv_head = head // shape.group
    # Complete tiles can be loaded, because the statistics are padded (see `RowNumbers`).
    sums, deltas = prepared_of(prepared, batch, head, shape.heads, 0, False)
    total, delta = tl.load(sums + start + tl.arange(0, BM)), tl.load(deltas + start + tl.arange(0, BM))
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, head, start, n_q, K, kv_head, at, n_k, batch, d, BM, BN, TILE)
        seen = sees(i[:, None], at + j[None, :], pairs, SEEN)
        p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        if P is not None:
            store_scores(p, P, pair, start, at, n_q, n_k, TILE)
        dp = product(dO, head, start, n_q, V, kv_head, at, n_k, batch, d, BM, BN, TILE)
        store_scores(p * (dp - delta[:, None]), dS, pair, start, at, n_q, n_k, TILE)


@triton.jit
def load_weights(W, total, pair, row, column, pairs, TILE: tl.constexpr, SEEN: tl.constexpr):
    """Return a tile of weights (BM, BN), 0 at masked pairs, from W (B · heads, n_q, n_k). W holds scores if
    `total` has the row log-sum-exps, and weights if it is None.

    Empty tiles were not stored, so masked elements of W may be uninitialised: they are loaded and discarded.
    """
    rows, columns = row + tl.arange(0, TILE.BM), column + tl.arange(0, TILE.BN)
    at = W + (pair.to(tl.int64) * pairs.n_q + rows[:, None]) * pairs.n_k + columns[None, :]
    there = (rows[:, None] < pairs.n_q) & (columns[None, :] < pairs.n_k)
    tile = tl.load(at, mask=there, other=0.0)
    if total is not None:
        tile = tl.exp2(tile - total[:, None])
    return tl.where(sees(rows[:, None], columns[None, :], pairs, SEEN), tile, 0.0)


# TURNED: sums are held transposed, and a step adds Xᵀ Wᵀ instead of W X. On sm_90 a product reads its second
# factor from shared memory, and its first one from there or from registers. W is computed, so as the first
# factor it is kept in registers, and then part of the product is still in flight when a step ends. ptxas then
# waits for every product of the loop (see SKIPPING of `Tiling`; not entering an empty loop does not help
# here, because 3.6.0 still waits and 3.7.1 spills). X is copied to shared memory, so as the first factor it
# needs no registers, and no product is in flight when a step ends.


@triton.jit
def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr, TURNED: tl.constexpr):
    """Return zeros (ROWS, COLUMNS) float32 to accumulate in; (COLUMNS, ROWS) if TURNED."""
    return tl.zeros((COLUMNS, ROWS) if TURNED else (ROWS, COLUMNS), dtype=tl.float32)


@triton.jit
def add_weighted(sums, w, x, TILE: tl.constexpr, TURNED: tl.constexpr):
    """Return sums + w x, with w rounded to the type of x. TURNED: sums + xᵀ wᵀ."""
    # Factors of one type for the tensor cores; the sums are float32.
    w = w.to(x.dtype)
    if TURNED:
        sums = tl.dot(tl.trans(x), tl.trans(w), sums, input_precision=TILE.PRECISION)
    else:
        sums = tl.dot(w, x, sums, input_precision=TILE.PRECISION)
    return sums


@triton.jit
def as_rows(sums, TURNED: tl.constexpr):
    """Return the sums as (ROWS, COLUMNS): transposed back if TURNED."""
    return tl.trans(sums) if TURNED else sums


@triton.jit
def weighted_slice(
    W, total, X, x_head, pair, batch, start, begin, end, column, pairs, d,
    TILE: tl.constexpr, SEEN: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Return W X (BM, BD) for one tile of rows of W and one slice of X."""
    BM: tl.constexpr = TILE.BM
    BD: tl.constexpr = TILE.BD
    acc = no_sums(BM, BD, TURNED)
    for at in range(begin, end, TILE.BN):
        w = load_weights(W, total, pair, start, at, pairs, TILE, SEEN)
        x = load_slice(X, batch, x_head, at, pairs.n_k, column, d, TILE.BN, BD)
        acc = add_weighted(acc, w, x, TILE, TURNED)
    return as_rows(acc, TURNED)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def averages_kernel(
    S, LSE, V, O, shape, slices, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Compute O = exp(S - LSE) V, one tile of rows and one slice of d per program; the grid has
    `slices` · `tiles` · B · heads programs.
    """
    program = tl.program_id(0)
    column = program % slices * TILE.BD
    pair, batch, head, start, pairs, begin, end = sliced_place(
        program // slices, shape, n_q, n_k, low, high, TILE, SEEN
    )
    LSE = row_numbers_of(LSE, batch, head, shape.heads, n_q, 0, False)
    total = load_log_sums(LSE, start, n_q, TILE.BM)
    acc = weighted_slice(
        S, total, V, head // shape.group, pair, batch, start, begin, end, column, pairs, shape.d,
        TILE, SEEN, TURNED,
    )  # fmt: skip
    store_slice(acc, O, batch, head, start, n_q, column, shape.d, TILE.BM, TILE.BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def query_gradients_kernel(
    dS, K, dQ, shape, slices, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Compute dQ = scale · dS K, one tile of rows and one slice of d per program; the grid has
    `slices` · `tiles` · B · heads programs.
    """
    program = tl.program_id(0)
    column = program % slices * TILE.BD
    pair, batch, head, start, pairs, begin, end = sliced_place(
        program // slices, shape, n_q, n_k, low, high, TILE, SEEN
    )
    acc = weighted_slice(
        dS, None, K, head // shape.group, pair, batch, start, begin, end, column, pairs, shape.d,
        TILE, SEEN, TURNED,
    )  # fmt: skip
    store_slice(acc * scale, dQ, batch, head, start, n_q, column, shape.d, TILE.BM, TILE.BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def key_gradients_kernel(
    P, dS, Q, dO, dK, dV, shape, slices, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Compute dK = scale · dSᵀ Q and dV = Pᵀ dO, one tile of rows and one slice of d per program.

    The grid has `slices` · `tiles` · B · kv_heads programs. Each adds up the query heads of its group one
    after the other.
    """
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    BD: tl.constexpr = TILE.BD
    d, group = shape.d, shape.group
    program = tl.program_id(0)
    column = program % slices * BD
    tile, pair, batch, kv_head = program_place(program // slices, shape, False)
    start = tile * BN
    pairs = Pairs(n_q, n_k, low, high)
    dk = no_sums(BN, BD, TURNED)
    dv = no_sums(BN, BD, TURNED)
    begin, _, _, end = queries_of(start, pairs, BM, BN, SEEN)
    for member in range(group):
        head = kv_head * group + member
        for at in range(begin, end, BM):
            p = load_weights(P, None, pair * group + member, at, start, pairs, TILE, SEEN)
            do = load_slice(dO, batch, head, at, n_q, column, d, BM, BD)
            dv = add_weighted(dv, tl.trans(p), do, TILE, TURNED)
            ds = load_weights(dS, None, pair * group + member, at, start, pairs, TILE, SEEN)
            q = load_slice(Q, batch, head, at, n_q, column, d, BM, BD)
            dk = add_weighted(dk, tl.trans(ds), q, TILE, TURNED)
    store_slice(as_rows(dk, TURNED) * scale, dK, batch, kv_head, start, n_k, column, d, BN, BD)
    store_slice(as_rows(dv, TURNED), dV, batch, kv_head, start, n_k, column, d, BN, BD)
