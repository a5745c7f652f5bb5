"""The operators as PyTorch sees them: autograd, fake tensors, torch.compile."""

import needs_interpreter  # noqa: F401
import oracle
import pytest
import torch

from iocourse.kernels import (
    SlicedTiles,
    attention,
    attention_varlen_with_lse,
    attention_with_lse,
    tiled_mask,
    using,
)
from iocourse.kernels.host.tiles import table_for

NO_LISTS, NO_CU = [], []
ONE_SEQUENCE_A_BATCH = (False, -1, -1)


def numbers(dtype=torch.float32, requires_grad=True):
    torch.manual_seed(0)
    return [
        torch.randn(1, h, n, 8, dtype=dtype, requires_grad=requires_grad)
        for h, n in ((2, 20), (1, 30), (1, 30))
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("band", [(None, None), (None, 0), (-5, 10)])
def test_opcheck_forward(band, deterministic, dtype):
    torch.library.opcheck(
        torch.ops.iocourse.attention.default,
        (*numbers(dtype), NO_LISTS, NO_CU, *band, *ONE_SEQUENCE_A_BATCH, 0.3, deterministic, ""),
    )


def test_opcheck_forward_strided():
    q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in numbers())
    torch.library.opcheck(
        torch.ops.iocourse.attention.default,
        (q, k, v, NO_LISTS, NO_CU, None, 0, *ONE_SEQUENCE_A_BATCH, 0.3, False, ""),
    )


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("with_dlse", [False, True])
def test_opcheck_backward(with_dlse, deterministic):
    q, k, v = numbers(requires_grad=False)
    o, lse = attention_with_lse(q, k, v, scale=0.3, causal=True)
    arguments = (torch.randn_like(o), torch.randn_like(lse) if with_dlse else None, q, k, v, o, lse)
    torch.library.opcheck(
        torch.ops.iocourse.attention_backward.default,
        (*arguments, NO_LISTS, NO_CU, None, 0, *ONE_SEQUENCE_A_BATCH, 0.3, deterministic, ""),
    )


@pytest.mark.parametrize("deterministic", [False, True])
def test_compile_in_one_graph(deterministic):
    """fullgraph=True raises at any break; values and gradients are those of the plain call."""

    def loss(q, k, v):
        o, lse = attention_with_lse(q, k, v, causal="lower_right", deterministic=deterministic)
        return o.square().sum() + lse.sum()

    plain, compiled = numbers(), numbers()
    value = loss(*plain)
    value.backward()
    torch._dynamo.reset()
    fast = torch.compile(loss, fullgraph=True, backend="aot_eager")
    fast_value = fast(*compiled)
    fast_value.backward()
    assert torch.allclose(value, fast_value)
    for x, y in zip(plain, compiled, strict=True):
        assert torch.allclose(x.grad, y.grad, rtol=1e-5, atol=1e-6)


def test_compile_with_lengths_that_change():
    torch._dynamo.reset()
    fast = torch.compile(lambda q, k, v: attention(q, k, v, causal=True), backend="aot_eager", dynamic=True)
    for n in (20, 33, 47):
        q, k, v = (torch.randn(1, 2, n, 8) for _ in range(3))
        assert torch.equal(fast(q, k, v), attention(q, k, v, causal=True))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (3, 2)}], ids=str)
def test_gradients_against_finite_differences(options, deterministic):
    """Of the kernels' own loss, along random directions. They compute in float32, so the step is coarse, and
    1 in 100 is asked for.
    """
    q, k, v = numbers()
    weights = torch.randn(1, 2, 20, 8), torch.randn(1, 2, 20)

    def loss(*x):
        o, lse = attention_with_lse(*x, **options, deterministic=deterministic)
        return (o.double() * weights[0]).sum() + (lse.double() * weights[1]).sum()

    gradients = torch.autograd.grad(loss(q, k, v), (q, k, v))
    with torch.no_grad():
        for at, gradient in enumerate(gradients):
            direction = torch.randn_like(gradient)
            ahead, behind = [q, k, v], [q, k, v]
            ahead[at], behind[at] = ahead[at] + 1e-2 * direction, behind[at] - 1e-2 * direction
            slope = (loss(*ahead) - loss(*behind)) / 2e-2
            along = (gradient.double() * direction).sum()
            assert abs(slope - along) <= 0.01 * (abs(along) + 1)


def test_only_the_log_sum_exp_is_used():
    q, k, v = numbers()
    _, lse = attention_with_lse(q, k, v, causal=True)
    got = torch.autograd.grad(lse.sum(), (q, k, v))
    allowed = oracle.seen(20, 30, True)
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(oracle.exact(*leaves, allowed, None)[1].sum(), leaves[:2])
    for one, exactly in zip(got[:2], want, strict=True):
        assert oracle.error(one, exactly) < 1e-5
    assert not got[2].any()


def test_gradient_of_one_input_alone():
    q, k, v = numbers()
    everything = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    for at in range(3):
        leaves = [x.detach().requires_grad_(i == at) for i, x in enumerate((q, k, v))]
        (alone,) = torch.autograd.grad(attention(*leaves).sum(), leaves[at])
        assert torch.allclose(alone, everything[at], rtol=1e-5, atol=1e-6)


