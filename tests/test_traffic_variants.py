"""Tests of the traffic of block masks, packed sequences and slices of d: the count equals the closed forms,
reads only needed words and is proportional to the tiles.
"""

from itertools import accumulate

import numpy as np
import pytest
import skip_without_interpreter  # noqa: F401
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import masks, traffic
from iocourse.costs.kernel_masks import BlockLists, PackedSequences
from iocourse.costs.kernels import (
    KernelProblem,
    attention_decode,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    scores_backward,
    scores_forward,
    sliced_backward,
    sliced_forward,
)
from iocourse.kernels import (
    attention,
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
    using,
)
from iocourse.kernels.host.checks import band_of, band_parts
from iocourse.kernels.host.choices import SLICED, WHOLE

pytestmark = pytest.mark.timeout(900)  # dozens of interpreted shapes: minutes where the machine is busy

# Arrays whose type is not that of q. S is float32; P and dS have the type of q.
FLOAT32 = ("LSE", "dLSE", "LSE2", "D", "O_sum", "dQ_sum", "dK_sum", "dV_sum", "S")
INT32 = ("order", "spans", "entries", "slots", "cu_q", "cu_k")
WIDTHS = dict.fromkeys((*FLOAT32, *INT32), 4) | {"patterns": 1}
heads = st.sampled_from([(1, 1), (2, 1), (2, 2)])
sizes = st.one_of(st.integers(1, 20), st.integers(21, 75))
short = st.integers(1, 50)
sides = st.one_of(st.none(), st.integers(0, 8), st.integers(0, 80))
bands = st.tuples(
    st.sampled_from([False, True, "lower_right"]), st.one_of(st.none(), st.tuples(sides, sides))
)
types = st.sampled_from([torch.float32, torch.float16])
side_lengths = st.sampled_from([32, 64, 16])
pair = st.tuples(side_lengths, side_lengths)
whole_tiles = st.tuples(*[pair] * len(WHOLE)).map(lambda t: dict(zip(WHOLE, t, strict=True)))
triple = st.tuples(side_lengths, side_lengths, side_lengths)
sliced_tiles = st.tuples(*[triple] * len(SLICED)).map(lambda t: dict(zip(SLICED, t, strict=True)))


def same(ledger, closed, itemsize):
    """Assert that both ledgers have equal words and bytes per array."""
    assert ledger == closed, ledger - closed
    counts = [*closed.reads.items(), *closed.writes.items()]
    assert ledger.bytes == sum(words * WIDTHS.get(name, itemsize) for name, words in counts)


def leaves(dtype, *shapes):
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def loss_of(o, lse, dlse):
    """Return a loss of O only, or also of LSE, which then has a gradient to be read."""
    return o.sum() + torch.where(lse.isinf(), 0.0, lse).sum() if dlse else o.sum()


def backward_form(problem, tiles, deterministic, dlse):
    if deterministic:
        return attention_split_backward(problem, queries=tiles["queries"], keys=tiles["keys"], dlse=dlse)
    BM, BN = tiles["fused"]
    return attention_fused_backward(problem, BM=BM, BN=BN, dlse=dlse)


