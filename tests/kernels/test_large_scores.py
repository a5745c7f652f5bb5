"""Scores above 10³⁰ are scores like any other: in every way of running, the gradients are those of one key
that takes all the weight.
"""

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from torch.nn.functional import scaled_dot_product_attention

from iocourse.kernels import attention, attention_varlen, tiled_mask, using
from iocourse.kernels.host.choices import SLICED, WHOLE

N_K, SEEN = 16, 3  # keys, and the one with the largest score
SMALL = dict.fromkeys(WHOLE, (16, 16)) | dict.fromkeys(SLICED, (16, 16, 16))
WAYS = {
    "fused": {"deterministic": False},
    "two-pass": {"deterministic": True},
    "window": {"window": (200, N_K)},
    "slices": {"tile_d": "fused"},
    "materialised": {"tile_d": "materialised"},
    "block mask": {"block": 16},
    "packed": {"packed": True},
}


def run(way, q, k, v):
    options = dict(WAYS[way])
    if options.pop("packed", False):
        cu = [torch.tensor([0, x.shape[2]], dtype=torch.int32) for x in (q, k)]
        return attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), *cu).transpose(0, 1)[None]
    if block := options.pop("block", None):
        blocks = torch.ones(-(-q.shape[2] // block), 1, dtype=torch.bool)
        options["block_mask"] = tiled_mask(blocks, q, k, block=block)
    return attention(q, k, v, **options)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
@pytest.mark.parametrize("tiles", [{}, SMALL], ids=["table", "small"])
@pytest.mark.parametrize("n_q", [20, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_scores_above_ten_to_the_thirty(way, dtype, n_q, tiles):
    large = 1e16
    q, k = torch.full((1, 1, n_q, 1), large), torch.full((1, 1, N_K, 1), large / 10)
    k[0, 0, SEEN] = large
    v = torch.arange(1.0, N_K + 1).reshape(1, 1, N_K, 1)
    leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
    with using(**tiles):
        o = run(way, *leaves)
        dq, dk, dv = torch.autograd.grad(o.sum(), leaves)
    assert (o == SEEN + 1).all()
    assert dv[0, 0, SEEN] == n_q and dv.sum() == n_q
    assert not dq.any() and not dk.any()
    want = torch.autograd.grad(scaled_dot_product_attention(*leaves).sum(), leaves[2])[0]
    assert torch.equal(dv, want)
