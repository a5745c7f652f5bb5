"""Advice: errors are measured, and the recommendation is correct for real heads and for small logits."""

import numpy as np
import pytest
from dense_attention import attend, off
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import data, lowrank
from iocourse.lowrank.polynomials import largest_error, minimax
from iocourse.monomials import rank_of
from iocourse.schedules import break_even_length


def normal(n, d, sigma, seed=0):
    """Draw queries and keys whose logits q·k/√d have standard deviation about sigma."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * sigma, rng.standard_normal((n, d))


@given(st.integers(1, 9), st.integers(2, 60), st.integers(2, 60), st.floats(0.05, 1.5), st.integers(0, 10**6))
@settings(max_examples=30)
def test_its_numbers_are_those_of_the_dense_formula(d, n, n_k, sigma, seed):
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((n, d)) * sigma, rng.standard_normal((n_k, d)) + 3
    found = lowrank.advise(Q, K, sample=1000)  # all rows
    rest = K - K.mean(0)
    s = Q @ rest.T / np.sqrt(d)
    weights = np.exp(s) / np.exp(s).sum(1, keepdims=True)
    assert (found.n, found.n_k, found.d) == (n, n_k, d)
    assert found.logit_std == pytest.approx(np.sqrt((s**2).mean()), rel=1e-9)  # a row's logits have mean 0
    assert found.logit_limit >= abs(s).max() * (1 - 1e-12)
    for g, error in enumerate(found.errors, start=1):
        if not np.isfinite(error):
            assert g % 2 == 1
            continue
        P = attend(Q, K, np.ones((n_k, 1)), np.ones((n, 1)), degree=g).P
        assert error == pytest.approx(off(P / P.sum(1, keepdims=True), weights), rel=1e-7, abs=1e-13)
    check_consistent(found)


def check_consistent(found):
    good = [g for g, error in enumerate(found.errors, start=1) if error <= found.error]
    assert found.degree == (good[0] if good else None)
    assert found.rank == (None if not good else rank_of(found.d, good[0]))
    if found.certified_degree is not None:
        g, R = found.certified_degree, max(found.logit_limit, 1e-3)
        assert found.certified_rank == rank_of(found.d, g)
        assert largest_error(minimax(g, R), R) <= found.error
        assert g == 1 or largest_error(minimax(g - 1, R), R) > found.error
    assert len(found.errors) == len(found.predicted) == 12
    assert list(found.predicted) == sorted(found.predicted, reverse=True)
    assert found.exact_is_better == (found.rank is None or not found.fits or found.n_k < found.break_even)
    text = str(found)
    assert ("exact attention" in text) == found.exact_is_better
    assert "nan" not in text and "None" not in text


@pytest.mark.parametrize("pair", data.real_heads(), ids=str)
def test_no_real_head_is_worth_it(pair):
    head = data.real_head(*pair)
    found = lowrank.advise(head.Q, head.K)
    check_consistent(found)
    assert found.exact_is_better
    assert found.logit_std > 0.5


def test_small_logits_of_a_long_sequence_are():
    found = lowrank.advise(*normal(20_000, 8, 0.25))
    check_consistent(found)
    assert found.degree <= 2 and not found.exact_is_better and "choose low rank" in str(found)
    assert lowrank.advise(*normal(30, 8, 0.25)).exact_is_better  # of few keys they are not
    assert found.errors[1] == pytest.approx(found.predicted[1], rel=0.3)


def test_degrees_follow_the_spread_of_the_logits():
    degrees = [lowrank.advise(*normal(3000, 8, sigma)).degree for sigma in (0.1, 0.25, 0.5, 1.0)]
    assert degrees == sorted(degrees) and len(set(degrees)) == 4
    assert lowrank.advise(*normal(500, 8, 6.0)).degree is None


def test_a_rank_that_does_not_fit_is_no_advice_to_use_it():
    found = lowrank.advise(*normal(400, 64, 0.9))
    check_consistent(found)
    assert found.exact_is_better


def test_words_raise_the_break_even_where_fast_memory_is_given():
    Q, K = normal(5000, 8, 0.25)
    free = lowrank.advise(Q, K)
    assert free.break_even == -(-free.rank * 9 // 8)  # r (d + 1) / d
    found = [lowrank.advise(Q, K, M=M).break_even for M in (500, 2000, 8000)]
    in_words = [break_even_length(8, free.degree, M).N for M in (500, 2000, 8000)]
    assert found == [max(free.break_even, N) for N in in_words] and max(found) > free.break_even


def test_rows_are_drawn_with_the_seed_and_data_is_left_alone():
    Q, K = normal(500, 5, 0.5)
    kept = Q.copy(), K.copy()
    assert lowrank.advise(Q, K, seed=3).errors == lowrank.advise(Q, K, seed=3).errors
    assert lowrank.advise(Q, K, seed=3).errors != lowrank.advise(Q, K, seed=4).errors
    np.testing.assert_array_equal((Q, K), kept)
    assert lowrank.advise(Q, K, scale=0.0).logit_std == 0


@pytest.mark.parametrize("size", [1e-30, 1e3, 1e30, 1e100])
def test_any_finite_size_gives_numbers_and_a_verdict(size):
    Q, K = normal(60, 4, 1.0)
    found = lowrank.advise(Q * size, K)
    assert not np.isnan([found.logit_std, found.logit_limit, *found.errors, *found.predicted]).any()
    assert found.exact_is_better or size < 1
    assert "nan" not in str(found)


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"error": 0}, ValueError, "error must be between 0 and 1, got 0"),
        ({"error": 1.5}, ValueError, "error must be between 0 and 1, got 1.5"),
        ({"error": np.nan}, ValueError, "error must be between 0 and 1, got nan"),
        ({"sample": 0}, ValueError, "sample must be at least 1"),
        ({"sample": 2.0}, TypeError, "sample must be an integer of at least "),
        ({"scale": np.nan}, ValueError, "scale must be finite, got nan"),
        ({"scale": np.inf}, ValueError, "scale must be finite, got inf"),
        ({"M": 0}, ValueError, "M must be at least 1"),
        ({"M": 2.5}, TypeError, "M must be an integer of at least "),
        ({"M": True}, TypeError, "M must be an integer of at least "),
        ({"error": "1 %"}, TypeError, "error must be a number, got '1 %'"),
        ({"scale": True}, TypeError, "scale must be a number, got True"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": True}, TypeError, "seed must be an integer of at least "),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        lowrank.advise(*normal(10, 3, 0.5), **options)


@pytest.mark.parametrize("kind", [bool, complex, object, str])
@pytest.mark.parametrize("which", ["Q", "K"])
def test_entries_are_real_numbers(kind, which):
    given = dict(zip("QK", normal(10, 3, 0.5), strict=True))
    given[which] = given[which].astype(kind)
    with pytest.raises(TypeError, match=rf"^{which} must have a real dtype \(float or int\), got .*$"):
        lowrank.advise(**given)
    whole = np.arange(30).reshape(10, 3) % 3
    assert lowrank.advise(whole, whole) == lowrank.advise(1.0 * whole, 1.0 * whole)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint64])
def test_sizes_of_numpy_are_those_of_python(kind):
    Q, K = normal(300, 4, 0.5)
    plain = lowrank.advise(Q, K, M=100, sample=50, seed=7)
    assert lowrank.advise(Q, K, M=kind(100), sample=kind(50), seed=kind(7)) == plain


def test_bad_data():
    Q, K = normal(10, 3, 0.5)
    for q, k in ((Q[0], K), (Q[None], K[None]), (Q, K[:, :2]), (Q[:0], K), (Q, K[:0]), (Q[:, :0], K[:, :0])):
        with pytest.raises(ValueError, match=r"Q and K must have shapes \(n, d\) and \(n_k, d\) .*got"):
            lowrank.advise(q, k)
    for bad in (np.nan, np.inf):
        K[4, 1] = bad
        with pytest.raises(ValueError, match="K has an entry that is not finite in row 4"):
            lowrank.advise(Q, K)
