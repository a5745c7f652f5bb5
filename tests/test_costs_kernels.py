"""Tests of closed forms of kernels: launches and passes, block masks, packed sequences and slices of d.

By hand, and tile by tile. Words are held by `test_traffic` and `test_traffic_variants`, pass by pass, against
real launches.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse.costs import kernels
from iocourse.costs.kernel_masks import BlockLists, PackedSequences
from iocourse.costs.kernels import (
    KERNELS,
    SLICED,
    KernelProblem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    kernel_words,
    ledger_bytes,
    row_products,
    scores_forward,
    sliced_forward,
    sum_ledgers,
)
from iocourse.ledger import Ledger


def test_materialising_pays_where_tiles_are_small_beside_d():
    """Rule of lesson 06: S costs N² words once, compared with Nd words of O per tile of keys."""
    p = KernelProblem(4096, 4096, 512)
    small = (
        sliced_forward(p, BM=32, BN=32).total,
        scores_forward(p, scores=(32, 32), averages=(32, 32, 64)).total,
    )
    assert small[1] < small[0]
    large = (
        sliced_forward(p, BM=512, BN=512).total,
        scores_forward(p, scores=(512, 512), averages=(512, 512, 64)).total,
    )
    assert large[0] < large[1]


sizes = st.integers(1, 70)
limits = st.one_of(st.none(), st.integers(-80, 80))
blocks = st.sampled_from([16, 32])
problems = (
    st.builds(KernelProblem, sizes, sizes, st.just(8), limits, limits, st.integers(1, 2), st.just(4))
    .filter(lambda p: p.low is None or p.high is None or p.low <= p.high)
    .flatmap(
        lambda p: st.sampled_from([1, 2, 4]).map(
            lambda H_kv: KernelProblem(*list(vars(p).values())[:7], H_kv)
        )
    )
)


def band(p: KernelProblem):
    distance = np.arange(p.Nk)[None, :] - np.arange(p.Nq)[:, None]
    seen = np.ones((p.Nq, p.Nk), bool)
    seen &= True if p.low is None else distance >= p.low
    seen &= True if p.high is None else distance <= p.high
    return seen


@settings(max_examples=150)
@given(problems, blocks, blocks)
def test_counts_of_rows_tile_by_tile(p, BM, BN):
    """Every count of a band, recomputed from the tiles with a visible pair, which are contiguous."""
    seen = band(p)
    tiles = [
        (i, j, min(BM, p.Nq - i), min(BN, p.Nk - j))
        for i in range(0, p.Nq, BM)
        for j in range(0, p.Nk, BN)
        if seen[i : i + BM, j : j + BN].any()
    ]
    heads, kv_heads = p.B * p.H, p.B * p.H_kv
    assert p.keys_met(BM, BN) == heads * sum(keys for *_, keys in tiles)
    assert p.queries_met(BM, BN) == heads * sum(rows for *_, rows, _ in tiles)
    assert p.rows_again(BM, BN) == heads * sum(rows for *_, rows, _ in tiles)
    assert p.columns_again(BM, BN) == heads * sum(keys for *_, keys in tiles)
    assert p.rows_hit(BM, BN) == heads * sum({i: rows for i, _, rows, _ in tiles}.values())
    assert p.columns_hit(BM, BN) == kv_heads * sum({j: keys for _, j, _, keys in tiles}.values())
    assert p.row_numbers_met(BM, BN) == heads * BM * len(tiles)
    assert p.pairs_met(BM, BN) == p.pairs_met_by_keys(BM, BN) == heads * sum(r * k for *_, r, k in tiles)


@settings(max_examples=60)
@given(problems, blocks, blocks)
def test_a_band_as_a_list_meets_the_same_tiles(p, BM, BN):
    listed = BlockLists(*vars(p).values(), pairs=band(p)[None, None])
    assert listed.keys_met(BM, BN) == p.keys_met(BM, BN)
    assert listed.queries_met(BM, BN) == p.queries_met(BM, BN)
    assert listed.row_numbers_met(BM, BN) == p.row_numbers_met(BM, BN)


def test_a_list_by_hand():
    """3 × 3 tiles of 16, one masked pair in one of them, 40 queries and 40 keys."""
    pairs = np.zeros((1, 1, 40, 40), bool)
    pairs[0, 0, :16, :32] = True
    pairs[0, 0, 3, 20] = False  # cuts the second tile
    pairs[0, 0, 32:, 32:] = True  # the last tile of keys passes the end, and is cut
    p = BlockLists(40, 40, 8, B=2, H=2, H_kv=1, pairs=pairs)
    assert p.keys_met(16, 16) == 4 * (16 + 16 + 8) and p.queries_met(16, 16) == 4 * (16 + 16 + 8)
    lists = {"entries": 4 * 3, "slots": 4 * 2, "patterns": 4 * 2 * 256}
    assert p.rows_extra(16, 16) == {"order": 12, "spans": 36} | lists
    assert p.columns_extra(16, 16) == {"order": 6, "spans": 36} | lists
    forward = attention_forward(p, BM=16, BN=16)
    assert forward.reads == {"Q": 4 * 40 * 8, "K": 160 * 8, "V": 160 * 8, **p.rows_extra(16, 16)}


@pytest.mark.parametrize("lower_right", [False, True])
def test_packed_sequences_are_the_sum_of_their_own(lower_right):
    lengths = ((20, 50), (0, 9), (33, 7))
    p = PackedSequences(53, 66, 8, -9, 0, 1, 4, 2, lengths, lower_right)
    each = [
        KernelProblem(n_q, n_k, 8, -9 + (n_k - n_q) * lower_right, (n_k - n_q) * lower_right, 1, 4, 2)
        for n_q, n_k in lengths
    ]
    assert p.keys_met(16, 32) == sum(one.keys_met(16, 32) for one in each)
    assert p.queries_met(16, 32) == sum(one.queries_met(16, 32) for one in each)
    assert p.row_numbers_met(16, 32) == sum(one.row_numbers_met(16, 32) for one in each)
    assert p.whole_rows(16) == 4 * (32 + 0 + 48)
    # Programs for the longest of three sequences: ⌈33/16⌉ tiles of queries, ⌈50/32⌉ of keys.
    assert p.rows_extra(16, 32) == {"cu_q": 2 * 3 * 4 * 3, "cu_k": 2 * 3 * 4 * 3}
    assert p.columns_extra(16, 32) == {"cu_q": 2 * 3 * 2 * 2, "cu_k": 2 * 3 * 2 * 2}
    backward = attention_fused_backward(p, BM=16, BN=32)
    assert backward.reads["cu_q"] == 2 * 3 * 4 * 2 + 24  # 32 queries per program that computes D
    assert backward.reads["cu_k"] == 24


sides = st.integers(1, 40)
edges = st.one_of(st.none(), st.integers(-50, 50))


@st.composite
def any_band(draw):
    """Strategy: a problem with any band, with or without groups of heads."""
    low, high = draw(edges), draw(edges)
    H_kv, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return KernelProblem(draw(sides), draw(sides), draw(sides), low, high, draw(sides), H_kv * group, H_kv)


@given(any_band(), sides, sides, st.sampled_from([2, 4]))
def test_bytes_of_a_pass_are_those_of_its_kernels(p, BM, BN, itemsize):
    forward, queries, keys, fused = (
        ledger_bytes(kernel_words(kernel, p, BM=BM, BN=BN), itemsize)
        for kernel in ("forward", "queries", "keys", "fused")
    )
    assert ledger_bytes(attention_forward(p, BM=BM, BN=BN), itemsize) == forward
    split = attention_split_backward(p, queries=(BM, BN), keys=(BM, BN))
    assert ledger_bytes(split, itemsize) == queries + keys
    products = ledger_bytes(row_products(p, False, BM, zeros=True), itemsize)
    assert ledger_bytes(attention_fused_backward(p, BM=BM, BN=BN), itemsize) == fused + products


@given(any_band(), sides, sides)
def test_a_pass_of_one_side_is_that_of_its_kernels(p, BM, BN):
    tiles = {"queries": (BM, BN), "keys": (BN, BM)}
    first, second = (attention_split_backward(p, **tiles, needed=needed) for needed in ("q", "kv"))
    assert first == kernel_words("queries", p, BM=BM, BN=BN)
    assert second == sum_ledgers(row_products(p, False, BN), kernel_words("keys", p, BM=BN, BN=BM))
    assert attention_split_backward(p, **tiles, needed="vq") == attention_split_backward(p, **tiles)


@pytest.mark.parametrize("needed", ["", "o", "qq!"])
def test_needed_gradients_are_letters_of_the_inputs(needed):
    message = f"needed must be letters of 'qkv', the inputs that need gradients, got {needed!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        attention_split_backward(KernelProblem(8, 8, 8), queries=(16, 16), keys=(16, 16), needed=needed)


def test_scores_and_sums_have_four_bytes_and_a_pattern_one():
    ledger = Ledger({"Q": 1, "S": 10, "O_sum": 100, "entries": 1000, "patterns": 10_000}, {"P": 100_000})
    assert ledger_bytes(ledger, 2) == 2 + 4 * 1110 + 10_000 + 200_000


def test_the_kernels_are_those_of_the_choices():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from iocourse.kernels.host import choices

    assert (choices.WHOLE, choices.SLICED) == (kernels.WHOLE, SLICED)


@pytest.mark.parametrize(
    ("kernel", "BD", "message"),
    [
        ("flash", None, f"kernel must be one of {', '.join(KERNELS)}, got 'flash'"),
        ("forward", 16, "BD must be None, because its tiles are complete rows, for kernel forward; got 16"),
        ("averages", None, "BD must be the columns of a slice, for kernel averages; got None"),
        ("averages", 0, "BD must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(kernel, BD, message):
    with pytest.raises(ValueError, match=message):
        kernel_words(kernel, KernelProblem(8, 8, 8), BM=16, BN=16, BD=BD)
