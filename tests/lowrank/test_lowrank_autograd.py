"""Low-rank attention in torch's autograd: gradients, also through layers, and the memory saved for them."""

import weakref

import dense_attention
import numpy as np
import pytest

from iocourse import lowrank

torch = pytest.importorskip("torch")

ENGINES = ["numpy", "numba", "torch"]
CAUSAL = {"taylor": {}, "minimax": {"radius": 4.0}}


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "numba":
        pytest.importorskip("numba")
    return request.param


def tensors(seed, *shape, dtype=torch.float64, count=3):
    generator = torch.Generator().manual_seed(seed)
    return [
        (0.7 * torch.randn(*shape, generator=generator, dtype=dtype)).requires_grad_() for _ in range(count)
    ]


@pytest.mark.parametrize("name", list(CAUSAL))
def test_gradcheck_causal(engine, name):
    q, k, v = tensors(0, 2, 67, 2)  # more than one tile

    def attend(q, k, v):
        return lowrank.attention(
            q, k, v, degree=3, polynomial=name, causal=True, engine=engine, **CAUSAL[name]
        )

    assert torch.autograd.gradcheck(attend, (q, k, v), fast_mode=True)


@pytest.mark.parametrize("name", list(CAUSAL))
def test_gradcheck_of_keys_whose_mean_stays(engine, name):
    """The keys' mean is a constant for autograd; with keys in pairs k and -k it remains 0."""
    q, k, v = tensors(1, 2, 3, 2)
    (v,) = tensors(2, 2, 6, 3, count=1)

    def attend(q, k, v):
        return lowrank.attention(
            q, torch.cat([k, -k], 1), v, degree=4, polynomial=name, engine=engine, **CAUSAL[name]
        )

    assert torch.autograd.gradcheck(attend, (q, k, v))


def softmax_of(p):
    """Return dense attention with p for the exponential, in torch."""

    def attend(q, k, v):
        rest = k - k.mean(-2, keepdim=True)
        x = q / q.shape[-1] ** 0.5
        covariance = rest.mT @ rest / k.shape[-2]
        P = p(x @ rest.mT, ((x @ covariance) * x).sum(-1, keepdim=True))
        return P @ v / P.sum(-1, keepdim=True)

    return attend


def hermite(degree):
    def p(s, variance):
        variance = variance.clamp(max=dense_attention.CLIP)
        H = [torch.ones_like(s), s]
        for l in range(1, degree):
            H.append(s * H[l] - l * variance * H[l - 1])
        total, factorial = 0, 1
        for l in range(degree + 1):
            factorial *= max(l, 1)
            total = total + H[l] / factorial
        return total

    return p


def test_the_dense_gradient_is_that_of_autograd():
    """The reference of the other tests agrees with an independent derivation."""
    arrays = dense_attention.draw(3, (), 40, 30, 4, 3)
    q, k, v = (torch.from_numpy(X).requires_grad_() for X in arrays[:3])
    O = softmax_of(hermite(4))(q, k, v)
    gradients = torch.autograd.grad(O, (q, k, v), torch.from_numpy(arrays[3]))
    wanted = dense_attention.attend(*arrays, degree=4)
    for found, w in zip((O.detach(), *gradients), (wanted.O, wanted.dQ, wanted.dK, wanted.dV), strict=True):
        assert dense_attention.off(found, w) < 1e-12


