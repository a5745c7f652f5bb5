"""Small transformer: exchangeable attention, causality, and bounded logits if requested."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from iocourse import exact  # noqa: E402
from iocourse.lowrank.transformer import (  # noqa: E402
    LargestLogit,
    Shape,
    apply_rotary,
    exactly,
    low_rank,
    transformer,
    uniformly,
)

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = {"vocabulary": 11, "length": 70, "layers": 2, "heads": 3, "d": 4}
SMALL, BOUNDED = Shape(**SIZES), Shape(**SIZES, bound=1.0)


def tokens(shape, seed=0, batch=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(shape.vocabulary, (batch, shape.length), generator=generator)


def gradients(model, attend):
    """Return the gradients of a cross-entropy by all parameters, as one vector."""
    model.attend = attend
    model.zero_grad()
    wanted = tokens(model.shape, seed=1)
    loss = torch.nn.functional.cross_entropy(model(tokens(model.shape)).flatten(0, 1), wanted.flatten())
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def off(x, y):
    return float((x - y).norm() / y.norm())


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
def test_exactly_is_softmax_of_q_k_with_no_further_scale(causal):
    q, k, v = (drawn(2, 3, 9, 4, seed=seed) for seed in range(3))
    found = exactly(causal)(q, k, v)
    S = (q @ k.mT).numpy()
    if causal:
        S = np.where(np.tri(9, dtype=bool), S, -np.inf)
    np.testing.assert_allclose(found.numpy(), exact.softmax(S) @ v.numpy(), atol=1e-13)


def test_uniform_weights_are_those_of_queries_that_are_0():
    q, k, v = (drawn(1, 2, 33, 4, seed=seed) for seed in range(3))
    np.testing.assert_allclose(uniformly(q, k, v), exactly()(0 * q, k, v), atol=1e-14)


def test_the_largest_logit_is_among_those_that_are_looked_at():
    q, k, v = (drawn(1, 1, 20, 4, seed=seed) for seed in range(3))
    k[0, 0, -1] = 100 * q[0, 0, 3]  # row 3 does not attend to the last key, the last row does
    causal, full = LargestLogit(), LargestLogit(causal=False)
    for found, wanted in ((causal, exactly()), (full, exactly(False))):
        assert torch.equal(found(q, k, v), wanted(q, k, v))
    S = (q @ k.mT).abs()[0, 0]
    assert causal.largest == float(S.tril().max()) < full.largest == float(S.max())


@pytest.mark.parametrize("shape", [SMALL, BOUNDED], ids=["free", "bounded"])
@pytest.mark.parametrize("attend", [exactly(), uniformly, low_rank(2, polynomial="taylor")])
def test_no_score_depends_on_later_tokens(shape, attend):
    model, x = transformer(shape, attend), tokens(shape)
    with torch.no_grad():
        before = model(x)
        x[:, 40:] = (x[:, 40:] + 1) % shape.vocabulary
        after = model(x)
    assert torch.equal(before[:, :40], after[:, :40]) and not torch.equal(before[:, 40:], after[:, 40:])


@pytest.mark.parametrize("causal", [False, True])
def test_the_error_of_all_parameters_gradient_falls_with_the_degree(causal):
    model = transformer(BOUNDED, exactly(causal)).double()
    wanted = gradients(model, exactly(causal))
    assert all(layer.W_Q.weight.grad.norm() > 0 for layer in model.layers)  # also through the bound
    ways = [low_rank(g, causal, polynomial="minimax", radius=1.0) for g in (2, 4, 6)]
    errors = [off(gradients(model, attend), wanted) for attend in ways]
    assert errors[0] > 10 * errors[1] > 100 * errors[2] > 0
    assert errors[2] < 1e-5


@pytest.mark.parametrize("bound", [0.5, 2.0, 4.0, None])
def test_bounded_logits_are_bounded_whatever_the_weights(bound):
    watching = LargestLogit(causal=False)
    model = transformer(Shape(**SIZES, bound=bound), watching)
    with torch.no_grad():
        for layer in model.layers:
            layer.W_Q.weight.mul_(1000)
            layer.W_K.weight.mul_(1000)
        assert model(tokens(SMALL)).isfinite().all()
    if bound is None:
        assert watching.largest > 100
    else:
        assert 0.8 * bound < watching.largest <= bound * (1 + 1e-6)


@pytest.mark.parametrize("bound", [None, 2.0])
def test_the_key_variance_is_that_of_the_keys_at_the_start(bound):
    shape = Shape(vocabulary=64, length=512, layers=1, bound=bound)
    seen = []
    model = transformer(shape, lambda q, k, v: seen.append(k) or v)
    model(tokens(shape))
    assert float(seen[0].detach().var()) == pytest.approx(shape.key_variance, rel=0.1)


def test_turning_keeps_lengths_and_products_depend_on_the_distance():
    q, k = (drawn(1, 6, seed=seed).expand(30, 6) for seed in range(2))
    a, b = apply_rotary(q), apply_rotary(k)
    assert torch.allclose(a.norm(dim=-1), q.norm(dim=-1), atol=1e-13)
    S = a @ b.T
    for distance in (-20, 0, 1, 7):
        along = S.diagonal(distance)
        assert torch.allclose(along, along[:1].expand_as(along), atol=1e-12)
    assert abs(S[0, 0] - S[0, 1]) > 1e-3


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_s_own_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (transformer(SMALL, exactly(), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.layers[0].W_Q.weight, other.layers[0].W_Q.weight)


def test_from_stream_is_the_rest_of_the_model():
    model, x = transformer(SMALL, exactly()), tokens(SMALL)
    assert torch.equal(model(x), model.from_stream(model.embed(x)))
    assert model(x).shape == (2, SMALL.length, SMALL.vocabulary)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"d": 5}, "d must be even, because pairs of columns are rotated, got 5"),
        ({"bound": 0.0}, "bound must be positive and finite, or None, got 0.0"),
        ({"bound": float("inf")}, "bound must be positive and finite, or None, got inf"),
        ({"layers": 0}, "layers"),
        ({"heads": 1.5}, "heads"),
        ({"layers": True}, "layers must be an integer of at least "),
    ],
)
def test_sizes_that_cannot_be(wrong, said):
    with pytest.raises((ValueError, TypeError), match=said):
        Shape(**{"vocabulary": 11, "length": 70} | wrong)


def test_sizes_of_numpy_are_those_of_python():
    found = Shape(*map(np.int32, (11, 70)), layers=np.int8(2), heads=np.uint8(100), d=np.uint8(4))
    assert found == Shape(11, 70, layers=2, heads=100, d=4) and found.width == 400  # too large for uint8


def test_each_layer_may_have_its_own_attention():
    model, calls = transformer(SMALL, exactly()), []

    def named(name, attend):
        return lambda q, k, v: calls.append(name) or attend(q, k, v)

    exact = model(tokens(SMALL))
    model.attend = [named("first", exactly()), named("last", uniformly)]
    mixed = model(tokens(SMALL))
    assert calls == ["first", "last"] and not torch.equal(mixed, exact)
    model.attend = [exactly(), exactly()]
    assert torch.equal(model(tokens(SMALL)), exact)
    model.attend = [exactly()]
    with pytest.raises(ValueError, match="shorter"):
        model(tokens(SMALL))
