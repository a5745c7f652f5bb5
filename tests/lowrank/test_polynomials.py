"""Polynomials: optimal in their sense, positive on the stated interval, with the stated error."""

from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from dense_attention import attend, off
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial as poly

from iocourse import lowrank
from iocourse.lowrank.advice import predicted_error
from iocourse.lowrank.polynomials import CLIP, chebyshev, hermite, minimax, taylor

MAKERS = {"taylor": taylor, "chebyshev": chebyshev, "minimax": minimax}


# ---- degrees and errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "R, error, degrees",
    [
        (0.5, 1e-2, (3, 2, 2)),
        (0.5, 1e-4, (5, 4, 4)),
        (1, 1e-2, (5, 4, 3)),
        (1, 1e-4, (7, 6, 5)),
        (2, 1e-2, (8, 6, 5)),
        (2, 1e-4, (11, 8, 7)),
        (4, 1e-2, (15, 10, 7)),
        (4, 1e-4, (19, 13, 10)),
        (8, 1e-2, (30, 19, 12)),
        (8, 1e-4, (33, 22, 16)),
    ],
)
def test_the_smallest_degrees(R, error, degrees):
    assert tuple(lowrank.smallest_degree(make, R, error) for make in MAKERS.values()) == degrees
    for make, g in zip(MAKERS.values(), degrees, strict=True):
        assert lowrank.largest_error(make(g, R), R) <= error < lowrank.largest_error(make(g - 1, R), R)


def test_degrees_may_be_integers_of_numpy():
    assert lowrank.polynomial("taylor", np.int8(3)).degree == 3
    assert lowrank.smallest_degree("taylor", 1.0, 1e-2, most=np.uint16(5)) == 5


def test_degrees_and_intervals_that_are_refused():
    for bad in (True, 2.0, "3"):
        with pytest.raises(TypeError, match=r"^degree must be an integer of at least 1, got "):
            lowrank.polynomial("taylor", bad)
        with pytest.raises(TypeError, match=r"^most must be an integer of at least 1, got "):
            lowrank.smallest_degree("taylor", 1.0, 1e-2, most=bad)
    with pytest.raises(ValueError, match=r"no degree up to 5 reaches an error of 0.0001 on \[-4, 4\]"):
        lowrank.smallest_degree(taylor, 4.0, 1e-4, most=5)
    with pytest.raises(ValueError, match=r"R must be positive and at most 15, got 15.1"):
        minimax(4, 15.1)
    for name, most in (("minimax", 15), ("chebyshev", 700)):
        with pytest.raises(ValueError, match=f"radius must be at most {most} for {name} in float64, got "):
            lowrank.polynomial(name, 4, most + 1.0)
    lowrank.polynomial("taylor", 100)
    with pytest.raises(ValueError, match=r"degree must be at most 100, .* got 101"):
        lowrank.polynomial("taylor", 101)


@given(st.sampled_from(list(MAKERS)), st.integers(1, 14), st.floats(0.05, 8))
@settings(max_examples=150)
def test_the_largest_error_is_a_true_maximum(name, g, R):
    p = MAKERS[name](g, R)
    s = np.unique(np.concatenate([np.linspace(-R, R, 20_001), -R * np.cos(np.linspace(0, np.pi, 2001))]))
    on_grid = abs(poly.polyval(s, p) * np.exp(-s) - 1).max()
    noise = 1e-15 * np.exp(2 * R)  # rounding errors of float64 if p is small and its terms are large
    found = lowrank.largest_error(p, R)
    assert on_grid <= found * (1 + 1e-12) + noise
    assert found <= on_grid * (1 + 1e-6) + noise


def test_an_error_in_exact_arithmetic():
    """The error of 1 + s on [-1, 1] is exact: (1 + s) e⁻ˢ - 1 is -1 at -1 and 2/e - 1 at 1."""
    for R, error in ((1.0, 1.0), (0.5, 1 - 0.5 * np.exp(0.5))):
        assert lowrank.largest_error(np.ones(2), R) == pytest.approx(error, rel=1e-14)


