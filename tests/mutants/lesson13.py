"""Lesson 13: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite, empty_round, launched_twice

from iocourse.costs.kernels import KernelProblem, attention_forward, sliced_forward

# isort: split
import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
O, LSE = "O equals exact attention", "LSE is the natural logarithm of the row sums"


# ---------------------------------------------------------------------- 13A
def by_closed_forms(tiles, limit, N, d, itemsize):
    """Use the library's ledgers, with the width of each array."""
    best = None
    for tile in tiles:
        if tile["spill_bytes"] or tile["shared_bytes"] > limit:
            continue
        form = sliced_forward if tile["BD"] else attention_forward
        ledger = form(KernelProblem(N, N, d), BM=tile["BM"], BN=tile["BN"])
        ledger.itemsizes = dict.fromkeys("QKVO", itemsize) | {"O_sum": 4, "LSE": 4}
        if best is None or ledger.bytes < best[1]:
            best = tile, ledger.bytes
    return best


CHOICE = Suite(
    "13A",
    right=by_closed_forms,
    wrong={
        "no operator makes it": (
            Mutant(
                "bytes-right-tile-wrong",
                "returns the tile that moves the fewest bytes",
                ("return best, bytes_moved(best)", "return max(good, key=bytes_moved), bytes_moved(best)"),
            ),
            Mutant(
                "tile-right-bytes-wrong",
                "the bytes of slices are exact",
                ("return best, bytes_moved(best)", "return best, max(map(bytes_moved, good))"),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 13B
def sorted_by_kind(pairs, BM, BN):
    """Sort all visited tiles once: by row, then full before partial, then by column."""
    rows, columns = -(-pairs.shape[0] // BM), -(-pairs.shape[1] // BN)
    beyond = ((0, rows * BM - pairs.shape[0]), (0, 0)), ((0, 0), (0, columns * BN - pairs.shape[1]))

    def tiles(queries_beyond):
        full = np.pad(np.pad(pairs, beyond[0], constant_values=queries_beyond), beyond[1])
        return full.reshape(rows, BM, columns, BN).transpose(0, 2, 1, 3)

    if queries := beyond[0][0][1]:
        missing = tiles(False)
        missing[-1, :, BM - queries :] = True
        cut = ~missing.all((2, 3))
    else:
        cut = ~tiles(False).all((2, 3))
    seen = tiles(False)
    row, column = np.nonzero(seen.any((2, 3)))
    place = np.lexsort((column, cut[row, column], row))
    row, column = row[place], column[place]
    is_cut = cut[row, column]
    ends = np.searchsorted(row, np.arange(rows), side="right")
    begins = np.searchsorted(row, np.arange(rows))
    cuts = np.array([np.sum(is_cut[a:b]) for a, b in zip(begins, ends, strict=True)], dtype=int)
    slots = np.cumsum(is_cut) - 1
    spans = np.stack([begins, ends - cuts, ends], axis=1)
    return spans, column, slots, seen[row[is_cut], column[is_cut]], np.argsort(begins - ends)


LISTS = Suite(
    "13B",
    right=sorted_by_kind,
    wrong={
        "no operator makes it": (
            Mutant(
                "columns-in-ascending-order",
                "full blocks are first in their row and have no pattern",
                ("entries += [*plain, *cut]", "entries += sorted([*plain, *cut])"),
            ),
            Mutant(
                "patterns-of-255",
                "the five parts have the lengths that the mask requires",
                ("np.array(patterns, dtype=np.uint8)", "255 * np.array(patterns, dtype=np.uint8)"),
            ),
            Mutant(
                "entries-in-8-bits",
                "the five parts have the lengths that the mask requires",
                ("np.array(entries, dtype=np.int32)", "np.array(entries, dtype=np.int8)"),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 13C
@triton.jit
def one_loop_kernel(
    Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Use one loop with a branch for partial tiles, powers of e, and a finite start."""
    tile = tl.load(order + tl.program_id(0))
    begin, cut, end = tl.load(spans + tile * 3), tl.load(spans + tile * 3 + 1), tl.load(spans + tile * 3 + 2)
    r, c = tl.arange(0, BM), tl.arange(0, d)
    i = tile * BM + r
    q = tl.load(Q + i[:, None] * d + c[None, :], mask=i[:, None] < Nq, other=0.0) * scale
    m = tl.zeros((BM,), dtype=tl.float32) - 1e30
    l = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    step = begin
    while step < end:
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        k = tl.load(K + j[None, :] * d + c[:, None], mask=j[None, :] < Nk, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        if step >= cut:
            places = r[:, None] * BN + tl.arange(0, BN)[None, :]
            seen = tl.load(patterns + tl.load(slots + step) * (BM * BN) + places) > 0
            s = tl.where(seen, s, float("-inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - top[:, None])
        old = tl.exp(m - top)
        v = tl.load(V + j[:, None] * d + c[None, :], mask=j[:, None] < Nk, other=0.0)
        acc = acc * old[:, None] + tl.dot(p, v, input_precision="ieee")
        l, m = l * old + tl.sum(p, 1), top
        step += 1
    blind = l == 0.0
    tl.store(
        O + i[:, None] * d + c[None, :],
        tl.where(blind[:, None], 0.0, acc / tl.where(blind, 1.0, l)[:, None]),
        mask=i[:, None] < Nq,
    )
    tl.store(LSE + i, tl.where(blind, float("-inf"), m + tl.log(tl.where(blind, 1.0, l))), mask=i < Nq)


def in_one_loop(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    Nq, d = Q.shape
    o, lse = torch.empty_like(Q), torch.empty(Nq)
    one_loop_kernel[(len(order),)](
        Q, K, V, o, lse, spans, entries, slots, patterns, order, Nq, K.shape[0], d**-0.5, d=d, BM=BM, BN=BN
    )
    return o, lse


LISTED = Suite(
    "13C",
    right=in_one_loop,
    wrong={
        "its loops end where lists do": (empty_round("Q", "c", "    nothing ="),),
        "no operator makes it": (
            Mutant(
                "order-loaded-and-not-used",
                "programs with more blocks start first",
                (
                    "tl.load(order + tl.program_id(0))",
                    "tl.load(order + tl.program_id(0)) * 0 + tl.program_id(0)",
                ),
            ),
            Mutant(
                "masks-in-full-blocks",
                "computes no mask for full blocks",
                (
                    "acc, m, l = absorb(acc, m, l, q, k, v, scale)",
                    "acc, m, l = absorb(acc, m, l, q, k, v, scale, i[:, None] >= 0 * j)",
                ),
            ),
            launched_twice(
                "my_listed_attention", "moves exactly the words of the closed form, lists included"
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 13D
@triton.jit
def slice_of(x, rows, column, N, d, BD: tl.constexpr):
    c = column + tl.arange(0, BD)
    there = (rows[:, None] < N) & (c[None, :] < d)
    return tl.load(x + rows[:, None] * d + c[None, :], mask=there, other=0.0)


def sums_in_another_layout(Q, K, V, BM, BN, BD):
    """Store the sums in memory of shape (d, N), which is allowed."""
    N, d = Q.shape
    o, sums, lse = torch.empty_like(Q), torch.empty(d, N), torch.empty(N)
    turned_kernel[(triton.cdiv(N, BM),)](Q, K, V, sums, o, lse, N, d, LOG2_E * d**-0.5, BM=BM, BN=BN, BD=BD)
    return o, lse


@triton.jit
def turned_kernel(
    Q, K, V, Sums, O, LSE, N, d, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        s = tl.zeros((BM, BN), dtype=tl.float32)
        for column in range(0, d, BD):
            q, k = slice_of(Q, i, column, N, d, BD), slice_of(K, j, column, N, d, BD)
            s = tl.dot(q, tl.trans(k), s, input_precision="ieee")
        s = tl.where(j[None, :] < N, s * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp2(s - m_new[:, None]), tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        m = m_new
        for column in range(0, d, BD):
            c = column + tl.arange(0, BD)
            there = (i[:, None] < N) & (c[None, :] < d)
            at = Sums + c[None, :] * N + i[:, None]
            share = tl.dot(p, slice_of(V, j, column, N, d, BD), input_precision="ieee")
            n = tl.where(start == 0, 0, N)
            new = share + tl.load(at, mask=there & (i < n)[:, None], other=0.0) * old[:, None]
            n = tl.where(start + BN >= N, 0, N)
            tl.store(at, new, mask=there & (i < n)[:, None])
            tl.store(O + i[:, None] * d + c[None, :], new / l[:, None], mask=there & (i >= n)[:, None])
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


SLICED = Suite(
    "13D",
    right=sums_in_another_layout,
    wrong={
        "two names change together": (
            Mutant(
                "O-as-scratch",
                "keeps partial sums out of the results",
                ("tl.load(O_sum + rows", "tl.load(O + rows"),
                ("tl.store(O_sum + rows", "tl.store(O + rows"),
            ),
        ),
        "no operator makes it": (
            Mutant(
                "slices-of-complete-rows",
                "no tile is larger than BM, BN and BD",
                ("BM=BM, BN=BN, BD=BD)", "BM=BM, BN=BN, BD=triton.next_power_of_2(d))"),
            ),
            launched_twice("my_sliced_attention"),
        ),
    },
)

SUITES = (LISTS, LISTED, CHOICE, SLICED)