@settings(max_examples=16)
@given(
    sizes, sizes, st.integers(1, 40), heads, st.sampled_from([1, 2]), st.sampled_from([16, 32]),
    st.sampled_from([0.0, 0.3, 0.6, 1.0]), st.sampled_from(["shared", "heads", "all"]), types, st.booleans(),
    st.booleans(), whole_tiles, st.integers(0, 2**31),
)  # fmt: skip
def test_block_masks(n_q, n_k, d, heads, B, block, density, own, dtype, deterministic, dlse, tiles, seed):
    H, H_kv = heads
    q, k, v = leaves(dtype, (B, H, n_q, d), (B, H_kv, n_k, d), (B, H_kv, n_k, d))
    shape = {"shared": (1, 1), "heads": (1, H), "all": (B, H)}[own]
    blocks = np.random.default_rng(seed).random((*shape, -(-n_q // block), -(-n_k // block))) < density
    pairs = blocks.repeat(block, 2).repeat(block, 3)[:, :, :n_q, :n_k]
    problem = BlockLists(n_q, n_k, d, B=B, H=H, H_kv=H_kv, pairs=pairs)
    mask = tiled_mask(blocks, q, k, block=block)
    with using(**tiles):
        with traffic.count(Q=q, K=k, V=v) as ledger:
            o, lse = attention_with_lse(q, k, v, block_mask=mask, deterministic=deterministic)
        BM, BN = tiles["forward"]
        same(ledger, attention_forward(problem, BM=BM, BN=BN), dtype.itemsize)
        with traffic.count(Q=q, K=k, V=v) as ledger:
            loss_of(o, lse, dlse).backward()
    same(ledger, backward_form(problem, tiles, deterministic, dlse), dtype.itemsize)


length = st.one_of(st.just(0), st.integers(1, 20), st.integers(21, 50))


@settings(max_examples=16)
@given(
    st.lists(st.tuples(length, length), min_size=1, max_size=3), st.integers(1, 40), heads, bands, types,
    st.booleans(), st.booleans(), whole_tiles,
)  # fmt: skip
def test_packed_sequences(lengths, d, heads, band, dtype, deterministic, dlse, tiles):
    H, H_kv = heads
    cu_q, cu_k = (
        torch.tensor([0, *accumulate(pair[side] for pair in lengths)], dtype=torch.int32) for side in (0, 1)
    )
    T_q, T_k = int(cu_q[-1]), int(cu_k[-1])
    q, k, v = leaves(dtype, (T_q, H, d), (T_k, H_kv, d), (T_k, H_kv, d))
    left, right, alignment = band_parts(*band, None, max(T_q, T_k))
    low = None if left is None else -left
    problem = PackedSequences(T_q, T_k, d, low, right, 1, H, H_kv, tuple(lengths), alignment == "lower_right")
    # Launches see heads before rows, so these are the views that have names.
    names = {name: x.transpose(0, 1)[None] for name, x in (("Q", q), ("K", k), ("V", v))}
    with using(**tiles):
        with traffic.count(**names) as ledger:
            o, lse = attention_varlen_with_lse(
                q, k, v, cu_q, cu_k, causal=band[0], window=band[1], deterministic=deterministic
            )
        BM, BN = tiles["forward"]
        same(ledger, attention_forward(problem, BM=BM, BN=BN), dtype.itemsize)
        with traffic.count(**names) as ledger:
            loss_of(o, lse, dlse).backward()
    same(ledger, backward_form(problem, tiles, deterministic, dlse), dtype.itemsize)


@settings(max_examples=many(8, 16))
@given(
    short, short, st.one_of(st.integers(1, 40), st.integers(257, 270)), heads, st.sampled_from([1, 2]), bands,
    types, st.booleans(), sliced_tiles, st.sampled_from(["fused", "materialised"]),
)  # fmt: skip
def test_slices_of_d(n_q, n_k, d, heads, B, band, dtype, dlse, tiles, way):
    H, H_kv = heads
    q, k, v = leaves(dtype, (B, H, n_q, d), (B, H_kv, n_k, d), (B, H_kv, n_k, d))
    problem = KernelProblem(n_q, n_k, d, *band_of(*band, n_q, n_k), B, H, H_kv)
    pairs = {name: tile[:2] for name, tile in tiles.items()}
    if way == "fused":
        BM, BN = pairs["sliced_forward"]
        forward = sliced_forward(problem, BM=BM, BN=BN)
        queries, keys = pairs["sliced_queries"], pairs["sliced_keys"]
        backward = sliced_backward(problem, queries=queries, keys=keys, dlse=dlse)
    else:
        forward = scores_forward(problem, scores=pairs["scores"], averages=tiles["averages"])
        backward = scores_backward(
            problem, weights=pairs["weights"], query_gradients=tiles["query_gradients"],
            key_gradients=tiles["key_gradients"], dlse=dlse,
        )  # fmt: skip
    with using(**tiles):
        with traffic.count(Q=q, K=k, V=v) as ledger:
            o, lse = attention_with_lse(q, k, v, causal=band[0], window=band[1], tile_d=way)
        same(ledger, forward, dtype.itemsize)
        with traffic.count(Q=q, K=k, V=v) as ledger:
            loss_of(o, lse, dlse).backward()
        same(ledger, backward, dtype.itemsize)


def test_decode_reads_each_key_once_for_all_heads_that_share_it():
    q, k, v = torch.randn(1, 6, 1, 40), torch.randn(1, 2, 70, 40), torch.randn(1, 2, 70, 40)
    with traffic.count(Q=q, K=k, V=v) as ledger:
        decode(q, k, v, parts=2)
    parts = ledger.writes["LSE_parts"] // 6
    same(ledger, attention_decode(KernelProblem(1, 70, 40, H=6, H_kv=2), parts=parts), 4)
    assert ledger.reads["K"] == 2 * 70 * 40


# No padding.


def test_a_packed_batch_reads_no_row_that_is_not_there():
    """One tile holds each sequence, so every row of K and V is read once per pass, and no other row."""
    lengths = ((10, 12), (30, 25), (0, 7), (4, 0), (1, 3))
    cu = [
        torch.tensor([0, *accumulate(pair[side] for pair in lengths)], dtype=torch.int32) for side in (0, 1)
    ]
    q, k, v = leaves(torch.float32, (45, 1, 8), (47, 1, 8), (47, 1, 8))
    names = {name: x.transpose(0, 1)[None] for name, x in (("Q", q), ("K", k), ("V", v))}
    with using(**dict.fromkeys(WHOLE, (32, 32))), traffic.count(**names) as ledger:
        o, _ = attention_varlen_with_lse(q, k, v, *cu)
    asked = sum(keys for queries, keys in lengths if queries)  # the keys of (0, 7) are not needed
    assert ledger.reads["Q"] == 45 * 8 and ledger.reads["K"] == ledger.reads["V"] == asked * 8 == 40 * 8
    assert ledger.writes == {"O": 45 * 8, "LSE": 45}
    with using(**dict.fromkeys(WHOLE, (32, 32))), traffic.count(**names) as ledger:
        o.sum().backward()
    answered = sum(queries for queries, keys in lengths if keys)
    assert ledger.reads["Q"] == ledger.reads["dQ_sum"] == answered * 8 == 41 * 8
    assert ledger.reads["K"] == ledger.reads["V"] == 47 * 8  # each program of keys loads its own
    assert ledger.writes["dK"] == ledger.writes["dV"] == 47 * 8

    padded = [torch.zeros(5, 1, max(pair[side] for pair in lengths), 8) for side in (0, 1, 1)]
    with using(forward=(32, 32)), traffic.count(Q=padded[0], K=padded[1], V=padded[2]) as with_padding:
        attention(*padded)
    assert with_padding.reads["K"] == 5 * 25 * 8 > 3 * 40 * 8


# Work by tiles.


def moved(mask, n, d=16):
    q, k, v = leaves(torch.float32, *[(1, 1, n, d)] * 3)
    with using(**dict.fromkeys(WHOLE, (16, 16))):
        with traffic.count(Q=q, K=k, V=v) as forward:
            o = attention(q, k, v, block_mask=tiled_mask(mask, q, k))
        with traffic.count(Q=q, K=k, V=v) as backward:
            o.sum().backward()
    return forward, backward


@pytest.mark.parametrize("own", [1, 2, 4, 8])
def test_work_is_proportional_to_the_tiles_that_are_listed(own):
    """Each row lists `own` of 8 × 8 tiles; K, V and the arrays streamed in the backward pass are as many."""
    rows, columns = np.indices((8, 8))
    forward, backward = moved(torch.from_numpy((columns - rows) % 8 < own), 128)
    tile = 16 * 16
    assert forward.reads["K"] == forward.reads["V"] == 8 * own * tile
    assert forward.reads["entries"] == 8 * own and "patterns" not in forward.reads
    assert backward.reads["Q"] == backward.reads["dQ_sum"] == backward.atomics["dQ_sum"] == 8 * own * tile
    assert backward.reads["entries"] == 8 * own


def test_a_causal_mask_lists_half_the_tiles_and_cuts_the_diagonal():
    forward, _ = moved(masks.Causal(128), 128)
    assert forward.reads["entries"] == 8 * 9 // 2 and forward.reads["slots"] == 8
    assert forward.reads["patterns"] == 8 * 16 * 16
    assert forward.reads["K"] == 36 * 16 * 16


def test_a_mask_that_all_share_costs_no_more_lists():
    """Each head and batch reads the same lists, so their sizes are those of one head."""
    q, k, v = leaves(torch.float32, *[(2, 3, 64, 8)] * 3)
    blocks = torch.eye(4, dtype=torch.bool)
    with using(forward=(16, 16)), traffic.count(Q=q, K=k, V=v) as ledger:
        attention(q, k, v, block_mask=tiled_mask(blocks, q, k))
    assert ledger.reads["entries"] == 6 * 4 and ledger.sizes["entries"] == 4
    assert ledger.sizes["order"] == 4 and ledger.sizes["spans"] == 12
