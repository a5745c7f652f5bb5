"""Attention with a polynomial for the exponential: two passes over the tokens, and a state between them.

    T = w ∘ Σⱼ ψ(kⱼ) [vⱼ, 1]ᵀ        (r, dv + 1)
    [Nᵢ, denᵢ] = (hᵢ ∘ φ(qᵢ))ᵀ T,    Oᵢ = Nᵢ / denᵢ

A feature is a product of G coordinates of its row, named by a table (G, r), where coordinate d is the number
1. Features are made in fast memory and never leave it. A program owns a span of tokens. Where a block of BR
features is all of them, SINGLE, it reads each token once, and its state stays: 4Nd words and the states.

h is 1, or takes each query's own variance of logits into account: see `row_factors`. Products are taken in
float32 whatever the inputs are: sixteen bits would lose what degree 3 or 4 has won.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .pieces import inside, load_row_numbers, load_rows, row_numbers_of, store_rows


class Cut(NamedTuple):
    """Sizes of a launch: heads, r features, d coordinates, dv columns of V, panels of features."""

    heads: int
    r: int
    d: int
    dv: int
    panels: int


class Block(NamedTuple):
    """What a kernel is compiled for: tiles of ROWS tokens by BR features of G coordinates each.

    DX, DV and DIM: widths of a row with its 1, of [V, 1], and of a row of gradients. SINGLE: the block holds
    all features. TRUE_SCALE: h has its factor e^(σ²/2), which cancels where nothing exact is added.
    """

    ROWS: int
    BR: int
    G: int
    DX: int
    DV: int
    DIM: int
    SINGLE: bool
    TRUE_SCALE: bool = False


@triton.jit
def span_place(program, spans, length, heads, n):
    """A program's span of rows, first … stop - 1, and its batch and head; `spans` programs for each pair."""
    span, pair = program % spans, program // spans
    first = span * length
    return first, tl.minimum(first + length, n), pair, pair // heads, pair % heads


@triton.jit
def table_of(coordinates, first, r, TILE: tl.constexpr):
    """The G coordinates of features first … first + BR - 1, G vectors (BR,); coordinate 0 past the last."""
    features = first + tl.arange(0, TILE.BR)
    table = ()
    G: tl.constexpr = TILE.G
    for l in tl.static_range(G):
        one = tl.load(coordinates + l * r + features, mask=features < r, other=0)
        table = table + (one,)  # type: ignore[assignment]  # noqa: RUF005  # Triton knows no (*table, one)
    return table


@triton.jit
def load_shift(shift, pair, d, WIDE: tl.constexpr):
    """What is taken off every key of a head, zeros where that is nothing. (WIDE,)."""
    column = tl.arange(0, WIDE)
    if shift is not None:
        there = tl.load(shift + pair.to(tl.int64) * d + column, mask=column < d, other=0.0)
    else:
        there = tl.zeros((WIDE,), dtype=tl.float32)
    return there


