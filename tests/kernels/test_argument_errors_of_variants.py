"""Argument errors of block masks, packed sequences and slices of d: each names the argument, the expected
value and the value passed.
"""

import numpy as np
import pytest
import skip_without_interpreter  # noqa: F401
import torch

from iocourse import masks
from iocourse.kernels import (
    attention,
    attention_varlen,
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
)

N = 40
Q, K = torch.zeros(2, 4, N, 8), torch.zeros(2, 2, N, 8)
BLOCKS = torch.ones(3, 3, dtype=torch.bool)  # of 16


def says(kind, message, call, *arguments, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert type(caught.value) is kind
    assert message in str(caught.value), str(caught.value)


def flex(rows, heads=None):
    """Return a FlexAttention mask. Called within tests, because the first call imports for seconds."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, i, j: j <= i, None, heads, rows, N, device="cpu", BLOCK_SIZE=16)


SIZES = "It must have ⌈N / block⌉ each way, with blocks of 16, 32, 64, 128 or 256"
SHAPES = "(rows, columns), (H, rows, columns) or (B, H, rows, columns)"
MASKS = [
    (BLOCKS.int(), TypeError, "block_mask must be booleans, got int32"),
    (BLOCKS.float(), TypeError, "block_mask must be booleans, got float32"),
    (BLOCKS.numpy().astype(int), TypeError, "block_mask must be booleans, got int64"),
    ([[1, 0], [0, 1]], TypeError, "block_mask must be booleans, got int64"),
    (
        "causal",
        TypeError,
        "block_mask must be booleans for blocks, one of iocourse.masks, FlexAttention's BlockMask or a "
        "predicate (b, h, q_idx, kv_idx), got a str",
    ),
    (True, TypeError, "or a predicate (b, h, q_idx, kv_idx), got a bool"),
    (BLOCKS[0], ValueError, f"block_mask must have shape {SHAPES}, got (3,)"),
    (BLOCKS[None, None, None], ValueError, f"block_mask must have shape {SHAPES}, got (1, 1, 1, 3, 3)"),
    (BLOCKS[:2], ValueError, f"block_mask has 2 × 3 blocks for 40 queries and 40 keys. {SIZES}"),
    (torch.ones(4, 4).bool(), ValueError, f"4 × 4 blocks for 40 queries and 40 keys. {SIZES}"),
    (torch.ones(N, N).bool(), ValueError, f"40 × 40 blocks for 40 queries and 40 keys. {SIZES}"),
    (torch.ones(0, 0).bool(), ValueError, f"0 × 0 blocks for 40 queries and 40 keys. {SIZES}"),
    (torch.ones(1, 1).bool(), ValueError, "Several sizes fit, 64 and 128 and 256: pass one as block="),
    (
        BLOCKS.expand(3, 3, 3),
        ValueError,
        "block_mask is for 1 batches and 3 heads, but must be for 1 or 2 batches and 1 or 4 heads",
    ),
    (
        BLOCKS.expand(3, 4, 3, 3),
        ValueError,
        "block_mask is for 3 batches and 4 heads, but must be for 1 or 2 batches and 1 or 4 heads",
    ),
    (
        masks.Causal(41),
        ValueError,
        "block_mask is for 41 queries and 41 keys, but q has 40 and k has 40. Build the mask for these",
    ),
    (
        lambda: flex(39),
        ValueError,
        "block_mask is for 39 queries and 40 keys, but q has 40 and k has 40. Build the mask for these",
    ),
    (
        lambda: flex(N, heads=3),
        ValueError,
        "block_mask is for 1 batches and 3 heads, but must be for 1 or 2 batches and 1 or 4 heads",
    ),
]


@pytest.mark.parametrize(("mask", "kind", "message"), MASKS, ids=[row[2][:50] for row in MASKS])
def test_block_masks(mask, kind, message):
    says(kind, message, tiled_mask, mask() if callable(mask) else mask, Q, K)


@pytest.mark.parametrize(
    ("mask", "came"),
    [
        (lambda: lambda b, h, i, j: j <= i, "a function"),
        (lambda: flex(N), "a BlockMask"),
        (lambda: masks.Causal(N), "a Causal"),
        (lambda: BLOCKS, "a Tensor"),
        (lambda: BLOCKS.numpy(), "a ndarray"),
        (lambda: "causal", "a str"),
        (lambda: False, "a bool"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_attention_takes_only_what_tiled_mask_returns(mask, came):
    message = f"block_mask must be a TiledMask, got {came}. Pass block_mask=tiled_mask(mask, q, k)"
    for call in (attention, attention_with_lse):
        says(TypeError, message, call, Q, K, K, block_mask=mask())


@pytest.mark.parametrize(
    ("predicate", "came"),
    [
        (lambda b, h, i, j: True, "True"),
        (lambda b, h, i, j: j - i, "torch.int64 ()"),
        (lambda b, h, i, j: torch.stack([i, j]) > 3, "torch.bool (2,)"),
    ],
    ids=["bool", "integer", "two"],
)
def test_a_predicate_that_returns_no_boolean(predicate, came):
    message = (
        f"the mask's predicate must return a boolean tensor of shape () for one query and key, got {came}"
    )
    says(TypeError, message, tiled_mask, predicate, Q, K)


def test_a_mask_prepared_for_other_sizes():
    mask = tiled_mask(BLOCKS, Q, K)
    other = torch.zeros(1, 1, 41, 8)
    says(
        ValueError,
        "block_mask is for 40 queries and 40 keys, but q has 41",
        attention,
        *[other] * 3,
        block_mask=mask,
    )


@pytest.mark.parametrize("block", [24, 8, 512, "16", True])
def test_a_block_size_that_there_is_not(block):
    message = f"block must be one of None, 16, 32, 64, 128, 256; got {block!r}"
    says(ValueError, message, tiled_mask, BLOCKS, Q, K, block=block)


def test_a_block_size_that_does_not_match():
    message = "3 × 3 blocks for 40 queries and 40 keys. It must have ⌈N / block⌉ each way, with blocks of 32"
    says(ValueError, message, tiled_mask, BLOCKS, Q, K, block=32)


def test_a_mask_on_another_device():
    mask = flex(N).to("meta")
    says(ValueError, "block_mask must be on the device of q, cpu, got meta", tiled_mask, mask, Q, K)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (1, 1)}, {"causal": 0}], ids=str)
def test_a_mask_and_a_band(options):
    message = (
        "block_mask must be passed without causal, window and align. Include their limits in the mask instead"
    )
    says(ValueError, message, attention, Q, K, K, block_mask=tiled_mask(BLOCKS, Q, K), **options)


@pytest.mark.parametrize("way", ["fused", "materialised"])
def test_a_mask_and_slices(way):
    message = f"tile_d must be None or 'never' with a block_mask, got {way!r}"
    mask = tiled_mask(BLOCKS, Q, K)
    says(ValueError, message, attention, Q, K, K, block_mask=mask, tile_d=way)
    o = attention(Q, K, K, block_mask=mask, tile_d="never")
    assert torch.equal(o, attention(Q, K, K, block_mask=mask))


@pytest.mark.parametrize("way", ["whole", "always", True, 0, ""])
def test_a_way_that_there_is_not(way):
    message = f"tile_d must be None, 'never', 'fused' or 'materialised', got {way!r}"
    says(ValueError, message, attention, Q, K, K, tile_d=way)


@pytest.mark.parametrize(
    ("options", "largest"),
    [({"tile_d": "never"}, 512), ({"block_mask": tiled_mask(BLOCKS, Q, K)}, 512)],
    ids=str,
)
def test_heads_too_large_for_whole_rows(options, largest):
    x = torch.zeros(1, 1, N, largest + 1)
    message = f"q must have head size d from 1 to {largest} here, got d = 513"
    says(ValueError, message, attention, x, x, x, **options)


@pytest.mark.parametrize("way", [None, "fused", "materialised"])
def test_heads_too_large_for_anything(way):
    x = torch.zeros(1, 1, 4, 1025)
    message = "q must have head size d from 1 to 1024, got d = 1025"
    says(ValueError, message, attention, x, x, x, tile_d=way)


def test_decode_takes_heads_to_256():
    x = torch.zeros(1, 1, 1, 257)
    says(ValueError, "q must have head size d from 1 to 256 here, got d = 257", decode, x, x, x)


# Packed sequences: T_q = 12, T_k = 9.

PQ, PK = torch.zeros(12, 4, 8), torch.zeros(9, 2, 8)


def cu(*numbers, dtype=torch.int32):
    return torch.tensor(numbers, dtype=dtype)


CU_Q, CU_K = cu(0, 5, 12), cu(0, 9, 9)
STARTS = [
    (cu(0, 5, 11), CU_K, ValueError, "cu_q goes from 0 to 11, but must go from 0 to 12, the number of rows"),
    (CU_Q, cu(0, 9, 10), ValueError, "cu_k goes from 0 to 10, but must go from 0 to 9, the number of rows"),
    (cu(1, 5, 12), CU_K, ValueError, "cu_q goes from 1 to 12, but must go from 0 to 12"),
    (CU_Q, cu(-1, 9, 9), ValueError, "cu_k goes from -1 to 9, but must go from 0 to 9"),
    (
        cu(0, 7, 5, 12), cu(0, 1, 2, 9), ValueError,
        "cu_q must not decrease, but falls from 7 to 5 at index 2",
    ),
    (
        cu(0, 7, 8, 12), cu(0, 10, 2, 9), ValueError,
        "cu_k must not decrease, but falls from 10 to 2 at index 2",
    ),
    (cu(0, 12), CU_K, ValueError, "cu_k must have as many numbers as cu_q, 2, got 3"),
    (CU_Q.long(), CU_K, TypeError, "cu_q must be an int32 tensor (sequences + 1,), got int64"),
    (CU_Q, CU_K.float(), TypeError, "cu_k must be an int32 tensor (sequences + 1,), got float32"),
    ([0, 5, 12], CU_K, TypeError, "cu_q must be an int32 tensor (sequences + 1,), got a list"),
    (CU_Q, np.array([0, 9, 9]), TypeError, "cu_k must be an int32 tensor (sequences + 1,), got a ndarray"),
    (CU_Q[None], CU_K, ValueError, "cu_q must have shape (sequences + 1,), got (1, 3)"),
    (CU_Q, CU_K[:0], ValueError, "cu_k must have shape (sequences + 1,), got (0,)"),
    (CU_Q.to("meta"), CU_K, ValueError, "cu_q must be on the device of q, cpu, got meta"),
]  # fmt: skip


@pytest.mark.parametrize(("cu_q", "cu_k", "kind", "message"), STARTS, ids=[row[3][:45] for row in STARTS])
def test_starts_of_sequences(cu_q, cu_k, kind, message):
    for call in (attention_varlen, attention_varlen_with_lse):
        says(kind, message, call, PQ, PK, PK, cu_q, cu_k)


TENSORS = [
    (PQ.numpy(), PK, PK, TypeError, "q must be a torch tensor (T, H, d), got a ndarray"),
    (PQ[None], PK, PK, ValueError, "q must have three axes (T, H, d), got shape (1, 12, 4, 8)"),
    (PQ, PK[0], PK, ValueError, "k must have three axes (T, H, d), got shape (2, 8)"),
    (PQ, PK, None, TypeError, "v must be a torch tensor (T, H, d), got a NoneType"),
    (PQ, PK.half(), PK, TypeError, "k must have the type of q, float32, got float16"),
    (
        *[torch.zeros(9, 2, 513)] * 3, ValueError,
        "q must have head size d from 1 to 512 here, got d = 513",
    ),
    (
        PQ, *[torch.zeros(9, 3, 8)] * 2, ValueError,
        "k must have a number of heads that divides that of q, 4, got 3",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("q", "k", "v", "kind", "message"), TENSORS, ids=[row[4][:40] for row in TENSORS])
def test_packed_tensors(q, k, v, kind, message):
    says(kind, message, attention_varlen, q, k, v, CU_Q, CU_K)


@pytest.mark.parametrize("longest", [12, (12,), (12, 9, 1), (-1, 9), (12.0, 9), (True, 9), "12"])
def test_longest(longest):
    message = f"longest must be None, or (queries, keys), bounds of the lengths, got {longest!r}"
    says(ValueError, message, attention_varlen, PQ, PK, PK, CU_Q, CU_K, longest=longest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": "left"}, "causal must be False, True, 'upper_left' or 'lower_right', got 'left'"),
        ({"window": 3}, "window must be None, or a pair (left, right) of integers of at least 0"),
        (
            {"scale": float("nan")},
            "scale must be None for 1/√d, 0, or a number of magnitude 1e-30 to 1e+30, got nan",
        ),
        ({"deterministic": 1}, "deterministic must be None, True or False, got 1"),
    ],
)
def test_options_of_packed_sequences(options, message):
    says(ValueError, message, attention_varlen, PQ, PK, PK, CU_Q, CU_K, **options)
