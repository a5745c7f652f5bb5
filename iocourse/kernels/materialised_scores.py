"""The small cache with its scores written out, the emulator's `small_cache` (F5) and `small_cache_backward`
(B5): N × N matrices in slow memory, and blocked products with them.

Each tile of S is written once and read once for each slice of O, where `small_cache` reads and writes a slice
of O for each tile of S. That moves fewer words below M ≈ 0.81 d², and takes N² words of slow memory a head.
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
    """Write a tile of a (pairs, n_q, n_k) matrix of scores."""
    rows, columns = row + tl.arange(0, TILE.BM), column + tl.arange(0, TILE.BN)
    to = x + (pair.to(tl.int64) * n_q + rows[:, None]) * n_k + columns[None, :]
    tl.store(to, tile.to(x.dtype.element_ty), mask=(rows[:, None] < n_q) & (columns[None, :] < n_k))


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def scores_kernel(
    Q, K, S, LSE, shape, scale, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """S = scale · log₂e · QKᵀ, float32 (B · heads, n_q, n_k), -∞ where nothing is seen; LSE (B, heads, n_q).

    Tiles of keys that a tile of queries does not see are not written.
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
    """P = exp(S - LSE) and dS = P ∘ (dO Vᵀ - D), both (B · heads, n_q, n_k) in Q's type."""
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    d = shape.d
    pair, batch, head, start, pairs, begin, end = sliced_place(
        tl.program_id(0), shape, n_q, n_k, low, high, TILE, SEEN
    )
    kv_head = head // shape.group
    sums, deltas = prepared_of(prepared, batch, head, shape.heads, 0, False)
    total, delta = tl.load(sums + start + tl.arange(0, BM)), tl.load(deltas + start + tl.arange(0, BM))
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(Q, head, start, n_q, K, kv_head, at, n_k, batch, d, BM, BN, TILE)
        seen = sees(i[:, None], at + j[None, :], pairs, SEEN)
        p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        store_scores(p, P, pair, start, at, n_q, n_k, TILE)
        dp = product(dO, head, start, n_q, V, kv_head, at, n_k, batch, d, BM, BN, TILE)
        store_scores(p * (dp - delta[:, None]), dS, pair, start, at, n_q, n_k, TILE)


@triton.jit
def load_weights(W, total, pair, row, column, pairs, TILE: tl.constexpr, SEEN: tl.constexpr):
    """A tile of W (pairs, n_q, n_k), 0 where nothing is seen; W holds scores where `total` has the row
    log-sum-exps, and weights where it is None.

    What is not seen may never have been written, so it is read as it lies and dropped.
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
# factor it stays in registers, and then part of the product is still in flight when a step ends. ptxas waits
# for every product of such a loop (see SKIPPING of `Tiling`; not entering an empty loop does not help here:
# 3.6.0 still waits, and 3.7.1 spills). X is copied to shared memory, so as the first factor it needs no
# register, and no product is in flight when a step ends.


@triton.jit
def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr, TURNED: tl.constexpr):
    """Sums to which nothing has been added yet. (ROWS, COLUMNS), or turned."""
    return tl.zeros((COLUMNS, ROWS) if TURNED else (ROWS, COLUMNS), dtype=tl.float32)


@triton.jit
def add_weighted(sums, w, x, TILE: tl.constexpr, TURNED: tl.constexpr):
    """sums + w x, with w rounded to the type of x. TURNED: sums + xᵀ wᵀ."""
    w = w.to(x.dtype)
    if TURNED:
        sums = tl.dot(tl.trans(x), tl.trans(w), sums, input_precision=TILE.PRECISION)
    else:
        sums = tl.dot(w, x, sums, input_precision=TILE.PRECISION)
    return sums


@triton.jit
def as_rows(sums, TURNED: tl.constexpr):
    """The sums as they are stored. (ROWS, COLUMNS)."""
    return tl.trans(sums) if TURNED else sums


@triton.jit
def weighted_slice(
    W, total, X, x_head, pair, batch, start, begin, end, column, pairs, d,
    TILE: tl.constexpr, SEEN: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """W X for one tile of rows of W and one slice of X. (BM, BD)."""
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
    """O = exp(S - LSE) V, a tile of rows and a slice of d each; `slices` · `tiles` · B · heads programs."""
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
    """dQ = scale · dS K, a tile of rows and a slice of d each; `slices` · `tiles` · B · heads programs."""
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
    """dK = scale · dSᵀ Q and dV = Pᵀ dO, a tile of rows and a slice of d each.

    The heads of a group add up one after the other; `slices` · `tiles` · B · kv_heads programs.
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
