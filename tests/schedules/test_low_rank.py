"""Tests of low rank: values of its polynomial exactly, of softmax nearly, and traffic for all tile sizes."""

from functools import cache
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import costs, exact, monomials
from iocourse.machine import Block, FastMemoryFull, Machine, run
from iocourse.schedules import against_bound, break_even_length, flash_optimal, get, low_rank
from iocourse.schedules.low_rank import listed_features


def series(s, g):
    """1 + s + s²/2 + … to the degree g, by Horner's rule."""
    p = np.ones_like(s)
    for l in range(g, 0, -1):
        p = 1 + s * p / l
    return p


def dense(Q, K, V, g):
    """Attention with the Taylor polynomial of degree g for exp, every pair written out."""
    P = series(Q @ K.T / Q.shape[1] ** 0.5, g)
    return P @ V / P.sum(axis=1, keepdims=True)


def drawn(N, d, seed, largest):
    """Return random Q, K, V (N, d) whose scores are at most `largest`."""
    Q, K, V = np.random.default_rng(seed).standard_normal((3, N, d))
    return Q * largest * d**0.5 / max(1e-9, np.abs(Q @ K.T).max()), K, V


def rows_only(N, d, g, k):
    """Words of the state cut into k pieces of whole rows."""
    return 3 * N * d * k + N * d * (2 * k - 1) + 2 * N * (k - 1)


@st.composite
def problems(draw):
    """N, d, g and tiles, ragged and larger than the state among them."""
    d, g = draw(st.sampled_from([(1, 1), (1, 5), (2, 3), (3, 2), (3, 4), (4, 3), (5, 2), (6, 1)]))
    r = monomials.rank_of(d, g)
    rc, Bd = draw(st.integers(1, r + 3)), draw(st.integers(1, d + 3))
    return draw(st.integers(1, 9)), d, g, {"rc": rc, "Bd": Bd}


@settings(max_examples=many(40, 150))
@given(problems(), st.integers(0, 10**6))
def test_a_run_is_its_own_polynomial_and_moves_what_its_closed_form_says(problem, seed):
    """Scores up to 0.9: every degree is positive there (the root of degree 1 is at -1)."""
    N, d, g, tiles = problem
    Q, K, V = drawn(N, d, seed, 0.9)
    form = costs.low_rank(N, d, g=g, **tiles)
    done = run(low_rank, M=form.peak, Q=Q, K=K, V=V, g=g, **tiles)
    assert done.ledger == form, done.ledger - form
    assert exact.max_abs_error(done.O, dense(Q, K, V, g)) < 1e-12
    assert low_rank.expected({"Q": Q, "K": K, "V": V}, None, {"g": g})[0] == pytest.approx(
        dense(Q, K, V, g), abs=1e-12
    )
    for M in (form.peak, 10**6):
        dry = run(low_rank, M=M, dry=True, **low_rank.shapes(N, d), g=g, **tiles)
        assert dry.ledger == form
    with pytest.raises(FastMemoryFull, match="For low_rank, "):
        run(low_rank, M=form.peak - 1, dry=True, **low_rank.shapes(N, d), g=g, **tiles)


def test_even_degrees_hold_for_large_scores_too():
    for g in (2, 4):
        Q, K, V = drawn(20, 4, g, 30.0)
        tiles = low_rank.tiles(20, 4, 60, g=g)
        done = run(low_rank, M=60, Q=Q, K=K, V=V, g=g, **tiles)
        assert exact.max_abs_error(done.O, dense(Q, K, V, g)) < 1e-10


def test_for_small_scores_it_nears_softmax_and_each_degree_gains():
    Q, K, V = drawn(24, 4, 7, 0.5)
    errors = []
    for g in (1, 2, 3, 4, 5):
        tiles = low_rank.tiles(24, 4, 700, g=g)
        done = run(low_rank, M=700, Q=Q, K=K, V=V, g=g, **tiles)
        errors.append(exact.max_abs_error(done.O, exact.attention(Q, K, V)))
    print(errors)
    assert all(6 * after < before for before, after in pairwise(errors))
    assert 1e-8 < errors[-1] < 1e-5


