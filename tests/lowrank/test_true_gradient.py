"""The gradient is that of the function computed: through the mean key and every row's variance, too.

The reference is the same function written in torch with the n × n scores, and differentiated by torch.
"""

import math

import dense_attention
import numpy as np
import pytest

from iocourse import lowrank

torch = pytest.importorskip("torch")
# low degrees for σ = 0.8 are compared with their own function only
pytestmark = pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")

NAMES = ("hermite", "taylor", "chebyshev", "minimax")
N, D = 150, 6  # three causal tiles, the last one smaller
RADIUS = 3.0


def arrays_of_spread(sigma, dtype=np.float64):
    """Return Q, K, V, dO whose logits, scaled by 1/√d, have a standard deviation of about sigma."""
    rng = np.random.default_rng(54)
    Q, K, V, dO = rng.standard_normal((4, N, D))
    return tuple(X.astype(dtype) for X in (math.sqrt(sigma) * Q, math.sqrt(sigma) * (K + 0.5), V, dO))


def in_torch(Q, K, V, dO, degree, polynomial, causal=False, key_variance=None, radius=None):
    """Return O, dQ, dK, dV of the function that `lowrank.attention` computes."""
    q, k, v = (torch.tensor(X, dtype=torch.float64, requires_grad=True) for X in (Q, K, V))
    x, y = q / math.sqrt(D), k if causal else k - k.mean(0)
    s = x @ y.T
    if polynomial == "hermite":
        given = key_variance is not None
        covariance = key_variance * torch.eye(D, dtype=torch.float64) if given else y.T @ y / len(y)
        half = -((x @ covariance) * x).sum(1, keepdim=True).clamp(max=dense_attention.CLIP) / 2
        P = 0
        for l in range(degree + 1):
            cut = sum(half**m / math.factorial(m) for m in range((degree - l) // 2 + 1))
            P = P + cut * s**l / math.factorial(l)
        P = P * (-half).exp()
    else:
        coefficients = lowrank.polynomial(polynomial, degree, radius).coefficients
        P = sum(c * s**l for l, c in enumerate(coefficients.tolist()))
    if causal:
        i = torch.arange(N)
        near = i[:, None] // dense_attention.TILE == i // dense_attention.TILE
        P = torch.where(near, s.exp(), P) * (i <= i[:, None])
    O = P @ v / P.sum(1, keepdim=True)
    found = torch.autograd.grad(O, (q, k, v), torch.tensor(dO, dtype=torch.float64))
    return tuple(X.detach().numpy() for X in (O, *found))


def options_of(name, sigma, causal):
    options = {"polynomial": name, "causal": causal}
    if name in ("chebyshev", "minimax"):
        options["radius"] = RADIUS
    if name == "hermite" and causal:
        options["key_variance"] = sigma
    return options


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sigma", [0.35, 0.5, 0.8])
def test_the_gradient_is_that_of_the_function_computed(engine, sigma, name, causal):
    """Statistics held constant gave errors of 0.3 to 16 %; also of dQ in causal attention."""
    arrays, options = arrays_of_spread(sigma), options_of(name, sigma, causal)
    compared = 0
    for degree in (1, 2, 3, 4):
        try:
            found = dense_attention.by(engine, *arrays, degree=degree, **options)
        except lowrank.NotCertified:
            continue
        for f, w in zip(found, in_torch(*arrays, degree, **options), strict=True):
            assert dense_attention.off(f, w) < 1e-6
        if not causal:
            assert abs(found[2].sum(0)).max() < 1e-9
        compared += 1
    assert compared >= 2


def test_with_a_given_variance_the_rows_depend_on_it_and_the_keys_do_not(engine):
    arrays = arrays_of_spread(0.8)
    found = dense_attention.by(engine, *arrays, degree=3, key_variance=0.6)
    for f, w in zip(found, in_torch(*arrays, 3, "hermite", key_variance=0.6), strict=True):
        assert dense_attention.off(f, w) < 1e-6


def test_clipped_and_other_rows_together(engine):
    """A variance above the limit is a constant; rows of both kinds occur."""
    Q, K, V, dO = arrays_of_spread(0.8)
    Q[::2] *= 2
    k = K - K.mean(0)
    variances = np.einsum("ia,ab,ib->i", Q, k.T @ k / len(k), Q) / D
    assert 30 < np.count_nonzero(variances > dense_attention.CLIP) < N - 30
    found = dense_attention.by(engine, Q, K, V, dO, degree=2)
    for f, w in zip(found, in_torch(Q, K, V, dO, 2, "hermite"), strict=True):
        assert dense_attention.off(f, w) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("degree", [2, 3, 4])
def test_float32_in_registers_or_loops(engine, degree, causal):
    arrays, options = arrays_of_spread(0.8, np.float32), options_of("hermite", 0.8, causal)
    found = dense_attention.by(engine, *arrays, degree=degree, **options)
    for f, w in zip(found, in_torch(*arrays, degree, **options), strict=True):
        assert dense_attention.off(f, w) < 2e-5  # the terms that were missing are 1 to 16 %


@pytest.mark.parametrize("causal", [False, True])
def test_central_differences_agree_with_the_gradient(causal):
    """No derivative of ours is used: the largest entries of the gradient by moving one number at a time."""
    Q, K, V, dO = (X[:70] for X in arrays_of_spread(0.5))
    options = {"degree": 3, "causal": causal, "key_variance": 0.5 if causal else None, "engine": "numpy"}
    g = lowrank.gradient(Q, K, V, dO, **options)
    h = 1e-4  # truncation is about h², rounding 1e-15 · 70 / h
    for X, dX in ((Q, g.dQ), (K, g.dK), (V, g.dV)):
        at = np.unravel_index(abs(dX).argmax(), X.shape)
        here, ends = X[at], []
        for there in (here + h, here - h):
            X[at] = there
            ends.append((dO * lowrank.attention(Q, K, V, **options)).sum())
        X[at] = here
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(dX[at], rel=1e-6)


@pytest.mark.parametrize("name", ["chebyshev", "minimax"])
def test_the_radius_is_an_argument(engine, name):
    """It was taken from the data, and its derivative was missing: 4 to 74 % of the gradient."""
    arrays = arrays_of_spread(0.5)
    for causal in (False, True):
        with pytest.raises(ValueError, match=rf"polynomial='{name}' needs radius, .*lowrank.advise\(Q, K\)"):
            dense_attention.by(engine, *arrays, degree=4, polynomial=name, causal=causal)
    radius = lowrank.advise(arrays[0], arrays[1]).logit_limit
    assert np.isfinite(lowrank.attention(*arrays[:3], degree=4, polynomial=name, radius=radius)).all()


# ---- values with a large mean


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mean", [1e3, -1e4])
def test_a_large_mean_of_the_values_loses_no_digits(engine, mean, causal):
    """O is right to a few units in its last place; sums of 100 + v had lost 10 to 40."""
    Q, K, V, dO = dense_attention.draw(1, (), 3000, 3000, 4, 4, np.float32)
    V[:, 1:] += np.float32(mean)  # and one column without a mean
    options = options_of("hermite", 0.5, causal) | {"degree": 3}
    wide = [X.astype(np.float64) for X in (Q, K, V, dO)]
    wide[2][:, 1:] -= mean  # float64 would lose digits too
    wanted = list(lowrank.gradient(*wide, engine="numpy", **options))
    wanted[0][:, 1:] += mean
    found = dense_attention.by(engine, Q, K, V, dO, **options)
    unit = np.spacing(np.float32(abs(mean)))
    error = abs(found[0].astype(np.float64) - wanted[0])
    # causal: the first tile is summed as it is
    assert error[:, 1:].max() <= (8 if causal else 0.51) * unit
    assert error[64:, 1:].max() <= 0.51 * unit + 1e-5
    assert error[:, 0].max() < 1e-5
    # δ uses O, so dQ and dK have its last digit: a unit over the spread of V, 1
    for f, w, tolerance in zip(found[1:], wanted[1:], (2 * unit, 2 * unit, 1e-5), strict=True):
        assert dense_attention.off(f, w) < tolerance + 1e-5


def test_equal_values_are_returned_as_they_are(engine):
    Q, K, V, dO = dense_attention.draw(2, (), 200, 300, 4, 3, np.float32)
    V[:] = np.float32(1234.567)
    O, dQ, dK, _ = dense_attention.by(engine, Q, K, V, dO, degree=3)
    np.testing.assert_allclose(O, np.broadcast_to(V[0], O.shape), rtol=1e-7)
    assert abs(dQ).max() < 1e-6 and abs(dK).max() < 1e-6  # 1e-3 with sums of the values as they are


@pytest.mark.parametrize("large", [0.0, 1e3])
def test_no_causal_row_changes_with_later_values(engine, large):
    """The mean that is taken off V is that of the first tile, and rows of that tile do not use it."""
    Q, K, V, dO = dense_attention.draw(3, (), 200, 200, 4, 3, np.float32)
    V += np.float32(large)
    options = {"degree": 2, "causal": True, "key_variance": 0.4}
    was = dense_attention.by(engine, Q, K, V, dO, **options)[0]
    for last in (30, 64, 130):
        later = V.copy()
        later[last:] += np.float32(3e3)
        now = dense_attention.by(engine, Q, K, later, dO, **options)[0]
        np.testing.assert_array_equal(now[:last], was[:last])
        assert abs(now[last:] - was[last:]).min() > 1
