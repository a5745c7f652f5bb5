"""Backward kernel of dK and dV, and optionally dQ: the tile of keys is resident, queries are streamed.

Without dQ it is the second kernel of the two-pass backward pass. With dQ it is the whole backward pass in
one kernel: each tile of scores is computed once, so five products per tile replace seven. Every tile of keys
then adds its part of dQ atomically, in the order in which programs finish, so results are not bit-equal from
run to run.
"""

import triton
import triton.language as tl

from .jit_helpers import (
    LOG2_E,
    LOWEST,
    Lengths,
    Place,
    add_rows,
    heaviest,
    listed,
    load_rows,
    prepared_of,
    program_place,
    queries_of,
    sequences,
    start_of_step,
    store_rows,
    stream_rows,
    visible_in_step,
)


@triton.jit
def absorb_queries(
    dk, dv, k_tile, v_tile, Q, dO, numbers, dQ_sum, queries, start, begin, end, lengths, lists, scale,
    TILE: tl.constexpr, MASK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the contributions of queries begin … end - 1 to dk and dv (BN, DIM) of the keys from `start` on,
    and dS K to dQ_sum unless it is None. Returns dk and dv. numbers: the `RowNumbers` of these queries'
    sequence and head. MASKED: the tiles of this loop are partial.

    Tiles of scores are computed transposed, (BN, BM), because Pᵀ and dSᵀ are the left factors of dV and dK.
    """
    BM: tl.constexpr = TILE.BM
    CHECK_ROWS: tl.constexpr = MASK.RAGGED_Q or MASKED
    CROWDED: tl.constexpr = TILE.PRECISION is None and TILE.DIM > 64  # see the end of `jit_helpers`
    j = start + tl.arange(0, TILE.BN)
    for step in tl.range(begin, end, 1 if MASK.LISTED else BM, disable_licm=CROWDED):
        at = start_of_step(lists, step, BM, MASK)
        q_tile = stream_rows(Q, queries, at, ROWS=BM, TILE=TILE, CHECK_ROWS=CHECK_ROWS)
        # No mask: the statistics of a sequence are padded to full tiles (see `RowNumbers`).
        total = tl.load(numbers.LSE2 + at + tl.arange(0, BM))  # log-sum-exps in base 2
        s = tl.dot(k_tile, tl.trans(q_tile), input_precision=TILE.PRECISION)  # (BN, BM)
        if MASK.RAGGED_Q:
            # Rows past the last query may hold NaN (0 · -∞). -∞ and LOWEST have the weight 0 alike.
            s = tl.where(s > LOWEST, s, LOWEST)
        # The stored log-sum-exp gives the final weights at once, without a running maximum and a division.
        p = tl.exp2(s * scale - total[None, :])
        if MASKED:
            i = at + tl.arange(0, BM)
            visible = visible_in_step(i[None, :], j[:, None], lengths, lists, step, MASK=MASK)
            # No maximum is taken over the scores, so it is enough to mask the weights.
            p = tl.where(visible, p, 0.0)
        do_tile = stream_rows(dO, queries, at, ROWS=BM, TILE=TILE, CHECK_ROWS=CHECK_ROWS)
        dv = tl.dot(p.to(do_tile.dtype), do_tile, dv, input_precision=TILE.PRECISION)
        dp = tl.dot(v_tile, tl.trans(do_tile), input_precision=TILE.PRECISION)  # (BN, BM)
        delta = tl.load(numbers.D + at + tl.arange(0, BM))
        # Without the scale, which multiplies the sums dK and dQ once at the end.
        ds = (p * (dp - delta[None, :])).to(q_tile.dtype)
        dk = tl.dot(ds, q_tile, dk, input_precision=TILE.PRECISION)
        if dQ_sum is not None:
            share = tl.dot(tl.trans(ds), k_tile, input_precision=TILE.PRECISION)  # (BM, DIM)
            add_rows(share, dQ_sum, queries, at, TILE)
    return dk, dv


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def backward_keys_kernel(
    Q, K, V, dO, prepared, dQ_sum, dK, dV, cu, lists, shape, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Compute dK = scale · dSᵀQ and dV = Pᵀ dO; each program computes BN rows of both, for one key head.

    The program processes the `group` query heads that share its key head one after the other, so dK and dV
    need no atomics: here `shape.heads` are key heads. dQ_sum: None, or (B, H, n_q, d) float32 zeros, to which
    dS K is added without the scale. prepared: the `RowNumbers` of all heads.
    """
    BN: tl.constexpr = TILE.BN
    DIM: tl.constexpr = TILE.DIM
    # In causal attention the most queries attend to the first keys, so their programs start first.
    tile, _, batch, kv_head = program_place(tl.program_id(0), shape, False)
    if MASK.LISTED:
        tile = heaviest(lists, batch, kv_head, tile)
    start = tile * BN
    q0, k0, lengths = sequences(cu, batch, Lengths(n_q, n_k, low, high), MASK)
    keys = Place(batch, kv_head, k0, k0 + lengths.n_k, shape.d)
    # The grid covers the longest sequence; a shorter one may not have this tile, and then loads no query.
    n_loaded = tl.where(start < lengths.n_k, lengths.n_q, 0) if MASK.PACKED else lengths.n_q
    loaded = Lengths(n_loaded, lengths.n_k, lengths.low, lengths.high)
    k_tile = load_rows(K, keys, start, ROWS=BN, DIM=DIM, PADDED=TILE.PADDED)
    v_tile = load_rows(V, keys, start, ROWS=BN, DIM=DIM, PADDED=TILE.PADDED)
    dk = tl.zeros((BN, DIM), dtype=tl.float32)
    dv = tl.zeros((BN, DIM), dtype=tl.float32)
    for member in range(shape.group):
        queries = Place(batch, kv_head * shape.group + member, q0, q0 + lengths.n_q, shape.d)
        numbers = prepared_of(prepared, queries, shape.heads * shape.group, MASK.PACKED)
        if MASK.LISTED:
            borders = listed(lists, batch, queries.head, tile)
        else:
            borders = queries_of(start, loaded, TILE.BM, BN, MASK)
        # Three loops (see `split_range`): tiles on the diagonal (all tiles if the tile of keys is partly out
        # of bounds), full tiles, and tiles on the other edge of the band.
        CUT_FIRST: tl.constexpr = MASK.HAS_HIGH or MASK.RAGGED_K
        CUT_LAST: tl.constexpr = MASK.HAS_LOW or MASK.LISTED
        for part in tl.static_range(3):
            if part == 1 or (part == 0 and CUT_FIRST) or (part == 2 and CUT_LAST):
                begin, end = borders[part], borders[part + 1]
                if not TILE.SKIPPING or begin < end:
                    dk, dv = absorb_queries(
                        dk, dv, k_tile, v_tile, Q, dO, numbers, dQ_sum, queries,
                        start=start, begin=begin, end=end, lengths=lengths, lists=lists,
                        scale=scale * LOG2_E, TILE=TILE, MASK=MASK, MASKED=part != 1,
                    )  # fmt: skip
    store_rows(dk * scale, dK, keys, start)
    store_rows(dv, dV, keys, start)
