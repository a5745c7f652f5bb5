"""Lesson 10: first kernels. Mistakes students make, other right answers, cheats."""

from iocourse import kernels  # isort: skip  # before triton

import math

import numpy as np
import torch
import triton
import triton.language as tl
from harness import FINITE, Mutant, Suite, called, kept_by_shape

from iocourse.course.checking import OWN, RUNS

WORK = "a kernel does the work"
SLICE = "a slice is read where it lies"

# ---------------------------------------------------------------------- 10A
PARTS = "returns places and mask, a word a lane"
MASK, PLACES = "a lane is on where its element exists", "every element is looked for where it lies"


def element_by_element(p, q, rows, columns, s0, s1, BM, BN):
    at, mask = [[0] * BN for _ in range(BM)], [[False] * BN for _ in range(BM)]
    for a in range(BM):
        for b in range(BN):
            i, j = p * BM + a, q * BN + b
            mask[a][b] = i < rows and j < columns
            at[a][b] = i * s0 + j * s1 if mask[a][b] else -1
    return at, mask


def by_grids(p, q, rows, columns, s0, s1, BM, BN):
    i, j = np.mgrid[p * BM : (p + 1) * BM, q * BN : (q + 1) * BN]
    return s0 * i + s1 * j, np.logical_and(i < rows, j < columns)


def row_by_row(p, q, rows, columns, s0, s1, BM, BN):
    i, j = p * BM + np.arange(BM)[:, None], q * BN + np.arange(BN)[None, :]
    return i * columns + j, (i < rows) & (j < columns)


def places_in_floats(p, q, rows, columns, s0, s1, BM, BN):
    at, mask = by_grids(p, q, rows, columns, s0, s1, BM, BN)
    return at * 1.0, mask


def mask_of_zeros_and_ones(p, q, rows, columns, s0, s1, BM, BN):
    at, mask = by_grids(p, q, rows, columns, s0, s1, BM, BN)
    return at, mask * 1


def only_the_places(p, q, rows, columns, s0, s1, BM, BN):
    return by_grids(p, q, rows, columns, s0, s1, BM, BN)[0]


TILE = Suite(
    id="10A",
    mutants=(
        Mutant("mask-for-wide-matrices", MASK, ("i < rows", "i < min(rows, columns)")),
        Mutant("rows-by-the-lesser-side", PLACES, ("p * BM", "p * min(BM, BN)")),
        Mutant("columns-by-the-larger-side", PLACES, ("q * BN", "q * max(BM, BN)")),
        Mutant("no-stride-of-0", PLACES, ("j * s1", "j * max(1, s1)")),
        Mutant("no-stride-below-0", PLACES, ("i * s0", "i * abs(s0)")),
        Mutant("places-of-16-bits", PLACES, ("i * s0 + j * s1", "(i * s0 + j * s1).astype(np.int16)")),
        Mutant("mask-of-rows-only", MASK, (" & (j < columns)", " & (j >= 0)")),
        Mutant("mask-of-columns-only", MASK, ("(i < rows) & ", "(i >= 0) & ")),
        Mutant("one-too-many", MASK, ("i < rows", "i <= rows")),
        Mutant("either-is-enough", MASK, ("(i < rows) & (", "(i < rows) | (")),
        Mutant("strides-swapped", PLACES, ("i * s0 + j * s1", "i * s1 + j * s0")),
        Mutant("columns-side-by-side", PLACES, ("j * s1", "j")),
        Mutant("programs-swapped", PLACES, ("p * BM", "q * BM"), ("q * BN", "p * BN")),
        Mutant("a-block-apart-forgotten", PLACES, ("p * BM +", "p +")),
        Mutant(
            "places-within-the-tile", PLACES, ("return i * s0", "i, j = i % BM, j % BN\n    return i * s0")
        ),
        Mutant("a-row-of-rows", RUNS, ("np.arange(BM)[:, None]", "np.arange(BM)[None, :]")),
        Mutant("rows-alone", PARTS, ("return i * s0 + j * s1", "return i * s0")),
    ),
    right=(element_by_element, by_grids, mask_of_zeros_and_ones),
    cheats=(
        (row_by_row, PLACES),
        (only_the_places, PARTS),
        (places_in_floats, PARTS),
    ),
)

# ---------------------------------------------------------------------- 10B
TURNED, BOTH = "Y is the transpose of X", "both strides count"
ONCE, LIES = "each word is read once and written once", "Y lies row by row"
IN_VAIN = "every program has words of its own"


