"""The operators as PyTorch sees them: autograd, fake tensors, torch.compile."""

from threading import Thread

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from iocourse.kernels import (
    attention,
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
    using,
)
from iocourse.kernels.host import torch_operator
from iocourse.kernels.host.choices import SLICED, Case

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
        (*arguments, "qkv", NO_LISTS, NO_CU, None, 0, *ONE_SEQUENCE_A_BATCH, 0.3, deterministic, ""),
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
    """Compare gradients of the kernels with finite differences along random directions.

    Rounding: they compute in float32, and each of the 360 outputs near 1 is off by up to 3e-7. With weights
    near 1 the loss is off by up to 1e-4, and the slope, with a step of 1e-2, by up to 1e-2. Truncation: the
    square of the step, 1e-4, times a sixth of a third derivative that is of the size of the slope.
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
    allowed = reference_attention.seen(20, 30, True)
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(reference_attention.exact(*leaves, allowed, None)[1].sum(), leaves[:2])
    for one, exactly in zip(got[:2], want, strict=True):
        assert reference_attention.error(one, exactly) < 1e-5
    assert not got[2].any()


def test_gradient_of_one_input_alone():
    q, k, v = numbers()
    everything = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    for at in range(3):
        leaves = [x.detach().requires_grad_(i == at) for i, x in enumerate((q, k, v))]
        (alone,) = torch.autograd.grad(attention(*leaves).sum(), leaves[at])
        assert torch.allclose(alone, everything[at], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["complete rows", "slices", "materialised", "block mask", "packed"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_compiled_graph_computes_the_needed_gradients_alone(name, deterministic):
    """The backward graph's operator names the needed inputs; values are those of all gradients together."""
    q, k, v = numbers(requires_grad=False)
    options = variant(name, q, k, deterministic)
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    def loss(*x):
        return torch.ops.iocourse.attention(*x, *options)[0].square().sum()

    everything = torch.autograd.grad(
        loss(*(leaves := [x.clone().requires_grad_() for x in (q, k, v)])), leaves
    )
    for needed in ("q", "kv"):
        leaves = [
            x.clone().requires_grad_(letter in needed) for letter, x in zip("qkv", (q, k, v), strict=True)
        ]
        traced = make_fx(lambda *x: torch.autograd.grad(loss(*x), [y for y in x if y.requires_grad]))(*leaves)
        (node,) = (node for node in traced.graph.nodes if "attention_backward" in str(node.target))
        assert needed in node.args
        want = [x for letter, x in zip("qkv", everything, strict=True) if letter in needed]
        for got, exactly in zip(traced(*leaves), want, strict=True):
            assert torch.allclose(got, exactly, rtol=1e-5, atol=1e-6)


def test_no_gradient_no_graph():
    q, k, v = numbers(requires_grad=False)
    assert not attention(q, k, v).requires_grad


def test_double_backward_says_that_it_does_not_exist():
    q, k, v = numbers()
    (dq,) = torch.autograd.grad(attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"attention has no second derivative\. Use one backward"):
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
    case = Case(None, q.element_size(), q.shape[3], "blocks", group=2)
    return tiled_mask(blocks, q, k, block=16).lists(case, q.device, deterministic)


def packed():
    return [torch.tensor([0, 0, 13, 20], dtype=torch.int32), torch.tensor([0, 11, 11, 30], dtype=torch.int32)]


def variant(name, q, k, deterministic):
    """lists, cu, low, high, lower_right, longest_q, longest_k, scale, deterministic, way."""
    if name == "block mask":
        return listed(q, k, deterministic), [], None, None, False, -1, -1, 0.3, deterministic, "complete rows"
    if name == "packed":
        return [], packed(), None, 0, True, -1, -1, 0.3, deterministic, "complete rows"
    return [], [], None, 0, False, -1, -1, 0.3, deterministic, name


VARIANTS = ("block mask", "packed", "slices", "materialised")


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_opcheck_of_every_way_forward(name, deterministic):
    q, k, v = numbers()
    torch.library.opcheck(
        torch.ops.iocourse.attention.default, (q, k, v, *variant(name, q, k, deterministic))
    )


