"""Causal low rank: exact within a tile, and independent of later tokens."""

import numpy as np
import pytest
from dense_attention import agree, by, draw, options_of, softmax

from iocourse.lowrank.polynomials import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_one_tile_is_exact_attention_whatever_the_degree(engine, name):
    arrays = draw(2, (), 64, 64, 4, 3, size=1.5)
    found = by(engine, *arrays, degree=2, **options_of(name, causal=True))
    agree(found, softmax(*arrays, scale=1 / 2, causal=True), 1e-12, arrays[3])


@pytest.mark.parametrize("mean", [0, 1e3])
@pytest.mark.parametrize("name", NAMES)
def test_later_rows_change_no_bit_of_earlier_ones(engine, name, mean):
    """Also not by the offset of V, which is the mean of the first tile; rows of that tile do not use it."""
    options = options_of(name, causal=True, radius=4.0 if name == "minimax" else 2.0) | {"degree": 3}
    first, other = (draw(seed, (), 192, 192, 5, 4, np.float32, size=0.6) for seed in (3, 4))
    first[2][:] += np.float32(mean)
    other[2][:] += np.float32(3 * mean)
    before = by(engine, *first, **options)[0]
    for row in (0, 30, 40, 63, 64, 100, 130, 191):
        changed = [X.copy() for X in first]
        for X, Y in zip(changed[:3], other[:3], strict=True):
            X[row + 1 :] = Y[row + 1 :]
        after = by(engine, *changed, **options)[0]
        np.testing.assert_array_equal(after[: row + 1], before[: row + 1])
        assert (after[row + 1 :] != before[row + 1 :]).any(axis=1).all()
