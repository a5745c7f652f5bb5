"""Baselines of linear attention: unbiased, exact at full size, or equal to an explicit formula."""

from math import comb, exp, factorial

import numpy as np
import pytest

from iocourse import exact
from iocourse.lowrank.baselines import (
    FIELD,
    TWICE_RHO,
    cholesky,
    coreset,
    degree_of,
    directions,
    elu,
    favor,
    lambert,
    log_features,
    monomials,
    nystrom,
    sata,
    temperature,
    term,
    wildcat,
)

pytestmark = pytest.mark.quick


def drawn(n=60, d=4, spread=0.5, seed=0):
    """Draw q, k, v with logits of this standard deviation; return them with softmax(qkᵀ)v."""
    q, k, v = np.random.default_rng(seed).standard_normal((3, n, d))
    q, k = (x * spread**0.5 / d**0.25 for x in (q, k))
    return q, k, v, exact.softmax(q @ k.T) @ v


def off(found, right):
    return np.linalg.norm(found - right) / np.linalg.norm(right)


@pytest.mark.parametrize("name", FIELD)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everybody_gives_means_of_values(name, dtype):
    """Equal values are reproduced for any weights, because the rows of every approximation sum to 1."""
    q, k, _, _ = drawn(spread=0.1)
    same = np.tile(np.array([3.0, -2.0]), (len(k), 1))
    found = FIELD[name](*(x.astype(dtype) for x in (q, k, same)), 15, np.random.default_rng(1))
    assert found.shape == (60, 2) and np.allclose(found, same, rtol=1e-4)


# ---------------------------------------------------------------------- FAVOR+
def test_favor_is_right_on_average():
    q, k = np.random.default_rng(5).standard_normal((2, 3, 8)) / 3
    W = directions(400_000, 8, np.random.default_rng(1))
    products = np.exp(log_features(q, W)) @ np.exp(log_features(k, W)).T / len(W)
    assert np.allclose(products, np.exp(q @ k.T), rtol=0.02)


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    W = directions(20, 8, np.random.default_rng(3))
    assert W.shape == (20, 8)
    for block in (W[:8], W[8:16], W[16:]):
        gram = block @ block.T
        assert np.allclose(gram, np.diag(np.diag(gram)), atol=1e-12)
    lengths = (directions(8000, 8, np.random.default_rng(0)) ** 2).sum(axis=1)
    assert lengths.mean() == pytest.approx(8, rel=0.02)
    many = directions(40_000, 2, np.random.default_rng(2))
    assert abs((many[:, 0] > 0).mean() - 0.5) < 0.02  # a direction is as likely as its opposite


def test_what_favor_takes_off_its_exponents_cancels():
    q, k, v, o = drawn()
    W = directions(50, 4, np.random.default_rng(4))
    A = np.exp(log_features(q, W)) @ np.exp(log_features(k, W)).T
    assert np.allclose(favor(q, k, v, 50, np.random.default_rng(4)), A @ v / A.sum(1, keepdims=True))
    far = favor(30 * q, 30 * k, v, 50, np.random.default_rng(4))
    assert np.isfinite(far).all()
    errors = [off(favor(q, k, v, m, np.random.default_rng(0)), o) for m in (20, 20_000)]
    assert errors[1] < errors[0] / 5


# ---------------------------------------------------------------------- Nyström
def test_nystrom_is_exact_where_every_key_is_a_landmark():
    q, k, v, o = drawn(n=30)
    whole, half = (off(nystrom(q, k, v, m, np.random.default_rng(0)), o) for m in (30, 15))
    assert whole < 1e-6 < half < 0.1


def test_nystrom_is_exact_for_a_kernel_of_full_rank_in_its_landmarks():
    """If the keys repeat a few vectors, these are sufficient."""
    q, few, v, _ = drawn(n=40)
    k = np.repeat(few[:4], 10, axis=0)
    o = exact.softmax(q @ k.T) @ v
    assert off(nystrom(q, k, v, 40, np.random.default_rng(1)), o) < 1e-8