@pytest.mark.parametrize("needed", ["qkv", "q", "kv", "v"])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", ["complete rows", *VARIANTS])
def test_opcheck_of_every_way_backward(name, deterministic, needed):
    q, k, v = numbers(requires_grad=False)
    options = variant(name, q, k, deterministic)
    o, lse = torch.ops.iocourse.attention(q, k, v, *options)
    torch.library.opcheck(
        torch.ops.iocourse.attention_backward.default,
        (torch.randn_like(o), torch.randn_like(lse), q, k, v, o, lse, needed, *options),
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
@pytest.mark.parametrize(
    ("mask", "block"),
    [(torch.tensor([[True, False], [True, True]]), 16), (lambda b, h, i, j: i >= j - 4 * h, None)],
    ids=["blocks", "predicate"],
)
def test_a_mask_compiles_in_one_graph(mask, block, deterministic):
    q, k, _ = numbers(requires_grad=False)
    mask = tiled_mask(mask, q, k, block=block)
    compiled_as_plain(  # which cuts it, outside the graph
        lambda q, k, v: attention(q * 2, k, v, block_mask=mask, deterministic=deterministic).square().sum(),
        (1, 2, 20, 8), (1, 1, 30, 8), (1, 1, 30, 8),
    )  # fmt: skip


def test_masks_that_were_not_cut_yet_compile_in_one_graph():
    """And the graph made for one mask is not used for another."""
    q, k, v = numbers(requires_grad=False)
    predicates = [lambda b, h, i, j: i >= j - 4 * h, lambda b, h, i, j: i <= j, lambda b, h, i, j: i % 3 > 0]
    torch._dynamo.reset()
    fast = torch.compile(
        lambda mask: attention(q * 2, k, v, block_mask=mask), fullgraph=True, backend="eager"
    )
    compiled = [fast(tiled_mask(one, q, k)) for one in predicates]
    for one, o in zip(predicates, compiled, strict=True):
        assert torch.equal(attention(q * 2, k, v, block_mask=tiled_mask(one, q, k)), o)
    assert not torch.equal(compiled[0], compiled[1])


@pytest.mark.parametrize("way", ["fused", "materialised", None])
def test_slices_of_d_compile_in_one_graph(way):
    d = 24 if way else 260
    with using(**dict.fromkeys(SLICED, (16, 32, 128))):
        compiled_as_plain(
            lambda q, k, v: attention(q * 2, k, v, causal=True, tile_d=way).square().sum(),
            (1, 2, 20, d), (1, 1, 30, d), (1, 1, 30, d),
        )  # fmt: skip


# The direct way, round PyTorch's dispatcher, and who still meets the operators.


class Dispatched(TorchDispatchMode):
    """The operators of this library that are dispatched within the block."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen += [func.name()] if func.namespace == "iocourse" else []
        return func(*args, **(kwargs or {}))


FORWARD, BACKWARD = "iocourse::attention", "iocourse::attention_backward"


def values_and_gradients(way=attention_with_lse, **options):
    """Return O, its log-sum-exps, and the gradients through both."""
    q, k, v = numbers()
    o, lse = way(q, k, v, causal=True, **options)
    return o, lse, *torch.autograd.grad(o.square().sum() + lse.sum(), (q, k, v))


@pytest.fixture
def direct(monkeypatch):
    """Return the numbers of direct calls without the dispatcher, forward and backward."""
    gone = {"forward": 0, "backward": 0}

    def counted(name, body):
        def count(*inputs):
            gone[name] += 1
            return body(*inputs)

        return count

    for name, body in (("forward", "_attention"), ("backward", "_attention_backward")):
        monkeypatch.setattr(torch_operator, body, counted(name, getattr(torch_operator, body)))
    return gone


@pytest.mark.parametrize("deterministic", [None, True])
def test_both_ways_have_the_same_bits(direct, deterministic):
    plain = values_and_gradients(deterministic=deterministic)
    assert direct == {"forward": 1, "backward": 1}
    with Dispatched() as watching:
        watched = values_and_gradients(deterministic=deterministic)
    assert watching.seen == [FORWARD, BACKWARD] and direct == {"forward": 1, "backward": 1}
    assert all(map(torch.equal, plain, watched))


@pytest.mark.parametrize("name", ["_dispatch_tls_local_include_set", "DispatchKeySet"])
def test_a_torch_without_its_private_names_takes_the_operators(direct, monkeypatch, name):
    plain = values_and_gradients()
    monkeypatch.delattr(torch._C, name)
    assert all(map(torch.equal, plain, values_and_gradients()))
    assert direct == {"forward": 1, "backward": 1}


def test_a_mode_around_the_backward_pass_alone_sees_its_operator(direct):
    q, k, v = numbers()
    o = attention(q, k, v)
    with Dispatched() as watching:
        o.sum().backward()
    assert watching.seen == [BACKWARD] and direct == {"forward": 1, "backward": 0}


def test_a_mode_of_functions_sees_the_operator(direct):
    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Functions():
        attention(*numbers())
    assert "iocourse.attention.default" in seen and direct["forward"] == 0


def test_a_subclass_of_tensor_comes_out_as_it_went_in(direct):
    class Own(torch.Tensor):
        pass

    q, k, v = (x.detach().as_subclass(Own).requires_grad_() for x in numbers())
    o = attention(q, k, v)
    gradients = torch.autograd.grad(o.sum(), (q, k, v))
    assert {type(x) for x in (o, *gradients)} == {Own} and direct["forward"] == 0


@pytest.mark.parametrize("pre_dispatch", [False, True])
@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
def test_a_trace_holds_the_operators(tracing_mode, pre_dispatch):
    def both(q, k, v):
        return torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))

    traced = make_fx(both, tracing_mode=tracing_mode, pre_dispatch=pre_dispatch)(*numbers())
    found = [node.target.name() for node in traced.graph.nodes if "iocourse" in str(node.target)]
    assert found == [FORWARD, BACKWARD]


def test_fake_tensors_stay_fake():
    with FakeTensorMode() as fake:
        q, k, v = numbers()
        o = attention(q, k, v)
        assert o.shape == q.shape and isinstance(o, FakeTensor)
    outside = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    assert all(isinstance(x, FakeTensor) and x.fake_mode is fake for x in outside)


@pytest.mark.parametrize("d", [8, 260])
def test_meta_tensors_have_the_shapes_of_the_results(d):
    """Forward and backward, packed, with a mask, and in decode: as for fake tensors, no kernel is started."""
    q, k, v = (
        torch.randn(1, h, n, d, device="meta", requires_grad=True) for h, n in ((2, 20), (1, 30), (1, 30))
    )
    o, lse = attention_with_lse(q.transpose(1, 2).transpose(1, 2), k, v, causal=True)
    gradients = torch.autograd.grad(o.sum() + lse.sum(), (q, k))
    assert [x.shape for x in (o, lse, *gradients)] == [q.shape, q.shape[:3], q.shape, k.shape]
    assert all(x.is_meta for x in (o, lse, *gradients)) and lse.dtype == torch.float32
    cu = [x.to("meta") for x in packed()]
    o, _ = attention_varlen_with_lse(*(x.detach()[0, :, :, :64].transpose(0, 1) for x in (q, k, v)), *cu)
    assert o.is_meta and o.shape == (20, 2, min(64, d))
    if d <= 256:
        o, _ = decode(q[:, :, :1].detach(), k, v)
        assert o.is_meta and o.shape == (1, 2, 1, d)
        for mask in (torch.eye(2, dtype=torch.bool), lambda b, h, i, j: i >= j):
            block = 16 if isinstance(mask, torch.Tensor) else None
            o = attention(q, k, v, block_mask=tiled_mask(mask, q, k, block=block))
            assert o.is_meta and torch.autograd.grad(o.sum(), v)[0].shape == v.shape


def test_a_mask_for_meta_tensors_is_that_for_others():
    q, k, _ = numbers(requires_grad=False)
    made = [tiled_mask(lambda b, h, i, j: i >= j - 4 * h, *x) for x in ((q, k), (q.to("meta"), k.to("meta")))]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (lambda loss, x: torch.func.grad(loss)(x), "autograd.Function with functorch transforms"),
        (lambda loss, x: torch.func.vmap(loss)(x[None]), "Batching rule .* for iocourse::attention"),
    ],
    ids=["grad", "vmap"],
)
@pytest.mark.parametrize("private", [True, False])
def test_transforms_are_refused_also_where_torch_lacks_the_private_question(
    transform, why, private, monkeypatch
):
    if not private:
        monkeypatch.delattr(torch._C._functorch, "is_functorch_wrapped_tensor")
    q, k, v = numbers(requires_grad=False)
    said = r"q, k or v is within a transform of torch\.func" if private else why
    with pytest.raises(RuntimeError, match=said):
        transform(lambda q: attention(q, k, v).sum(), q)


@pytest.mark.parametrize("private", [True, False])
def test_a_batch_of_gradients_is_refused_also_where_torch_lacks_the_private_question(private, monkeypatch):
    if not private:
        monkeypatch.delattr(torch._C._functorch, "is_legacy_batchedtensor")
    q, k, v = numbers()
    o = attention(q, k, v)
    said = r"dO is a batch \(is_grads_batched\)" if private else "Batching rule not implemented"
    with pytest.raises(RuntimeError, match=said):
        torch.autograd.grad(o, q, torch.ones(3, *o.shape), is_grads_batched=True)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_computes_again(direct, use_reentrant):
    plain, kept = numbers(), numbers()
    attention(*plain, causal=True).square().sum().backward()
    o = checkpoint(lambda *x: attention(*x, causal=True), *kept, use_reentrant=use_reentrant)
    o.square().sum().backward()
    assert all(torch.equal(x.grad, y.grad) for x, y in zip(plain, kept, strict=True))
    assert direct == {"forward": 3, "backward": 2}


def test_hooks_see_the_tensors_that_are_kept():
    packed = []

    def pack(x):
        packed.append(x)
        return x.clone()

    plain = values_and_gradients()
    with saved_tensors_hooks(pack, lambda x: x):
        hooked = values_and_gradients()
    assert all(map(torch.equal, plain, hooked))
    shapes = [tuple(x.shape) for x in packed[:5]]
    assert shapes == [(1, 2, 20, 8), (1, 1, 30, 8), (1, 1, 30, 8), (1, 2, 20, 8), (1, 2, 20)]


def test_backward_twice_needs_the_graph_kept():
    q, k, v = numbers()
    loss = attention(q, k, v).square().sum()
    first = torch.autograd.grad(loss, (q, k, v), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss, (q, k, v))))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, (q, k, v))


def test_backward_in_another_thread(direct):
    q, k, v = numbers()
    loss, got = attention(q, k, v).square().sum(), []
    here = torch.autograd.grad(loss, (q, k, v), retain_graph=True)
    thread = Thread(target=lambda: got.extend(torch.autograd.grad(loss, (q, k, v))))
    thread.start()
    thread.join()
    assert all(map(torch.equal, here, got)) and len(got) == 3 and direct["backward"] == 2


@pytest.mark.parametrize("name", ["O", "LSE"])
def test_a_result_that_was_changed_is_noticed(name):
    q, k, v = numbers()
    results = dict(zip(("O", "LSE"), attention_with_lse(q, k, v), strict=True))
    results[name].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        results["O"].sum().backward()


@pytest.mark.parametrize("lazy", range(4))
def test_numbers_with_the_negative_bit_have_their_sign(lazy):
    """Lazy negation: the memory of such a tensor has the other sign."""
    tensors = [x.detach() for x in (*numbers(), torch.randn(1, 2, 20, 8))]
    tensors[lazy] = torch._neg_view(tensors[lazy])
    *inputs, do = tensors

    def values(resolve):
        leaves = [(x.resolve_neg() if resolve else x).requires_grad_() for x in inputs]
        o = attention(*leaves)
        return o, *torch.autograd.grad(o, leaves, do.resolve_neg() if resolve else do)

    assert all(map(torch.equal, values(False), values(True)))
