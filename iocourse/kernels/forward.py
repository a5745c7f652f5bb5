"""Forward kernel in FlashAttention-2's loop order (2307.08691, Algorithm 1): the tile of queries is resident,
keys are streamed.

One program computes BM rows of O. It is the emulator's `flash2`, with `tl.load` for the machine's load.

Q, K, V and O are tensors; `queries` and `keys` are the `Place` of one sequence and head in them. `start` is
the first row of the resident tile, and `at` the first row of the streamed one.
"""

import triton
import triton.language as tl

from .jit_helpers import (
    LN_2,
    LOG2_E,
    LOWEST,
    Lengths,
    load_rows,
    place_of_queries,
    row_numbers_of,
    start_of_step,
    store_rows,
    stream_rows,
    visible_in_step,
)


@triton.jit
def average_keys(
    acc, m, l, q_tile, K, V, keys, start, begin, end, lengths, lists, scale,
    TILE: tl.constexpr, MASK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Continue online softmax of the queries from `start` on over the keys begin … end - 1, in tiles of BN.
    Returns the new acc (BM, DIM), and m and l (BM,).

    Scores are in base 2 (`scale` includes log₂ e), because the hardware exponential is 2ˣ. m is the running
    maximum of the scaled scores. It starts at `LOWEST`. MASK: the `MaskKind` of the kernel. MASKED: the tiles
    of this loop are partial, so their pairs are masked.
    """
    BN: tl.constexpr = TILE.BN
    i = start + tl.arange(0, TILE.BM)
    for step in range(begin, end, 1 if MASK.LISTED else BN):
        at = start_of_step(lists, step, BN, MASK)
        k_tile = stream_rows(K, keys, at, ROWS=BN, TILE=TILE, CHECK_ROWS=MASKED)
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        if MASKED:
            j = at + tl.arange(0, BN)
            visible = visible_in_step(i[:, None], j[None, :], lengths, lists, step, MASK=MASK)
            s = tl.where(visible, s, float("-inf"))
        # The scale is positive (`checked_inputs` moves a sign into Q), so it may follow the reduction:
        # BM products instead of BM · BN. A row without a visible key so far keeps m = LOWEST, and its weights
        # are 2⁻ᵒᵒ = 0 and not NaN.
        m_new = tl.maximum(m, tl.max(s, 1) * scale)
        # Scaled here and not in Q, because product and difference are one fused multiply-add per score.
        p = tl.exp2(s * scale - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        v_tile = stream_rows(V, keys, at, ROWS=BN, TILE=TILE, CHECK_ROWS=MASKED)
        # Tensor cores multiply factors of one type, so P is rounded to V's type; l has added it unrounded.
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * old[:, None], input_precision=TILE.PRECISION)
        m = m_new
    return acc, m, l


@triton.jit
def averaged(acc, l):
    """Return O (BM, DIM) after the last key: acc / l, and 0 for a row without visible keys."""
    # Once per row, after the last key: dividing in every iteration would cost BM · DIM divisions per tile.
    return acc / tl.where(l == 0.0, 1.0, l)[:, None]


@triton.jit
def log_sums(m, l):
    """Return the natural log-sum-exps of rows after the last key; -∞ for a row without visible keys."""
    return tl.where(l == 0.0, float("-inf"), (m + tl.log2(tl.where(l == 0.0, 1.0, l))) * LN_2)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def forward_kernel(
    Q, K, V, O, LSE, cu, lists, shape, scale, n_q, n_k, low, high, TILE: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """Compute O = softmax(scale · QKᵀ) V and its row log-sum-exp; `shape`: a `Shape`, the grid.

    Q, O (B, heads, n_q, d); K, V (B, heads / group, n_k, d); LSE (B, heads, n_q) float32. TILE: a `Tiling`.
    MASK: a `MaskKind`. LISTED: `lists` names the tiles of keys that a tile of queries attends to, instead of
    the band. PACKED: B sequences are concatenated in tensors of one batch; sequence b starts at rows cu_q[b]
    and cu_k[b].
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    start, queries, keys, lengths, borders = place_of_queries(
        shape, lists, cu, Lengths(n_q, n_k, low, high), TILE=TILE, MASK=MASK
    )
    LSE = row_numbers_of(LSE, queries, shape.heads, n_q, MASK.PACKED)
    q_tile = load_rows(Q, queries, start, ROWS=BM, DIM=DIM, PADDED=TILE.PADDED)
    # All sums are float32, because 16-bit sums of many keys would lose the small weights.
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    # Three loops: tiles on the left edge of the band, full tiles, and tiles on the diagonal or at the end of
    # the keys (see `split_range`).
    CUT_LAST: tl.constexpr = MASK.HAS_LOW or MASK.HAS_HIGH or MASK.RAGGED_K or MASK.LISTED
    for part in tl.static_range(3):
        if part == 1 or (part == 0 and MASK.HAS_LOW) or (part == 2 and CUT_LAST):
            begin, end = borders[part], borders[part + 1]
            if not TILE.SKIPPING or begin < end:
                acc, m, l = average_keys(
                    acc, m, l, q_tile, K, V, keys,
                    start=start, begin=begin, end=end, lengths=lengths, lists=lists, scale=scale * LOG2_E,
                    TILE=TILE, MASK=MASK, MASKED=part != 1,
                )  # fmt: skip
    store_rows(averaged(acc, l), O, queries, start)
    rows = start + tl.arange(0, BM)
    tl.store(LSE + rows, log_sums(m, l), mask=rows < lengths.n_q)
