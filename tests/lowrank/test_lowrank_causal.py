"""Causal low rank: exact within a tile, values of the polynomial outside, independent of later tokens."""

import dense_attention
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

TOLERANCE = {np.float64: 1e-10, np.float32: 5e-5}
OPTIONS = {
    "hermite": {"key_variance": 0.4},
    "taylor": {},
    "chebyshev": {"radius": 2.0},
    "minimax": {"radius": 4.0},
}
names = st.sampled_from(list(OPTIONS))


@given(
    st.sampled_from([1, 2, 63, 64, 65, 127, 128, 129, 200]),
    st.sampled_from([(), (2,), (2, 2)]),
    dense_attention.widths,
    st.integers(1, 5),
    names,
    st.integers(0, 10**6),
)
@settings(max_examples=many(15, 30))
def test_every_engine_computes_the_block_function(engine, n, heads, wide, degree, name, seed):
    dtype, (d, d_v) = wide
    arrays = dense_attention.draw(seed, heads, n, n, d, d_v, dtype, size=0.6)
    options = {"degree": degree, "polynomial": name, "causal": True, **OPTIONS[name]}
    found = dense_attention.by(engine, *arrays, **options)
    dense_attention.agree(found, dense_attention.every_head(*arrays, **options), TOLERANCE[dtype], arrays[3])


@pytest.mark.parametrize("name", list(OPTIONS))
def test_five_hundred_tokens(engine, name):
    arrays = dense_attention.draw(1, (), 500, 500, 6, 5, np.float32, size=0.6)
    options = {"degree": 3, "polynomial": name, "causal": True, **OPTIONS[name]}
    dense_attention.agree(
        dense_attention.by(engine, *arrays, **options),
        dense_attention.every_head(*arrays, **options),
        5e-5,
        arrays[3],
    )


@pytest.mark.parametrize("name", list(OPTIONS))
def test_one_tile_is_exact_attention_whatever_the_degree(engine, name):
    arrays = dense_attention.draw(2, (), 64, 64, 4, 3, size=1.5)
    found = dense_attention.by(engine, *arrays, degree=2, polynomial=name, causal=True, **OPTIONS[name])
    dense_attention.agree(found, dense_attention.softmax(*arrays, scale=1 / 2, causal=True), 1e-12, arrays[3])


@pytest.mark.parametrize("name", list(OPTIONS))
@pytest.mark.parametrize("row", [0, 40, 63, 64, 100, 191])
def test_later_rows_change_no_bit_of_earlier_ones(engine, name, row):
    arrays = dense_attention.draw(3, (), 192, 192, 5, 4, np.float32, size=0.6)
    options = {"degree": 3, "polynomial": name, "causal": True, **OPTIONS[name]}
    before = dense_attention.by(engine, *arrays, **options)[0]
    changed = [X.copy() for X in arrays]
    for X, other in zip(
        changed[:3], dense_attention.draw(4, (), 192, 192, 5, 4, np.float32, size=0.6), strict=False
    ):
        X[row + 1 :] = other[row + 1 :]
    after = dense_attention.by(engine, *changed, **options)[0]
    np.testing.assert_array_equal(after[: row + 1], before[: row + 1])
    assert row == 191 or (after[row + 1 :] != before[row + 1 :]).all(axis=1).all()


def test_gradients_come_from_later_rows_only(engine):
    """dK and dV of a key do not depend on earlier queries, and dQ does not depend on later keys."""
    Q, K, V, dO = dense_attention.draw(5, (), 192, 192, 5, 4)
    options = {"degree": 2, "polynomial": "hermite", "key_variance": 0.4, "causal": True}
    dO[100:] = 0
    _, dQ, dK, dV = dense_attention.by(engine, Q, K, V, dO, **options)
    for X in (dQ, dK, dV):
        assert abs(X[100:]).max() == 0
        assert (abs(X[1:100]).max(axis=1) > 0).all()


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_near_and_far_are_on_one_scale(engine, degree):
    """Hermite omits e^(σ²/2) if it cancels; here it does not cancel and must be included."""
    Q, K, V, dO = dense_attention.draw(6, (), 256, 256, 8, 4, size=0.9)
    exact = dense_attention.softmax(Q, K, V, dO, scale=8**-0.5, causal=True)[0]
    options = {"degree": degree, "causal": True}
    fitted = dense_attention.by(engine, Q, K, V, dO, polynomial="hermite", key_variance=0.81, **options)[0]
    taylor = dense_attention.by(engine, Q, K, V, dO, polynomial="taylor", **options)[0]
    assert dense_attention.off(fitted, exact) < 0.8 * dense_attention.off(taylor, exact)


def test_causal_gradients_can_have_their_own_degree(engine):
    arrays = dense_attention.draw(7, (2,), 130, 130, 4, 3)
    options = {"polynomial": "hermite", "key_variance": 0.4, "causal": True}
    found = dense_attention.by(engine, *arrays, degree=2, gradient_degree=4, **options)
    values, gradients = (dense_attention.every_head(*arrays, degree=degree, **options) for degree in (2, 4))
    dense_attention.agree(found, (values[0], *gradients[1:]), 1e-10, arrays[3])


@pytest.mark.parametrize(
    "options, missing",
    [
        ({}, "key_variance"),
        ({"polynomial": "hermite"}, "key_variance"),
    ],
)
def test_statistics_of_the_sequence_are_refused(engine, options, missing):
    arrays = dense_attention.draw(8, (), 10, 10, 3, 3)
    with pytest.raises(ValueError, match=rf"needs {missing}, because.*later.*Pass {missing}"):
        dense_attention.by(engine, *arrays, degree=2, causal=True, **options)
