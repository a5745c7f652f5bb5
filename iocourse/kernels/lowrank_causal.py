"""The same under a causal mask: exact within a tile of TOKENS, the polynomial for the keys of earlier tiles.

    [Nᵢ, denᵢ] = Σⱼ exp(qᵢ·kⱼ) [vⱼ, 1] + (hᵢ ∘ φ(qᵢ))ᵀ T    over j ≤ i of the same tile
    T = w ∘ Σⱼ ψ(kⱼ) [vⱼ, 1]ᵀ                               over j of earlier tiles

From tile to tile that is a chain, and one program a head would leave most of a GPU idle. So tokens are cut
into spans: `keys_state_kernel` sums over each span, `before_kernel` over the spans before each, and then each
span has a program that walks its tiles with a state of its own, kept up to date in `states`. The gradient of
the queries walks the same way; that of the keys from the last tile to the first, with the state of the
queries after them. A tile is worked on in blocks of ROWS tokens.
"""

import triton
import triton.language as tl

from .lowrank_kernels import (
    features_of,
    gradient_rows,
    inverse,
    key_pulled_back,
    load_variance,
    point_rows,
    query_features,
    query_pulled_back,
    span_place,
    store_state,
    table_and_state,
    value_rows,
)
from .pieces import row_numbers_of, store_rows


