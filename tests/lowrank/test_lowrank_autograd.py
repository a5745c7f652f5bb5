"""Low-rank attention in torch's autograd: gradients, also through layers, and the memory saved for them."""

import weakref

import pytest

from iocourse import lowrank

torch = pytest.importorskip("torch")


@pytest.fixture(params=["numpy", "numba", "torch"])
def engine(request):
    if request.param == "numba":
        pytest.importorskip("numba")
    return request.param


def tensors(seed, *shape, dtype=torch.float64, count=3):
    generator = torch.Generator().manual_seed(seed)
    return [
        (0.7 * torch.randn(*shape, generator=generator, dtype=dtype)).requires_grad_() for _ in range(count)
    ]


@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(engine, causal):
    """PyTorch's own check of a gradient, with two heads and more than one causal tile."""

    def attend(q, k, v):
        return lowrank.attention(q, k, v, degree=3, polynomial="taylor", causal=causal, engine=engine)

    assert torch.autograd.gradcheck(attend, tensors(0, 2, 67, 2), fast_mode=True)


LOSSES = {"sum": (torch.sum, torch.ones_like), "squares": (lambda O: O.square().sum(), lambda O: 2 * O)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_two_backward_passes_are_equal_and_a_second_derivative_is_refused(engine, loss, causal):
    """Also for a sum, whose dO is a constant of stride 0; otherwise a gradient penalty would be omitted."""
    inputs, (loss, slope) = tensors(6, 2, 20, 3), LOSSES[loss]
    O = lowrank.attention(*inputs, degree=3, polynomial="taylor", causal=causal, engine=engine)
    first = torch.autograd.grad(loss(O), inputs, retain_graph=True)
    with pytest.raises(RuntimeError, match="create_graph=True, and it cannot be differentiated again"):
        torch.autograd.grad(loss(O), inputs, create_graph=True)
    second = torch.autograd.grad(O, inputs, slope(O.detach()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


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
    inputs = tensors(8, 1, 20, 3)
    first, O = (lowrank.attention(*inputs, degree=2, engine=engine) for _ in range(2))
    wanted = torch.autograd.grad(first.square().sum(), inputs)
    try:
        O += 1
        found = torch.autograd.grad((O - 1).square().sum(), inputs)
    except RuntimeError as error:
        assert "in-place" in str(error) or "inplace" in str(error)
    else:
        torch.testing.assert_close(found, wanted)


def test_without_gradients_nothing_is_kept(engine):
    q, k, v = (x.detach() for x in tensors(9, 2, 20, 3))
    assert lowrank.attention(q, k, v, degree=2, engine=engine).grad_fn is None
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
    assert torch_backend._engine(q, options) == "torch"
    assert torch_backend._engine(q.new_empty(1, device="cpu"), options) == "numba"


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
