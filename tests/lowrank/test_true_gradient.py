"""The gradient is that of the function computed: through the mean key and every row's variance, too."""

import math

import numpy as np
import pytest
from dense_attention import CLIP, agree, attend, by, draw, every_head, off, options_of
from finite_differences import slope

from iocourse import lowrank
from iocourse.lowrank.polynomials import NAMES

# low degrees for σ = 0.8 are compared with their own function only
pytestmark = pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
N, D = 150, 6  # three causal tiles, the last one smaller


def arrays_of_spread(sigma, dtype=np.float64):
    """Return Q, K, V, dO whose logits, scaled by 1/√d, have a standard deviation of about sigma."""
    rng = np.random.default_rng(54)
    Q, K, V, dO = rng.standard_normal((4, N, D))
    return tuple(X.astype(dtype) for X in (math.sqrt(sigma) * Q, math.sqrt(sigma) * (K + 0.5), V, dO))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name, more", [*((name, {}) for name in NAMES), ("hermite", {"key_variance": 0.6})])
def test_the_dense_gradient_is_the_slope_of_the_dense_output(name, more, causal):
    """The reference of the tests is right without a derivation; the variance of some rows is clipped."""
    arrays, options = np.stack(arrays_of_spread(0.8)), options_of(name, causal) | more
    for degree in (1, 2, 3, 4, 5):
        gradients = attend(*arrays, degree, **options)[1:4]
        for which in range(3):
            direction = np.zeros_like(arrays)
            direction[which] = np.random.default_rng(degree).standard_normal((N, D))

            def loss(t, degree=degree, direction=direction):
                return (arrays[3] * attend(*(arrays + t * direction), degree, **options).O).sum()

            wanted, error = slope(loss)
            assert abs((gradients[which] * direction[which]).sum() - wanted) <= error


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 3e-5)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_that_of_the_function_computed(engine, name, causal, dtype, tolerance):
    """Statistics held constant gave errors of 0.3 to 16 %; also of dQ in causal attention."""
    compared = 0
    for sigma in (0.35, 0.5, 0.8):
        arrays, options = arrays_of_spread(sigma, dtype), options_of(name, causal, 3.0, sigma)
        for degree in (1, 2, 3, 4):
            try:
                found = by(engine, *arrays, degree=degree, **options)
            except lowrank.NotCertified:
                continue
            agree(found, every_head(*arrays, degree=degree, **options), tolerance, arrays[3])
            compared += 1
    assert compared >= 6


@pytest.mark.parametrize("key_variance", [None, 0.6])
def test_clipped_and_other_rows_together(engine, key_variance):
    """A variance above the limit is a constant; rows of both kinds occur."""
    Q, K, V, dO = arrays_of_spread(0.8)
    Q[::2] *= 2
    k = K - K.mean(0)
    variances = np.einsum("ia,ab,ib->i", Q, k.T @ k / len(k), Q) / D
    assert 30 < np.count_nonzero(variances > CLIP) < N - 30
    found = by(engine, Q, K, V, dO, degree=3, key_variance=key_variance)
    wanted = every_head(Q, K, V, dO, degree=3, key_variance=key_variance)
    agree(found, wanted, 1e-10, dO)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mean", [1e3, -1e4])
def test_a_large_mean_of_the_values_loses_no_digits(engine, mean, causal):
    """O is right to a few units in its last place; sums of 100 + v had lost 10 to 40."""
    Q, K, V, dO = draw(1, (), 3000, 3000, 4, 4, np.float32)
    V[:, 1:] += np.float32(mean)  # and one column without a mean
    options = options_of("hermite", causal, key_variance=0.5) | {"degree": 3}
    wide = [X.astype(np.float64) for X in (Q, K, V, dO)]
    wide[2][:, 1:] -= mean  # float64 would lose digits too
    wanted = list(lowrank.gradient(*wide, engine="numpy", **options))
    wanted[0][:, 1:] += mean
    found = by(engine, Q, K, V, dO, **options)
    unit = np.spacing(np.float32(abs(mean)))
    error = abs(found[0].astype(np.float64) - wanted[0])
    # causal: the first tile is summed as it is
    assert error[:, 1:].max() <= (8 if causal else 0.51) * unit
    assert error[64:, 1:].max() <= 0.51 * unit + 1e-5
    assert error[:, 0].max() < 1e-5
    # δ uses O, so dQ and dK have its last digit: a unit over the spread of V, 1
    for f, w, tolerance in zip(found[1:], wanted[1:], (2 * unit, 2 * unit, 1e-5), strict=True):
        assert off(f, w) < tolerance + 1e-5


def test_equal_values_are_returned_as_they_are(engine):
    Q, K, V, dO = draw(2, (), 200, 300, 4, 3, np.float32)
    V[:] = np.float32(1234.567)
    O, dQ, dK, _ = by(engine, Q, K, V, dO, degree=3)
    np.testing.assert_allclose(O, np.broadcast_to(V[0], O.shape), rtol=1e-7)
    assert abs(dQ).max() < 1e-6 and abs(dK).max() < 1e-6  # 1e-3 with sums of the values as they are
