"""What is known about the exercises of lesson 12: mistakes, other right answers, cheats."""

import torch
import triton
import triton.language as tl
from harness import Mutant, Suite, called, kept_by_shape

from iocourse import kernels
from iocourse.course.checking import OWN, RUNS
from iocourse.kernels.host.dispatch import backward, forward
from iocourse.kernels.host.visible_pairs import Band, VisiblePairs

WORDS = "loads and stores move exactly what the formula says"
WORK = "a kernel does the work"
HEADS = "every head is exact"
CAUSAL = "a causal mask hides what it must"
LOW = "scores near -100 overflow nowhere"
RAGGED = "ragged tiles are exact"
FULL = "float32 is multiplied as float32"


# ---------------------------------------------------------------------- pieces of other right answers
@triton.jit
def addresses(x, head, at, N, d: tl.constexpr, ROWS: tl.constexpr):
    rows = head * N + at + tl.arange(0, ROWS)
    return x + rows[:, None] * d + tl.arange(0, d)[None, :]


@triton.jit
def tile_of(x, head, at, N, d: tl.constexpr, ROWS: tl.constexpr):
    there = (at + tl.arange(0, ROWS))[:, None] < N
    return tl.load(addresses(x, head, at, N, d, ROWS), mask=there, other=0.0)


@triton.jit
def keep_tile(tile, x, head, at, N, d: tl.constexpr, ROWS: tl.constexpr):
    there = (at + tl.arange(0, ROWS))[:, None] < N
    tl.store(addresses(x, head, at, N, d, ROWS), tile, mask=there)


@triton.jit
def words_of(x, head, at, N, other, ROWS: tl.constexpr):
    rows = at + tl.arange(0, ROWS)
    return tl.load(x + head * N + rows, mask=rows < N, other=other)


# ---------------------------------------------------------------------- 12A
D_EXACT = "D is exact"
D_STRIDES = "O and dO may lie in memory in any order of rows and heads"
IN_VAIN = "every program has rows of its own"


@triton.jit
def one_row_kernel(O, o_head, o_row, dO, do_head, do_row, D, N, d: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, d)
    products = tl.load(O + head * o_head + row * o_row + c) * tl.load(dO + head * do_head + row * do_row + c)
    tl.store(D + head * N + row, tl.sum(products, 0))


def a_program_a_row(O, dO, BM=32):
    """No mask, since no row is missing where a program has only one."""
    H, N, d = O.shape
    D = torch.empty((H, N))
    one_row_kernel[(N, H)](O, *O.stride()[:2], dO, *dO.stride()[:2], D, N, d=d)
    return D


@triton.jit
def by_columns_kernel(O, o_head, o_row, dO, do_head, do_row, D, N, d: tl.constexpr, BM: tl.constexpr):
    tiles = tl.cdiv(N, BM)
    head, i = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BM + tl.arange(0, BM)
    total = tl.zeros((BM,), dtype=tl.float32)
    for c in range(d):
        o = tl.load(O + head * o_head + i * o_row + c, mask=i < N, other=0.0)
        total += o * tl.load(dO + head * do_head + i * do_row + c, mask=i < N, other=0.0)
    tl.store(D + head * N + i, total, mask=i < N)


def column_by_column(O, dO, BM=32):
    """One axis of programs, and the sum over columns as a loop."""
    H, N, d = O.shape
    D = torch.zeros((H, N))
    by_columns_kernel[(H * triton.cdiv(N, BM),)](O, *O.stride()[:2], dO, *dO.stride()[:2], D, N, d=d, BM=BM)
    return D


def right_and_zeros(O, dO, BM=32):
    """The first head alone."""
    D = torch.zeros(O.shape[:2])
    one_row_kernel[(O.shape[1], 1)](O, *O.stride()[:2], dO, *dO.stride()[:2], D, O.shape[1], d=O.shape[2])
    return D


def of_copies(O, dO, BM=32):
    """Strides are no trouble in a copy; its words would not be counted."""
    return a_program_a_row(O.contiguous(), dO.contiguous(), BM)


