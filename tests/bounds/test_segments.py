"""Lemmas of the bounds: F is the maximum number of products, as a function and for sets of words."""

from decimal import Decimal, getcontext
from fractions import Fraction
from functools import cache
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.bounds import all_products_per_segment, products_per_segment
from iocourse.bounds.segments import SCALE, _most_products, best_segment, segments_A, segments_B, segments_C

getcontext().prec = 60
log_sizes = st.builds(lambda e, f: max(1, round(2 ** (e + f))), st.integers(0, 18), st.floats(0, 1))


# ---------------------------------------------------------------------- maxima
@pytest.mark.parametrize("d", [1, 2, 5, 16])
@pytest.mark.parametrize("R", [1, 2, 7, 40, 300, 3000])
def test_F_is_the_maximum_over_what_the_words_are_used_for(R, d):
    """W = (v + o)/2 words of V and O, c pairs, the rest full rows: W((R - 2W - c)/2d + √c) is at most F."""
    W, c = np.meshgrid(np.linspace(0, R / 2, 801), np.linspace(0, R, 1601))
    left = R - 2 * W - c
    value = np.where(left >= -1e-9, W * (left / (2 * d) + np.sqrt(c)), 0)
    assert value.max() <= products_per_segment(R, d) * (1 + 1e-9)
    assert value.max() >= products_per_segment(R, d) * (1 - 2e-3)


@given(log_sizes, log_sizes)
def test_F_b_is_the_maximum_over_c(R, d):
    c = np.sqrt(R) * np.linspace(0, 1, 20001)
    value = ((R - c**2) ** 2 / (16 * d) + c * (R - c**2) / 2).max()
    assert value * (1 - 1e-12) <= all_products_per_segment(R, d) <= value * (1 + 1e-6)
    assert all_products_per_segment(R, d) <= (R + 4 * d * d) ** 2 / (16 * d) * (1 + 1e-8)
    assert all_products_per_segment(R, d) >= max((R / 3) ** 1.5, R**2 / (16 * d)) * (1 - 1e-12)


@given(log_sizes, log_sizes)
def test_more_words_allow_more_products(R, d):
    assert products_per_segment(R, d) < products_per_segment(R + 1, d)
    assert all_products_per_segment(R, d) < all_products_per_segment(R + 1, d)


def exact_F_b(R, d):
    """Return F_b to 50 digits, by bisection on the derivative."""
    R, d = Decimal(R), Decimal(d)
    low, high = Decimal(0), R.sqrt()
    for _ in range(180):
        u = (low + high) / 2
        low, high = (u, high) if u**3 - 6 * d * u**2 - R * u + 2 * d * R > 0 else (low, u)
    return (R - low**2) ** 2 / (16 * d) + low * (R - low**2) / 2


@given(log_sizes, log_sizes, st.integers(1, 10**12), st.integers(0, 10**12))
def test_full_segments_are_never_overcounted(R, d, products, roots):
    assert _most_products(R, d, 1) >= exact_F_b(R, d) * 16 * d * SCALE**4
    exact = (products + roots * Decimal(2).sqrt()) / exact_F_b(R, d)
    got = segments_C(products, R, d, square=2 * roots**2)
    assert got <= exact
    assert got >= int(exact * (1 - Decimal("1e-8")))
    assert segments_A(products, R, d) <= products / Decimal(products_per_segment(R, d)) * (
        1 + Decimal("1e-12")
    )
    assert segments_B(products, R) <= products / (Decimal(R) / 3) ** Decimal("1.5")


@given(log_sizes, log_sizes, log_sizes, st.integers(1, 10**12))
def test_full_segments_are_never_overcounted_for_another_constant(R, n, m, products):
    exact = products / exact_F_b(R, Decimal(n) / m)
    assert int(exact * (1 - Decimal("1e-8"))) <= segments_C(products, R, Fraction(n, m)) <= exact


def test_the_segment_is_the_one_given_or_the_best_of_a_grid():
    asked = []

    def words(T):
        asked.append(T)
        return -abs(T - 37)

    assert best_segment(words, 32, None) == -1
    assert (min(asked), max(asked), len(asked)) == (16, 64, 25)
    asked.clear()
    assert best_segment(words, 32, 5) == -32 and asked == [5]
    assert best_segment(words, 1, None) == -35


