"""Block masks, packed sequences and slices of d that cannot be: each error names the argument, what came, and
what is allowed.
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
    """A FlexAttention mask, made in the test: the first one takes seconds to import what it needs."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, i, j: j <= i, None, heads, rows, N, device="cpu", BLOCK_SIZE=16)


SIZES = "⌈N / block⌉ each way, with blocks of 16, 32, 64, 128 or 256"
MASKS = [
    (BLOCKS.int(), TypeError, "block_mask is int32; allowed: booleans"),
    (BLOCKS.float(), TypeError, "block_mask is float32; allowed: booleans"),
    (BLOCKS.numpy().astype(int), TypeError, "block_mask is int64; allowed: booleans"),
    ([[1, 0], [0, 1]], TypeError, "block_mask is int64; allowed: booleans"),
    ("causal", TypeError, "block_mask is a str; allowed: booleans for blocks, one of iocourse.masks, Flex"),
    (True, TypeError, "block_mask is a bool; allowed: booleans for blocks"),
    (
        BLOCKS[0],
        ValueError,
        "block_mask has shape (3,); allowed: (rows, columns), (H, rows, columns) or (B, H",
    ),
    (BLOCKS[None, None, None], ValueError, "block_mask has shape (1, 1, 1, 3, 3); allowed: (rows, columns)"),
    (BLOCKS[:2], ValueError, f"block_mask has 2 × 3 blocks for 40 queries and 40 keys; allowed: {SIZES}"),
    (torch.ones(4, 4).bool(), ValueError, f"4 × 4 blocks for 40 queries and 40 keys; allowed: {SIZES}"),
    (torch.ones(N, N).bool(), ValueError, f"40 × 40 blocks for 40 queries and 40 keys; allowed: {SIZES}"),
    (torch.ones(0, 0).bool(), ValueError, f"0 × 0 blocks for 40 queries and 40 keys; allowed: {SIZES}"),
    (torch.ones(1, 1).bool(), ValueError, "allowed: say which: tiled_mask(…, block=) is 64 and 128 and 256"),
    (
        BLOCKS.expand(3, 3, 3),
        ValueError,
        "block_mask is for 1 batches and 3 heads; allowed: 1 or 2, and 1 or 4",
    ),
    (
        BLOCKS.expand(3, 4, 3, 3),
        ValueError,
        "block_mask is for 3 batches and 4 heads; allowed: 1 or 2, and 1",
    ),
    (
        masks.Causal(41),
        ValueError,
        "block_mask is for 41 queries and 41 keys, q has 40 and k 40; allowed: the",
    ),
    (
        lambda: flex(39),
        ValueError,
        "block_mask is for 39 queries and 40 keys, q has 40 and k 40; allowed: the same numbers",
    ),
    (
        lambda: flex(N, heads=3),
        ValueError,
        "block_mask is for 1 batches and 3 heads; allowed: 1 or 2, and 1 or 4",
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
    message = f"block_mask is {came}, expected a TiledMask: write block_mask=tiled_mask(mask, q, k)"
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
        f"the mask's predicate returned {came} for one query and key; expected: a boolean tensor of shape ()"
    )
    says(TypeError, message, tiled_mask, predicate, Q, K)


def test_a_mask_prepared_for_other_sizes():
    mask = tiled_mask(BLOCKS, Q, K)
    other = torch.zeros(1, 1, 41, 8)
    says(
        ValueError,
        "block_mask is for 40 queries and 40 keys, q has 41",
        attention,
        *[other] * 3,
        block_mask=mask,
    )


@pytest.mark.parametrize("block", [24, 8, 512, "16", True])
def test_a_block_size_that_there_is_not(block):
    message = f"block is {block!r}; allowed: None, 16, 32, 64, 128, 256"
    says(ValueError, message, tiled_mask, BLOCKS, Q, K, block=block)


def test_a_block_size_that_does_not_match():
    message = "3 × 3 blocks for 40 queries and 40 keys; allowed: ⌈N / block⌉ each way, with blocks of 32"
    says(ValueError, message, tiled_mask, BLOCKS, Q, K, block=32)


def test_a_mask_on_another_device():
    mask = flex(N).to("meta")
    says(ValueError, "block_mask is on meta, q on cpu; allowed: one device for both", tiled_mask, mask, Q, K)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (1, 1)}, {"causal": 0}], ids=str)
def test_a_mask_and_a_band(options):
    message = "block_mask comes with causal, window or align; allowed: one without the others"
    says(ValueError, message, attention, Q, K, K, block_mask=tiled_mask(BLOCKS, Q, K), **options)


@pytest.mark.parametrize("way", ["fused", "materialised"])
def test_a_mask_and_slices(way):
    message = f"tile_d is {way!r} with a block_mask; allowed with one: None or 'never'"
    mask = tiled_mask(BLOCKS, Q, K)
    says(ValueError, message, attention, Q, K, K, block_mask=mask, tile_d=way)
    o = attention(Q, K, K, block_mask=mask, tile_d="never")
    assert torch.equal(o, attention(Q, K, K, block_mask=mask))


@pytest.mark.parametrize("way", ["whole", "always", True, 0, ""])
def test_a_way_that_there_is_not(way):
    message = f"tile_d is {way!r}; allowed: None, 'never', 'fused' or 'materialised'"
    says(ValueError, message, attention, Q, K, K, tile_d=way)


