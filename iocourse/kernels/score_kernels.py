"""The small cache with its scores written out, the emulator's `small_cache` (F5) and `small_cache_backward`
(B5): N × N matrices in slow memory, and blocked products with them.

Each tile of S is written once and read once for each slice of O, where `small_cache` reads and writes a slice
of O for each tile of S. That moves fewer words below M ≈ 0.69 d², and takes N² words of slow memory a head.
"""

import triton
import triton.language as tl

from .forward import log_sums
from .pieces import (
    LOG2_E,
    keys_of,
    load_log_sums,
    load_row_numbers,
    queries_of,
    row_numbers_of,
    sees,
)
from .small_cache import load_slice, product, store_slice


@triton.jit
def store_scores(
    tile, x, pair, row, column, n_q, n_k, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write a tile of a (pairs, n_q, n_k) matrix of scores."""
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    to = x + (pair.to(tl.int64) * n_q + rows[:, None]) * n_k + columns[None, :]
    tl.store(to, tile.to(x.dtype.element_ty), mask=(rows[:, None] < n_q) & (columns[None, :] < n_k))


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def scores_kernel(
    Q, q_strides, K, k_strides, S, LSE, scale, low, high, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S = scale · log₂e · QKᵀ, float32 (B · heads, n_q, n_k), -∞ where nothing is seen; LSE (B, heads, n_q).

    Tiles of keys that a tile of queries does not see are not written. `tiles` · B · heads programs.
    """
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    if HAS_HIGH:
        tile = tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    start = tile * BM
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(
            Q, q_strides, head, start, n_q, K, k_strides, head // group, at, n_k, batch, d,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
        seen = sees(i[:, None], at + j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
        s = tl.where(seen, s * (scale * LOG2_E), float("-inf"))
        store_scores(s, S, pair, start, at, n_q, n_k, BM, BN)
        m_new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp2(m - shift) + tl.sum(tl.exp2(s - shift[:, None]), 1)
        m = m_new
    tl.store(row_numbers_of(LSE, batch, head, heads, n_q, 0, False) + i, log_sums(m, l), mask=i < n_q)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def weights_kernel(
    Q, q_strides, K, k_strides, V, v_strides, dO, do_strides, LSE, D, P, dS,
    scale, low, high, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """P = exp(S - LSE) and dS = P ∘ (dO Vᵀ - D), both (B · heads, n_q, n_k) in Q's type."""
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    if HAS_HIGH:
        tile = tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    start = tile * BM
    total = load_log_sums(row_numbers_of(LSE, batch, head, heads, n_q, 0, False), start, n_q, BM)
    products = load_row_numbers(row_numbers_of(D, batch, head, heads, n_q, 0, False), start, n_q, 0.0, BM)
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    i, j = start + tl.arange(0, BM), tl.arange(0, BN)
    for at in range(begin, end, BN):
        s = product(
            Q, q_strides, head, start, n_q, K, k_strides, head // group, at, n_k, batch, d,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
        seen = sees(i[:, None], at + j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
        p = tl.where(seen, tl.exp2(s * (scale * LOG2_E) - total[:, None]), 0.0)
        store_scores(p, P, pair, start, at, n_q, n_k, BM, BN)
        dp = product(
            dO, do_strides, head, start, n_q, V, v_strides, head // group, at, n_k, batch, d,
            BM, BN, BD, PRECISION,
        )  # fmt: skip
        store_scores(p * (dp - products[:, None]), dS, pair, start, at, n_q, n_k, BM, BN)


@triton.jit
def load_weights(
    W, total, pair, row, column, n_q, n_k, low, high, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, EXP: tl.constexpr,
):  # fmt: skip
    """A tile of W (pairs, n_q, n_k), 0 where nothing is seen; with EXP W holds scores, and weights come back.

    What is not seen may never have been written, so it is read as it lies and dropped.
    """
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    at = W + (pair.to(tl.int64) * n_q + rows[:, None]) * n_k + columns[None, :]
    tile = tl.load(at, mask=(rows[:, None] < n_q) & (columns[None, :] < n_k), other=0.0)
    if EXP:
        tile = tl.exp2(tile - total[:, None])
    seen = sees(rows[:, None], columns[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
    return tl.where(seen, tile, 0.0)


@triton.jit
def add_rows(
    acc, W, total, X, x_strides, pair, batch, x_head, start, column, n_q, n_k, d, low, high,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, EXP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """acc + W X for one tile of rows of W and one slice of X. (BM, BD)."""
    begin, _, _, end = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    for at in range(begin, end, BN):
        w = load_weights(
            W, total, pair, start, at, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH, EXP
        )  # fmt: skip
        x = load_slice(X, x_strides, batch, x_head, at, n_k, column, d, BN, BD)
        acc = tl.dot(w.to(x.dtype), x, acc, input_precision=PRECISION)
    return acc


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def averages_kernel(
    S, LSE, V, v_strides, O, o_strides, low, high, tiles, slices, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O = exp(S - LSE) V, a tile of rows and a slice of d each; `slices` · `tiles` · B · heads programs."""
    program = tl.program_id(0)
    column, rest = program % slices * BD, program // slices
    tile, pair = rest % tiles, rest // tiles
    if HAS_HIGH:
        tile = tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    start = tile * BM
    total = load_log_sums(row_numbers_of(LSE, batch, head, heads, n_q, 0, False), start, n_q, BM)
    acc = add_rows(
        tl.zeros((BM, BD), dtype=tl.float32), S, total, V, v_strides, pair, batch, head // group,
        start, column, n_q, n_k, d, low, high, BM, BN, BD, HAS_LOW, HAS_HIGH, True, PRECISION,
    )  # fmt: skip
    store_slice(acc, O, o_strides, batch, head, start, n_q, column, d, BM, BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def query_gradients_kernel(
    dS, K, k_strides, dQ, dq_strides, scale, low, high, tiles, slices, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ = scale · dS K, a tile of rows and a slice of d each; `slices` · `tiles` · B · heads programs."""
    program = tl.program_id(0)
    column, rest = program % slices * BD, program // slices
    tile, pair = rest % tiles, rest // tiles
    if HAS_HIGH:
        tile = tiles - 1 - tile
    batch, head = pair // heads, pair % heads
    start = tile * BM
    nothing = tl.zeros((BM,), dtype=tl.float32)
    acc = add_rows(
        tl.zeros((BM, BD), dtype=tl.float32), dS, nothing, K, k_strides, pair, batch, head // group,
        start, column, n_q, n_k, d, low, high, BM, BN, BD, HAS_LOW, HAS_HIGH, False, PRECISION,
    )  # fmt: skip
    store_slice(acc * scale, dQ, dq_strides, batch, head, start, n_q, column, d, BM, BD)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def key_gradients_kernel(
    P, dS, Q, q_strides, dO, do_strides, dK, dk_strides, dV, dv_strides,
    scale, low, high, tiles, slices, kv_heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK = scale · dSᵀ Q and dV = Pᵀ dO, a tile of rows and a slice of d each.

    The heads of a group add up one after the other; `slices` · `tiles` · B · kv_heads programs.
    """
    program = tl.program_id(0)
    column, rest = program % slices * BD, program // slices
    tile, pair = rest % tiles, rest // tiles
    batch, kv_head = pair // kv_heads, pair % kv_heads
    start = tile * BN
    dk = tl.zeros((BN, BD), dtype=tl.float32)
    dv = tl.zeros((BN, BD), dtype=tl.float32)
    nothing = tl.zeros((BM,), dtype=tl.float32)
    begin, _, _, end = queries_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    for member in range(group):
        head = kv_head * group + member
        for at in range(begin, end, BM):
            p = load_weights(
                P, nothing, pair * group + member, at, start, n_q, n_k, low, high,
                BM, BN, HAS_LOW, HAS_HIGH, False,
            )  # fmt: skip
            do = load_slice(dO, do_strides, batch, head, at, n_q, column, d, BM, BD)
            dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv, input_precision=PRECISION)
            ds = load_weights(
                dS, nothing, pair * group + member, at, start, n_q, n_k, low, high,
                BM, BN, HAS_LOW, HAS_HIGH, False,
            )  # fmt: skip
            q = load_slice(Q, q_strides, batch, head, at, n_q, column, d, BM, BD)
            dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk, input_precision=PRECISION)
    store_slice(dk * scale, dK, dk_strides, batch, kv_head, start, n_k, column, d, BN, BD)
    store_slice(dv, dV, dv_strides, batch, kv_head, start, n_k, column, d, BN, BD)
