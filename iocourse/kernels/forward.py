"""Forward kernel in FlashAttention-2's loop order (2307.08691, Algorithm 1): the tile of queries is resident,
keys are streamed.

One program computes BM rows of O. It is the emulator's `flash2`, with `tl.load` for the machine's load.
"""

import triton
import triton.language as tl

from .jit_helpers import (
    LN_2,
    LOG2_E,
    LOWEST,
    load_rows,
    pattern,
    place_of_queries,
    row_numbers_of,
    sees,
    store_rows,
)


@triton.jit
def average_keys(
    acc, m, l, q_tile, K, V, batch, head, start, first, last, k0, pairs, d, scale, lists,
    TILE: tl.constexpr, SEEN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Continue online softmax over the keys first … last - 1, in tiles of BN. Returns the new acc (BM, DIM),
    and m and l (BM,).

    Scores are in base 2 (`scale` includes log₂ e), because the hardware exponential is 2ˣ. m is the running
    maximum of the scaled scores. It starts at `LOWEST`.
    """
    BN: tl.constexpr = TILE.BN
    stop = k0 + pairs.n_k
    i = start + tl.arange(0, TILE.BM)
    for step in range(first, last, 1 if SEEN.LISTED else BN):
        at = tl.load(lists.entries + step) * BN if SEEN.LISTED else step
        k_tile = load_rows(
            K, batch, head, k0 + at, stop, d, BN, TILE.DIM, MASKED, TILE.PADDED, TILE.DESCRIPTORS
        )
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        if MASKED:
            if SEEN.LISTED:
                seen = pattern(lists, step, TILE.BM, BN)
            else:
                j = at + tl.arange(0, BN)
                seen = sees(i[:, None], j[None, :], pairs, SEEN)
            s = tl.where(seen, s, float("-inf"))
        # The scale is positive (`checked_inputs` moves a sign into Q), so it may follow the reduction:
        # BM products instead of BM · BN. A row without a visible key so far keeps m = LOWEST, and its weights
        # are 2⁻ᵒᵒ = 0 and not NaN.
        m_new = tl.maximum(m, tl.max(s, 1) * scale)
        # Scaled here and not in Q, because product and difference are one fused multiply-add per score.
        p = tl.exp2(s * scale - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        v_tile = load_rows(
            V, batch, head, k0 + at, stop, d, BN, TILE.DIM, MASKED, TILE.PADDED, TILE.DESCRIPTORS
        )
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
    Q, K, V, O, LSE, cu, lists, shape, scale, n_q, n_k, low, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """Compute O = softmax(scale · QKᵀ) V and its row log-sum-exp; `shape`: a `Shape`, the grid.

    Q, O (B, heads, n_q, d); K, V (B, heads / group, n_k, d); LSE (B, heads, n_q) float32. LISTED: `lists`
    names the tiles of keys that a tile of queries attends to, instead of the band. PACKED: B sequences are
    concatenated in tensors of one batch; sequence b starts at rows cu_q[b] and cu_k[b].
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    d = shape.d
    batch, head, start, q0, k0, pairs, borders = place_of_queries(
        shape, lists, cu, n_q, n_k, low, high, TILE, SEEN
    )
    LSE = row_numbers_of(LSE, batch, head, shape.heads, n_q, q0, SEEN.PACKED)
    stop = q0 + pairs.n_q
    q_tile = load_rows(Q, batch, head, q0 + start, stop, d, BM, DIM, True, TILE.PADDED, TILE.ROW_DESCRIPTORS)
    # All sums are float32, because 16-bit sums of many keys would lose the small weights.
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    # Three loops: tiles on the left edge of the band, full tiles, and tiles on the diagonal or at the end of
    # the keys. Only the first and the last loop compute a mask; unused loops are removed at compile time.
    # SKIPPING: do not enter a loop with no iteration. Otherwise the compiler may set acc to zero in a block
    # next to the first loop, for that case, and then it waits for every product (see `Tiling`).
    CUT_LAST: tl.constexpr = SEEN.HAS_LOW or SEEN.HAS_HIGH or SEEN.RAGGED_K or SEEN.LISTED
    for part in tl.static_range(3):
        if part == 1 or (part == 0 and SEEN.HAS_LOW) or (part == 2 and CUT_LAST):
            begin, end = borders[part], borders[part + 1]
            if not TILE.SKIPPING or begin < end:
                acc, m, l = average_keys(
                    acc, m, l, q_tile, K, V, batch, head // shape.group, start, begin, end,
                    k0, pairs, d, scale * LOG2_E, lists, TILE, SEEN, part != 1,
                )  # fmt: skip
    store_rows(averaged(acc, l), O, batch, head, q0 + start, stop, d, BM, DIM, TILE.ROW_DESCRIPTORS)
    rows = start + tl.arange(0, BM)
    tl.store(LSE + rows, log_sums(m, l), mask=rows < pairs.n_q)