# ---------------------------------------------------------------------- WildCat
def test_a_coreset_of_all_keys_is_exact_and_a_smaller_one_near():
    q, k, v, o = drawn(n=30, spread=1.5)
    errors = [off(wildcat(q, k, v, m, np.random.default_rng(0)), o) for m in (4, 15, 30)]
    assert errors[0] > 2 * errors[1] > 1000 * errors[2] and errors[2] < 1e-5


def test_weights_reproduce_the_keys_that_were_picked():
    _, k, _, _ = drawn(n=25)
    picked, W = coreset(k, 9, np.random.default_rng(2))
    assert len(set(picked)) == 9 and W.shape == (9, 25)
    assert np.allclose(W[:, picked], np.eye(9), atol=1e-8)
    scaled = k / temperature(float(np.linalg.norm(k, axis=1).max()), len(k))
    kernel = np.exp(scaled @ scaled.T)
    best = np.linalg.solve(kernel[np.ix_(picked, picked)], kernel[picked])
    assert np.allclose(W, best, atol=1e-6)


def test_the_factor_is_choleskys_on_the_rows_that_were_picked():
    _, x, _, _ = drawn(n=20)
    half = (x * x).sum(axis=1) / 2
    picked, F = cholesky(x, half, 7, np.random.default_rng(3))
    gauss = np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=2) / 2)
    assert np.allclose((F.T @ F)[picked], gauss[picked])
    assert np.allclose(np.tril(F[:, picked], -1), 0)


def test_pivots_are_drawn_by_what_is_left_and_end_where_nothing_is():
    x = np.repeat(np.array([[0.0, 1.0], [2.0, 0.0], [-1.0, -1.0]]), 5, axis=0)
    picked, F = cholesky(x, (x * x).sum(axis=1) / 2, 15, np.random.default_rng(0))
    assert len(picked) == 3 and len({at // 5 for at in picked}) == 3 and F.shape == (3, 15)
    firsts = [
        cholesky(x, (x * x).sum(axis=1) / 2, 1, np.random.default_rng(s))[0][0] // 5 for s in range(400)
    ]
    chances = np.exp([1.0, 4.0, 2.0]) / np.exp([1.0, 4.0, 2.0]).sum()
    assert np.allclose(np.bincount(firsts, minlength=3) / 400, chances, atol=0.07)


def test_the_temperature_is_that_of_its_formula():
    for y in (1e-6, 0.3, 5.0, 1e9):
        assert lambert(y) * exp(lambert(y)) == pytest.approx(y, rel=1e-12)
    assert pytest.approx(6.383202050647408, rel=1e-14) == TWICE_RHO
    assert temperature(1.0, 1000) > temperature(3.0, 1000) > 0.5  # wider keys, a flatter kernel does less


# ---------------------------------------------------------------------- SATA and elu + 1
def test_symmetric_monomials_make_powers_and_are_as_few_as_can_be():
    q, k, _, _ = drawn(n=6, d=5)
    for p in range(5):
        places, orders = term(p, 5)
        assert len(places) == comb(5 + p - 1, p) and orders.sum() == 5**p
        found = (monomials(q, places) * orders) @ monomials(k, places).T
        assert np.allclose(found, (q @ k.T) ** p, atol=1e-13)


@pytest.mark.parametrize("g", [0, 1, 2, 3, 4])
def test_sata_is_taylors_polynomial_written_out(g):
    q, k, v, _ = drawn(spread=0.3)
    A = sum((q @ k.T) ** p / factorial(p) for p in range(g + 1))
    assert np.allclose(sata(q, k, v, comb(4 + g, g)), A @ v / A.sum(axis=1, keepdims=True), atol=1e-10)


def test_satas_degree_is_the_largest_with_so_many_features():
    assert [degree_of(m, 8) for m in (1, 8, 9, 44, 45, 495, 1286)] == [0, 0, 1, 1, 2, 4, 4]
    with pytest.raises(ValueError, match=r"m must be at least 1 \(the constant feature\), got 0"):
        degree_of(0, 8)


def test_elu_is_the_sum_written_out():
    q, k, v, _ = drawn(30, spread=1.0)
    left, right = (np.array([[x + 1 if x > 0 else exp(x) for x in row] for row in rows]) for rows in (q, k))
    A = left @ right.T
    assert np.allclose(elu(q, k, v), A @ v / A.sum(axis=1, keepdims=True))
