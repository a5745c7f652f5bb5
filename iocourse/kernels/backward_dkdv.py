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
    Pairs,
    corner,
    heaviest,
    listed,
    load_rows,
    pattern,
    prepared_of,
    program_place,
    queries_of,
    row_pointers,
    sees,
    sequences,
    store_rows,
)


@triton.jit
def absorb_queries(
    dk, dv, k_tile, v_tile, Q, dO, sums, deltas, dQ_sum, batch, head, start, first, last, q0, pairs, d, scale,
    lists, TILE: tl.constexpr, SEEN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the contributions of queries first … last - 1 to dk and dv (BN, DIM), and dS K to dQ_sum unless it
    is None. Returns dk and dv.

    Tiles of scores are computed transposed, (BN, BM), because Pᵀ and dSᵀ are the left factors of dV and dK.
    """
    BM: tl.constexpr = TILE.BM
    DIM: tl.constexpr = TILE.DIM
    CHECK_ROWS: tl.constexpr = SEEN.RAGGED_Q or MASKED
    n_q = pairs.n_q
    j = start + tl.arange(0, TILE.BN)
    # Values hoisted out of the loop stay in registers during the loop. From 128 columns on, the tensor-core
    # products need those registers.
    CROWDED: tl.constexpr = TILE.PRECISION is None and DIM > 64
    for step in tl.range(first, last, 1 if SEEN.LISTED else BM, disable_licm=CROWDED):
        at = tl.load(lists.entries + step) * BM if SEEN.LISTED else step
        q_tile = load_rows(
            Q, batch, head, q0 + at, q0 + n_q, d, BM, DIM, CHECK_ROWS, TILE.PADDED, TILE.DESCRIPTORS
        )
        # No mask: the statistics of a sequence are padded to full tiles (see `RowNumbers`).
        total = tl.load(sums + at + tl.arange(0, BM))
        s = tl.dot(k_tile, tl.trans(q_tile), input_precision=TILE.PRECISION)  # (BN, BM)
        if SEEN.RAGGED_Q:
            # Rows past the last query may hold NaN (0 · -∞). -∞ and LOWEST have the weight 0 alike.
            s = tl.where(s > LOWEST, s, LOWEST)
        # The stored log-sum-exp gives the final weights at once, without a running maximum and a division.
        p = tl.exp2(s * scale - total[None, :])
        if MASKED:
            if SEEN.LISTED:
                seen = pattern(lists, step, TILE.BN, BM)
            else:
                i = at + tl.arange(0, BM)
                seen = sees(i[None, :], j[:, None], pairs, SEEN)
            # No maximum is taken over the scores, so it is enough to mask the weights.
            p = tl.where(seen, p, 0.0)
        do_tile = load_rows(
            dO, batch, head, q0 + at, q0 + n_q, d, BM, DIM, CHECK_ROWS, TILE.PADDED, TILE.DESCRIPTORS
        )
        dv = tl.dot(p.to(do_tile.dtype), do_tile, dv, input_precision=TILE.PRECISION)
        dp = tl.dot(v_tile, tl.trans(do_tile), input_precision=TILE.PRECISION)  # (BN, BM)
        delta = tl.load(deltas + at + tl.arange(0, BM))
        # Without the scale, which multiplies the sums dK and dQ once at the end.
        ds = (p * (dp - delta[None, :])).to(q_tile.dtype)
        dk = tl.dot(ds, q_tile, dk, input_precision=TILE.PRECISION)
        if dQ_sum is not None:
            share = tl.dot(tl.trans(ds), k_tile, input_precision=TILE.PRECISION)  # (BM, DIM)
            if TILE.DESCRIPTORS:
                place = corner(dQ_sum, batch, head, q0 + at, q0 + n_q)
                dQ_sum.atomic_add(place, share.reshape(dQ_sum.block_shape))
            else:
                rows, columns = at + tl.arange(0, BM), tl.arange(0, DIM)
                there = (rows[:, None] < n_q) & (columns[None, :] < d)
                to = row_pointers(dQ_sum, batch, head, q0 + at, BM, DIM)
                # Relaxed: no program of this launch reads dQ_sum, so no access must be ordered.
                tl.atomic_add(to, share, mask=there, sem="relaxed")
    return dk, dv


@triton.jit(do_not_specialize=["n_q", "n_k", "low", "high"])
def backward_keys_kernel(
    Q, K, V, dO, prepared, dQ_sum, dK, dV, cu, lists, shape, scale, n_q, n_k, low, high,
    TILE: tl.constexpr, SEEN: tl.constexpr,
):  # fmt: skip
    """Compute dK = scale · dSᵀQ and dV = Pᵀ dO; each program computes BN rows of both, for one key head.

    The program processes the `group` query heads that share its key head one after the other, so dK and dV
    need no atomics. dQ_sum: None, or (B, H, n_q, d) float32 zeros, to which dS K is added without the scale.
    """
    BN: tl.constexpr = TILE.BN
    DIM: tl.constexpr = TILE.DIM
    d, group = shape.d, shape.group
    # In causal attention the most queries attend to the first keys, so their programs start first.
    tile, _, batch, kv_head = program_place(tl.program_id(0), shape, False)
    if SEEN.LISTED:
        tile = heaviest(lists, batch, kv_head, tile)
    start = tile * BN
    q0, k0, pairs = sequences(cu, batch, n_q, n_k, low, high, SEEN)
    stop = k0 + pairs.n_k
    # The grid covers the longest sequence; a shorter one may not have this tile, and then loads no query.
    seen_by = tl.where(start < pairs.n_k, pairs.n_q, 0) if SEEN.PACKED else pairs.n_q
    k_tile = load_rows(K, batch, kv_head, k0 + start, stop, d, BN, DIM, True, TILE.PADDED, False)
    v_tile = load_rows(V, batch, kv_head, k0 + start, stop, d, BN, DIM, True, TILE.PADDED, False)
    dk = tl.zeros((BN, DIM), dtype=tl.float32)
    dv = tl.zeros((BN, DIM), dtype=tl.float32)
    for member in range(group):
        head = kv_head * group + member
        sums, deltas = prepared_of(prepared, batch, head, shape.heads * group, q0, SEEN.PACKED)
        if SEEN.LISTED:
            borders = listed(lists, batch, head, tile)
        else:
            asked = Pairs(seen_by, pairs.n_k, pairs.low, pairs.high)
            borders = queries_of(start, asked, TILE.BM, BN, SEEN)
        # Three loops: tiles on the diagonal (all tiles if the tile of keys is partly out of bounds), full
        # tiles, and tiles on the other edge of the band.
        CUT_FIRST: tl.constexpr = SEEN.HAS_HIGH or SEEN.RAGGED_K
        CUT_LAST: tl.constexpr = SEEN.HAS_LOW or SEEN.LISTED
        for part in tl.static_range(3):
            if part == 1 or (part == 0 and CUT_FIRST) or (part == 2 and CUT_LAST):
                begin, end = borders[part], borders[part + 1]
                if not TILE.SKIPPING or begin < end:  # as in the forward pass
                    dk, dv = absorb_queries(
                        dk, dv, k_tile, v_tile, Q, dO, sums, deltas, dQ_sum, batch, head, start,
                        begin, end, q0, pairs, d, scale * LOG2_E, lists, TILE, SEEN, part != 1,
                    )  # fmt: skip
    store_rows(dk * scale, dK, batch, kv_head, k0 + start, stop, d, BN, DIM)
    store_rows(dv, dV, batch, kv_head, k0 + start, stop, d, BN, DIM)
