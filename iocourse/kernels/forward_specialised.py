"""The forward pass with specialised warps: four of them only load, eight only compute, 64 queries each four.

The schedule of `forward`, and its words. It takes what Triton (3.6 to 3.9) can specialise on sm_90: a single
loop, so a causal one is masked in every step; and no row of queries without a key.
"""

import triton
import triton.language as tl

from .forward import averaged, log_sums
from .pieces import LOG2_E, load_rows, place_of_queries, row_numbers_of, store_rows


@triton.jit
def up_to(edge, BN: tl.constexpr):
    """Which columns 0 … BN - 1 are at most each row's `edge`. (BM, BN).

    j ≤ edge is asked as 8⌊j / 8⌋ ≤ edge - j mod 8. A thread's columns lie 8 apart: so the left side is known
    when the kernel is compiled, and only two numbers a row, not one a column, have to be computed.
    """
    j = tl.arange(0, BN)
    return (j // 8 * 8)[None, :] <= edge[:, None] - (j % 8)[None, :]


@triton.jit(do_not_specialize=["n_q", "n_k", "high"])
def forward_specialised_kernel(
    Q, K, V, O, LSE, shape, scale, n_q, n_k, high, TILE: tl.constexpr, SEEN: tl.constexpr
):  # fmt: skip
    """O = softmax(scale · QKᵀ) V and its row log-sum-exp, for a band without `low`.

    Q, O (B, heads, n_q, d); K, V descriptors of (B, heads / group, n_k, d); LSE (B, heads, n_q) float32.
    Every query sees key 0, and where n_k cuts a tile, `high` hides what lies behind.
    """
    BM: tl.constexpr = TILE.BM
    BN: tl.constexpr = TILE.BN
    DIM: tl.constexpr = TILE.DIM
    d = shape.d
    batch, head, start, _, _, _, borders = place_of_queries(shape, None, None, n_q, n_k, 0, high, TILE, SEEN)
    rows, kv_head = start + tl.arange(0, BM), head // shape.group
    # Each half of the tile goes to four warps of its own, and this descriptor's rows are halved with it. One
    # that the host made would copy BM rows into room for half of them (triton 3.6; 3.7 refuses).
    queries = Q.start + (batch.to(tl.int64) * Q.batch + head.to(tl.int64) * Q.head)
    q_tile = tl.make_tensor_descriptor(queries, [n_q, d], [Q.row, 1], [BM, DIM]).load([start, 0])
    acc = tl.zeros((BM, DIM), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for at in tl.range(0, borders[3], BN, warp_specialize=True):
        k_tile = load_rows(K, batch, kv_head, at, n_k, d, BN, DIM, False, False, True)
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=TILE.PRECISION)  # (BM, BN)
        if SEEN.HAS_HIGH:
            s = tl.where(up_to(rows + (high - at), BN), s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1) * (scale * LOG2_E))
        p = tl.exp2(s * (scale * LOG2_E) - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        v_tile = load_rows(V, batch, kv_head, at, n_k, d, BN, DIM, False, False, True)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * old[:, None], input_precision=TILE.PRECISION)
        m = m_new
    store_rows(averaged(acc, l), O, batch, head, start, n_q, d, BM, DIM)
    LSE = row_numbers_of(LSE, batch, head, shape.heads, n_q, 0, False)
    tl.store(LSE + rows, log_sums(m, l), mask=rows < n_q)