@pytest.mark.parametrize(("d", "g"), [(1, 3), (3, 1), (3, 4), (5, 3)])
def test_the_features_are_those_of_the_plan(d, g):
    """Same order and, in the weights, the same multiplicities: l!/a! over l! is 1/a!."""
    p = monomials.plan(d, g)
    x = np.random.default_rng(0).standard_normal((1, d))
    from_scratch = listed_features(d, g, Block(0, p.rank))
    assert from_scratch._of(x[0]) == pytest.approx(monomials.features(x, p)[:, 0], rel=1e-14)
    factorial = np.array([1, 1, 2, 6, 24])[p.degrees]
    weighted = listed_features(d, g, Block(0, p.rank), weighted=True)
    assert weighted._weights == pytest.approx(p.multiplicities / factorial, rel=1e-15)
    part = listed_features(d, g, Block(1, p.rank - 1))
    assert (part._of(x[0]) == from_scratch._of(x[0])[1:-1]).all()


# ---- words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "g"), [(8, 2), (12, 3), (64, 2)])
def test_where_the_state_fits_it_costs_the_compulsory_words_whatever_N_is(d, g):
    r = monomials.rank_of(d, g)
    M = r * (d + 1) + 2 * d + 1
    for N in (1, 40960, 2**20):
        for memory in (M, 3 * M):
            assert low_rank.tiles(N, d, memory, g=g) == {"rc": r, "Bd": d + 1}
        found = against_bound("low_rank", N, d, M, g=g)
        assert (found.words, found.bound_id, found.ratio) == (4 * N * d, "compulsory", 1.0)
    assert against_bound("low_rank", 64, d, M - 1, g=g).words > 4 * 64 * d


@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 500), st.integers(1, 99))
def test_cut_into_rows_it_is_the_formula_with_the_footprint_of_a_register_for_a_feature(d, g, rc, N):
    r = monomials.rank_of(d, g)
    form = costs.low_rank(N, d, g=g, rc=rc, Bd=d + 1)
    assert form.total == rows_only(N, d, g, ceil(r / rc))
    assert form.peak == min(rc, r) * (d + 1) + 2 * d + 1


def test_cutting_columns_first_moves_two_fifths_of_what_rows_alone_move():
    """2rNd²/M compared with 5rNd²/M, if the state is much larger than M and one of its columns fits."""
    for d, g in ((64, 2), (128, 2)):
        N, r = 2**16, monomials.rank_of(d, g)
        M = 3 * (r + 1) + d  # three columns of the state
        unit = r * N * d * d / M
        best = low_rank.cost(N, d, g=g, **low_rank.tiles(N, d, M, g=g)).total
        rows = costs.low_rank(N, d, g=g, rc=(M - 2 * d - 1) // (d + 1), Bd=d + 1).total
        print(f"d={d}, g={g}: {best / unit:.2f} and {rows / unit:.2f}")
        assert best / unit == pytest.approx(2, rel=0.15) and rows / unit == pytest.approx(5, rel=0.1)


@settings(max_examples=60)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(0, 250))
def test_no_other_tile_that_fits_is_cheaper(d, g, spare):
    least = low_rank.smallest_M(9, d, g=g)
    assert least == d + 2
    M, r = least + spare, monomials.rank_of(d, g)
    picked = low_rank.cost(9, d, g=g, **low_rank.tiles(9, d, M, g=g))
    every = (costs.low_rank(9, d, g=g, rc=rc, Bd=Bd) for rc in range(1, r + 1) for Bd in range(1, d + 2))
    assert picked.peak <= M and picked.total == min(form.total for form in every if form.peak <= M)


def test_advice_knows_that_the_state_has_more_rows_than_there_are_tokens():
    assert low_rank.largest_tiles(4, 8, 2000, g=3, rc=1, Bd=9)["rc"] == 165
    assert low_rank.largest_tiles(4, 8, 1000, g=3, rc=1, Bd=9)["rc"] == (1000 - 17) // 9
    advice = low_rank.advice(4, 8, 1000, g=3, rc=165, Bd=9)
    assert "the largest rc that fits is 109, the largest Bd that fits is 5" in advice


def test_a_run_that_could_not_list_its_features_says_what_it_would_take():
    m = Machine(10**12, dry=True)
    arrays = [m.slow(name, shape) for name, shape in low_rank.shapes(8, 64).items()]
    with pytest.raises(ValueError, match=r"rank 131,115,985, and a run with rc = 131,115,985"):
        low_rank(m, *arrays, g=6, rc=10**9, Bd=65)
    assert m.ledger.total == 0


def test_the_degree_is_needed_and_checked():
    for wrong, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"^g must be"):
            low_rank.tiles(8, 2, 99, g=wrong)
        with pytest.raises(error, match=r"^g must be"):
            run(low_rank, M=99, dry=True, **low_rank.shapes(8, 2), g=wrong, rc=1, Bd=1)
    with pytest.raises(TypeError, match=r"^low_rank needs g=…"):
        low_rank.cost(8, 2, rc=1, Bd=1)
    with pytest.raises(TypeError, match=r"^flash2 does not accept g"):
        get("flash2").cost(8, 2, Br=1, Bc=1, g=2)


