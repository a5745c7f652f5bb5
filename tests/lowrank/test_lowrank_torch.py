"""Low-rank attention of tensors: torch.func, torch.compile, fewer queries than keys, and a state."""

import dense_attention
import numpy as np
import pytest

from iocourse import lowrank

torch = pytest.importorskip("torch")

from iocourse.lowrank import error_certificates, torch_passes  # noqa: E402

func, vmap = torch.func, torch.func.vmap
QKV = (0, 1, 2)
ARRAYS = dense_attention.draw(0, (2, 4), 20, 30, 3, 2)
CAUSAL = {"degree": 3, "causal": True, "key_variance": 0.4}


@pytest.fixture(params=["numpy", "numba", "torch"])
def engine(request):
    if request.param == "numba":
        pytest.importorskip("numba")
    return request.param


@pytest.fixture
def attend(engine):
    return lambda q, k, v: lowrank.attention(q, k, v, degree=3, engine=engine)


def through_vjp(attend, q, k, v, dO):
    O, pull_back = func.vjp(attend, q, k, v)
    return O, *pull_back(dO)


def through_grad(attend, q, k, v, dO):
    gradients = func.grad(lambda *x: (attend(*x) * dO).sum(), QKV)(q, k, v)
    return attend(q, k, v), *gradients


def grad_through_vmap(attend, q, k, v, dO):
    mapped = vmap(attend, (2, -1, 1), 1)
    return through_grad(lambda q, k, v: mapped(q.movedim(1, 2), k.movedim(1, -1), v), q, k, v, dO)


def vmap_through_grad(attend, *inputs):
    return vmap(vmap(lambda *x: through_grad(attend, *x)))(*inputs)


def through_jacrev(attend, q, k, v, dO):
    jacobians = vmap(vmap(func.jacrev(attend, QKV)))(q, k, v)
    return attend(q, k, v), *(torch.einsum("abim,abimjc->abjc", dO, J) for J in jacobians)


@pytest.mark.parametrize("through", [through_vjp, grad_through_vmap, vmap_through_grad, through_jacrev])
def test_transforms_of_torch_func(attend, through):
    found = through(attend, *map(torch.from_numpy, ARRAYS))
    wanted = dense_attention.every_head(*ARRAYS, degree=3)
    dense_attention.agree([x.numpy() for x in found], wanted, 1e-12, ARRAYS[3])


def test_vmap_with_keys_that_all_share(attend):
    Q, K, V, dO = ARRAYS
    shared = np.broadcast_to(K[:1], K.shape)
    O, dQ, dK, dV = dense_attention.every_head(Q, shared, V, dO, degree=3)
    q, k, v, g = map(torch.from_numpy, (Q, K[0], V, dO))
    found = through_grad(vmap(attend, (0, None, 0)), q, k, v, g)
    dense_attention.agree([x.numpy() for x in found], (O, dQ, dK.sum(0), dV), 1e-12, dO)


@pytest.mark.parametrize(
    "transform, line",
    [
        (func.hessian, "no forward-mode derivative. Use reverse mode"),
        (lambda f: func.jacrev(func.jacrev(f)), "cannot be differentiated again. Pass create_graph=False"),
        (lambda f: lambda q: func.jvp(f, (q,), (q,)), "no forward-mode derivative"),
    ],
)
def test_second_and_forward_derivatives_are_refused_in_one_line(attend, transform, line):
    q, k, v = (torch.from_numpy(X[0, 0]) for X in ARRAYS[:3])
    with pytest.raises(RuntimeError, match=f"^[^\n]*{line}[^\n]*$"):
        transform(lambda q: attend(q, k, v).square().sum())(q)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo hides it
def test_torch_compile_calls_it_without_noise(attend, capfd):
    """Warnings are errors here; Dynamo must not trace the library, whose own warnings it cannot compile."""
    leaves = [torch.from_numpy(X).requires_grad_() for X in ARRAYS[:3]]
    plain = lambda q, k, v: attend(q * 2, k, v).sin()  # noqa: E731
    both = lambda run: (O := run(*leaves), *torch.autograd.grad(O.sum(), leaves))  # noqa: E731
    wanted, _ = both(plain), capfd.readouterr()  # of Numba
    compiled = torch.compile(plain, backend="eager")
    try:
        for _ in range(2):
            assert all(map(torch.equal, both(compiled), wanted))
        with pytest.raises(lowrank.NotCertified, match=r"^row 15 of Q has the denominator"):
            compiled(10 * leaves[0].detach(), *leaves[1:])
    finally:
        torch._dynamo.reset()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("n", [1, 40, 64, 70, 130])