ROWS = Suite(
    id="12A",
    mutants=(
        kept_by_shape(WORK, "my_row_products"),
        Mutant("heads-of-O-in-order", RUNS, ("head * o_head", "head * o_row * N")),
        Mutant("mask-forgotten", RUNS, (", mask=there, other=0.0)  # (BM, d)", ")")),
        Mutant("mask-of-the-store-forgotten", RUNS, (", mask=i < N)", ")")),
        Mutant(
            "steps-exchanged",
            RUNS,
            ("head * o_head + i[:, None] * o_row", "head * o_row + i[:, None] * o_head"),
        ),
        Mutant("d-for-the-step", D_STRIDES, ("i[:, None] * do_row", "i[:, None] * d")),
        Mutant(
            "steps-of-O-for-dO",
            D_STRIDES,
            ("head * do_head + i[:, None] * do_row", "head * N * d + i[:, None] * d"),
        ),
        Mutant("head-forgotten", HEADS, ("D + head * N + i", "D + i"), ("O + head * o_head", "O")),
        Mutant("a-program-a-row-of-tiles", IN_VAIN, ("(triton.cdiv(N, BM), H)", "(N, H)")),
        Mutant("a-program-too-many", IN_VAIN, ("triton.cdiv(N, BM)", "triton.cdiv(N, BM) + 1")),
        Mutant("no-power-of-2-as-given", RUNS, ("BM=32", "BM=31")),
        Mutant("one-too-many-as-given", RUNS, ("BM=32", "BM=33")),
        Mutant("nothing-given", RUNS, ("BM=32", "BM")),
        Mutant("O-twice", D_EXACT, ("tl.sum(do * o, 1)", "tl.sum(o * o, 1)")),
        Mutant("over-rows", RUNS, ("tl.sum(do * o, 1)", "tl.sum(do * o, 0)")),
        Mutant(
            "loaded-twice",
            WORDS,
            (
                "    tl.store(D",
                "    o = tl.load(O + head * o_head + i[:, None] * o_row + c, mask=there)\n    tl.store(D",
            ),
        ),
    ),
    right=(a_program_a_row, column_by_column),
    cheats=(
        (called("by_torch", lambda O, dO, BM=32: (O * dO).sum(2)), OWN),
        (called("zeros_of_D", lambda O, dO, BM=32: torch.zeros(O.shape[:2])), WORK),
        (right_and_zeros, WORK),
        (of_copies, OWN),
    ),
)


# ---------------------------------------------------------------------- 12B
DQ_EXACT = "dQ and D are exact"


