"""Low-rank attention and its gradient equal the dense formula, on every engine and for all memory layouts."""

from unittest.mock import patch

import numpy as np
import pytest
from dense_attention import agree, attend, by, draw, every_head, off, options_of, softmax
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import lowrank
from iocourse.lowrank import feature_tiles
from iocourse.lowrank.polynomials import CLIP, NAMES

TOLERANCE = {np.float64: 1e-10, np.float32: 5e-5}
CANCELS = 30  # polynomials of an interval wider than the logits have large coefficients of both signs


def is_justified(arrays, options):
    """Return True if a head has a row with a denominator or output that is impossible for a softmax."""
    heads = [X.reshape(-1, *X.shape[-2:]) for X in arrays]
    for head in zip(*heads, strict=True):
        found = attend(*head, **options)
        smallest = found.P.mean(1).min()
        if smallest < 0.5 * np.exp(CLIP / 2) or abs(found.O).max() > 1.99 * abs(head[2]).max():
            return True
    return False


heads = st.sampled_from([(), (1,), (3,), (2, 2)])
rows = st.sampled_from([1, 2, 5, 63, 64, 65, 127, 129, 255, 256, 257, 300])
width, seed = st.integers(1, 9), st.integers(0, 10**6)
others = st.sampled_from([{}, {}, {"scale": -0.4}, {"scale": 0.1}, {"scale": 0.3}, {"key_variance": 0.5}])
problems = st.tuples(seed, heads, rows, rows, width, width, st.sampled_from([np.float32, np.float64]))


@pytest.mark.parametrize("causal", [False, True])
@given(problems, st.integers(1, 6), st.sampled_from(NAMES), others)
@settings(max_examples=many(25, 50))
@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_every_engine_computes_the_dense_formula(engine, causal, problem, degree, name, other):
    """Compare with the dense polynomial formula only; a low degree may be far from softmax."""
    seed, heads, n, n_k, d, d_v, dtype = problem
    arrays = draw(seed, heads, n, n if causal else n_k, d, d_v, dtype, size=0.6 if causal else 0.7)
    options = options_of(name, causal, radius=2.0 if causal else 4.0) | other | {"degree": degree}
    try:
        found = by(engine, *arrays, **options)
    except lowrank.NotCertified:
        assert not causal and is_justified(arrays, options)
        return
    assert all(X.dtype == dtype for X in found)
    tolerance = TOLERANCE[dtype] * (CANCELS if "radius" in options else 1)
    agree(found, every_head(*arrays, **options), tolerance, arrays[3])


@given(
    st.tuples(*[st.integers(1, 70)] * 2, st.integers(1, 6), st.integers(1, 12)),
    st.integers(1, 5), st.sampled_from(["hermite", "taylor"]), st.integers(1, 40), seed,
)  # fmt: skip
@settings(max_examples=many(40, 100))
def test_numpy_computes_the_dense_formula_in_tiles_of_any_size(sizes, degree, name, columns, seed):
    """Most shapes end with an incomplete tile, and have stored and omitted blocks of the last degree."""
    arrays, options = draw(seed, (), *sizes, size=0.3), {"degree": degree, "polynomial": name}
    with patch.multiple(feature_tiles, MOST=columns, LEAST=1):
        try:
            found = by("numpy", *arrays, **options)
        except lowrank.NotCertified:
            assert is_justified(arrays, options)
            return
    agree(found, every_head(*arrays, **options), 1e-11, arrays[3])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["hermite", "taylor", "minimax"])
def test_a_gradient_can_have_its_own_degree(engine, name, causal):
    arrays, options = draw(3, (2,), 90, 90, 4, 3), options_of(name, causal)
    found = by(engine, *arrays, degree=2, gradient_degree=3, **options)
    values, gradients = (every_head(*arrays, degree=degree, **options) for degree in (2, 3))
    agree(found, (values[0], *gradients[1:]), 1e-10, arrays[3])
    assert off(found[1], values[1]) > 1e-3  # and not that of degree 2