@pytest.mark.parametrize(
    ("options", "largest"),
    [({"tile_d": "never"}, 512), ({"block_mask": tiled_mask(BLOCKS, Q, K)}, 512)],
    ids=str,
)
def test_heads_too_large_for_whole_rows(options, largest):
    x = torch.zeros(1, 1, N, largest + 1)
    says(ValueError, f"q has head size d = 513; allowed here: 1 to {largest}", attention, x, x, x, **options)


@pytest.mark.parametrize("way", [None, "fused", "materialised"])
def test_heads_too_large_for_anything(way):
    x = torch.zeros(1, 1, 4, 1025)
    says(ValueError, "q has head size d = 1025; allowed: 1 to 1024", attention, x, x, x, tile_d=way)


def test_decode_takes_heads_to_256():
    x = torch.zeros(1, 1, 1, 257)
    says(ValueError, "q has head size d = 257; allowed here: 1 to 256", decode, x, x, x)


# Packed sequences: T_q = 12, T_k = 9.

PQ, PK = torch.zeros(12, 4, 8), torch.zeros(9, 2, 8)


def cu(*numbers, dtype=torch.int32):
    return torch.tensor(numbers, dtype=dtype)


CU_Q, CU_K = cu(0, 5, 12), cu(0, 9, 9)
STARTS = [
    (cu(0, 5, 11), CU_K, ValueError, "cu_q goes from 0 to 11; allowed: from 0 to 12, the rows there are"),
    (CU_Q, cu(0, 9, 10), ValueError, "cu_k goes from 0 to 10; allowed: from 0 to 9, the rows there are"),
    (cu(1, 5, 12), CU_K, ValueError, "cu_q goes from 1 to 12; allowed: from 0 to 12"),
    (CU_Q, cu(-1, 9, 9), ValueError, "cu_k goes from -1 to 9; allowed: from 0 to 9"),
    (cu(0, 7, 5, 12), cu(0, 1, 2, 9), ValueError, "cu_q falls from 7 to 5 at 2; allowed: rising numbers"),
    (cu(0, 7, 8, 12), cu(0, 10, 2, 9), ValueError, "cu_k falls from 10 to 2 at 2; allowed: rising numbers"),
    (cu(0, 12), CU_K, ValueError, "cu_k has 3 numbers, cu_q 2; allowed: as many"),
    (CU_Q.long(), CU_K, TypeError, "cu_q is int64; allowed: an int32 tensor (sequences + 1,)"),
    (CU_Q, CU_K.float(), TypeError, "cu_k is float32; allowed: an int32 tensor (sequences + 1,)"),
    ([0, 5, 12], CU_K, TypeError, "cu_q is a list; allowed: an int32 tensor (sequences + 1,)"),
    (CU_Q, np.array([0, 9, 9]), TypeError, "cu_k is a ndarray; allowed: an int32 tensor"),
    (CU_Q[None], CU_K, ValueError, "cu_q has shape (1, 3); allowed: (sequences + 1,)"),
    (CU_Q, CU_K[:0], ValueError, "cu_k has shape (0,); allowed: (sequences + 1,)"),
    (CU_Q.to("meta"), CU_K, ValueError, "cu_q is on meta, q on cpu; allowed: one device for all"),
]


@pytest.mark.parametrize(("cu_q", "cu_k", "kind", "message"), STARTS, ids=[row[3][:45] for row in STARTS])
def test_starts_of_sequences(cu_q, cu_k, kind, message):
    for call in (attention_varlen, attention_varlen_with_lse):
        says(kind, message, call, PQ, PK, PK, cu_q, cu_k)


TENSORS = [
    (PQ.numpy(), PK, PK, TypeError, "q is a ndarray; allowed: a torch tensor (T, H, d)"),
    (PQ[None], PK, PK, ValueError, "q has shape (1, 12, 4, 8); allowed: three axes (T, H, d)"),
    (PQ, PK[0], PK, ValueError, "k has shape (2, 8); allowed: three axes (T, H, d)"),
    (PQ, PK, None, TypeError, "v is a NoneType; allowed: a torch tensor (T, H, d)"),
    (PQ, PK.half(), PK, TypeError, "k is float16, q is float32; allowed: one type for q, k and v"),
    (*[torch.zeros(9, 2, 513)] * 3, ValueError, "q has head size d = 513; allowed here: 1 to 512"),
    (PQ, *[torch.zeros(9, 3, 8)] * 2, ValueError, "k has 3 heads, q 4; allowed: a number of heads of k"),
]


@pytest.mark.parametrize(("q", "k", "v", "kind", "message"), TENSORS, ids=[row[4][:40] for row in TENSORS])
def test_packed_tensors(q, k, v, kind, message):
    says(kind, message, attention_varlen, q, k, v, CU_Q, CU_K)


@pytest.mark.parametrize("longest", [12, (12,), (12, 9, 1), (-1, 9), (12.0, 9), (True, 9), "12"])
def test_longest(longest):
    message = f"longest is {longest!r}; allowed: None, or (queries, keys) of the longest sequence"
    says(ValueError, message, attention_varlen, PQ, PK, PK, CU_Q, CU_K, longest=longest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": "left"}, "causal is 'left'; allowed: False, True"),
        ({"window": 3}, "window is 3; allowed: None, or a pair (left, right)"),
        ({"scale": float("nan")}, "scale is nan; allowed: None for 1/√d"),
        ({"deterministic": 1}, "deterministic is 1; allowed: None, True or False"),
    ],
)
def test_options_of_packed_sequences(options, message):
    says(ValueError, message, attention_varlen, PQ, PK, PK, CU_Q, CU_K, **options)