@triton.jit
def gathering_kernel(X, Y, rows, columns, s0, s1, BLOCK: tl.constexpr):
    """Each program fills a block of Y, which lies in one piece, from where its words lie in X."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < rows * columns
    tl.store(Y + at, tl.load(X + (at % rows) * s0 + (at // rows) * s1, mask=mask), mask=mask)


def gathered(X, BM, BN):
    Y = torch.empty(X.shape[1], X.shape[0])
    grid = (triton.cdiv(X.numel(), 128),)
    gathering_kernel[grid](X, Y, *X.shape, *X.stride(), BLOCK=128)
    return Y


@triton.jit
def turning_kernel(X, Y, rows, columns, s0, s1, s2, s3, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    tile = tl.trans(tl.load(X + i[:, None] * s0 + j[None, :] * s1, mask=mask, other=7.0))
    tl.store(Y + j[:, None] * s2 + i[None, :] * s3, tile, mask=tl.trans(mask))


def turned(X, BM, BN):
    """The tile itself is turned, and Y is a view of what the caller will see transposed."""
    rows, columns = X.shape
    Y = X.new_zeros((columns, rows))
    grid = (triton.cdiv(columns, BN), triton.cdiv(rows, BM))
    turning_kernel[grid](X, Y, rows, columns, *X.stride(), *Y.stride(), BM=BM, BN=BN)
    return Y


def plain_copy(X, BM, BN):
    Y = X.new_empty(X.shape)
    grid = (triton.cdiv(X.shape[1], BN), triton.cdiv(X.shape[0], BM))
    turning_kernel[grid](X, Y, *X.shape, *X.stride(), *reversed(Y.stride()), BM=BM, BN=BN)
    return Y


def a_plain_copy_viewed(X, BM, BN):
    """Words and values are right, and nothing was turned but the view."""
    return plain_copy(X, BM, BN).T


TRANSPOSE = Suite(
    id="10B",
    mutants=(
        kept_by_shape(TURNED, "my_transpose"),
        Mutant(
            "one-output-for-each-shape",
            RUNS,
            ("def my_transpose(", "KEPT = {}\n\n\ndef my_transpose("),
            ("Y = X.new_empty(columns, rows)", "Y = KEPT.setdefault(X.shape, X.new_empty(columns, rows))"),
        ),
        Mutant(
            "not-turned",
            TURNED,
            ("Y + j[None, :] * rows + i[:, None]", "Y + i[:, None] * columns + j[None, :]"),
        ),
        Mutant("rows-for-columns", RUNS, ("j[None, :] * rows", "j[None, :] * columns")),
        Mutant(
            "strides-swapped",
            RUNS,
            ("i[:, None] * s0 + j[None, :] * s1", "i[:, None] * s1 + j[None, :] * s0"),
        ),
        Mutant("columns-side-by-side", BOTH, ("j[None, :] * s1", "j[None, :]")),
        Mutant("rows-as-long-as-the-matrix", RUNS, ("i[:, None] * s0", "i[:, None] * columns")),
        Mutant("no-mask", RUNS, (", mask=mask", "")),
        Mutant(
            "load-without-mask",
            ONCE,
            (
                "j[None, :] * s1, mask=mask)",
                "j[None, :] * s1 * (j[None, :] < columns) * (i[:, None] < rows))",
            ),
            ("i[:, None] * s0 +", "i[:, None] * s0 * (i[:, None] < rows) +"),
        ),
        Mutant("store-without-mask", RUNS, ("tile, mask=mask)", "tile)")),
        Mutant(
            "mask-of-rows-only",
            TURNED,
            (
                "(i[:, None] < rows) & (j[None, :] < columns)",
                "(i[:, None] < rows) & (j[None, :] < columns - 1)",
            ),
        ),
        Mutant("one-row-of-programs", TURNED, ("triton.cdiv(rows, BM)", "1")),
        Mutant("a-row-of-programs-too-many", IN_VAIN, ("triton.cdiv(rows, BM)", "triton.cdiv(rows, BM) + 1")),
        Mutant(
            "columns-of-programs-for-halves",
            IN_VAIN,
            ("triton.cdiv(columns, BN)", "triton.cdiv(2 * columns, BN)"),
        ),
        Mutant("grid-rounded-down", TURNED, ("triton.cdiv(columns, BN)", "max(1, columns // BN)")),
        Mutant(
            "loaded-twice",
            ONCE,
            (
                "    tl.store(",
                "    tile = tl.load(X + i[:, None] * s0 + j[None, :] * s1, mask=mask)\n    tl.store(",
            ),
        ),
    ),
    right=(gathered, turned),
    cheats=(
        (a_plain_copy_viewed, LIES),
        (called("a_plain_copy_turned_by_torch", lambda X, BM, BN: plain_copy(X, BM, BN).T.contiguous()), OWN),
        (called("strides_made_plain_by_torch", lambda X, BM, BN: turned(X.contiguous(), BM, BN)), OWN),
        (called("by_torch", lambda X, BM, BN: X.T.contiguous()), OWN),
        (called("by_a_view", lambda X, BM, BN: X.T), WORK),
        (called("by_arithmetic", lambda X, BM, BN: torch.eye(X.shape[1]) @ X.T), OWN),
        (called("by_numpy", lambda X, BM, BN: torch.from_numpy(X.numpy().T.copy())), OWN),
    ),
)

# ---------------------------------------------------------------------- 10C
ROW, UNIT = "each row is the softmax of that row", "each row adds up to 1"
RISING, SHORT = "the sum is rescaled when the maximum rises", "lanes that hang over count for nothing"
LARGE = "scores of ±10,000 neither overflow nor vanish"
TWICE = "each number is read twice and written once"
LOW = "a row far below zero is no exception"


@triton.jit
def per_lane_kernel(X, Y, n, s_x, BLOCK: tl.constexpr):
    """Maximum and sum lane by lane, merged at the end; the second pass goes backwards."""
    X += tl.program_id(0) * s_x
    Y += tl.program_id(0) * n
    lanes = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), -1e38, tl.float32)
    l = tl.zeros((BLOCK,), tl.float32)
    pieces = tl.cdiv(n, BLOCK)
    for piece in range(pieces):
        j = piece * BLOCK + lanes
        s = tl.load(X + j, mask=j < n, other=-float("inf"))
        m_new = tl.maximum(m, s)
        l = l * tl.exp(m - m_new) + tl.exp(s - m_new)
        m = m_new
    top = tl.max(m, 0)
    lse = top + tl.log(tl.sum(l * tl.exp(m - top), 0))
    for piece in range(pieces):
        j = (pieces - 1 - piece) * BLOCK + lanes
        tl.store(Y + j, tl.exp(tl.load(X + j, mask=j < n, other=0.0) - lse), mask=j < n)


def per_lane(X, BLOCK):
    Y = torch.zeros(X.shape)
    per_lane_kernel[(X.shape[0],)](X, Y, X.shape[1], X.stride(0), BLOCK=BLOCK)
    return Y


@triton.jit
def two_rows_kernel(X, Y, rows, n, s_x, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A program has two rows."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    m = tl.full((ROWS, 1), -float("inf"), tl.float32)
    l = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)[None, :]
        s = tl.load(X + i * s_x + j, mask=(i < rows) & (j < n), other=-float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1, keep_dims=True))
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - safe) + tl.sum(tl.exp(s - safe), 1, keep_dims=True)
        m = m_new
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)[None, :]
        mask = (i < rows) & (j < n)
        s = tl.load(X + i * s_x + j, mask=mask, other=0.0)
        tl.store(Y + i * n + j, tl.exp(s - m) / tl.where(i < rows, l, 1.0), mask=mask)


def two_rows(X, BLOCK):
    rows, n = X.shape
    Y = X.new_empty(rows, n)
    two_rows_kernel[(triton.cdiv(rows, 2),)](X, Y, rows, n, X.stride(0), ROWS=2, BLOCK=BLOCK)
    return Y


@triton.jit
def python_maximum_kernel(X, Y, n, s_x, BLOCK: tl.constexpr):
    """Python's max of two numbers, which Triton knows, and a number that is worked out before the launch."""
    log2e: tl.constexpr = math.log2(math.e)
    lanes = tl.arange(0, BLOCK)
    X, Y = X + tl.program_id(0) * s_x, Y + tl.program_id(0) * n
    m, l = -float("inf"), 0.0
    for piece in range(tl.cdiv(n, BLOCK)):
        j = piece * BLOCK + lanes
        s = tl.load(X + j, mask=j < n, other=-math.inf)
        top = max(m, tl.max(s, 0))
        l = l * tl.exp2((m - top) * log2e) + tl.sum(tl.exp2((s - top) * log2e), 0)
        m = top
    for piece in range(tl.cdiv(n, BLOCK)):
        j = piece * BLOCK + lanes
        s = tl.load(X + j, mask=j < n)
        tl.store(Y + j, tl.exp2((s - m) * log2e) / l, mask=j < n)