# ---------------------------------------------------------------------- attack by sets of words
def tri(pairs, left, right):
    """Count the triples (i, j, l) with (i, j) in `pairs` and (i, l), (j, l) in `left`, `right`."""
    return int(np.count_nonzero(pairs[:, :, None] & left[:, None, :] & right[None, :, :]))


def fresh(*wholes):
    """Return the pairs whose row and column are complete in each of these (rows, columns) arrays."""
    pairs = np.True_
    for rows, columns in wholes:
        pairs = pairs & rows.all(axis=1)[:, None] & columns.all(axis=1)[None, :]
    return pairs


def forward_A(w):
    return tri(w["pairs"] | fresh((w["Q"], w["K"])), w["O"], w["V"])


def forward_B(w):
    return tri(w["pairs"], w["Q"], w["K"]) + tri(w["pairs"], w["O"], w["V"])


def forward_B_prime(w):
    return tri(w["pairs"], w["Q"], w["K"]) + forward_A(w)


def backward(w):
    p, dS = w["pairs"] | fresh((w["Q"], w["K"])), w["pairs"] | fresh((w["Q"], w["K"]), (w["dO"], w["V"]))
    return tri(p, w["dO"], w["dV"]), tri(dS, w["dQ"], w["K"]) + tri(dS, w["Q"], w["dK"])


def backward_C(w):
    return sum(backward(w))


def backward_C_small(w):
    dV, others = backward(w)
    return (dV + tri(w["pairs"], w["dO"], w["V"])) / sqrt(2) + others


def four_kinds(w):
    """Return the products of S, dP, dV, and dQ with dK; a pair may have words of S or P, of dP, and of dS."""
    p = w["S"] | fresh((w["Q"], w["K"]))
    dP = w["dP"] | fresh((w["dO"], w["V"]))
    dS = w["dS"] | (p & dP)
    sums = tri(w["S"], w["Q"], w["K"]), tri(w["dP"], w["dO"], w["V"])
    return *sums, tri(p, w["dO"], w["dV"]), tri(dS, w["dQ"], w["K"]) + tri(dS, w["Q"], w["dK"])


def backward_C_prime(w):
    S, dP, dV, others = four_kinds(w)
    return dP + dV + sqrt(3) / 2 * (S + others)


def backward_C_second(w):
    return sum(four_kinds(w)[1:])


def tied(w):
    return tri(w["pairs"] | fresh((w["Q"], w["X"])), w["O"], w["X"])