@triton.jit
def point_rows(
    x, shift, scale, batch, head, start, n, d, ROWS: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Rows of scale · (x - shift) in float32, zeros past the last, and 1 in column d. (ROWS, WIDE)."""
    tile = load_rows(x, batch, head, start, n, d, ROWS, WIDE, True, True, False).to(tl.float32)
    # Powers of a large shift, of rows past the last, would not be finite, and nothing times them no number.
    point = tl.where(inside(start, n, d, ROWS, WIDE), (tile - shift) * scale, 0.0)
    return tl.where(tl.arange(0, WIDE)[None, :] == d, 1.0, point)


@triton.jit
def value_rows(v, batch, head, start, n, dv, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """[v, 1] in float32, with zeros for rows that do not exist. (ROWS, WIDE)."""
    tile = load_rows(v, batch, head, start, n, dv, ROWS, WIDE, True, True, False).to(tl.float32)
    one = inside(start, n, dv + 1, ROWS, WIDE) & (tl.arange(0, WIDE)[None, :] == dv)
    return tl.where(one, 1.0, tile)


@triton.jit
def gradient_rows(
    O, dO, den, batch, head, heads, start, stop, n, dv,
    ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """G = [dO, -rowsum(dO ∘ O)] / den, what a loss asks of [N, den]; zeros from `stop` on. (ROWS, WIDE)."""
    o = load_rows(O, batch, head, start, stop, dv, ROWS, WIDE, True, True, False).to(tl.float32)
    do = load_rows(dO, batch, head, start, stop, dv, ROWS, WIDE, True, True, False).to(tl.float32)
    delta = tl.sum(o * do, 1)
    total = load_row_numbers(row_numbers_of(den, batch, head, heads, n, 0, False), start, stop, 0.0, ROWS)
    g = tl.where(tl.arange(0, WIDE)[None, :] == dv, -delta[:, None], do)
    return g * inverse(total)[:, None]


@triton.jit
def inverse(total):
    """1 / total, and 0 where there is nothing to divide by: a query without keys has O = 0."""
    return tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))


@triton.jit
def factors_of(x, table, TILE: tl.constexpr):
    """The G factors of each row's features, a tuple of (ROWS, BR)."""
    factors = ()
    BR: tl.constexpr = TILE.BR
    G: tl.constexpr = TILE.G
    for l in tl.static_range(G):
        columns = tl.broadcast_to(table[l][None, :], (x.shape[0], BR))
        factors = factors + (tl.gather(x, columns, 1),)  # type: ignore[assignment]  # noqa: RUF005
    return factors


@triton.jit
def features_of(x, table, TILE: tl.constexpr):
    """The features of rows x (ROWS, WIDE). (ROWS, BR)."""
    return product_of(factors_of(x, table, TILE), TILE.G)


@triton.jit
def product_of(factors, G: tl.constexpr):
    """The product of G tiles."""
    product = factors[0]
    for l in tl.static_range(1, G):
        product = product * factors[l]
    return product


@triton.jit
def row_factors(variance, table, d, TILE: tl.constexpr):
    """h: the exponential series of -σ²/2, cut after ⌊(G - l)/2⌋ terms for a feature of degree l. (ROWS, BR).

    Times e^(σ²/2) where TRUE_SCALE. variance: σ² of each row (ROWS,).
    """
    ROWS: tl.constexpr = TILE.ROWS
    BR: tl.constexpr = TILE.BR
    G: tl.constexpr = TILE.G
    degree = tl.zeros((BR,), dtype=tl.int32)
    for l in tl.static_range(G):
        degree += (table[l] != d).to(tl.int32)
    terms = (G - degree) // 2
    term = tl.exp(variance * 0.5) if TILE.TRUE_SCALE else tl.full((ROWS,), 1.0, dtype=tl.float32)
    h = tl.broadcast_to(term[:, None], (ROWS, BR))
    for m in tl.static_range(1, G // 2 + 1):
        term = term * variance * (-0.5 / m)
        h += tl.where((terms >= m)[None, :], term[:, None], 0.0)
    return h


@triton.jit
def load_state(state, first, r, width, BR: tl.constexpr, WIDE: tl.constexpr):
    """Rows first … of a state (r, width), with zeros where it ends. (BR, WIDE)."""
    a, c = first + tl.arange(0, BR), tl.arange(0, WIDE)
    there = (a[:, None] < r) & (c[None, :] < width)
    return tl.load(state + a[:, None] * width + c[None, :], mask=there, other=0.0)


@triton.jit
def store_state(tile, state, first, r, width, BR: tl.constexpr, WIDE: tl.constexpr):
    """Write a block of a state."""
    a, c = first + tl.arange(0, BR), tl.arange(0, WIDE)
    there = (a[:, None] < r) & (c[None, :] < width)
    tl.store(state + a[:, None] * width + c[None, :], tile, mask=there)


@triton.jit
def pulled_back(dx, dfeatures, factors, table, TILE: tl.constexpr):
    """dx (ROWS, DIM) plus what the gradient of the features (ROWS, BR) is in the coordinates.

    Coordinate l of a feature gets its gradient times the other coordinates; which column that is, a matrix of
    zeros and ones says.
    """
    column = tl.arange(0, TILE.DIM)
    G: tl.constexpr = TILE.G
    for l in tl.static_range(G):
        part = dfeatures
        for m in tl.static_range(G):
            if m != l:
                part = part * factors[m]
        chosen = (table[l][:, None] == column[None, :]).to(tl.float32)  # (BR, DIM)
        dx = tl.dot(part, chosen, dx, input_precision="ieee")
    return dx


@triton.jit
def load_variance(
    variance, batch, head, heads, start, stop, n, ROWS: tl.constexpr, HAS_VARIANCE: tl.constexpr
):
    """σ² of a tile of queries, or None. (ROWS,)."""
    if HAS_VARIANCE:
        return load_row_numbers(
            row_numbers_of(variance, batch, head, heads, n, 0, False), start, stop, 0.0, ROWS
        )


@triton.jit
def query_features(x, sigma, table, d, TILE: tl.constexpr, HAS_VARIANCE: tl.constexpr):
    """h ∘ φ of a tile of queries. (ROWS, BR)."""
    phi = features_of(x, table, TILE)
    if HAS_VARIANCE:
        phi *= row_factors(sigma, table, d, TILE)
    return phi


@triton.jit
def query_pulled_back(
    dx, x, g, sigma, state, table, d, TILE: tl.constexpr, HAS_VARIANCE: tl.constexpr
):  # fmt: skip
    """dx plus what one block of features adds, and the features themselves, h ∘ φ."""
    factors = factors_of(x, table, TILE)
    phi = product_of(factors, TILE.G)
    dphi = tl.dot(g, tl.trans(state), input_precision="ieee")
    if HAS_VARIANCE:
        h = row_factors(sigma, table, d, TILE)
        dphi *= h
        phi *= h
    return pulled_back(dx, dphi, factors, table, TILE), phi


@triton.jit
def key_pulled_back(dx, dy, x, y, state, table, TILE: tl.constexpr):
    """dx and dy plus what one block of features adds to them."""
    factors = factors_of(x, table, TILE)
    dy = tl.dot(product_of(factors, TILE.G), state, dy, input_precision="ieee")
    dpsi = tl.dot(y, tl.trans(state), input_precision="ieee")
    return pulled_back(dx, dpsi, factors, table, TILE), dy


@triton.jit
def table_and_state(T, coordinates, panel, cut, TILE: tl.constexpr):
    """One block of features: their coordinates, and their rows of a state."""
    table = table_of(coordinates, panel, cut.r, TILE)
    return table, load_state(T, panel, cut.r, cut.dv + 1, TILE.BR, TILE.DV)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def keys_state_kernel(K, V, shift, coordinates, parts, spans, length, n, cut, TILE: tl.constexpr):
    """Each span's Σⱼ ψ(kⱼ) [vⱼ, 1]ᵀ; `panels` · `spans` · B · heads programs, one block of features each.

    parts: (B · heads, spans, r, dv + 1) float32.
    """
    BN: tl.constexpr = TILE.ROWS
    BR: tl.constexpr = TILE.BR
    DV: tl.constexpr = TILE.DV
    program = tl.program_id(0)
    panel, program = program % cut.panels * BR, program // cut.panels
    first, stop, pair, batch, head = span_place(program, spans, length, cut.heads, n)
    table = table_of(coordinates, panel, cut.r, TILE)
    mean = load_shift(shift, pair, cut.d, TILE.DX)
    state = tl.zeros((BR, DV), dtype=tl.float32)
    for start in range(first, stop, BN):
        x = point_rows(K, mean[None, :], 1.0, batch, head, start, stop, cut.d, BN, TILE.DX)
        y = value_rows(V, batch, head, start, stop, cut.dv, BN, DV)
        psi = features_of(x, table, TILE)
        state = tl.dot(tl.trans(psi), y, state, input_precision="ieee")
    width = cut.dv + 1
    store_state(state, parts + program.to(tl.int64) * cut.r * width, panel, cut.r, width, BR, DV)


@triton.jit(do_not_specialize=["spans"])
def sum_kernel(
    parts, weights, state, spans, blocks, r, width, SPANS: tl.constexpr, BR: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """state = w ∘ Σ of the spans' parts, in a fixed order; `blocks` · B · heads programs, BR features each.

    parts: (B · heads, spans, r, width); state: (B · heads, r, width).
    """
    program = tl.program_id(0)
    first, pair = program % blocks * BR, (program // blocks).to(tl.int64)
    a, c, span = first + tl.arange(0, BR), tl.arange(0, WIDE), tl.arange(0, SPANS)
    there = (a[:, None] < r) & (c[None, :] < width)
    total = tl.zeros((BR, WIDE), dtype=tl.float32)
    for some in range(0, spans, SPANS):
        known = (some + span < spans)[:, None, None] & there[None, :, :]
        row = (pair * spans + some + span)[:, None, None] * r + a[None, :, None]
        total += tl.sum(tl.load(parts + row * width + c[None, None, :], mask=known, other=0.0), 0)
    total *= tl.load(weights + a, mask=a < r, other=0.0)[:, None]
    store_state(total, state + pair * r * width, first, r, width, BR, WIDE)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def queries_output_kernel(
    Q, T, coordinates, variance, O, den, scale, spans, length, n, cut, TILE: tl.constexpr
):  # fmt: skip
    """O = N / den and den, (B, heads, n) float32; `spans` · B · heads programs."""
    BM: tl.constexpr = TILE.ROWS
    DV: tl.constexpr = TILE.DV
    HAS_VARIANCE: tl.constexpr = variance is not None
    heads, d, dv = cut.heads, cut.d, cut.dv
    first, stop, pair, batch, head = span_place(tl.program_id(0), spans, length, heads, n)
    T += pair.to(tl.int64) * cut.r * (dv + 1)
    den = row_numbers_of(den, batch, head, heads, n, 0, False)
    if TILE.SINGLE:
        table, state = table_and_state(T, coordinates, 0, cut, TILE)
    for start in range(first, stop, BM):
        x = point_rows(Q, 0.0, scale, batch, head, start, stop, d, BM, TILE.DX)
        sigma = load_variance(variance, batch, head, heads, start, stop, n, BM, HAS_VARIANCE)
        found = tl.zeros((BM, DV), dtype=tl.float32)
        if TILE.SINGLE:
            phi = query_features(x, sigma, table, d, TILE, HAS_VARIANCE)
            found = tl.dot(phi, state, found, input_precision="ieee")
        else:
            for panel in range(0, cut.r, TILE.BR):
                table, state = table_and_state(T, coordinates, panel, cut, TILE)
                phi = query_features(x, sigma, table, d, TILE, HAS_VARIANCE)
                found = tl.dot(phi, state, found, input_precision="ieee")
        total = tl.sum(tl.where(tl.arange(0, DV)[None, :] == dv, found, 0.0), 1)
        store_rows(found * inverse(total)[:, None], O, batch, head, start, stop, dv, BM, DV)
        rows = start + tl.arange(0, BM)
        tl.store(den + rows, total, mask=rows < stop)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def queries_state_kernel(
    Q, O, dO, den, variance, coordinates, parts, scale, spans, length, n, cut, TILE: tl.constexpr
):  # fmt: skip
    """Each span's Σᵢ (hᵢ ∘ φ(qᵢ)) Gᵢᵀ, where one program cannot hold all of it; as `keys_state_kernel`."""
    BM: tl.constexpr = TILE.ROWS
    BR: tl.constexpr = TILE.BR
    DV: tl.constexpr = TILE.DV
    HAS_VARIANCE: tl.constexpr = variance is not None
    heads, d, dv = cut.heads, cut.d, cut.dv
    program = tl.program_id(0)
    panel, program = program % cut.panels * BR, program // cut.panels
    first, stop, _, batch, head = span_place(program, spans, length, heads, n)
    table = table_of(coordinates, panel, cut.r, TILE)
    state = tl.zeros((BR, DV), dtype=tl.float32)
    for start in range(first, stop, BM):
        x = point_rows(Q, 0.0, scale, batch, head, start, stop, d, BM, TILE.DX)
        g = gradient_rows(O, dO, den, batch, head, heads, start, stop, n, dv, BM, DV)
        sigma = load_variance(variance, batch, head, heads, start, stop, n, BM, HAS_VARIANCE)
        phi = query_features(x, sigma, table, d, TILE, HAS_VARIANCE)
        state = tl.dot(tl.trans(phi), g, state, input_precision="ieee")
    store_state(state, parts + program.to(tl.int64) * cut.r * (dv + 1), panel, cut.r, dv + 1, BR, DV)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def queries_gradient_kernel(
    Q, O, dO, den, variance, T, coordinates, parts, dQ, scale, spans, length, n, cut, TILE: tl.constexpr
):  # fmt: skip
    """dQ, and where one block of features is all, SINGLE, each span's Σᵢ (hᵢ ∘ φ(qᵢ)) Gᵢᵀ with it.

    `spans` · B · heads programs; parts: (B · heads, spans, r, dv + 1) float32.
    """
    BM: tl.constexpr = TILE.ROWS
    BR: tl.constexpr = TILE.BR
    DV: tl.constexpr = TILE.DV
    DIM: tl.constexpr = TILE.DIM
    HAS_VARIANCE: tl.constexpr = variance is not None
    heads, r, d, dv = cut.heads, cut.r, cut.d, cut.dv
    program = tl.program_id(0)
    first, stop, pair, batch, head = span_place(program, spans, length, heads, n)
    T += pair.to(tl.int64) * r * (dv + 1)
    if TILE.SINGLE:
        table, state = table_and_state(T, coordinates, 0, cut, TILE)
        asked = tl.zeros((BR, DV), dtype=tl.float32)
    for start in range(first, stop, BM):
        x = point_rows(Q, 0.0, scale, batch, head, start, stop, d, BM, TILE.DX)
        g = gradient_rows(O, dO, den, batch, head, heads, start, stop, n, dv, BM, DV)
        sigma = load_variance(variance, batch, head, heads, start, stop, n, BM, HAS_VARIANCE)
        dx = tl.zeros((BM, DIM), dtype=tl.float32)
        if TILE.SINGLE:
            dx, phi = query_pulled_back(dx, x, g, sigma, state, table, d, TILE, HAS_VARIANCE)
            asked = tl.dot(tl.trans(phi), g, asked, input_precision="ieee")
        else:
            for panel in range(0, r, BR):
                table, state = table_and_state(T, coordinates, panel, cut, TILE)
                dx, _ = query_pulled_back(dx, x, g, sigma, state, table, d, TILE, HAS_VARIANCE)
        store_rows(dx * scale, dQ, batch, head, start, stop, d, BM, DIM)
    if TILE.SINGLE:
        store_state(asked, parts + program.to(tl.int64) * r * (dv + 1), 0, r, dv + 1, BR, DV)


@triton.jit(do_not_specialize=["n", "length", "spans"])
def keys_gradient_kernel(
    K, V, shift, U, coordinates, dK, dV, spans, length, n, cut, TILE: tl.constexpr
):  # fmt: skip
    """dV = ψ(K) U and dK, for U = w ∘ Σᵢ (hᵢ ∘ φ(qᵢ)) Gᵢᵀ; `spans` · B · heads programs."""
    BN: tl.constexpr = TILE.ROWS
    DV: tl.constexpr = TILE.DV
    DIM: tl.constexpr = TILE.DIM
    d, dv = cut.d, cut.dv
    first, stop, pair, batch, head = span_place(tl.program_id(0), spans, length, cut.heads, n)
    U += pair.to(tl.int64) * cut.r * (dv + 1)
    mean = load_shift(shift, pair, d, TILE.DX)
    if TILE.SINGLE:
        table, state = table_and_state(U, coordinates, 0, cut, TILE)
    for start in range(first, stop, BN):
        x = point_rows(K, mean[None, :], 1.0, batch, head, start, stop, d, BN, TILE.DX)
        y = value_rows(V, batch, head, start, stop, dv, BN, DV)
        dx = tl.zeros((BN, DIM), dtype=tl.float32)
        dy = tl.zeros((BN, DV), dtype=tl.float32)
        if TILE.SINGLE:
            dx, dy = key_pulled_back(dx, dy, x, y, state, table, TILE)
        else:
            for panel in range(0, cut.r, TILE.BR):
                table, state = table_and_state(U, coordinates, panel, cut, TILE)
                dx, dy = key_pulled_back(dx, dy, x, y, state, table, TILE)
        store_rows(dx, dK, batch, head, start, stop, d, BN, DIM)
        store_rows(dy, dV, batch, head, start, stop, dv, BN, DV)
