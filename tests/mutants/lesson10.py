"""Lesson 10: alternative correct answers, and wrong answers that no recorded mutant covers."""

import math

import torch
import triton
import triton.language as tl
from harness import Mutant, Suite, as_scratch, empty_round, launched_twice


# ---------------------------------------------------------------------- 10A
def element_by_element(p, q, rows, columns, s0, s1, BM, BN):
    at, mask = [[0] * BN for _ in range(BM)], [[False] * BN for _ in range(BM)]
    for a in range(BM):
        for b in range(BN):
            i, j = p * BM + a, q * BN + b
            mask[a][b] = i < rows and j < columns
            at[a][b] = i * s0 + j * s1 if mask[a][b] else -1
    return at, mask


TILE = Suite(
    "10A",
    right=element_by_element,
    wrong={
        "no operator makes it": (
            Mutant(
                "a-row-more", "masks exactly the lanes that are out of bounds", ("(i < rows)", "(i <= rows)")
            ),
            Mutant(
                "columns-unmasked",
                "masks exactly the lanes that are out of bounds",
                ("(j < columns)", "(j >= 0)"),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 10B
LIES = "stores Y row by row"


@triton.jit
def gathering_kernel(X, Y, rows, columns, s0, s1, BLOCK: tl.constexpr):
    """Fill one contiguous block of Y per program from the addresses of its words in X."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < rows * columns
    tl.store(Y + at, tl.load(X + (at % rows) * s0 + (at // rows) * s1, mask=mask), mask=mask)


def gathered(X, BM, BN):
    Y = torch.empty(X.shape[1], X.shape[0])
    grid = (triton.cdiv(X.numel(), 128),)
    gathering_kernel[grid](X, Y, *X.shape, *X.stride(), BLOCK=128)
    return Y


TRANSPOSE = Suite(
    "10B",
    right=gathered,
    wrong={
        "it has no loop": (empty_round("X", "i", "    tl.store(Y"),),
        "two places that belong together": (
            Mutant(
                "a-copy-that-is-viewed",
                LIES,
                ("X.new_empty(columns, rows)", "X.new_empty(rows, columns).T"),
                ("Y + j[None, :] * rows + i[:, None]", "Y + i[:, None] * columns + j[None, :]"),
            ),
        ),
        "no operator makes it": (
            launched_twice("my_transpose", "each word is read once and written once"),
            as_scratch(
                "X", "tl.store(Y +", "tl.store(X + i[:, None] * s0 + j[None, :] * s1, 2 * tile, mask=mask)"
            ),
        ),
    },
)

# ---------------------------------------------------------------------- 10C
LOW = "is correct for a row far below zero"


@triton.jit
def python_maximum_kernel(X, Y, n, s_x, BLOCK: tl.constexpr):
    """Use Python's max, which Triton supports, and a number that is computed before the launch."""
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


LONG = Suite(
    "10C",
    right=python_maximum,
    wrong={
        "its size": (
            Mutant("starts-at-1e6", LOW, ('m, l = -float("inf")', "m, l = -1e6")),
            Mutant("starts-at-1e30", LOW, ('m, l = -float("inf")', "m, l = -1e30")),
            Mutant("other-is-1e30", LOW, ('other=-float("inf")', "other=-1e30")),
        ),
        "no operator makes it": (
            launched_twice("my_long_softmax", "each word is read at most twice and written once"),
        ),
    },
)


# ---------------------------------------------------------------------- 10D
@triton.jit
def one_number_kernel(A, B, C, m, n, k, a0, a1, b0, b1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Use a grid of one axis, pieces in reverse, and products without tl.dot."""
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


PRODUCT = Suite(
    "10D",
    right=one_axis,
    wrong={
        "no operator makes it": (
            launched_twice("my_product", "moves exactly the words of (10.4)"),
            as_scratch(
                "C",
                "tl.store(C +",
                "tl.store(C + i * n + j, c, mask=(i < m) & (j < n))",
                "moves exactly the words of (10.4)",
            ),
            Mutant(
                "last-product-only",
                "adds up the products of all pieces of k",
                ("c += tl.dot(a, b", "c = tl.dot(a, b"),
            ),
        )
    },
)

SUITES = (TILE, TRANSPOSE, LONG, PRODUCT)
