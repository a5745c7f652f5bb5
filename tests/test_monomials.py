"""Monomials: which there are, how often each is in a power, and that features and gradients are theirs."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import monomials

coordinates = st.integers(1, 9)
degrees = st.integers(1, 6)
seeds = st.integers(0, 10**6)


def exponents(p):
    """(rank, d): how often each coordinate stands in each feature, read off features of primes."""
    table = monomials.coordinates(p)
    return np.stack([(table == i).sum(0) for i in range(p.d)], axis=1)


@given(coordinates, degrees)
@settings(max_examples=60)
def test_every_monomial_stands_once_and_says_how_often_it_is_in_a_power(d, g):
    p = monomials.plan(d, g)
    found = [tuple(map(int, row)) for row in exponents(p)]
    assert len(found) == len(set(found)) == p.rank == monomials.rank_of(d, g) == math.comb(d + g, g)
    assert [sum(row) for row in found] == p.degrees.tolist() == sorted(p.degrees)
    often = [math.factorial(sum(row)) // math.prod(map(math.factorial, row)) for row in found]
    assert p.multiplicities.tolist() == often
    assert p.starts.tolist() == [math.comb(d + l - 1, l - 1) if l else 0 for l in range(g + 2)]


def test_a_small_plan_by_hand():
    p = monomials.plan(2, 3)
    assert exponents(p).tolist() == [
        *([0, 0], [1, 0], [0, 1]),
        *([2, 0], [1, 1], [0, 2]),
        *([3, 0], [2, 1], [1, 2], [0, 3]),
    ]
    assert p.multiplicities.tolist() == [1, 1, 1, 1, 2, 1, 1, 3, 3, 1]
    assert p.table.tolist() == [[3, 5, 0, 1], [5, 6, 1, 2], [6, 9, 0, 3], [9, 10, 1, 5]]


def test_powers_of_a_sum_have_as_many_products_as_their_multiplicities_say():
    p = monomials.plan(3, 4)
    products = [tuple(sorted(word)) for word in itertools.product(range(3), repeat=4)]
    for row, often, degree in zip(exponents(p), p.multiplicities, p.degrees, strict=True):
        if degree == 4:
            word = tuple(i for i in range(3) for _ in range(row[i]))
            assert products.count(word) == often


@given(coordinates, degrees, st.integers(1, 7), seeds, st.sampled_from([np.float32, np.float64]))
@settings(max_examples=60)
def test_products_of_features_are_powers_of_products(d, g, n, seed, dtype):
    rng = np.random.default_rng(seed)
    q, k = (rng.uniform(-1, 1, (n, d)).astype(dtype) for _ in range(2))
    p = monomials.plan(d, g)
    phi, psi = monomials.features(q, p), monomials.features(k, p)
    assert phi.shape == (p.rank, n) and phi.dtype == dtype
    s = q.astype(float) @ k.astype(float).T
    size = abs(q.astype(float)) @ abs(k.astype(float)).T  # what cancels within a power
    for l in range(g + 1):
        rows = slice(p.starts[l], p.starts[l + 1])
        power = (phi[rows] * p.multiplicities[rows, None].astype(dtype)).T @ psi[rows]
        assert (abs(power - s**l) <= 100 * np.finfo(dtype).eps * size**l).all()


@given(coordinates, degrees, st.integers(1, 5), seeds)
@settings(max_examples=60)
def test_pull_back_is_the_transposed_jacobian(d, g, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.3, 1.5, (n, d)) * rng.choice([-1, 1], (n, d))
    p = monomials.plan(d, g)
    found = monomials.features(x, p)
    d_features = rng.standard_normal(found.shape)
    a = exponents(p)  # d x^a / d x_i = a_i x^a / x_i
    wanted = np.einsum("ri,rn,rn->ni", a, d_features, found) / x
    kept = found.copy()
    got = monomials.features_vjp(d_features.copy(), found, x, p)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9 * abs(wanted).max())
    np.testing.assert_array_equal(found, kept)


def test_a_plan_is_made_once_and_takes_less_than_its_features_tile():
    monomials.plan.cache_clear()
    tracemalloc.start()
    p = monomials.plan(200, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert monomials.plan(200, 2) is p
    assert peak < 100 * p.rank  # bytes: no rank × d table on the way


def test_high_degrees_in_one_coordinate():
    p = monomials.plan(1, 300)  # 300! is no float
    assert (p.multiplicities == 1).all() and p.rank == 301


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, "2"])
def test_sizes_are_whole_numbers(bad):
    monomials.plan(2, 1), monomials.plan(2, 2)  # 2.0 == 2 and True == 1, but they must not be found instead
    for d, g in ((2, bad), (bad, 2)):
        with pytest.raises((TypeError, ValueError), match=r"whole number|at least 1"):
            monomials.plan(d, g)