def test_many_tokens_over_spans_and_tiles(engine):
    """More tokens than two spans of a thread and two tiles of torch's features."""
    arrays = draw(5, (), 17_000, 16_500, 4, 3, np.float32, size=0.5)
    wanted = lowrank.gradient(*(X.astype(np.float64) for X in arrays), degree=3, engine="numpy")
    rows = np.r_[0:3, 255:258, 8190:8194, 16380:16388, 16997:17000]
    few = attend(arrays[0][rows], *arrays[1:3], arrays[3][rows], degree=3)
    assert max(off(wanted.O[rows], few.O), off(wanted.dQ[rows], few.dQ)) < 1e-10
    agree(by(engine, *arrays, degree=3), wanted, 1e-4, arrays[3])


def every_other_column(X):
    wide = np.zeros((*X.shape[:-1], 2 * X.shape[-1]))
    wide[..., ::2] = X
    return wide[..., ::2]


def heads_last(X):
    return np.ascontiguousarray(X.transpose(1, 2, 0)).transpose(2, 0, 1)


def backwards(X):
    return np.ascontiguousarray(X[:, ::-1])[:, ::-1]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", [every_other_column, np.asfortranarray, heads_last, backwards])
def test_strided_arrays(engine, causal, layout):
    if engine.startswith("torch") and layout == backwards:
        pytest.skip("torch has no negative strides")
    arrays, options = draw(7, (2,), 70, 70, 5, 5), options_of("taylor", causal)
    strided = [layout(X) for X in arrays]
    assert not any(X.flags.c_contiguous for X in strided)
    found = by(engine, *strided, degree=3, **options)
    agree(found, by(engine, *arrays, degree=3, **options), 1e-12, arrays[3])
    for X, original in zip(strided, arrays, strict=True):
        np.testing.assert_array_equal(X, original)  # inputs are not modified


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_read_only_and_broadcast_arrays(engine):
    """Keys that heads share; torch cannot hold read-only arrays."""
    pytest.importorskip(engine)
    arrays = draw(8, (3,), 40, 50, 4, 4)
    arrays = [np.broadcast_to(X[:1], X.shape) for X in arrays]
    agree(by(engine, *arrays, degree=2), every_head(*arrays, degree=2), 1e-10, arrays[3])


def test_lists_are_arrays():
    Q, K, V, _ = draw(9, (), 4, 5, 2, 3)
    O = lowrank.attention(Q.tolist(), K.tolist(), V.tolist(), degree=2)
    np.testing.assert_array_equal(O, lowrank.attention(Q, K, V, degree=2))


@pytest.mark.parametrize("offset", [30.0, 300.0])
def test_keys_that_share_an_offset_keep_their_precision(engine, offset):
    """A common offset of keys cancels in softmax; sums of squares about 0 would lose the covariance."""
    Q, K, V, dO = draw(10, (), 900, 700, 4, 3, np.float32)
    K = K + np.float32(offset)
    wanted = every_head(Q, K, V, dO, degree=3)
    agree(by(engine, Q, K, V, dO, degree=3), wanted, 5e-5 * max(1, offset / 100), dO)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_errors_against_softmax_fall_with_the_degree(engine, name, causal):
    """Outputs and gradients converge to those of exact attention for small logits.

    Causal Hermite would not, if the factor e^(σ²/2) were missing where exact terms are added.
    """
    arrays = draw(12, (), 200, 200, 4, 4, size=0.45)
    exact = softmax(*arrays, scale=1 / 2, causal=causal)
    options = options_of(name, causal, radius=lowrank.advise(*arrays[:2]).logit_limit, key_variance=0.2)
    # Chebyshev and minimax approximate on an interval much wider than the range of the logits.
    degree_4 = {"hermite": 1.2e-4, "taylor": 4.5e-4}.get(name, 2e-3)
    before = [np.inf] * 4
    for degree in (2, 4, 6, 8):
        found = by(engine, *arrays, degree=degree, **options)
        after = [off(f, w) for f, w in zip(found, exact, strict=True)]
        assert all(a < b / 4 for a, b in zip(after, before, strict=True)), (degree, before, after)
        assert degree != 4 or after[0] < degree_4
        before = after