# ---- minimax ---------------------------------------------------------------------------------------------


@given(st.integers(1, 10), st.floats(0.3, 6))
@settings(max_examples=60)
def test_minimax_has_equal_errors_of_signs_in_turn(g, R):
    """By the alternation theorem this proves that no polynomial of this degree has a smaller error."""
    p = minimax(g, R)
    level = lowrank.largest_error(p, R)
    noise = 1e-14 * np.exp(2 * R)
    if noise > 1e-3 * level:
        return
    s = np.linspace(-R, R, 100_001)
    e = poly.polyval(s, p) * np.exp(-s) - 1
    high = abs(e) > level * (1 - 1e-3)
    signs = np.sign(e[high])
    assert 1 + np.count_nonzero(signs[1:] != signs[:-1]) >= g + 2
    assert all(level <= lowrank.largest_error(make(g, R), R) * (1 + 1e-9) for make in (taylor, chebyshev))
    if level < 1 - 1e-6:
        assert (poly.polyval(s, p) > 0).all()
        assert lowrank.polynomial("minimax", g, R).positive_to >= R


@pytest.mark.parametrize("R", [0.01, 1, 8, 12, 15])
@pytest.mark.parametrize("g", [1, 7, 20, 30, 40])
def test_minimax_is_never_worse_where_rounding_rules(g, R):
    other = min(lowrank.largest_error(chebyshev(g, R), R), 1.0)
    assert lowrank.largest_error(minimax(g, R), R) <= other * (1 + 1e-6) + 1e-13 * np.exp(2 * R)


@given(st.integers(1, 12), st.floats(0.1, 20))
def test_chebyshev_goes_through_its_nodes(g, R):
    nodes = R * np.cos(np.pi * (2 * np.arange(g + 1) + 1) / (2 * g + 2))
    found = poly.polyval(nodes, chebyshev(g, R))
    np.testing.assert_allclose(found, np.exp(nodes), atol=1e-11 * np.exp(R))


# ---- where they are positive -----------------------------------------------------------------------------


def smallest_value(p):
    """Return the minimum of a polynomial of even degree, which is at a root of its derivative."""
    roots = poly.polyroots(poly.polyder(p))
    return poly.polyval(roots.real[abs(roots.imag) < 1e-6], p).min()