def test_causal_queries_are_the_last_tokens(engine, n):
    Q, K, V, dO = dense_attention.draw(1, (2,), 140, 140, 3, 2)
    V += 10  # so that an offset is taken off
    dO[:, :-n] = 0
    O, dQ, dK, dV = dense_attention.every_head(Q, K, V, dO, **CAUSAL)
    found = dense_attention.by(f"torch {engine}", Q[:, -n:], K, V, dO[:, -n:], **CAUSAL)
    dense_attention.agree(found, (O[:, -n:], dQ[:, -n:], dK, dV), 1e-10, dO)


def test_gradcheck_of_fewer_queries(engine):
    q, k, v = (torch.from_numpy(X).requires_grad_() for X in dense_attention.draw(2, (), 20, 150, 2, 1)[:3])
    attend = lambda *x: lowrank.attention(*x, engine=engine, **CAUSAL)  # noqa: E731
    assert torch.autograd.gradcheck(attend, (q, k, v), fast_mode=True)


def test_expanded_keys_are_not_copied(monkeypatch):
    Q, K, V, _ = dense_attention.draw(3, (3,), 30, 40, 3, 2)
    seen, real = [], torch_passes.forward
    monkeypatch.setattr(torch_passes, "forward", lambda Q, K, V, s: seen.append(K) or real(Q, K, V, s))
    q, k, v = torch.from_numpy(Q), *(torch.from_numpy(X[0]).expand(3, -1, -1) for X in (K, V))
    found = lowrank.attention(q, k, v, degree=3, engine="torch")
    assert seen[0].data_ptr() == k.data_ptr() and seen[0].stride() == (0, 3, 1)
    for one, query in zip(found, q, strict=True):
        torch.testing.assert_close(one, lowrank.attention(query, k[0], v[0], degree=3, engine="torch"))


def test_keys_of_a_state_are_counted(monkeypatch):
    """The lower bound of a denominator is proportional to the number of keys."""
    q, k, v = (torch.from_numpy(X) for X in dense_attention.draw(4, (), 130, 130, 3, 2)[:3])
    options, seen = {"degree": 3, "polynomial": "taylor", "causal": True, "engine": "torch"}, []
    _, state = lowrank.attention(q[:128], k[:128], v[:128], return_state=True, **options)
    monkeypatch.setattr(error_certificates, "check_denominators", lambda *given, **_: seen.append(given[3]))
    lowrank.attention(q[128:], k[128:], v[128:], state=state, **options)
    assert list(seen[0]) == [129, 130]


def test_a_gradient_through_a_state_is_refused():
    q, k, v = (torch.from_numpy(X).requires_grad_() for X in ARRAYS[:3])
    with pytest.raises(
        RuntimeError, match=r"^attention with a state has no gradient, but Q, K or V requires"
    ):
        lowrank.attention(q, k, v, return_state=True, **CAUSAL)
    with torch.no_grad():
        O, _ = lowrank.attention(q, k, v, return_state=True, **CAUSAL)
    torch.testing.assert_close(O, lowrank.attention(q, k, v, **CAUSAL).detach())


def test_tensors_and_arrays_are_not_mixed():
    arrays = dense_attention.draw(3, (), 9, 9, 3, 2)
    tensors = [torch.from_numpy(X) for X in arrays]
    with pytest.raises(TypeError, match=r"^K is a torch tensor, but Q is not\. Pass all as tensors"):
        lowrank.attention(arrays[0], *tensors[1:3], degree=2)
    with pytest.raises(TypeError, match=r"^dO is a torch tensor, but Q is not"):
        lowrank.gradient(*arrays[:3], tensors[3], degree=2)


def test_a_mask_within_a_transform_is_an_array():
    q, k, v, _ = (torch.from_numpy(X) for X in dense_attention.draw(4, (), 9, 9, 3, 2))
    mask = torch.arange(9) < 6

    def loss(x, mask):
        return lowrank.attention(x, k, v, degree=2, key_mask=mask).sum()

    wanted = torch.func.grad(lambda x: lowrank.attention(x, k[:6], v[:6], degree=2).sum())(q)
    torch.testing.assert_close(torch.func.grad(loss)(q, mask.numpy()), wanted)
    with pytest.raises(TypeError, match=r"^key_mask must be a NumPy array within a transform"):
        torch.func.grad(loss)(q, mask)