class Block(torch.nn.Module):
    """Multi-head attention between two residual sums, followed by a nonlinear loss."""

    def __init__(self, attend, layers=2, width=12, heads=3):
        super().__init__()
        torch.manual_seed(0)
        make = torch.nn.Linear
        self.layers = torch.nn.ModuleList(
            [torch.nn.ModuleList([make(width, width).double() for _ in range(4)]) for _ in range(layers)]
        )
        self.attend, self.heads = attend, heads

    def forward(self, x):
        for W_Q, W_K, W_V, W_O in self.layers:
            x = torch.nn.functional.layer_norm(x, x.shape[-1:])
            q, k, v = (W(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
            x = x + W_O(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x.tanh().square().mean()


def test_layers_have_the_gradient_of_the_dense_formula(engine):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 30, 12, generator=generator, dtype=torch.float64)
    found = []
    for attend in (
        lambda q, k, v: lowrank.attention(q, k, v, degree=4, engine=engine),
        softmax_of(hermite(4)),
    ):
        block, given = Block(attend), x.clone().requires_grad_()
        loss = block(given)
        loss.backward()
        found.append([loss.detach(), given.grad, *(p.grad for p in block.parameters())])
    for a, b in zip(*found, strict=True):
        # the bias of W_K has no gradient in exact attention, and a small one here
        assert (a - b).norm() <= 1e-11 * max(b.norm(), 1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_float32_and_any_leading_axes(engine, causal):
    q, k, v = tensors(4, 2, 3, 70, 4, dtype=torch.float32)
    options = {"degree": 2, "polynomial": "taylor", "causal": causal, "engine": engine}
    O = lowrank.attention(q, k, v, **options)
    assert O.shape == (2, 3, 70, 4) and O.dtype == torch.float32 and O.requires_grad
    one = lowrank.attention(q[1, 2], k[1, 2], v[1, 2], **options)
    torch.testing.assert_close(O[1, 2], one, rtol=1e-5, atol=1e-6)
    for g, x in zip(torch.autograd.grad(O.sum(), (q, k, v)), (q, k, v), strict=True):  # dO of stride 0
        assert g.shape == x.shape and g.dtype == x.dtype


def test_two_backwards_give_the_same(engine):
    q, k, v = tensors(5, 2, 40, 3)
    O = lowrank.attention(q, k, v, degree=3, engine=engine)
    first = torch.autograd.grad(O.square().sum(), (q, k, v), retain_graph=True)
    second = torch.autograd.grad(O.square().sum(), (q, k, v))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("loss", [torch.sum, lambda O: O.square().sum()], ids=["sum", "squares"])
def test_a_second_derivative_is_refused(engine, loss):
    """Also if dO is constant, as for a sum; otherwise a gradient penalty would be silently omitted."""
    q, k, v = tensors(6, 2, 20, 3)
    O = lowrank.attention(q, k, v, degree=2, engine=engine)
    with pytest.raises(RuntimeError, match="create_graph=True, and it cannot be differentiated again"):
        torch.autograd.grad(loss(O), q, create_graph=True)
    torch.autograd.grad(loss(O), q)


def test_negative_bits(engine):
    """Test tensors with the negative bit, whose stored numbers have the opposite sign."""
    inputs = [x.detach() for x in tensors(6, 2, 20, 3, count=4)]
    found = []
    for given in (inputs, [torch.complex(x, -x).conj().imag for x in inputs]):
        q, k, v = (x.requires_grad_() for x in given[:3])
        O = lowrank.attention(q, k, v, degree=2, engine=engine)
        found.append([O, *torch.autograd.grad(O, (q, k, v), given[3])])
    assert all(x.is_neg() for x in given)
    for want, got in zip(*found, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("which", range(3))
def test_inputs_changed_before_backward_are_noticed(engine, which):
    inputs = tensors(7, 2, 20, 3)
    work = [x * 1 for x in inputs]
    O = lowrank.attention(*work, degree=2, engine=engine)
    work[which].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        O.sum().backward()


def test_an_output_changed_before_backward_is_noticed(engine):
    """The gradient needs O: δ is Σ dO ∘ O."""
    q, k, v = tensors(8, 1, 20, 3)
    wanted = torch.autograd.grad(
        lowrank.attention(q, k, v, degree=2, engine=engine).square().sum(), (q, k, v)
    )
    O = lowrank.attention(q, k, v, degree=2, engine=engine)
    try:
        O += 1
        found = torch.autograd.grad((O - 1).square().sum(), (q, k, v))
    except RuntimeError as error:
        assert "in-place" in str(error) or "inplace" in str(error)
    else:
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_without_gradients_nothing_is_kept(engine):
    q, k, v = (x.detach() for x in tensors(9, 2, 20, 3))
    O = lowrank.attention(q, k, v, degree=2, engine=engine)
    assert not O.requires_grad and O.grad_fn is None
    with torch.no_grad():
        assert lowrank.attention(*tensors(9, 2, 20, 3), degree=2, engine=engine).grad_fn is None


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_kept_for_the_gradient_is_the_inputs_and_a_state(engine, causal):
    n, d, degree = 3000, 4, 3
    q, k, v = tensors(10, 2, n, d, dtype=torch.float32)
    saved = []
    options = {"degree": degree, "polynomial": "taylor", "causal": causal, "engine": engine}
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        O = lowrank.attention(q, k, v, **options)
    assert {x.data_ptr() for x in saved} >= {x.data_ptr() for x in (q, k, v)}
    state = 2 * 35 * (d + 1)  # for two heads
    # Q, K, V, O, the denominators and the state; no array n × rank or n × n
    assert sum(x.numel() for x in saved) == 3 * q.numel() + O.numel() + 2 * n + state
    assert set(vars(O.grad_fn)) == {"options", "in_torch_func"}


def test_nothing_outlives_the_result(engine):
    q, k, v = tensors(11, 2, 20, 3)
    O = lowrank.attention(q, k, v, degree=2, engine=engine)
    state = weakref.ref(O.grad_fn.saved_tensors[-1])
    node = weakref.ref(O.grad_fn)
    del O
    assert node() is None and state() is None


def test_tensors_agree_with_arrays(engine):
    if engine == "torch":
        pytest.skip("arrays have no torch engine")
    arrays = dense_attention.draw(12, (2,), 50, 60, 4, 3)
    through = dense_attention.by(f"torch {engine}", *arrays, degree=3)
    for a, b in zip(through, lowrank.gradient(*arrays, degree=3, engine=engine), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_tensors():
    q, k, v = (x.detach() for x in tensors(13, 2, 10, 3))
    with pytest.raises(TypeError, match=r"K must .* Q, torch\.float64 on cpu, got torch\.float32 on cpu"):
        lowrank.attention(q, k.float(), v, degree=2)
    with pytest.raises(TypeError, match=r"V must .* Q, torch\.float64 on cpu, got ndarray"):
        lowrank.attention(q, k, v.numpy(), degree=2)
    allowed = "float32, float64, float16 or bfloat16"
    with pytest.raises(TypeError, match=rf"Q must have dtype {allowed}, got torch\.int64"):
        lowrank.attention(q.long(), k.long(), v.long(), degree=2)
    with pytest.raises(ValueError, match=r"^engine must be one of numpy, numba, torch, got .triton.$"):
        lowrank.attention(q, k, v, degree=2, engine="triton")
    with pytest.raises(TypeError, match=r"attention\(Q, K, V, …\) and O.backward"):
        lowrank.gradient(q, k, v, q, degree=2)


@pytest.mark.parametrize("name", ["numpy", "numba"])
def test_engines_of_the_cpu_refuse_other_devices(name):
    q = torch.zeros(5, 3, device="meta")
    with pytest.raises(ValueError, match=f"engine='{name}' needs tensors on the CPU, but Q is on meta"):
        lowrank.attention(q, q, q, degree=2, engine=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_gets_torch(dtype, monkeypatch):
    """The engine depends on the device only, so a meta tensor is sufficient; also with Numba installed."""
    from iocourse.lowrank import torch_backend
    from iocourse.lowrank.options import checked_options

    monkeypatch.setattr(torch_backend.fast, "installed", lambda: True)
    options = checked_options(degree=2, causal=True, polynomial="taylor")
    q = torch.empty(1, 10, 65, dtype=dtype, device="meta")
    assert (
        torch_backend._engine(q, options),
        torch_backend._engine(q.new_empty(1, device="cpu"), options),
    ) == (
        "torch",
        "numba",
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_computed_in_float32(dtype, causal):
    options = {"degree": 2, "causal": causal, "key_variance": 0.4, "engine": "torch"}
    given = [x.detach().to(dtype) for x in tensors(17, 2, 90, 3)[:3]]
    dO, found = torch.ones_like(given[2]), []
    for kind in (dtype, torch.float32):
        leaves = [x.to(kind, copy=True).requires_grad_() for x in given]
        o = lowrank.attention(*leaves, **options)
        found.append((o.detach(), *torch.autograd.grad(o, leaves, dO.to(kind))))
    for short, whole in zip(*found, strict=True):
        assert short.dtype == dtype and whole.dtype == torch.float32
        assert torch.equal(short, whole.to(dtype)) and short.any()