def values_of(d):
    """Return the columns of a latent cache that are also values: half of them."""
    return -(-d // 2)


def latent(w):
    half = values_of(w["X"].shape[1])
    return tri(w["pairs"] | fresh((w["Q"], w["X"])), w["O"][:, :half], w["X"][:, :half])


def low_rank(w):
    """Return the products of features of K with words of V and of the state T.

    Features in `features` are in fast memory, the others need a complete row of K. Rows of Q with
    accumulators of O are equivalent.
    """
    return tri(w["features"] | w["K"].all(axis=1)[:, None], w["V"], w["T"])


@cache  # a search uses the same few R and d many times
def most(constant, R):
    """Return the maximum over c of constant·(R - c)² + √c(R - c)/2, on a grid."""
    c = np.linspace(0, R, 4001)
    return float((constant * (R - c) ** 2 + np.sqrt(c) * (R - c) / 2).max()) * (1 + 1e-5)


def most_latent(R, d):
    return most(values_of(d) / (4 * d * (d + values_of(d))), R)


FORWARD = ("pairs", "Q", "K", "V", "O")
ARRAYS = ("Q", "K", "V", "dO", "dQ", "dK", "dV")
PAIRWISE = {"pairs", "S", "dP", "dS", "features"}  # (N, N), the others (N, d)
ATTACKS = {
    "A": (forward_A, FORWARD, products_per_segment),
    "B": (forward_B, FORWARD, lambda R, d: (R / 3) ** 1.5),
    "B'": (forward_B_prime, FORWARD, all_products_per_segment),
    "C": (backward_C, ("pairs", *ARRAYS), all_products_per_segment),
    "C_small": (backward_C_small, ("pairs", *ARRAYS), all_products_per_segment),
    "C'": (backward_C_prime, ("S", "dP", "dS", *ARRAYS), lambda R, d: most(1 / (8 * d), R)),
    "C''": (backward_C_second, ("S", "dP", "dS", *ARRAYS), lambda R, d: most(1 / (8 * d), R)),
    "tied": (tied, ("pairs", "Q", "X", "O"), lambda R, d: most(1 / (8 * d), R)),
    "latent": (latent, ("pairs", "Q", "X", "O"), most_latent),
    "low_rank": (low_rank, ("features", "K", "V", "T"), lambda R, d: max(R * R, R * d * d) / (4 * d)),
}


# Cases in which F adds two maxima that no set of words attains together.
HARD = {"C'": 0.5, "C''": 0.5}


def ratio(products, most, words, d):
    R = sum(map(np.count_nonzero, words.values()))
    return products(words) / most(R, d) if R else 0.0


def box(rng, rows, columns):
    """Return a set that is a corner of an array, the form of the best sets."""
    filled = np.zeros((rows, columns), dtype=bool)
    filled[: rng.integers(0, rows + 1), : rng.choice([columns, rng.integers(0, columns + 1)])] = True
    return filled


def flipped(rng, a):
    """Return the set with one word, one row or one column added or removed."""
    b = a.copy()
    i, l, on = rng.integers(a.shape[0]), rng.integers(a.shape[1]), bool(rng.integers(2))
    b[[(i, l), (i, slice(None)), (slice(None), l)][rng.integers(3)]] = on
    return b


def climb(rng, products, names, most, steps):
    """Return the largest ratio of products to F found by local search from a random set; at most 1."""
    N, d = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    words = {name: box(rng, N, N if name in PAIRWISE else d) for name in names}
    best = ratio(products, most, words, d)
    for _ in range(steps):
        name = str(rng.choice(names))
        tried = words | {name: flipped(rng, words[name])}
        value = ratio(products, most, tried, d)
        if value >= best:
            best, words = value, tried
    return best


# ---------------------------------------------------------------------- steps of the proofs of C' and C''
def path(alpha, beta):
    """Return the largest eigenvalue of a path of four vertices with edge weights alpha, beta, alpha."""
    edges = np.diag([alpha, beta, alpha], 1)
    return float(np.linalg.eigvalsh(edges + edges.T)[-1])


def test_with_the_weights_of_C_prime_a_path_allows_no_more_than_a_star():
    """λ ≤ √c if a + e ≤ c; this fails for weight 1 instead of √3/2 for dQ and dK."""
    shares = [(a, 1 - a) for a in np.linspace(0, 1, 301)]
    assert max(path(sqrt(0.75 * e), sqrt(0.75 * a)) for a, e in shares) == pytest.approx(1, abs=1e-12)
    assert max(path(sqrt(e), sqrt(0.75 * a)) for a, e in shares) > 1.1


def test_a_pair_made_from_nothing_has_half_the_product_of_its_words():
    """Check both cases of the proof of C' on a grid with its corners, where the first holds with equality."""
    y, z, nu, tau, sigma, x, kappa = np.meshgrid(*[np.linspace(0, 1, 5)] * 7)
    whole_q = (1 + y + z) * (1 + nu + tau + sigma) - 2 * (np.minimum(y, sigma) + z + tau)
    whole_do = (x + 1 + z) * (kappa + 1 + tau + sigma) - 2 * (np.minimum(z, kappa) + np.minimum(x, tau))
    assert whole_q.min() == 0 and whole_do.min() >= 0


@pytest.mark.parametrize("id", ATTACKS)
def test_no_choice_of_words_allows_more_products_than_F(id):
    products, names, most = ATTACKS[id]
    rng = np.random.default_rng(5)
    ratios = [climb(rng, products, names, most, steps=150) for _ in range(60)]
    print(f"{id}: best of {len(ratios)} climbs {max(ratios):.3f}")
    assert max(ratios) <= 1 + 1e-9
    assert max(ratios) >= HARD.get(id, 0.75)  # otherwise the search would be too weak


def test_with_keys_that_are_the_values_fewer_words_do_as_much():
    """Distinct arrays are required: if a row of X is both key and value, Theorem A's F is exceeded."""
    N, d = 64, 4
    whole = np.ones((N, d), dtype=bool)
    words = {"pairs": np.zeros((N, N), dtype=bool), "Q": whole, "X": whole, "O": whole}
    assert tied(words) == N * N * d > products_per_segment(3 * N * d, d)
    assert tied(words) <= most(1 / (8 * d), 4 * N * d)
