"""Memory alignment of a GPU's inputs: rows of multiples of 16 numbers, 16-byte aligned; others are copied.

The interpreter reads any tensor without a copy; here it is made to copy as for a GPU, to check values.
"""

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from compiled_launches import as_reported

from iocourse.kernels import attention_with_lse, using
from iocourse.kernels.host import passes, resources
from iocourse.kernels.jit_helpers import Rows

READABLE = passes.readable


def laid_out(name: str, d: int) -> torch.Tensor:
    x = torch.randn(1, 2, 40, d)
    if name == "rows of all heads":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if name == "next to other columns":
        return torch.randn(1, 2, 40, d + 3)[..., 1 : d + 1]
    return x


@pytest.mark.parametrize("name", ["contiguous", "rows of all heads", "next to other columns"])
@pytest.mark.parametrize("d", [16, 20, 33])
@pytest.mark.parametrize("deterministic", [False, True])
def test_copies_change_no_value_and_no_layout(name, d, deterministic, monkeypatch):
    def everything():
        torch.manual_seed(0)
        q, k, v = (laid_out(name, d).requires_grad_() for _ in range(3))
        with using(forward=(16, 32), fused=(16, 32), queries=(16, 32), keys=(16, 32)):
            o, lse = attention_with_lse(q, k, v, causal=True, deterministic=deterministic)
            gradients = torch.autograd.grad((o * torch.randn(o.shape)).sum() + lse.sum(), (q, k, v))
        return o.detach(), lse.detach(), *gradients

    expected = everything()
    monkeypatch.setattr(passes, "readable", lambda interpreted, *tensors: READABLE(False, *tensors))
    for got, want in zip(everything(), expected, strict=True):
        assert got.shape == want.shape and got.stride() == want.stride()
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_what_lies_well_is_not_copied():
    good = torch.randn(2, 3, 5, 32)
    packed = torch.randn(2, 5, 3, 3, 32).unbind(2)[1].transpose(1, 2)
    for x in (good, packed, good[:, :1], good.expand(2, 3, 5, 32)[:, :, ::2]):
        assert READABLE(False, x)[0] is x
    odd = torch.randn(2, 3, 5, 33)
    for x in (odd, odd[..., :32], odd[..., 1:], good.transpose(2, 3).contiguous().transpose(2, 3)):
        (copy,) = READABLE(False, x)
        assert copy is not x and passes._on_borders(copy) and copy.shape[3] % 16 == 0
        assert torch.equal(copy[..., : x.shape[3]], x) and not copy[..., x.shape[3] :].any()


@pytest.mark.parametrize("d", [33, 72, 100])
def test_launches_for_any_head_size_are_those_of_a_multiple_of_16(d):
    for made in resources.launches(90, d, torch.bfloat16).values():
        strides = [step for argument in made.arguments if isinstance(argument, Rows) for step in argument[1:]]
        assert strides and all(step % 16 == 0 for step in strides)
        (shape,) = (argument for argument in made.arguments if hasattr(argument, "heads"))
        assert shape.d == -(-d // 16) * 16


PRODUCTS = ["forward", "fused", "queries", "keys"]


@pytest.fixture(scope="session")
def of_100():
    """Return the resources of each kernel on sm_90 at d = 100."""
    made = resources.launches(90, 100, torch.bfloat16)
    return dict(zip(PRODUCTS, as_reported([(90, made[kernel]) for kernel in PRODUCTS]), strict=True))


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_a_head_size_of_100_spills_nothing_in_its_loop(of_100, kernel):
    """Unpadded, these spilled 0.4 to 1.4 KB a thread."""
    triton = pytest.importorskip("triton")
    found = of_100[kernel]
    assert found.fits or triton.__version__ != "3.7.1"
    assert found.tensor_core > 0 and found.async_copies > 0