def python_maximum(X, BLOCK):
    Y = X.new_empty(X.shape)
    python_maximum_kernel[(X.shape[0],)](X, Y, X.shape[1], X.stride(0), BLOCK=BLOCK)
    return Y


@triton.jit
def whole_row_kernel(X, Y, n, s_x, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    s = tl.load(X + row * s_x + j, mask=j < n, other=-float("inf"))
    e = tl.exp(s - tl.max(s, 0))
    tl.store(Y + row * n + j, e / tl.sum(e, 0), mask=j < n)


def whole_rows(X, BLOCK):
    """Moves fewer words, by a block as long as the row: there are rows that no block can hold."""
    Y = X.new_empty(X.shape)
    block = triton.next_power_of_2(X.shape[1])
    whole_row_kernel[(X.shape[0],)](X, Y, X.shape[1], X.stride(0), BLOCK=block)
    return Y


def words_by_kernels_values_by_torch(X, BLOCK):
    per_lane(X, BLOCK)
    return torch.softmax(X, dim=1)


LONG = Suite(
    id="10C",
    mutants=(
        kept_by_shape(ROW, "my_long_softmax"),
        Mutant("not-rescaled", RISING, ("l * tl.exp(m - m_new) +", "l +")),
        Mutant("rescaled-the-wrong-way", RISING, ("tl.exp(m - m_new)", "tl.exp(m_new - m_new)")),
        Mutant(
            "rescaled-after-adding",
            RISING,
            (
                "l * tl.exp(m - m_new) + tl.sum(tl.exp(s - m_new), axis=0)",
                "(l + tl.sum(tl.exp(s - m_new), axis=0)) * tl.exp(m - m_new)",
            ),
        ),
        Mutant("maximum-of-the-last-piece", ROW, ("tl.maximum(m, tl.max(s, axis=0))", "tl.max(s, axis=0)")),
        Mutant(
            "no-maximum",
            LARGE,
            ("m_new = tl.maximum(m, tl.max(s, axis=0))", "m_new = tl.max(s, axis=0) * 0.0"),
        ),
        Mutant("zero-for-what-hangs-over", SHORT, (', other=-float("inf")', ", other=0.0")),
        Mutant("not-divided", UNIT, (" / l,", ",")),
        Mutant("sum-of-the-last-piece", ROW, ("l = l * tl.exp(m - m_new) + ", "l = ")),
        Mutant("rows-of-X-as-long-as-they-are-apart", SLICE, ("row * s_x", "row * n")),
        Mutant("Y-as-X-lies", RUNS, ("Y + row * n", "Y + row * s_x")),
        Mutant("no-mask", RUNS, (", mask=j < n", ", mask=j < n + BLOCK")),
        Mutant(
            "three-passes",
            TWICE,
            ("tl.exp(s - m) / l", "tl.exp(tl.load(X + row * s_x + j, mask=j < n) - m) / l"),
        ),
        Mutant("rows-forgotten", ROW, ("[(rows,)]", "[(1,)]")),
        *(Mutant(f"starts-at{x}", LOW, ('m, l = -float("inf")', f"m, l = {x}")) for x in FINITE),
        *(Mutant(f"hangs-over-as{x}", LOW, ('-float("inf"))', f"{x})")) for x in FINITE[1:]),
        Mutant("maximum-by-numpy", RUNS, ("tl.maximum(m,", "np.maximum(m,")),
        Mutant(
            "no-maximum-below-0",
            LOW,
            ("tl.maximum(m, tl.max(s, axis=0))", "tl.maximum(tl.max(s, axis=0), 0.0)"),
        ),
    ),
    right=(per_lane, two_rows, python_maximum),
    cheats=(
        (whole_rows, RUNS),
        (called("softmax_by_torch", lambda X, BLOCK: torch.softmax(X, dim=1)), OWN),
        (words_by_kernels_values_by_torch, OWN),
    ),
)

# ---------------------------------------------------------------------- 10D
EQUAL, DEPTH = "C equals the product", "what hangs over in k adds nothing"
FORMULA = "the words are those of (10.3)"
FULL = "float32 is multiplied as float32"


@triton.jit
def one_number_kernel(A, B, C, m, n, k, a0, a1, b0, b1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Grid of one axis, pieces from the last to the first, products summed without tl.dot."""
    across = tl.cdiv(n, BN)
    i = (tl.program_id(0) // across) * BM + tl.arange(0, BM)
    j = (tl.program_id(0) % across) * BN + tl.arange(0, BN)
    c = tl.zeros((BM, BN), tl.float32)
    pieces = tl.cdiv(k, BK)
    for piece in range(pieces):
        x = (pieces - 1 - piece) * BK + tl.arange(0, BK)
        a = tl.load(
            A + i[:, None] * a0 + x[None, :] * a1, mask=(i < m)[:, None] & (x < k)[None, :], other=0.0
        )
        b = tl.load(
            B + x[:, None] * b0 + j[None, :] * b1, mask=(x < k)[:, None] & (j < n)[None, :], other=0.0
        )
        c += tl.sum(a[:, :, None] * b[None, :, :], 1)
    tl.store(C + i[:, None] * n + j[None, :], c, mask=(i < m)[:, None] & (j < n)[None, :])


def one_axis(A, B, BM, BN, BK):
    (m, k), n = A.shape, B.shape[1]
    C = torch.zeros(m, n)
    grid = (triton.cdiv(m, BM) * triton.cdiv(n, BN),)
    one_number_kernel[grid](A, B, C, m, n, k, *A.stride(), *B.stride(), BM=BM, BN=BN, BK=BK)
    return C


@triton.jit
def adding_kernel(A, B, C, m, n, k, s_a, s_b, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Columns of tiles on the first axis; the tile of sums handed to tl.dot."""
    i = tl.program_id(1) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    c = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        x = start + tl.arange(0, BK)
        a = tl.load(A + i * s_a + x[None, :], mask=(i < m) & (x[None, :] < k), other=0.0)
        b = tl.load(B + x[:, None] * s_b + j, mask=(x[:, None] < k) & (j < n), other=0.0)
        c = tl.dot(a, b, c, input_precision="ieee")
    tl.store(C + i * n + j, c, mask=(i < m) & (j < n))


def columns_first(A, B, BM, BN, BK):
    (m, k), n = A.shape, B.shape[1]
    C = A.new_empty(m, n)
    grid = (triton.cdiv(n, BN), triton.cdiv(m, BM))
    adding_kernel[grid](A, B, C, m, n, k, A.stride(0), B.stride(0), BM=BM, BN=BN, BK=BK)
    return C


def rows_brought_together_by_torch(A, B, BM, BN, BK):
    return columns_first(A.contiguous(), B.contiguous(), BM, BN, BK)


def by_the_library(A, B, BM, BN, BK):
    return kernels.attention(A[None, None], A[None, None], A[None, None])


PRODUCT = Suite(
    id="10D",
    mutants=(
        kept_by_shape(EQUAL, "my_product"),
        Mutant("depth-not-masked", RUNS, (" & (along < k)", ""), ("(down < k) & ", "")),
        Mutant("other-forgotten", DEPTH, (", other=0.0", "")),
        Mutant("ones-for-what-hangs-over", DEPTH, ("other=0.0", "other=1.0")),
        Mutant("only-the-last-piece", EQUAL, ("c += tl.dot", "c = tl.dot")),
        Mutant("same-piece-every-time", EQUAL, ("x = start +", "x =")),
        Mutant("a-piece-too-few", DEPTH, ("range(0, k, BK)", "range(0, k - BK + 1, BK)")),
        Mutant("grid-rounded-down", EQUAL, ("triton.cdiv(n, BN)", "max(1, n // BN)")),
        Mutant(
            "grid-turned",
            EQUAL,
            ("(triton.cdiv(m, BM), triton.cdiv(n, BN))", "(triton.cdiv(n, BN), triton.cdiv(m, BM))"),
        ),
        Mutant("rows-of-A-as-long-as-they-are-apart", SLICE, ("i * s_a", "i * k")),
        Mutant("rows-of-B-as-long-as-they-are-apart", SLICE, ("down * s_b", "down * n")),
        Mutant(
            "stored-within-the-loop",
            FORMULA,
            ('input_precision="ieee")\n    tl.store', 'input_precision="ieee")\n        tl.store'),
        ),
        Mutant("one-program-a-piece", FORMULA, ("triton.cdiv(n, BN))", "triton.cdiv(n, BN), 2)")),
        Mutant(
            "half-precision-sums",
            EQUAL,
            (
                'c += tl.dot(a, b, input_precision="ieee")',
                'c += tl.dot(a, b, input_precision="ieee").to(tl.float16)',
            ),
        ),
        Mutant("store-without-mask", RUNS, (", c, mask=(i < m) & (j < n))", ", c)")),
        Mutant("sums-begin-as-a-number", RUNS, ("tl.zeros((BM, BN), dtype=tl.float32)", "0.0")),
        Mutant("factors-rounded", FULL, (', input_precision="ieee"', "")),
    ),
    right=(one_axis, columns_first),
    cheats=(
        (called("by_smaller_tiles", lambda A, B, BM, BN, BK: columns_first(A, B, BM // 2, BN, BK)), FORMULA),
        (rows_brought_together_by_torch, OWN),
        (called("product_by_torch", lambda A, B, BM, BN, BK: A @ B), OWN),
        (by_the_library, OWN),
    ),
)

SUITES = (TILE, TRANSPOSE, LONG, PRODUCT)