def test_no_gradient_no_graph():
    q, k, v = numbers(requires_grad=False)
    assert not attention(q, k, v).requires_grad


def test_double_backward_says_that_it_does_not_exist():
    q, k, v = numbers()
    (dq,) = torch.autograd.grad(attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention's gradients have no gradients; allowed: one"):
        torch.autograd.grad(dq.sum(), q)


def test_kept_tensors_are_not_changed_behind_the_graph():
    q, k, v = numbers()
    o = attention(q, k, v)
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_forward_mode_is_refused_rather_than_zero():
    x = torch.randn(1, 1, 20, 8)
    with pytest.raises(NotImplementedError, match="q, k or v carries a tangent"):
        torch.func.jvp(lambda q: attention(q, x, x), (x,), (torch.ones_like(x),))


def test_autocast_decides_the_type_as_for_sdpa():
    q = torch.randn(1, 1, 20, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = attention(q, q.bfloat16(), q)
        other = torch.nn.functional.scaled_dot_product_attention(q, q.bfloat16(), q)
    assert o.dtype == other.dtype == torch.bfloat16
    o.sum().backward()
    assert q.grad is not None and q.grad.dtype == torch.float32


# The same operators with lists of a block mask, with packed sequences, and with d in slices.


def listed(q, k, deterministic):
    """The lists of a mask of blocks, one row of it empty."""
    blocks = torch.eye(2, dtype=torch.bool)
    blocks[1] = False
    whole = table_for(q.device, q.shape[3], q.element_size()).whole
    return tiled_mask(blocks, q, k, block=16).lists(whole, q.device, 2, deterministic)


def packed():
    return [torch.tensor([0, 0, 13, 20], dtype=torch.int32), torch.tensor([0, 11, 11, 30], dtype=torch.int32)]


def variant(name, q, k, deterministic):
    """lists, cu, low, high, lower_right, longest_q, longest_k, scale, deterministic, way."""
    if name == "block mask":
        return listed(q, k, deterministic), [], None, None, False, -1, -1, 0.3, deterministic, "whole"
    if name == "packed":
        return [], packed(), None, 0, True, -1, -1, 0.3, deterministic, "whole"
    return [], [], None, 0, False, -1, -1, 0.3, deterministic, name


VARIANTS = ("block mask", "packed", "fused", "materialised")


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_opcheck_of_every_way_forward(name, deterministic):
    q, k, v = numbers()
    torch.library.opcheck(
        torch.ops.iocourse.attention.default, (q, k, v, *variant(name, q, k, deterministic))
    )


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_opcheck_of_every_way_backward(name, deterministic):
    q, k, v = numbers(requires_grad=False)
    options = variant(name, q, k, deterministic)
    o, lse = torch.ops.iocourse.attention(q, k, v, *options)
    torch.library.opcheck(
        torch.ops.iocourse.attention_backward.default,
        (torch.randn_like(o), torch.randn_like(lse), q, k, v, o, lse, *options),
    )


def compiled_as_plain(loss, *shapes):
    """Value and gradients of a loss, in one graph and without."""
    torch.manual_seed(0)
    tensors = [torch.randn(shape) for shape in shapes]
    plain, fast = ([x.clone().requires_grad_() for x in tensors] for _ in range(2))
    torch._dynamo.reset()
    value = loss(*plain)
    value.backward()
    fast_value = torch.compile(loss, fullgraph=True, backend="aot_eager")(*fast)
    fast_value.backward()
    assert torch.equal(value, fast_value)
    for x, y in zip(plain, fast, strict=True):
        assert x.grad.any() and torch.allclose(x.grad, y.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("longest", [None, (13, 19)])
def test_packed_sequences_compile_in_one_graph(longest):
    cu_q, cu_k = packed()

    def loss(q, k, v):
        o, lse = attention_varlen_with_lse(
            q * 2, k, v, cu_q, cu_k, causal="lower_right", longest=longest, deterministic=True
        )
        return o.square().sum() + torch.where(lse.isinf(), 0.0, lse).sum()

    compiled_as_plain(loss, (20, 2, 8), (30, 1, 8), (30, 1, 8))


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_prepared_mask_compiles_in_one_graph(deterministic):
    q, k, _ = numbers(requires_grad=False)
    mask = tiled_mask(torch.tensor([[True, False], [True, True]]), q, k, block=16)
    attention(q, k, k, block_mask=mask, deterministic=deterministic)  # cut, outside the graph
    compiled_as_plain(
        lambda q, k, v: attention(q * 2, k, v, block_mask=mask, deterministic=deterministic).square().sum(),
        (1, 2, 20, 8), (1, 1, 30, 8), (1, 1, 30, 8),
    )  # fmt: skip


@pytest.mark.parametrize("way", ["fused", "materialised", None])
def test_slices_of_d_compile_in_one_graph(way):
    d = 24 if way else 260
    with using(**dict.fromkeys(SlicedTiles._fields, (16, 32, 128))):
        compiled_as_plain(
            lambda q, k, v: attention(q * 2, k, v, causal=True, tile_d=way).square().sum(),
            (1, 2, 20, d), (1, 1, 30, d), (1, 1, 30, d),
        )  # fmt: skip
