"""The path of sm_90: tiles that stream past come by tensor descriptor. In the interpreter, against pointers.

The fused backward pass adds to dQ through a descriptor as well, which Triton's interpreter does not know;
that one is compiled only (tests/gpu).
"""

import needs_interpreter  # noqa: F401
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from iocourse import traffic
from iocourse.kernels import attention_with_lse, using
from iocourse.kernels.host import launches as made_by
from iocourse.kernels.host import operators
from iocourse.kernels.host.launches import written_down
from iocourse.kernels.host.visibility import Band, Seen

CAUSAL, WINDOW, FULL = {"causal": "lower_right"}, {"window": (40, 9)}, {}


def transposed(*shape, dtype):
    B, H, N, d = shape
    return torch.randn(B, N, H, d).to(dtype).transpose(1, 2)


@pytest.mark.parametrize("dtype, d", [(torch.float16, 24), (torch.float16, 64), (torch.float32, 20)])
@pytest.mark.parametrize("options", [CAUSAL, WINDOW, FULL], ids=str)
def test_descriptors_change_no_bit(options, dtype, d, monkeypatch):
    torch.manual_seed(0)
    q, do = (transposed(1, 4, 75, d, dtype=dtype) for _ in range(2))
    k, v = (transposed(1, 2, 90, d, dtype=dtype) for _ in range(2))

    def everything():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        with using(forward=(32, 32), queries=(32, 16), keys=(16, 32)), traffic.count() as ledger:
            o, lse = attention_with_lse(*leaves, **options, deterministic=True)
            gradients = torch.autograd.grad(o, leaves, do)
        return ledger, (o, lse, *gradients)

    ledger, by_pointer = everything()
    made = []

    def streamed(*arguments, real=made_by.streamed):
        made.extend(real(*arguments))
        return made[-len(arguments) + 3 :]

    monkeypatch.setattr(made_by, "descriptors_fit", lambda *_: True)
    monkeypatch.setattr(made_by, "streamed", streamed)
    descriptor_ledger, by_descriptor = everything()
    # K and V forward, K and V for dQ, Q and dO for dK and dV, and no dQ to add to.
    assert [isinstance(one, TensorDescriptor) for one in made] == [True] * 6 + [False]
    assert descriptor_ledger == ledger
    for one, other in zip(by_pointer, by_descriptor, strict=True):
        assert torch.equal(one, other)


def descriptors_on(arch, q, k, v, do=None):
    """For each launch on that architecture: does it take descriptors?"""
    do = torch.randn(q.shape, dtype=q.dtype) if do is None else do
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    everything = Seen(Band(None, None))
    with written_down(arch) as launches:
        operators.forward(q, k, v, everything, 1.0, "whole")
        operators.backward(do, None, q, k, v, o, lse, everything, 1.0, False, "whole")
        operators.backward(do, None, q, k, v, o, lse, everything, 1.0, True, "whole")
    assert len(launches) == 5  # forward, D, fused, dQ, dK and dV
    return ["TILE" in one.constants and one.constants["TILE"].DESCRIPTORS for one in launches]


def halves(d=64, n=64):
    return [torch.randn(1, 2, n, d).to(torch.float16) for _ in range(3)]


def test_descriptors_where_the_copy_engine_can():
    q, k, v = halves()
    assert descriptors_on(90, q, k, v) == [True, False, True, True, True]
    assert descriptors_on(100, q, k, v) == [True, False, True, True, True]
    assert descriptors_on(80, q, k, v) == [False] * 5


def test_pointers_where_it_cannot():
    """It reads no row twice, and nothing of an empty tensor."""
    q, k, v = halves()
    one_head_for_all = q[:, :1].expand(q.shape)
    assert descriptors_on(90, q, k, v, do=one_head_for_all) == [True, False, False, True, False]
    q, k, v = halves(n=0)
    assert descriptors_on(90, q, k, v) == [False] * 5


def test_copies_where_borders_were_missing():
    """16-byte borders are what it asks for: a launch gets them by a copy (see test_rows_on_borders)."""
    q, k, v = halves()
    off = torch.cat((k.new_zeros(1), k.flatten()))[1:].view(k.shape)  # starts 2 bytes past a border
    assert not made_by._aligned(off) and not made_by._aligned(halves(d=20)[0])
    assert descriptors_on(90, q, off, v) == [True, False, True, True, True]
    for d in (8, 12, 20):
        assert descriptors_on(90, *halves(d=d)) == [True, False, True, True, True]