@triton.jit
def dq_in_base_two_kernel(
    Q, K, V, O, dO, LSE, D, dQ, N,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """exp2, programs from the last to the first, whole tiles without a mask."""
    tiles = tl.cdiv(N, BM)
    tile, head = tiles - 1 - tl.program_id(0) % tiles, tl.program_id(0) // tiles
    start = tile * BM
    q = tile_of(Q, head, start, N, d, BM)
    do = tile_of(dO, head, start, N, d, BM)
    o = tile_of(O, head, start, N, d, BM)
    products = tl.sum(o * do, 1)
    i = start + tl.arange(0, BM)
    tl.store(D + head * N + i, products, mask=i < N)
    total = words_of(LSE, head, start, N, float("inf"), BM) * 1.4426950408889634
    dq = tl.zeros((BM, d), dtype=tl.float32)
    scale = 1 / tl.sqrt(d * 1.0)
    for at in range(0, tl.minimum(start + BM, N) if CAUSAL else N, BN):
        k = tile_of(K, head, at, N, d, BN)
        v = tile_of(V, head, at, N, d, BN)
        j = at + tl.arange(0, BN)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale * 1.4426950408889634
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (i[:, None] >= j[None, :])
        p = tl.exp2(tl.where(seen, s, float("-inf")) - total[:, None])
        p = tl.where(i[:, None] < N, p, 0.0)
        ds = p * tl.dot(do, tl.trans(v), input_precision="ieee") - p * products[:, None]
        dq += tl.dot(ds * scale, k, input_precision="ieee")
    keep_tile(dq, dQ, head, start, N, d, BM)


def in_base_two(Q, K, V, O, dO, LSE, BM, BN, causal):
    H, N, d = Q.shape
    dQ, D = torch.empty_like(Q), torch.empty_like(LSE)
    dq_in_base_two_kernel[(H * triton.cdiv(N, BM),)](
        Q, K, V, O, dO, LSE, D, dQ, N, d=d, BM=BM, BN=BN, CAUSAL=causal
    )
    return dQ, D


@triton.jit
def dq_of_whole_tiles_kernel(
    Q, K, V, O, dO, LSE, D, dQ, N, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """A while loop, and K loaded as its transpose."""
    base = tl.program_id(1) * N
    i, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, d)
    rows, there = (base + i[:, None]) * d + c[None, :], i[:, None] < N
    do = tl.load(dO + rows, mask=there, other=0.0)
    products = tl.sum(tl.load(O + rows, mask=there, other=0.0) * do, 1)
    tl.store(D + base + i, products, mask=i < N)
    q = tl.load(Q + rows, mask=there, other=0.0) * scale
    total = tl.load(LSE + base + i, mask=i < N, other=float("inf"))
    dq = tl.zeros((BM, d), dtype=tl.float32)
    at = 0
    end = tl.minimum((tl.program_id(0) + 1) * BM, N) if CAUSAL else N
    while at < end:
        j = at + tl.arange(0, BN)
        turned = c[:, None] + (base + j[None, :]) * d  # (d, BN)
        k = tl.load(K + turned, mask=j[None, :] < N, other=0.0)
        v = tl.load(V + turned, mask=j[None, :] < N, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        shown = (j[None, :] < N) & ((i[:, None] >= j[None, :]) | (not CAUSAL))
        p = tl.exp(tl.where(shown, s - total[:, None], float("-inf")))
        ds = p * (tl.dot(do, v, input_precision="ieee") - products[:, None])
        dq += tl.dot(ds, tl.trans(k), input_precision="ieee")
        at += BN
    tl.store(dQ + rows, dq * scale, mask=there)


def with_k_turned(Q, K, V, O, dO, LSE, BM, BN, causal):
    H, N, d = Q.shape
    dQ, D = torch.empty_like(Q), torch.empty_like(LSE)
    dq_of_whole_tiles_kernel[(triton.cdiv(N, BM), H)](
        Q, K, V, O, dO, LSE, D, dQ, N, d**-0.5, d=d, BM=BM, BN=BN, CAUSAL=causal
    )
    return dQ, D


def with_four_axes(*arrays):
    return (x[None] for x in arrays)


def library_dq(Q, K, V, O, dO, LSE, BM, BN, causal):
    """The library's launches, one step below what a user calls."""
    q, k, v, o, do, lse = with_four_axes(Q, K, V, O, dO, LSE)
    seen = VisiblePairs(Band(None, 0 if causal else None))
    return backward(do, None, q, k, v, o, lse, seen, Q.shape[2] ** -0.5, True)[0][0], LSE


def dq_by_torch(Q, K, V, O, dO, LSE, BM, BN, causal):
    S = Q @ K.transpose(1, 2) * Q.shape[2] ** -0.5 - LSE[:, :, None]
    P = S.exp().tril() if causal else S.exp()
    D = (dO * O).sum(2)
    return (P * (dO @ V.transpose(1, 2) - D[:, :, None])) @ K * Q.shape[2] ** -0.5, D


def zeros_of_dq(Q, K, V, O, dO, LSE, BM, BN, causal):
    return torch.zeros_like(Q), torch.zeros_like(LSE)


SEEN = "seen = (j[None, :] < N) & (j[None, :] <= i[:, None]) if CAUSAL else j[None, :] < N"

DQ = Suite(
    id="12B",
    mutants=(
        *(
            Mutant(
                f"hidden-as{low}",
                DQ_EXACT,
                (
                    "p = tl.where(seen, tl.exp(s - L_i[:, None]), 0.0)",
                    f"p = tl.exp(tl.where(seen, s, {low}) - L_i[:, None])",
                ),
            )
            for low in ("-300.0", "-1e5", "-1e9")
        ),
        kept_by_shape(WORK, "my_dq"),
        Mutant("rows-of-16-words", DQ_EXACT, ("[:, None] * d + c", "[:, None] * 16 + c")),
        Mutant("scale-of-16-columns", DQ_EXACT, ("* scale", "* 0.25")),
        Mutant("causal-forgotten", CAUSAL, (SEEN, "seen = j[None, :] < N")),
        Mutant("causal-one-short", CAUSAL, ("j[None, :] <= i[:, None]", "j[None, :] < i[:, None]")),
        Mutant("causal-upside-down", CAUSAL, ("j[None, :] <= i[:, None]", "j[None, :] >= i[:, None]")),
        Mutant(
            "weights-of-missing-keys",
            LOW,
            (
                "p = tl.where(seen, tl.exp(s - L_i[:, None]), 0.0)",
                "p = tl.exp(s - L_i[:, None])\n        p = tl.where(seen, p, 0.0) if CAUSAL else p",
            ),
        ),
        Mutant(
            "mask-of-K-forgotten",
            RUNS,
            ("tl.load(K + columns, mask=j[:, None] < N, other=0.0) ", "tl.load(K + columns) "),
        ),
        Mutant(
            "mask-of-queries-for-keys",
            RUNS,
            (
                "tl.load(V + columns, mask=j[:, None] < N, other=0.0)",
                "tl.load(V + columns, mask=start + tl.arange(0, BN)[:, None] < N, other=0.0)",
            ),
        ),
        Mutant("head-forgotten", HEADS, ("columns = (first + j)", "columns = j")),
        Mutant("scale-forgotten", DQ_EXACT, ('input_precision="ieee") * scale ', 'input_precision="ieee") ')),
        Mutant("factors-of-scores-rounded", FULL, ('tl.trans(k), input_precision="ieee"', "tl.trans(k)")),
        Mutant("factors-of-dQ-rounded", FULL, ('k, dq, input_precision="ieee"', "k, dq")),
        Mutant("scale-twice", DQ_EXACT, ("dq = tl.dot(ds, k", "dq = tl.dot(ds * scale, k")),
        Mutant("L-forgotten", DQ_EXACT, ("tl.exp(s - L_i[:, None])", "tl.exp(s)")),
        Mutant("D-forgotten", DQ_EXACT, ("(dp - D_i[:, None])", "dp")),
        Mutant("V-for-K", DQ_EXACT, ("dq = tl.dot(ds, k,", "dq = tl.dot(ds, v,")),
        Mutant("starts-again", RAGGED, ("dq = tl.dot(ds, k, dq,", "dq = tl.dot(ds, k,")),
        Mutant(
            "all-keys-under-a-causal-mask",
            WORDS,
            ("end = tl.minimum(start + BM, N) if CAUSAL else N", "end = N"),
        ),
        Mutant(
            "Q-again-for-each-tile",
            WORDS,
            (
                "        j = at + tl.arange(0, BN) ",
                ("        q = tl.load(Q + rows, mask=there, other=0.0)\n        j = at + tl.arange(0, BN) "),
            ),
        ),
    ),
    right=(in_base_two, with_k_turned),
    cheats=((library_dq, OWN), (dq_by_torch, OWN), (zeros_of_dq, WORK), (kernels.attention, OWN)),
)


# ---------------------------------------------------------------------- 12C
KV_EXACT = "dK and dV are exact"


@triton.jit
def keys_kernel(
    Q, K, V, dO, LSE, D, dQ, dK, dV, N, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Tiles of scores as (queries, keys), turned where they are factors; the last queries first."""
    tiles = tl.cdiv(N, BN)
    tile, head = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    start = tile * BN
    k = tile_of(K, head, start, N, d, BN)
    v = tile_of(V, head, start, N, d, BN)
    dk, dv = tl.zeros((BN, d), dtype=tl.float32), tl.zeros((BN, d), dtype=tl.float32)
    scale = 1 / tl.sqrt(d * 1.0)
    j = start + tl.arange(0, BN)
    begin = start // BM * BM if CAUSAL else 0
    last = (tl.cdiv(N, BM) - 1) * BM
    for back in range(0, last - begin + 1, BM):
        at = last - back
        i = at + tl.arange(0, BM)
        q = tile_of(Q, head, at, N, d, BM)
        do = tile_of(dO, head, at, N, d, BM)
        total = words_of(LSE, head, at, N, 0.0, BM)
        products = words_of(D, head, at, N, 0.0, BM)
        seen = (i[:, None] < N) & (j[None, :] < N)
        if CAUSAL:
            seen = seen & (i[:, None] >= j[None, :])
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.exp(tl.where(seen, s - total[:, None], float("-inf")))
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - products[:, None]) * scale
        dv += tl.dot(tl.trans(p), do, input_precision="ieee")
        dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
        if SHARE:
            rows = (head * N + i[:, None]) * d + tl.arange(0, d)[None, :]
            tl.atomic_add(dQ + rows, tl.dot(ds, k, input_precision="ieee"), mask=i[:, None] < N)
    keep_tile(dk, dK, head, start, N, d, BN)
    keep_tile(dv, dV, head, start, N, d, BN)


def from_the_last_query(Q, K, V, dO, LSE, D, BM, BN, causal):
    H, N, d = Q.shape
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    keys_kernel[(H * triton.cdiv(N, BN),)](
        Q, K, V, dO, LSE, D, dK, dK, dV, N, d=d, BM=BM, BN=BN, CAUSAL=causal, SHARE=False
    )
    return dK, dV


def head_by_head(Q, K, V, dO, LSE, D, BM, BN, causal):
    """A launch for each head, on views."""
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    N, d = Q.shape[1:]
    for h in range(Q.shape[0]):
        keys_kernel[(triton.cdiv(N, BN),)](
            Q[h], K[h], V[h], dO[h], LSE[h], D[h], dK[h], dK[h], dV[h],
            N, d=d, BM=BM, BN=BN, CAUSAL=causal, SHARE=False,
        )  # fmt: skip
    return dK, dV


def library_keys(Q, K, V, dO, LSE, D, BM, BN, causal):
    q, k, v, do, lse = with_four_axes(Q, K, V, dO, LSE)
    seen = VisiblePairs(Band(None, 0 if causal else None))
    return tuple(x[0] for x in backward(do, None, q, k, v, q, lse, seen, Q.shape[2] ** -0.5, True)[1:])


def keys_by_torch(Q, K, V, dO, LSE, D, BM, BN, causal):
    P = (Q @ K.transpose(1, 2) * Q.shape[2] ** -0.5 - LSE[:, :, None]).exp()
    P = P.tril() if causal else P
    dS = P * (dO @ V.transpose(1, 2) - D[:, :, None])
    return dS.transpose(1, 2) @ Q * Q.shape[2] ** -0.5, P.transpose(1, 2) @ dO


def exchanged(Q, K, V, dO, LSE, D, BM, BN, causal):
    return from_the_last_query(Q, K, V, dO, LSE, D, BM, BN, causal)[::-1]


def zeros_of_keys(Q, K, V, dO, LSE, D, BM, BN, causal):
    return torch.zeros_like(K), torch.zeros_like(V)


SHOWN = "p = tl.where(j[:, None] <= i[None, :], p, 0.0)"

KEYS = Suite(
    id="12C",
    mutants=(
        kept_by_shape(WORK, "my_dk_dv"),
        Mutant("rows-of-16-words", KV_EXACT, ("[:, None] * d + c", "[:, None] * 16 + c")),
        Mutant("scale-of-16-columns", KV_EXACT, ("* scale", "* 0.25")),
        Mutant("causal-forgotten", CAUSAL, (SHOWN, "p = p")),
        Mutant("causal-upside-down", CAUSAL, ("j[:, None] <= i[None, :]", "j[:, None] >= i[None, :]")),
        Mutant(
            "causal-after-dv",
            CAUSAL,
            ("        if CAUSAL:\n            " + SHOWN + "\n", ""),
            (
                "ds = p * (dp",
                "p = tl.where((j[:, None] <= i[None, :]) | (not CAUSAL), p, 0.0)\n        ds = p * (dp",
            ),
        ),
        Mutant("head-forgotten", HEADS, ("rows = (first + i)", "rows = i")),
        Mutant("head-of-L-forgotten", HEADS, ("LSE + first + i", "LSE + i")),
        Mutant(
            "mask-of-Q-forgotten",
            RUNS,
            ("tl.load(Q + rows, mask=i[:, None] < N, other=0.0) ", "tl.load(Q + rows) "),
        ),
        Mutant(
            "mask-of-L-forgotten",
            RUNS,
            ('tl.load(LSE + first + i, mask=i < N, other=float("inf"))', "tl.load(LSE + first + i)"),
        ),
        Mutant("scale-forgotten", KV_EXACT, ('input_precision="ieee") * scale ', 'input_precision="ieee") ')),
        Mutant("factors-rounded", FULL, ('do, dv, input_precision="ieee"', "do, dv")),
        Mutant("scale-twice", KV_EXACT, ("dk = tl.dot(ds, q", "dk = tl.dot(ds * scale, q")),
        Mutant(
            "dS-for-P",
            KV_EXACT,
            ("dv = tl.dot(p, do, dv", "dv = tl.dot(p * (tl.dot(v, tl.trans(do)) - D_i[None, :]), do, dv"),
        ),
        Mutant("D-along-keys", RUNS, ("(dp - D_i[None, :])", "(dp - D_i[:, None])")),
        Mutant("D-forgotten", KV_EXACT, ("(dp - D_i[None, :])", "dp")),
        Mutant(
            "D-of-nobody-not-said",
            RAGGED,
            ("tl.load(D + first + i, mask=i < N, other=0.0)", "tl.load(D + first + i, mask=i < N)"),
        ),
        Mutant("Q-for-dO", KV_EXACT, ("dv = tl.dot(p, do, dv", "dv = tl.dot(p, q, dv")),
        Mutant(
            "all-queries-under-a-causal-mask",
            WORDS,
            ("begin = start // BM * BM if CAUSAL else 0", "begin = 0"),
        ),
        Mutant("begins-at-the-key", WORDS, ("begin = start // BM * BM if", "begin = start if")),
        Mutant(
            "K-again-for-each-tile",
            WORDS,
            (
                "        i = at + tl",
                "        k = tl.load(K + columns, mask=there, other=0.0)\n        i = at + tl",
            ),
        ),
    ),
    right=(from_the_last_query, head_by_head),
    cheats=((library_keys, OWN), (keys_by_torch, OWN), (zeros_of_keys, WORK), (exchanged, KV_EXACT)),
)


# ---------------------------------------------------------------------- 12D
ALL_EXACT = "dQ, dK and dV are exact"
ATOMIC = "dQ is added to atomically"


def other_order(Q, K, V, O, dO, LSE, BM, BN, causal):
    """Scores as (queries, keys), queries from the last to the first; D by a program a row."""
    H, N, d = Q.shape
    D = a_program_a_row(O, dO, BM)
    dQ, dK, dV = torch.zeros_like(Q), torch.empty_like(K), torch.empty_like(V)
    keys_kernel[(H * triton.cdiv(N, BN),)](
        Q, K, V, dO, LSE, D, dQ, dK, dV, N, d=d, BM=BM, BN=BN, CAUSAL=causal, SHARE=True
    )
    return dQ, dK, dV


def other_D(Q, K, V, O, dO, LSE, BM, BN, causal):
    """A launch for each head, D column by column."""
    H, N, d = Q.shape
    D = column_by_column(O, dO, BM)
    dQ, dK, dV = Q.new_zeros(Q.shape), K.new_empty(K.shape), V.new_empty(V.shape)
    for h in range(H):
        keys_kernel[(triton.cdiv(N, BN),)](
            Q[h], K[h], V[h], dO[h], LSE[h], D[h], dQ[h], dK[h], dV[h],
            N, d=d, BM=BM, BN=BN, CAUSAL=causal, SHARE=True,
        )  # fmt: skip
    return dQ, dK, dV


def library_fused(Q, K, V, O, dO, LSE, BM, BN, causal):
    q, k, v, o, do, lse = with_four_axes(Q, K, V, O, dO, LSE)
    seen = VisiblePairs(Band(None, 0 if causal else None))
    return tuple(x[0] for x in backward(do, None, q, k, v, o, lse, seen, Q.shape[2] ** -0.5, False))


def two_sweeps_instead(Q, K, V, O, dO, LSE, BM, BN, causal):
    dQ, D = with_k_turned(Q, K, V, O, dO, LSE, BM, BN, causal)
    return dQ, *from_the_last_query(Q, K, V, dO, LSE, D, BM, BN, causal)


def zeros_of_all(Q, K, V, O, dO, LSE, BM, BN, causal):
    return torch.zeros_like(Q), torch.zeros_like(K), torch.zeros_like(V)


ADD = "tl.atomic_add(dQ + rows, share, mask=i[:, None] < N)"

FUSED = Suite(
    id="12D",
    mutants=(
        kept_by_shape(WORK, "my_fused"),
        Mutant("rows-of-16-words", ALL_EXACT, ("[:, None] * d + c", "[:, None] * 16 + c")),
        Mutant("scale-of-16-columns", ALL_EXACT, ("* scale", "* 0.25")),
        Mutant("stored-not-added", ATOMIC, (ADD, "tl.store(dQ + rows, share, mask=i[:, None] < N)")),
        Mutant("stored-over", ALL_EXACT, (ADD, "tl.store(dQ + rows, share, mask=i[:, None] < N)")),
        Mutant(
            "read-added-written",
            ATOMIC,
            (
                ADD,
                (
                    "share += tl.load(dQ + rows, mask=i[:, None] < N)\n"
                    "        tl.store(dQ + rows, share, mask=i[:, None] < N)"
                ),
            ),
        ),
        Mutant("mask-of-the-addition-forgotten", RUNS, (ADD, "tl.atomic_add(dQ + rows, share)")),
        Mutant("weights-of-missing-keys", LOW, ("if CAUSAL else there", "if CAUSAL else j[:, None] >= 0")),
        Mutant(
            "causal-forgotten", CAUSAL, ("there & (j[:, None] <= i[None, :]) if CAUSAL else there", "there")
        ),
        Mutant(
            "scale-of-dQ-forgotten",
            ALL_EXACT,
            ('k, input_precision="ieee") * scale', 'k, input_precision="ieee")'),
        ),
        Mutant("factors-rounded", FULL, ('tl.trans(ds), k, input_precision="ieee"', "tl.trans(ds), k")),
        Mutant("P-for-dS", ALL_EXACT, ("tl.dot(tl.trans(ds), k", "tl.dot(tl.trans(p), k")),
        Mutant("V-for-K", ALL_EXACT, ("tl.dot(tl.trans(ds), k", "tl.dot(tl.trans(ds), v")),
        Mutant("D-forgotten", ALL_EXACT, ("(dp - D_i[None, :])", "dp")),
        Mutant("head-forgotten", HEADS, ("rows = (first + i)", "rows = i")),
        Mutant(
            "added-twice",
            ATOMIC,
            (
                ADD,
                (
                    "tl.atomic_add(dQ + rows, share / 2, mask=i[:, None] < N)\n"
                    "        tl.atomic_add(dQ + rows, share / 2, mask=i[:, None] < N)"
                ),
            ),
        ),
    ),
    right=(other_order, other_D),
    cheats=(
        (library_fused, OWN),
        (two_sweeps_instead, WORDS),
        (two_sweeps_instead, ATOMIC),
        (zeros_of_all, WORK),
    ),
)


# ---------------------------------------------------------------------- 12E
BOTH_EXACT = "O and the three gradients are exact"
BOTH_WORK = "kernels do the work, forward and backward"
BOTH_CAUSAL = "a causal mask hides what it must, in both passes"
ANY_STRIDES = "dO may have any strides"
KEEPS = "keeps Q, K, V, O and LSE alone"


@triton.jit
def plain_forward_kernel(Q, K, V, O, LSE, N, scale, d: tl.constexpr, ALL: tl.constexpr, CAUSAL: tl.constexpr):
    """One program a head, all queries and all keys in one tile."""
    head = tl.program_id(0)
    i, j = tl.arange(0, ALL)[:, None], tl.arange(0, ALL)[None, :]
    q, k, v = tile_of(Q, head, 0, N, d, ALL), tile_of(K, head, 0, N, d, ALL), tile_of(V, head, 0, N, d, ALL)
    seen = (j < N) & ((j <= i) | (not CAUSAL))
    s = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    m = tl.max(s, 1)
    p = tl.exp(s - m[:, None])
    l = tl.sum(p, 1)
    keep_tile(tl.dot(p, v, input_precision="ieee") / l[:, None], O, head, 0, N, d, ALL)
    rows = tl.arange(0, ALL)
    tl.store(LSE + head * N + rows, m + tl.log(l), mask=rows < N)


def plain_forward(Q, K, V, causal=False):
    H, N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty((H, N))
    size = max(16, triton.next_power_of_2(N))
    plain_forward_kernel[(H,)](Q, K, V, O, LSE, N, d**-0.5, d=d, ALL=size, CAUSAL=causal)
    return O, LSE


class Fused(torch.autograd.Function):
    """The fused pass, O not kept but made again, and a dO that is copied by hand."""

    @staticmethod
    def forward(ctx, Q, K, V, causal):
        O, LSE = plain_forward(Q, K, V, causal)
        ctx.save_for_backward(Q, K, V, LSE)
        ctx.causal = causal
        return O

    @staticmethod
    def backward(ctx, dO):
        Q, K, V, LSE = ctx.saved_tensors
        O, _ = plain_forward(Q, K, V, ctx.causal)
        stored = torch.empty(dO.shape).copy_(dO)
        return *other_order(Q, K, V, O, stored, LSE, 16, 16, ctx.causal), None


class Split(torch.autograd.Function):
    """Context and forward pass apart, as PyTorch's newer style has it."""

    @staticmethod
    def forward(Q, K, V, causal):
        return plain_forward(Q, K, V, causal)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *arrays, ctx.causal = inputs
        ctx.save_for_backward(*arrays, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, dO, _):
        Q, K, V, O, LSE = ctx.saved_tensors
        dO = dO.clone(memory_format=torch.contiguous_format)
        dQ, D = with_k_turned(Q, K, V, O, dO, LSE, 32, 16, ctx.causal)
        return dQ, *from_the_last_query(Q, K, V, dO, LSE, D, 16, 32, ctx.causal), None


def fused_under_autograd(Q, K, V, causal=False):
    return Fused.apply(Q, K, V, causal)


def split_under_autograd(Q, K, V, causal=False):
    return Split.apply(Q, K, V, causal)[0]


def plain_torch(Q, K, V, causal=False):
    S = Q @ K.transpose(1, 2) * Q.shape[2] ** -0.5
    hidden = torch.full(S.shape, float("-inf")).triu(1)
    return ((S + hidden) if causal else S).softmax(2) @ V


class InVain(torch.autograd.Function):
    """Every kernel is launched, and what comes back is torch's."""

    @staticmethod
    def forward(ctx, Q, K, V, causal):
        O, LSE = plain_forward(Q, K, V, causal)
        ctx.save_for_backward(Q, K, V, O, LSE)
        ctx.causal = causal
        return O

    @staticmethod
    def backward(ctx, dO):
        Q, K, V, O, LSE = ctx.saved_tensors
        other_order(Q, K, V, O, dO.contiguous(), LSE, 16, 16, ctx.causal)
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (Q, K, V)]
            return *torch.autograd.grad(plain_torch(*leaves, ctx.causal), leaves, dO), None


class Zeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Q, K, V, causal):
        return torch.zeros_like(Q)

    @staticmethod
    def backward(ctx, dO):
        return torch.zeros_like(dO), torch.zeros_like(dO), torch.zeros_like(dO), None


def library_attention(Q, K, V, causal=False):
    return kernels.attention(Q[None], K[None], V[None], causal=causal)[0]


def library_below_the_face(Q, K, V, causal=False):
    seen = VisiblePairs(Band(None, 0 if causal else None))
    return forward(Q[None], K[None], V[None], seen, Q.shape[2] ** -0.5)[0][0]


SAVE = "ctx.save_for_backward(Q, K, V, O, LSE)"
KEEP_P = "P = Q.new_zeros(Q.shape[0], Q.shape[1], Q.shape[1]); "

AUTOGRAD = Suite(
    id="12E",
    mutants=(
        kept_by_shape(RUNS, "my_kernel_attention"),
        Mutant(
            "kept-in-a-global",
            BOTH_EXACT,
            (SAVE, "global KEPT\n        KEPT = Q, K, V, O, LSE"),
            ("ctx.saved_tensors", "KEPT"),
        ),
        Mutant(
            "kept-by-shape-and-mask",
            BOTH_EXACT,
            ("class MyAttention", "KEPT = {}\n\n\nclass MyAttention"),
            (SAVE, "KEPT[Q.shape, causal] = Q, K, V, O, LSE\n        ctx.shape = Q.shape"),
            ("ctx.saved_tensors", "KEPT[ctx.shape, ctx.causal]"),
        ),
        Mutant("causal-of-the-class", BOTH_EXACT, ("ctx.causal", "MyAttention.causal")),
        Mutant("causal-unless-told", BOTH_EXACT, ("causal=False):", "causal=True):")),
        Mutant("dO-as-it-comes", RUNS, ("dO = dO.contiguous()", "dO = dO")),
        Mutant("dO-of-ones", ANY_STRIDES, ("dO = dO.contiguous()", "dO = torch.ones(dO.shape)")),
        Mutant(
            "P-kept-too",
            KEEPS,
            (SAVE, KEEP_P + "ctx.save_for_backward(Q, K, V, O, LSE, P)"),
            ("Q, K, V, O, LSE = ctx", "Q, K, V, O, LSE, _ = ctx"),
        ),
        Mutant("P-hung-on-ctx", KEEPS, (SAVE, KEEP_P + "ctx.P = P; " + SAVE)),
        Mutant("P-in-a-dictionary", KEEPS, (SAVE, KEEP_P + 'ctx.kept = {"P": [P]}; ' + SAVE)),
        Mutant(
            "D-by-torch",
            OWN,
            ("return dQ, dK, dV, None", "D = (dO * O).sum(2)\n        return dQ, dK, dV, None"),
        ),
        Mutant("LSE-returned-too", RUNS, ("return O\n", "return O, LSE\n")),
        Mutant("causal-forgotten-backward", BOTH_CAUSAL, ("ctx.causal = causal", "ctx.causal = False")),
        Mutant(
            "causal-forgotten-forward",
            BOTH_CAUSAL,
            ("forward_pass(Q, K, V, causal)", "forward_pass(Q, K, V, False)"),
        ),
        Mutant("gradients-exchanged", BOTH_EXACT, ("return dQ, dK, dV, None", "return dQ, dV, dK, None")),
        Mutant("one-gradient-short", RUNS, ("return dQ, dK, dV, None", "return dQ, dK, dV")),
        Mutant("dO-for-O", BOTH_EXACT, ("my_dq(Q, K, V, O, dO,", "my_dq(Q, K, V, dO, dO,")),
        Mutant(
            "zeros-backward",
            BOTH_WORK,
            (
                "dK, dV = my_dk_dv(Q, K, V, dO, LSE, D, causal=ctx.causal)",
                "dK, dV = torch.zeros_like(K), torch.zeros_like(V)",
            ),
        ),
    ),
    right=(fused_under_autograd, split_under_autograd),
    cheats=(
        (plain_torch, OWN),
        (called("kernels_in_vain", lambda Q, K, V, causal=False: InVain.apply(Q, K, V, causal)), OWN),
        (library_attention, OWN),
        (library_below_the_face, OWN),
        (called("zeros_of_O", lambda Q, K, V, causal=False: Zeros.apply(Q, K, V, causal)), BOTH_WORK),
    ),
)

SUITES = (ROWS, DQ, KEYS, FUSED, AUTOGRAD)