def unclipped(g, variance):
    """Return the coefficients of the Hermite polynomial of a row with this variance."""
    series = [(-variance / 2) ** m / factorial(m) for m in range(g + 1)]
    return np.array([sum(series[: (g - l) // 2 + 1]) / factorial(l) for l in range(g + 1)])


@pytest.mark.parametrize("g", range(2, 21, 2))
def test_even_hermite_is_positive_for_every_variance_up_to_the_clip(g):
    p = lowrank.polynomial("hermite", g)
    assert p.positive_to == np.inf and p.per_row
    variances = np.r_[np.linspace(0, CLIP, 41), 0.9, 5, 1e6]
    for column, variance in zip(hermite(g, variances).T, variances, strict=True):
        np.testing.assert_allclose(column, unclipped(g, min(variance, CLIP)), rtol=1e-12)
        assert smallest_value(column) > 0


@pytest.mark.parametrize("g, limit", [(2, 1.0), (4, 0.827), (6, 0.807), (8, 0.828), (10, 0.864)])
def test_the_clip_is_needed_and_hardly_lower_than_it_must_be(g, limit):
    assert smallest_value(unclipped(g, limit - 0.005)) > 0 > smallest_value(unclipped(g, limit + 0.005))
    assert limit > CLIP


@pytest.mark.parametrize("g", range(1, 22, 2))
def test_odd_hermite_is_positive_up_to_its_certificate(g):
    radius = lowrank.polynomial("hermite", g).positive_to
    assert 0.5 < radius < np.inf
    s = np.linspace(-radius, radius, 400)
    for variance in np.linspace(0, CLIP, 37):
        assert (poly.polyval(s, hermite(g, np.array([variance]))[:, 0]) > 0).all()


@pytest.mark.parametrize("g, root", [(1, 1.0), (3, 1.596), (5, 2.181), (7, 2.759)])
def test_odd_taylor_has_a_root(g, root):
    assert lowrank.polynomial("taylor", g).positive_to == pytest.approx(root, abs=1e-3)


@pytest.mark.parametrize("g", range(2, 41, 2))
def test_even_taylor_has_none(g):
    assert smallest_value(taylor(g)) > 0
    assert lowrank.polynomial("taylor", g).positive_to == np.inf


@given(st.sampled_from(["chebyshev", "minimax"]), st.integers(1, 9), st.floats(0.5, 12))
@settings(max_examples=150)
def test_positive_to_is_never_more_than_it_is(name, g, R):
    p = lowrank.polynomial(name, g, R)
    radius = min(p.positive_to, 50.0) * (1 - 1e-6)
    s = np.linspace(-radius, radius, 2001)
    assert (poly.polyval(s, p.coefficients) > 0).all() or radius == 0


def test_a_polynomial_that_is_negative_at_0_is_nowhere_certified():
    p = lowrank.polynomial("chebyshev", 3, 4.0)
    assert p.coefficients[0] < 0 and p.positive_to == 0


# ---- Hermite: best in the mean square --------------------------------------------------------------------


@pytest.mark.parametrize("g", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("variance", [0.01, 0.25, 0.64, 0.8])
def test_hermite_is_the_best_under_a_normal_distribution(g, variance):
    """exp - p is orthogonal to every polynomial of degree g, by Gauss–Hermite quadrature."""
    x, weight = np.polynomial.hermite_e.hermegauss(60)
    s, weight = np.sqrt(variance) * x, weight / weight.sum()
    p = np.exp(variance / 2) * poly.polyval(s, hermite(g, np.array([variance]))[:, 0])
    for l in range(g + 1):
        assert abs((weight * (np.exp(s) - p) * x**l).sum()) < 1e-11
    assert abs((weight * (np.exp(s) - p) * x ** (g + 1)).sum()) > 1e-9  # it is not orthogonal to degree g + 1


# ---- how far off attention is ----------------------------------------------------------------------------


@pytest.mark.parametrize("sigma, degrees", [(0.25, (1, 2, 3, 4)), (0.5, (1, 2, 3, 4, 5)), (0.85, (2, 4, 6))])
def test_the_poisson_rule(sigma, degrees):
    """√P[Poisson(σ²) > g] predicts the error of the weights of normal logits within a factor of 1.5."""
    rng = np.random.default_rng(0)
    K, Q = rng.standard_normal((20_000, 8)), rng.standard_normal((40, 8))
    Q *= sigma / np.linalg.norm(Q, axis=1, keepdims=True)
    exact = np.exp(Q @ K.T)
    exact /= exact.sum(1, keepdims=True)
    for g in degrees:
        P = attend(Q, K, np.ones((len(K), 1)), np.zeros((40, 1)), degree=g, scale=1.0).P
        measured = off(P / P.sum(1, keepdims=True), exact)
        tail = sum(np.exp(-(sigma**2)) * sigma ** (2 * m) / factorial(m) for m in range(g + 1, 60))
        predicted = predicted_error(np.array([sigma**2]), g)
        assert predicted == pytest.approx(np.sqrt(tail), rel=1e-9)
        assert predicted / 1.5 < measured < predicted * 1.5


@pytest.mark.parametrize("variance", [1e-6, 0.5, 1.0, 1.001, 4.0, 50.0])
def test_the_poisson_rule_has_no_seam(variance):
    terms = [Fraction(variance) ** m / factorial(m) for m in range(260)]
    total = sum(terms)
    for g in range(1, 13):
        exact = 1 - sum(terms[: g + 1]) / total
        assert predicted_error(np.array([variance]), g) ** 2 == pytest.approx(float(exact), rel=1e-6)