# ---- the crossing ----------------------------------------------------------------------------------------

CROSSINGS = [  # d, g, M; the first N that is cheaper with the state cut into rows, and with the best tiles
    (12, 3, 4096, 454, 303),
    (12, 4, 4096, 1964, 1058),
    (12, 4, 16384, 1819, 1213),
    (16, 4, 4096, 6033, 3249),
    (64, 2, 4096, 2671, 1261),
    (64, 2, 65536, 2995, 1498),
    (64, 3, 65536, 59382, 26947),
]


@cache
def words(N, d, g, M, whole_rows):
    """Low rank and FlashAttention at N, in words, by the closed forms and by looking for the tiles."""
    flash = flash_optimal.cost(N, d, **flash_optimal.tiles(N, d, M)).total
    if not whole_rows:
        return low_rank.cost(N, d, g=g, **low_rank.tiles(N, d, M, g=g)).total, flash
    fits = [rc for rc in range(1, M) if rc * (d + 1) + 2 * d + 1 <= M]
    return rows_only(N, d, g, ceil(monomials.rank_of(d, g) / fits[-1])), flash


@pytest.mark.parametrize(("d", "g", "M", "rows", "tiles"), CROSSINGS)
def test_the_crossing_is_the_first_length_that_is_cheaper(d, g, M, rows, tiles):
    for whole_rows, wanted in ((True, rows), (False, tiles)):
        found = break_even_length(d, g, M, whole_rows=whole_rows)
        assert (found.N, found.rank) == (wanted, monomials.rank_of(d, g))
        assert costs.low_rank(1, d, g=g, **found.tiles).peak <= M
        before, after = words(found.N - 1, d, g, M, whole_rows), words(found.N, d, g, M, whole_rows)
        assert before[0] >= before[1] and after[0] < after[1]
        for later in (found.N + 1, 2 * found.N, 7 * found.N + 3):
            assert words(later, d, g, M, whole_rows)[0] < words(later, d, g, M, whole_rows)[1]
        print(f"d={d}, g={g}, M={M}, {'rows' if whole_rows else 'tiles'}: {found.N} = {found.ranks:.2f} r")


def test_the_crossing_in_units_of_the_rank():
    """Rows only 1.0 to 1.4 ranks, with columns cut 0.5 to 0.8, where the state is larger than M."""
    for d, g, M, rows, tiles in CROSSINGS:
        r = monomials.rank_of(d, g)
        assert r * (d + 1) > M and 0.99 < rows / r < 1.4 and 0.5 < tiles / r < 0.8


@settings(max_examples=80)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 900))
def test_no_length_below_the_crossing_is_cheaper(d, g, spare):
    M = max(flash_optimal.smallest_M(1, d), d + 2) + spare
    found = break_even_length(d, g, M)
    lengths = sorted({1, found.N // 2 + 1, max(1, found.N - 1), found.N, found.N + 1, 3 * found.N})
    for N in lengths:
        low, flash = words(N, d, g, M, False)
        assert (low < flash) == (found.N <= N), N


def test_where_the_state_fits_low_rank_wins_as_soon_as_flash_reads_its_keys_twice():
    found = break_even_length(12, 3, 2**14)
    rows = flash_optimal.tiles(10**6, 12, 2**14)["Br"]
    assert found.tiles == {"rc": 455, "Bd": 13} and rows + 1 == found.N


def test_a_crossing_that_cannot_be_is_refused():
    with pytest.raises(
        ValueError, match=r"^M = 9 is too small to compare at d = 8\. At least M = 27 is needed$"
    ):
        break_even_length(8, 2, 9)
    for whole_rows in (True, False):  # low rank fits wherever FlashAttention does
        found = break_even_length(8, 2, 27, whole_rows=whole_rows)
        assert found.N > 1 and costs.low_rank(1, 8, g=2, **found.tiles).peak <= 27
    with pytest.raises(
        ValueError, match=r"^M = 25 is too small to compare at d = 8\. At least M = 27 is needed$"
    ):
        break_even_length(8, 2, 25, whole_rows=True)
    for g, whole_rows in ((0, False), (-1, True)):
        with pytest.raises(ValueError, match=rf"^g must be at least 1, got {g}"):
            break_even_length(8, g, 99, whole_rows=whole_rows)
    with pytest.raises(ValueError, match=r"^d must be at least 1"):
        break_even_length(0, 2, 99)
    with pytest.raises(TypeError, match=r"^M must be"):
        break_even_length(8, 2, 99.5)
