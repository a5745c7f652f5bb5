"""Baselines of linear attention: unbiased, exact at full size, or equal to an explicit formula."""

from math import comb, exp, factorial

import numpy as np
import pytest

from iocourse import exact
from iocourse.lowrank import key_selection
from iocourse.lowrank.baselines import FIELD, multiply_adds, svd_floor
from iocourse.lowrank.feature_maps import (
    degree_of,
    directions,
    elu,
    favor,
    log_features,
    polysketch,
    sata,
    sketch,
    taylor,
)
from iocourse.lowrank.key_selection import (
    TWICE_RHO,
    based,
    centroids,
    cholesky,
    coreset,
    hashes,
    hyperattention,
    kdeformer,
    lambert,
    linformer,
    nystrom,
    support_basis,
    temperature,
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


def dense(A, v):
    """Return the means of v with weights A."""
    return A @ v / A.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", sorted({*FIELD} - {"Linformer"}))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everybody_gives_means_of_values(name, dtype):
    """Equal values are reproduced for any weights, because the rows of every approximation sum to 1."""
    q, k, _, _ = drawn(spread=0.1)
    same = np.tile(np.array([3.0, -2.0]), (len(k), 1))
    found = FIELD[name](*(x.astype(dtype) for x in (q, k, same)), 15, np.random.default_rng(1))
    assert found.shape == (60, 2) and np.allclose(found, same, rtol=1e-4)


@pytest.mark.parametrize("name", FIELD)
def test_another_number_of_queries_and_one_feature_are_accepted(name):
    q, k, v, _ = drawn(n=20, spread=0.1)
    for m in (1, 7, 24):
        rows = 20 if name == "Based" else 11
        found = FIELD[name](q[:rows], k, v, m, np.random.default_rng(1))
        assert found.shape == (rows, 4) and np.isfinite(found).all()


# ---------------------------------------------------------------------- exact limits
class Identity:
    """A generator whose random projection is the identity."""

    def standard_normal(self, shape):
        return np.eye(*shape) * shape[0] ** 0.5


@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize(
    ("attend", "m"),
    [
        (centroids, 30),  # a cluster per key
        (hyperattention, 60),  # one block
        (based, 15 + 59),  # a window from any token to any other
        (support_basis, 15 + 30),  # a threshold of 0
        (linformer, 30),  # the identity as projection
    ],
)
def test_exact_where_no_pair_is_approximated(attend, m, spread):
    q, k, v, o = drawn(n=30, spread=spread)
    rng = Identity() if attend is linformer else np.random.default_rng(3)
    assert off(attend(q, k, v, m, rng), o) < 1e-12
    assert attend is linformer or off(attend(q, k, v, m // 2, rng), o) > 1e-4


def test_centroids_are_exact_for_repeated_keys_and_better_than_drawn_keys():
    q, few, v, _ = drawn(n=60, spread=2.0)
    k = np.repeat(few[:6], [1, 4, 5, 10, 15, 25], axis=0)
    o = exact.softmax(q @ k.T) @ v
    assert off(centroids(q, k, v, 60, np.random.default_rng(1)), o) < 1e-12
    q, k, v, o = drawn(n=200, spread=2.0)
    mean_errors = [np.mean([off(attend(q, k, v, 20, np.random.default_rng(s)), o) for s in range(5)])
                   for attend in (centroids, kdeformer)]  # fmt: skip
    assert mean_errors[0] < 0.8 * mean_errors[1]


def test_distances_of_clusters_are_those_of_logits():
    """A key direction that no query has does not separate clusters."""
    q, k, v, _ = drawn(n=40)
    q[:, 2:] = 0
    k[:, :2] = np.repeat(k[:4, :2], 10, axis=0)
    o = exact.softmax(q @ k.T) @ v
    assert off(centroids(q, k, v, 40, np.random.default_rng(0)), o) < 1e-12


def test_kdeformer_is_right_on_average_and_draws_by_column_norms(monkeypatch):
    q, k, v, o = drawn(n=40, spread=2.0)
    errors = [off(kdeformer(q, k, v, m, np.random.default_rng(0)), o) for m in (100, 10_000)]
    assert errors[1] < 0.05 and errors[1] < errors[0] / 5
    taken = []
    monkeypatch.setattr(
        key_selection, "attend", lambda q, k, v, logs: taken.extend(zip(v, logs, strict=True))
    )
    kdeformer(q, k, np.arange(40), 40_000, np.random.default_rng(0))
    norms = np.linalg.norm(exact.softmax(q @ k.T), axis=0)
    counts = np.bincount([at for at, _ in taken], minlength=40)
    assert np.allclose(counts / 40_000, norms / norms.sum(), atol=0.005)
    assert all(log == pytest.approx(-np.log(norms[at] / norms.sum())) for at, log in taken[:50])


def test_hyperattention_counts_every_key_once_on_average(monkeypatch):
    """The keys of the query's block count 1; of the others a quarter is drawn, and each of these counts 4."""
    q, k, _, _ = drawn(n=32)
    calls = []

    def keep(q, k, v, log_counts):
        calls.append(np.bincount(v[:, 0], np.exp(log_counts), minlength=32).round(12))
        return 0

    monkeypatch.setattr(key_selection, "attend", keep)
    for seed in range(250):
        hyperattention(q, k, np.arange(32)[:, None], 16, np.random.default_rng(seed))
    counts = np.array(calls)
    assert counts.shape == (1000, 32) and set(counts.ravel()) == {0, 1, 4}
    assert ((counts == 1).sum(axis=1) == 8).all() and np.allclose(counts.mean(axis=0), 1, atol=0.2)


def test_neighbouring_places_of_the_gray_code_differ_in_one_sign():
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T
    place = hashes(signs)
    assert sorted(place) == list(range(256))
    ordered = signs[place.argsort()]
    assert ((ordered[1:] != ordered[:-1]).sum(axis=1) == 1).all()


@pytest.mark.parametrize(("m", "g", "h"), [(15, 2, 0), (20, 2, 2), (9, 1, 1), (1, 0, 0)])
def test_based_is_a_window_of_the_exponential_in_taylors_polynomial(m, g, h):
    q, k, v, _ = drawn(n=30, spread=0.5)
    S = q @ (k - k.mean(axis=0)).T
    near = abs(np.subtract.outer(range(30), range(30))) <= h
    A = np.where(near, np.exp(S), sum(S**p / factorial(p) for p in range(g + 1)))
    assert np.allclose(based(q, k, v, m), dense(A, v))
    with pytest.raises(ValueError, match="same number of rows for a window, got 29 and 30"):
        based(q[1:], k, v, m)


def test_support_basis_is_the_exponential_in_rows_and_columns_of_large_entries():
    q, k, v, _ = drawn(n=30, spread=0.5)
    k = k - k.mean(axis=0)
    limits = [np.sort(abs(x).max(axis=1))[-4] for x in (q, k)]
    large = [abs(x).max(axis=1) >= limit for x, limit in zip((q, k), limits, strict=True)]
    S = q @ k.T
    A = np.where(np.logical_or.outer(*large), np.exp(S), 1 + S + S * S / 2)
    assert np.allclose(support_basis(q, k, v, 15 + 4), dense(A, v))
    far = support_basis(30 * q.astype(np.float32), 30 * k.astype(np.float32), v.astype(np.float32), 19)
    assert np.isfinite(far).all()


def test_a_random_projection_is_no_softmax():
    q, k, v, o = drawn()
    assert off(linformer(q, k, v, 30, np.random.default_rng(0)), o) > 0.5
    assert not np.allclose(linformer(q, k, v**0, 30, np.random.default_rng(0)), 1, atol=0.1)


# ---------------------------------------------------------------------- PolySketch
def test_sketches_have_squares_as_means_and_their_products_are_never_negative():
    x, y = np.random.default_rng(5).standard_normal((2, 4, 5)) / 2
    G, H = np.random.default_rng(1).standard_normal((2, 5, 400_000))
    products = sketch(x, G, H) @ sketch(y, G, H).T
    assert np.allclose(products, (x @ y.T) ** 2, atol=0.05)
    assert (x @ y.T).min() < -0.5  # not the squares of non-negative products


def test_polysketch_has_the_weights_of_its_sketch_near_the_fourth_power():
    q, k, v, _ = drawn(n=30)
    G, H = np.random.default_rng(2).standard_normal((2, 5, 7))
    left, right = (np.hstack([x / 2, np.ones((30, 1))]) for x in (q, k - k.mean(axis=0)))
    A = (sketch(left, G, H) @ sketch(right, G, H).T) ** 2
    assert np.allclose(polysketch(q, k, v, 63, np.random.default_rng(2)), dense(A, v))
    power = dense((1 + q @ (k - k.mean(axis=0)).T / 4) ** 4, v)
    assert off(polysketch(q, k, v, 400**2, np.random.default_rng(0)), power) < 0.3


# ---------------------------------------------------------------------- multiply-adds and the SVD floor
class Counted(np.ndarray):
    """An array that counts the multiply-adds of matrix products and of factorisations."""

    total = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        if "out" in options:
            options["out"] = tuple(x.view(np.ndarray) for x in options["out"])
        found = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            Counted.total += found.size * plain[0].shape[-1]
        return found.view(Counted) if isinstance(found, np.ndarray) else found

    def __array_function__(self, function, types, arguments, options):
        rows = len(arguments[0]) if function.__module__ == "numpy.linalg" else 0
        Counted.total += {
            np.linalg.pinv: lambda: 11 * rows**3 // 2,
            np.linalg.solve: lambda: rows**3 // 3 + rows**2 * arguments[1].shape[1],
            np.linalg.qr: lambda: rows * arguments[0].shape[1] ** 2,  # less a third of the columns' cube
        }.get(function, lambda: 0)()
        found = super().__array_function__(function, types, arguments, options)
        return found.view(Counted) if isinstance(found, np.ndarray) else found


@pytest.mark.parametrize("m", [1, 9, 18, 30, 51])
@pytest.mark.parametrize("name", FIELD)
def test_multiply_adds_are_those_of_a_run(name, m):
    n, n_k, d, d_v = 24, 24 if name == "Based" else 36, 4, 3
    rng = np.random.default_rng(m)
    q, k, v = (rng.standard_normal(shape).view(Counted) for shape in ((n, d), (n_k, d), (n_k, d_v)))
    Counted.total = 0
    FIELD[name](q, k, v, m, np.random.default_rng(0))
    assert Counted.total == multiply_adds(name, n, n_k, d, d_v, m)


def test_multiply_adds_of_exact_attention_and_of_our_features():
    q, k, v = (np.ones(shape).view(Counted) for shape in ((5, 3), (7, 3), (7, 2)))
    Counted.total = 0
    exact_o = key_selection.attend(q, k, v)
    assert exact_o.shape == (5, 2) and Counted.total == multiply_adds("exact", 5, 7, 3, 2, 1)
    assert multiply_adds("low rank", 5, 7, 3, 2, 20) == multiply_adds("SATA", 5, 7, 3, 2, 21) == 12 * 20 * 3
    with pytest.raises(ValueError, match=r"name must be one of exact, low rank, SATA, .*, got 'other'"):
        multiply_adds("other", 5, 7, 3, 2, 1)


def test_no_matrix_of_the_rank_is_nearer_than_the_floor():
    rng = np.random.default_rng(0)
    P = exact.softmax(2 * rng.standard_normal((30, 20)))
    v = rng.standard_normal((20, 3))
    U, s, W = np.linalg.svd(P)
    best = U[:, :5] * s[:5] @ W[:5]
    floor = svd_floor(P, 5)
    assert floor == pytest.approx(off(best, P)) and svd_floor(P, 5, v) == pytest.approx(off(best @ v, P @ v))
    left, right = rng.standard_normal((2, 200, 30, 5))
    for A, _ in zip(left, right, strict=True):
        nearest = A @ np.linalg.lstsq(A, P, rcond=None)[0]  # the best matrix with these columns
        assert off(nearest, P) > floor
    assert svd_floor(P, 0) == pytest.approx(1) and svd_floor(P, 20) == 0 == svd_floor(P, 99, v)
    of_rank_3 = P @ v @ np.linalg.pinv(v)
    assert np.linalg.matrix_rank(of_rank_3) == 3 and off(of_rank_3 @ v, P @ v) < 1e-12 < svd_floor(P, 3, v)
    with pytest.raises(ValueError, match="r must be a rank of at least 0, got -1"):
        svd_floor(P, -1)


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
def test_taylors_features_have_the_sum_as_their_product():
    q, k, _, _ = drawn(n=6, d=5)
    for g in range(5):
        left, right = taylor(q, g), taylor(k, g)
        assert left.shape == (6, comb(5 + g, g))
        assert np.allclose(left @ right.T, sum((q @ k.T) ** p / factorial(p) for p in range(g + 1)))


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
