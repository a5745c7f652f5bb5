"""Strides: any of them, in and out, and offsets beyond 2³¹ elements."""

from functools import cache
from itertools import cycle

import pytest
import skip_without_interpreter  # noqa: F401
import torch

from iocourse import traffic
from iocourse.kernels import attention, attention_with_lse, using
from iocourse.kernels.host.choices import WHOLE

SMALL = dict.fromkeys(WHOLE, (32, 16))


def everything(q, k, v, do, *, deterministic=False):
    """O, LSE, dQ, dK, dV at small tiles, dQ bit-equal from run to run only where deterministic."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    with using(**SMALL):
        o, lse = attention_with_lse(
            *leaves, causal="lower_right", window=(40, None), deterministic=deterministic
        )
        return o.detach(), lse.detach(), *torch.autograd.grad(o, leaves, do)


def packed(B, N, H, d):
    """q, k, v as (B, H, N, d) views of one projection's output (B, N, 3, H, d)."""
    return (x.transpose(1, 2) for x in torch.randn(B, N, 3, H, d).unbind(2))


LAYOUTS = {
    "(B, N, H, d) transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "(N, B, H, d) permuted": lambda x: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
    "columns first": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second row": lambda x: torch.stack((x, x + 1), 3).flatten(2, 3)[:, :, ::2],
    "every second column": lambda x: torch.stack((x, x + 1), 4).flatten(3, 4)[..., ::2],
    "one element off the border": lambda x: torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape),
}


@cache
def given_and_found(dtype):
    """q, k, v, dO, contiguous, and what comes of them."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn((2, 2, n, 20), generator=generator).to(dtype) for n in (50, 70, 70, 50)]
    return given, everything(*given, deterministic=True)


@pytest.mark.parametrize(
    ("name", "dtype"), [*zip(LAYOUTS, cycle([torch.float32, torch.bfloat16]), strict=False)], ids=str
)
def test_strides_change_no_bit(name, dtype):
    given, plain = given_and_found(dtype)
    strided = everything(*map(LAYOUTS[name], given), deterministic=True)
    for one, other in zip(plain, strided, strict=True):
        assert torch.equal(one, other)


def test_slices_of_a_packed_projection():
    torch.manual_seed(0)
    q, k, v = packed(2, 50, 2, 24)
    do = torch.randn(2, 2, 50, 24)
    apart = everything(*(x.contiguous() for x in (q, k, v)), do, deterministic=True)
    for one, other in zip(everything(q, k, v, do, deterministic=True), apart, strict=True):
        assert torch.equal(one, other)


def test_a_gradient_reaches_the_projection():
    """The whole way back to the tensor that q, k and v are slices of."""
    torch.manual_seed(0)
    whole = torch.randn(1, 40, 3, 2, 16, requires_grad=True)
    attention(*(x.transpose(1, 2) for x in whole.unbind(2)), deterministic=True).square().sum().backward()
    q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in whole.unbind(2))
    attention(q, k, v, deterministic=True).square().sum().backward()
    assert torch.equal(whole.grad, torch.stack([x.grad.transpose(1, 2) for x in (q, k, v)], 2))


@pytest.mark.parametrize("deterministic", [False, True])
def test_expanded_gradient_of_the_result(deterministic):
    """o.sum() hands back one number with strides 0."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 50, 20) for _ in range(3))
    one = torch.ones(()).expand(q.shape)
    assert one.stride() == (0, 0, 0, 0)
    for got, want in zip(
        everything(q, k, v, one, deterministic=deterministic),
        everything(q, k, v, one.contiguous(), deterministic=deterministic),
        strict=True,
    ):
        assert torch.allclose(got, want, rtol=0, atol=0 if deterministic else 1e-5)


def test_expanded_keys():
    """One head of keys shown to all by strides instead of by GQA: dK comes back summed by autograd."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 50, 20), torch.randn(1, 1, 60, 20), torch.randn(1, 1, 60, 20)
    grouped = [x.clone().requires_grad_() for x in (k, v)]
    expanded = [x.clone().requires_grad_() for x in (k, v)]
    o = attention(q, *grouped, deterministic=True)
    o_expanded = attention(q, *(x.expand(1, 4, 60, 20) for x in expanded), deterministic=True)
    assert torch.equal(o, o_expanded)
    o.square().sum().backward()
    o_expanded.square().sum().backward()
    for one, other in zip(grouped, expanded, strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=1e-5)


def test_the_result_has_the_layout_of_the_queries():
    q, k, v = packed(2, 50, 2, 24)
    o = attention(q, k, v)
    assert o.stride() == torch.empty_like(q).stride()
    assert o.transpose(1, 2).is_contiguous()  # ready for the next projection, no copy


FAR = 2**31  # elements: 4 GB of address space in 16 bits, of which a few pages are touched


def far_apart(x, axis):
    """Return a copy in which the last numbers along one axis are 2³¹ elements or more from the first.

    With length 2 the stride itself exceeds 32 bits; with more, only its product with an index does. Skips the
    test if this much address space cannot be reserved.
    """
    strides = list(torch.empty(x.shape).stride())
    strides[axis] = FAR // (x.shape[axis] - 1) // 16 * 16 + 16
    size = sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True)) + 1
    assert size > FAR
    try:
        there = torch.empty(size, dtype=x.dtype).as_strided(x.shape, strides)
    except RuntimeError as error:
        pytest.skip(f"4 GB of address space are not to be had: {error}")
    return there.copy_(x)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "axis, shape", [(0, (2, 1, 40, 16)), (0, (3, 1, 40, 16)), (1, (1, 3, 40, 16)), (2, (1, 1, 40, 16))]
)
def test_offsets_beyond_32_bits(axis, shape, deterministic):
    torch.manual_seed(0)
    numbers = [torch.randn(shape).to(torch.float16) for _ in range(4)]
    near = everything(*numbers, deterministic=deterministic)
    with traffic.count():  # a wrong address is an error there, and not the end of this process
        far = everything(*(far_apart(x, axis) for x in numbers), deterministic=deterministic)
    for one, other in zip(near, far, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=0 if deterministic else 1e-3)
