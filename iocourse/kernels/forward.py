"""The forward pass in FlashAttention-2's order (2307.08691, Algorithm 1): a tile of queries stays, keys
stream past.

One program computes BM rows of O. It is the emulator's `flash2`, with `tl.load` for the machine's load.
"""

import triton
import triton.language as tl

from .pieces import (
    LN_2,
    LOG2_E,
    heaviest,
    keys_of,
    listed,
    load_rows,
    pattern,
    row_numbers_of,
    sees,
    sequences,
    store_rows,
)


@triton.jit
def absorb_keys(
    acc, m, l, q_tile, K, k_strides, V, v_strides, batch, head, start, first, last, k0, n_k, d,
    scale, low, high, lists, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, MASKED: tl.constexpr, LISTED: tl.constexpr,
    DESCRIPTORS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys first … last - 1, in tiles of BN. Returns the new acc (BM, DIM), m and l
    (BM,).

    Scores are in units of log 2 (`scale` holds log₂ e), because the hardware's exponential is 2ˣ. m is the
    running maximum of the scaled scores; -∞ until a row has seen a key.
    """
    i = start + tl.arange(0, BM)
    for step in range(first, last, 1 if LISTED else BN):
        at = tl.load(lists.entries + step) * BN if LISTED else step
        k_tile = load_rows(
            K, k_strides, batch, head, k0 + at, k0 + n_k, d, BN, DIM, MASKED, PADDED, DESCRIPTORS
        )
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)  # (BM, BN)
        if MASKED:
            if LISTED:
                seen = pattern(lists, step, BM, BN)
            else:
                j = at + tl.arange(0, BN)
                seen = sees(i[:, None], j[None, :], n_k, low, high, HAS_LOW, HAS_HIGH)
            s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1) * scale)
        # A row that has seen nothing yet has m_new = -∞, and -∞ - -∞ is not a number: shift it by 0 instead.
        shift = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new
        p = tl.exp2(s * scale - shift[:, None])
        old = tl.exp2(m - shift)
        l = l * old + tl.sum(p, 1)
        v_tile = load_rows(
            V, v_strides, batch, head, k0 + at, k0 + n_k, d, BN, DIM, MASKED, PADDED, DESCRIPTORS
        )
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * old[:, None], input_precision=PRECISION)
        m = m_new
    return acc, m, l


@triton.jit
def averaged(acc, l):
    """O of rows whose keys are all in: acc / l, and 0 for a row that saw none. (BM, DIM)."""
    return acc / tl.where(l == 0.0, 1.0, l)[:, None]


@triton.jit
def log_sums(m, l):
    """Log-sum-exps of rows whose keys are all in; -∞ for a row that saw none."""
    return tl.where(l == 0.0, float("-inf"), (m + tl.log2(tl.where(l == 0.0, 1.0, l))) * LN_2)


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def forward_kernel(
    Q, q_strides, K, k_strides, V, v_strides, O, o_strides, LSE,
    cu_q, cu_k, scale, low, high, lists, tiles, heads, group, n_q, n_k, d,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, RAGGED: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, LISTED: tl.constexpr,
    PACKED: tl.constexpr, LOWER_RIGHT: tl.constexpr, DESCRIPTORS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O = softmax(scale · QKᵀ) V and its row log-sum-exp; `tiles` · B · heads programs on one axis.

    Q, O (B, heads, n_q, d); K, V (B, heads / group, n_k, d); LSE (B, heads, n_q) float32. LISTED: `lists`
    says which tiles of keys a tile of queries sees, instead of the band. PACKED: B sequences lie one behind
    the other in tensors of one batch, from rows cu_q[b] and cu_k[b] on.
    """
    program = tl.program_id(0)
    tile, pair = program % tiles, program // tiles
    batch, head = pair // heads, pair % heads
    if HAS_HIGH:
        tile = tiles - 1 - tile  # the last queries see the most keys: start with them, and end on small work
    if LISTED:
        tile = heaviest(lists, batch, head, tile)
    start = tile * BM
    rows_of_all = n_q
    q0, n_q, k0, n_k, low, high = sequences(cu_q, cu_k, batch, n_q, n_k, low, high, PACKED, LOWER_RIGHT)
    LSE = row_numbers_of(LSE, batch, head, heads, rows_of_all, q0, PACKED)
    if PACKED:
        n_k = tl.where(start < n_q, n_k, 0)  # a short sequence has no such tile, and no key is read for it
    q_tile = load_rows(Q, q_strides, batch, head, q0 + start, q0 + n_q, d, BM, DIM, True, PADDED, False)
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    if LISTED:
        borders = listed(lists, batch, head, tile)
    else:
        borders = keys_of(start, n_q, n_k, low, high, BM, BN, HAS_LOW, HAS_HIGH)
    # Tiles that the left edge of the band cuts; whole tiles; tiles that the diagonal or the end of the keys
    # cuts. Only the first and the last kind pay for a mask, and the loops are laid out when the kernel is
    # compiled.
    for part in tl.static_range(3):
        if part == 1 or (part == 0 and HAS_LOW) or (part == 2 and (HAS_LOW or HAS_HIGH or RAGGED or LISTED)):
            acc, m, l = absorb_keys(
                acc, m, l, q_tile, K, k_strides, V, v_strides, batch, head // group, start,
                borders[part], borders[part + 1], k0, n_k, d, scale * LOG2_E, low, high,
                lists, BM, BN, DIM, PADDED, HAS_LOW, HAS_HIGH, part != 1, LISTED, DESCRIPTORS, PRECISION,
            )  # fmt: skip
    store_rows(averaged(acc, l), O, o_strides, batch, head, q0 + start, q0 + n_q, d, BM, DIM)
    rows = start + tl.arange(0, BM)
    tl.store(LSE + rows, log_sums(m, l), mask=rows < n_q)