@triton.jit(do_not_specialize=["spans"])
def before_kernel(
    parts, weights, states, spans, blocks, r, width,
    REVERSED: tl.constexpr, SPANS: tl.constexpr, BR: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Each span's state: w ∘ Σ of the parts of spans before it, or after it where REVERSED.

    `blocks` · B · heads programs, BR features each; parts and states: (B · heads, spans, r, width). A span's
    own part is never added and taken off again: its last digits would depend on later tokens.
    """
    program = tl.program_id(0)
    pair = (program // blocks).to(tl.int64)
    a, c = program % blocks * BR + tl.arange(0, BR), tl.arange(0, WIDE)
    there = ((a[:, None] < r) & (c[None, :] < width))[None, :, :]
    within = (a[:, None] * width + c[None, :])[None, :, :]
    weight = tl.load(weights + a, mask=a < r, other=0.0)[None, :, None]
    total = tl.zeros((1, BR, WIDE), dtype=tl.float32)
    for some in range(0, spans, SPANS):
        place = some + tl.arange(0, SPANS)
        if REVERSED:
            span, neighbour = spans - 1 - place, spans - place
        else:
            span, neighbour = place, place - 1
        known = ((place > 0) & (place < spans))[:, None, None] & there
        first = (pair * spans + neighbour)[:, None, None] * r * width
        one = tl.load(parts + first + within, mask=known, other=0.0)  # (SPANS, BR, WIDE)
        sums = total + tl.cumsum(one, 0)
        first = (pair * spans + span)[:, None, None] * r * width
        tl.store(states + first + within, sums * weight, mask=(place < spans)[:, None, None] & there)
        total += tl.sum(one, 0)[None, :, :]


@triton.jit
def span_state(states, spans, cut):
    """Where this program's state (r, dv + 1) begins."""
    return states + tl.program_id(0).to(tl.int64) * cut.r * (cut.dv + 1)


@triton.jit
def exponentials(x, k, ahead, d, TILE: tl.constexpr):
    """exp of the scores of rows x with rows k, 0 for keys after the query; x begins `ahead` rows after k.
    (ROWS, ROWS).
    """
    row = tl.arange(0, TILE.ROWS)
    without_one = tl.where(tl.arange(0, TILE.DX)[None, :] < d, k, 0.0)
    scores = tl.dot(x, tl.trans(without_one), input_precision="ieee")
    return tl.where(row[None, :] <= row[:, None] + ahead, tl.exp(scores), 0.0)


@triton.jit
def add_to_state(state, found, state_at, weights, panel, cut, TILE: tl.constexpr):
    """Write a block of features' state plus w ∘ what was found."""
    a = panel + tl.arange(0, TILE.BR)
    weight = tl.load(weights + a, mask=a < cut.r, other=0.0)[:, None]
    store_state(state + weight * found, state_at, panel, cut.r, cut.dv + 1, TILE.BR, TILE.DV)


@triton.jit
def add_keys(K, V, state_at, weights, coordinates, batch, head, first, stop, cut, TILE: tl.constexpr):
    """Add w ∘ Σⱼ ψ(kⱼ) [vⱼ, 1]ᵀ of keys first … stop - 1 to the state."""
    ROWS: tl.constexpr = TILE.ROWS
    BR: tl.constexpr = TILE.BR
    DV: tl.constexpr = TILE.DV
    tl.debug_barrier()  # a word of the state may be read by other threads than write it, before and after
    for panel in range(0, cut.r, BR):
        table, state = table_and_state(state_at, coordinates, panel, cut, TILE)
        found = tl.zeros((BR, DV), dtype=tl.float32)
        for start in range(first, stop, ROWS):
            k = point_rows(K, 0.0, 1.0, batch, head, start, stop, cut.d, ROWS, TILE.DX)
            y = value_rows(V, batch, head, start, stop, cut.dv, ROWS, DV)
            found = tl.dot(tl.trans(features_of(k, table, TILE)), y, found, input_precision="ieee")
        add_to_state(state, found, state_at, weights, panel, cut, TILE)
    tl.debug_barrier()


@triton.jit
def add_queries(
    Q, O, dO, den, variance, state_at, weights, coordinates, scale, batch, head, first, stop, n, cut,
    TILE: tl.constexpr,
):  # fmt: skip
    """Add w ∘ Σᵢ (hᵢ ∘ φ(qᵢ)) Gᵢᵀ of queries first … stop - 1 to the state."""
    ROWS: tl.constexpr = TILE.ROWS
    BR: tl.constexpr = TILE.BR
    DV: tl.constexpr = TILE.DV
    HAS_VARIANCE: tl.constexpr = variance is not None
    tl.debug_barrier()  # as in `add_keys`
    for panel in range(0, cut.r, BR):
        table, state = table_and_state(state_at, coordinates, panel, cut, TILE)
        found = tl.zeros((BR, DV), dtype=tl.float32)
        for start in range(first, stop, ROWS):
            x = point_rows(Q, 0.0, scale, batch, head, start, stop, cut.d, ROWS, TILE.DX)
            g = gradient_rows(O, dO, den, batch, head, cut.heads, start, stop, n, cut.dv, ROWS, DV)
            sigma = load_variance(variance, batch, head, cut.heads, start, stop, n, ROWS, HAS_VARIANCE)
            phi = query_features(x, sigma, table, cut.d, TILE, HAS_VARIANCE)
            found = tl.dot(tl.trans(phi), g, found, input_precision="ieee")
        add_to_state(state, found, state_at, weights, panel, cut, TILE)
    tl.debug_barrier()


@triton.jit(do_not_specialize=["n", "length", "spans"])
def causal_output_kernel(
    Q, K, V, states, weights, coordinates, variance, O, den, scale, spans, length, n, cut,
    TILE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """O = N / den and den, (B, heads, n) float32; `spans` · B · heads programs.

    states: (B · heads, spans, r, dv + 1), of the keys before each span; used up.
    """
    ROWS: tl.constexpr = TILE.ROWS
    DV: tl.constexpr = TILE.DV
    HAS_VARIANCE: tl.constexpr = variance is not None
    heads, d, dv = cut.heads, cut.d, cut.dv
    first, stop, _pair, batch, head = span_place(tl.program_id(0), spans, length, heads, n)
    state_at = span_state(states, spans, cut)
    totals = row_numbers_of(den, batch, head, heads, n, 0, False)
    for tile in range(first, stop, TOKENS):
        end = tl.minimum(tile + TOKENS, stop)
        for start in range(tile, end, ROWS):
            x = point_rows(Q, 0.0, scale, batch, head, start, end, d, ROWS, TILE.DX)
            sigma = load_variance(variance, batch, head, heads, start, end, n, ROWS, HAS_VARIANCE)
            found = tl.zeros((ROWS, DV), dtype=tl.float32)
            for panel in range(0, cut.r, TILE.BR):
                table, state = table_and_state(state_at, coordinates, panel, cut, TILE)
                phi = query_features(x, sigma, table, d, TILE, HAS_VARIANCE)
                found = tl.dot(phi, state, found, input_precision="ieee")
            for other in range(tile, start + ROWS, ROWS):
                k = point_rows(K, 0.0, 1.0, batch, head, other, end, d, ROWS, TILE.DX)
                y = value_rows(V, batch, head, other, end, dv, ROWS, DV)
                p = exponentials(x, k, start - other, d, TILE)
                found = tl.dot(p, y, found, input_precision="ieee")
            total = tl.sum(tl.where(tl.arange(0, DV)[None, :] == dv, found, 0.0), 1)
            store_rows(found * inverse(total)[:, None], O, batch, head, start, end, dv, ROWS, DV)
            rows = start + tl.arange(0, ROWS)
            tl.store(totals + rows, total, mask=rows < end)
        add_keys(K, V, state_at, weights, coordinates, batch, head, tile, end, cut, TILE)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def causal_queries_kernel(
    Q, K, V, O, dO, den, states, weights, coordinates, variance, dQ, scale, spans, length, n, cut,
    TILE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """dQ, as `causal_output_kernel` walks."""
    ROWS: tl.constexpr = TILE.ROWS
    DV: tl.constexpr = TILE.DV
    DIM: tl.constexpr = TILE.DIM
    HAS_VARIANCE: tl.constexpr = variance is not None
    heads, d, dv = cut.heads, cut.d, cut.dv
    first, stop, _pair, batch, head = span_place(tl.program_id(0), spans, length, heads, n)
    state_at = span_state(states, spans, cut)
    for tile in range(first, stop, TOKENS):
        end = tl.minimum(tile + TOKENS, stop)
        for start in range(tile, end, ROWS):
            x = point_rows(Q, 0.0, scale, batch, head, start, end, d, ROWS, TILE.DX)
            g = gradient_rows(O, dO, den, batch, head, heads, start, end, n, dv, ROWS, DV)
            sigma = load_variance(variance, batch, head, heads, start, end, n, ROWS, HAS_VARIANCE)
            dx = tl.zeros((ROWS, DIM), dtype=tl.float32)
            for panel in range(0, cut.r, TILE.BR):
                table, state = table_and_state(state_at, coordinates, panel, cut, TILE)
                dx, _phi = query_pulled_back(dx, x, g, sigma, state, table, d, TILE, HAS_VARIANCE)
            for other in range(tile, start + ROWS, ROWS):
                k = point_rows(K, 0.0, 1.0, batch, head, other, end, d, ROWS, TILE.DX)
                y = value_rows(V, batch, head, other, end, dv, ROWS, DV)
                dp = tl.dot(g, tl.trans(y), input_precision="ieee")
                dx = tl.dot(exponentials(x, k, start - other, d, TILE) * dp, k, dx, input_precision="ieee")
            store_rows(dx * scale, dQ, batch, head, start, end, d, ROWS, DIM)
        add_keys(K, V, state_at, weights, coordinates, batch, head, tile, end, cut, TILE)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def causal_keys_kernel(
    Q, K, V, O, dO, den, states, weights, coordinates, variance, dK, dV, scale, spans, length, n, cut,
    TILE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """dK and dV; each program walks its span from the last tile to the first.

    states: of the queries after each span, w ∘ Σᵢ (hᵢ ∘ φ(qᵢ)) Gᵢᵀ; used up.
    """
    ROWS: tl.constexpr = TILE.ROWS
    DV: tl.constexpr = TILE.DV
    DIM: tl.constexpr = TILE.DIM
    heads, d, dv = cut.heads, cut.d, cut.dv
    first, stop, _pair, batch, head = span_place(tl.program_id(0), spans, length, heads, n)
    state_at = span_state(states, spans, cut)
    for back in range(0, tl.cdiv(stop - first, TOKENS)):
        tile = first + (tl.cdiv(stop - first, TOKENS) - 1 - back) * TOKENS
        end = tl.minimum(tile + TOKENS, stop)
        for start in range(tile, end, ROWS):
            k = point_rows(K, 0.0, 1.0, batch, head, start, end, d, ROWS, TILE.DX)
            y = value_rows(V, batch, head, start, end, dv, ROWS, DV)
            dx = tl.zeros((ROWS, DIM), dtype=tl.float32)
            dy = tl.zeros((ROWS, DV), dtype=tl.float32)
            for panel in range(0, cut.r, TILE.BR):
                table, state = table_and_state(state_at, coordinates, panel, cut, TILE)
                dx, dy = key_pulled_back(dx, dy, k, y, state, table, TILE)
            for other in range(start, end, ROWS):
                x = point_rows(Q, 0.0, scale, batch, head, other, end, d, ROWS, TILE.DX)
                g = gradient_rows(O, dO, den, batch, head, heads, other, end, n, dv, ROWS, DV)
                p = tl.trans(exponentials(x, k, other - start, d, TILE))  # (keys, queries)
                dy = tl.dot(p, g, dy, input_precision="ieee")
                dp = tl.dot(y, tl.trans(g), input_precision="ieee")
                dx = tl.dot(p * dp, x, dx, input_precision="ieee")
            store_rows(dx, dK, batch, head, start, end, d, ROWS, DIM)
            store_rows(dy, dV, batch, head, start, end, dv, ROWS, DV)
        add_queries(
            Q, O, dO, den, variance, state_at, weights, coordinates, scale, batch, head, tile, end, n, cut,
            TILE,
        )  # fmt: skip
