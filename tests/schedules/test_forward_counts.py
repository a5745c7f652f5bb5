"""Tests of forward schedules: exact counts, optimal tile sizes, and the range of M where each is best."""

from functools import cache
from itertools import product
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse import bounds, costs, exact
from iocourse.machine import Machine, run
from iocourse.schedules import (
    best,
    flash2,
    flash_optimal,
    get,
    of_pass,
    resident_keys,
    scores_stored,
    scores_stored_tiled,
    shared_key_value,
)

pytestmark = pytest.mark.quick

FIRST_EDITION = [get(name) for name in ("naive", "flash1", "flash2", "flash_optimal")]
FIRST_EDITION += [get(name) for name in ("square_tiling", "small_cache", "small_cache_fused")]


# ---- scores stored ---------------------------------------------------------------------------------------


@cache
def change(name, N, d, M):
    """Words against the best of the first edition, in per cent."""
    least = min(s.count(N, d, M).total for s in FIRST_EDITION if s.smallest_M(N, d) <= M)
    return 100 * (get(name).count(N, d, M).total / least - 1)


# M/d², schedule, the least and the largest change over SIZES in per cent
CHANGES = [
    (0.30, "scores_stored_tiled", -3.1, -1.1),
    (0.42, "scores_stored", -7.6, -3.6),
    (0.42, "scores_stored_tiled", -10.5, -8.2),
    (0.50, "scores_stored", -13.0, -7.1),
    (0.71, "scores_stored", -15.8, -10.6),
    (1.00, "scores_stored", -3.3, 0.0),
]
SIZES = list(product((2048, 8192, 65536), (64, 96, 128, 192, 256)))


@pytest.mark.parametrize(("share", "name", "least", "largest"), CHANGES)
def test_what_stored_scores_are_worth(share, name, least, largest):
    found = [change(name, N, d, round(share * d * d)) for N, d in SIZES]
    print(f"{name} at M = {share} d²: {min(found):.1f} to {max(found):.1f} %")
    assert (min(found), max(found)) == pytest.approx((least, largest), abs=0.06)


@pytest.mark.parametrize("share", [0.30, 1.19, 2.0])
def test_where_stored_scores_cost_more(share):
    assert all(change("scores_stored", N, d, round(share * d * d)) > 0 for N, d in SIZES)


def test_the_leading_costs_of_stored_scores():
    """2x² + 2 and 1.5x² + 3 in N², x = d/√M, once N and d are large."""
    N, d = 2**24, 2**12
    for schedule, x, words in ((scores_stored, 1.2, 2 * 1.2**2 + 2), (scores_stored_tiled, 1.7, 7.335)):
        assert schedule.count(N, d, round((d / x) ** 2)).total / N**2 == pytest.approx(words, rel=5e-3)


@given(st.integers(1, 24), st.integers(1, 7), st.integers(0, 60))
def test_no_other_tiles_of_stored_scores_are_cheaper(N, d, spare):
    for schedule in (scores_stored, scores_stored_tiled):
        M = schedule.smallest_M(N, d) + spare
        assert schedule.count(N, d, M).total == cheapest(schedule, M, N, d)


def cheapest(schedule, M, N, d):
    """The fewest words of all tiles that fit M, by trying every one of them."""
    extents = {"Bd": d, "places": N + 1}
    sizes = product(*(range(1, extents.get(name, N) + 1) for name in schedule.tile_names))
    forms = (schedule.cost(N, d, **dict(zip(schedule.tile_names, tile, strict=True))) for tile in sizes)
    return min(form.total for form in forms if form.peak <= M)


# ---- keys kept -------------------------------------------------------------------------------------------


@given(st.integers(1, 24), st.integers(1, 7), st.integers(0, 400))
def test_no_other_tiles_of_resident_keys_are_cheaper(N, d, spare):
    M = resident_keys.smallest_M(N, d) + spare
    assert resident_keys.count(N, d, M).total == cheapest(resident_keys, M, N, d)


logs = st.floats(0, 1)


@given(st.integers(1, 2**16), st.integers(1, 256), logs)
def test_keeping_keys_never_costs_more_than_flash_optimal(N, d, share):
    least = flash_optimal.smallest_M(N, d)
    assert least == resident_keys.smallest_M(N, d)
    M = round(least * (3 * N + 3) ** share)
    kept, without = (schedule.count(N, d, M) for schedule in (resident_keys, flash_optimal))
    assert kept.total <= without.total
    if resident_keys.tiles(N, d, M)["places"] == 1:
        assert kept == without and resident_keys.tiles(N, d, M)["Br"] == flash_optimal.tiles(N, d, M)["Br"]


def test_where_every_key_fits_nothing_is_read_twice():
    """From 2Nd + 2d + 3 words on, because one row of Q and of O in addition is enough."""
    N, d = 100, 8
    M = 2 * N * d + 2 * d + 3
    assert resident_keys.count(N, d, M).total == bounds.compulsory(N, d) == 4 * N * d
    assert resident_keys.tiles(N, d, M) == {"Br": 1, "places": N + 1}
    assert (
        resident_keys.count(N, d, M - 1).total > 4 * N * d and flash_optimal.count(N, d, M).total > 4 * N * d
    )


# ---- tied keys and values --------------------------------------------------------------------------------


def drawn(N=9, d=4):
    rng = np.random.default_rng(7)
    return rng.standard_normal((N, d)), rng.standard_normal((N, d))


def test_tied_attention_reads_half_and_has_the_values_of_both():
    Q, X = drawn()
    tied = run(shared_key_value, M=60, Q=Q, X=X, Br=4)
    twice = run(flash_optimal, M=60, Q=Q, K=X, V=X, Br=4, Bc=1)
    assert exact.max_abs_error(tied.O, exact.attention(Q, X, X)) < 1e-14
    assert exact.max_abs_error(tied.O, twice.O) < 1e-14
    assert 2 * tied.ledger.reads["X"] == twice.ledger.reads["K"] + twice.ledger.reads["V"]


def test_the_leading_constant_of_tied_attention_is_two():
    N, d, M = 2**22, 64, 64**3
    words = shared_key_value.count(N, d, M).total
    assert words * M / (N * d) ** 2 == pytest.approx(2 * (1 + 3 / (2 * d)), rel=2e-3)
    assert words == 2 * N * d + N * d * ceil(N / ((M - d) // (2 * d + 3)))


def test_the_pass_of_tied_attention():
    assert of_pass("tied") == [shared_key_value]
    choice = best("tied", 64, 8, 512)
    assert (choice.schedule, choice.tiles) == (shared_key_value, {"Br": 26})
    assert choice.cost == costs.shared_key_value(64, 8, Br=26) and choice.cost.total == 2 * 512 + 3 * 512
    assert bounds.lower_bound("tied", 64, 8, 10**6) == (3 * 64 * 8, "compulsory_tied")
    assert shared_key_value.count(64, 8, 10**6).total == 3 * 64 * 8


def test_theorem_A_is_not_one_of_tied_attention():
    """It moves fewer words than Theorem A requires for three arrays, because it is in another class."""
    N, d = 2**16, 64
    M = 16 * d * d
    assert (
        shared_key_value.count(N, d, M).total
        < bounds.theorem_A(N, d, M + 4)
        < flash_optimal.count(N, d, M).total
    )
    assert all(
        "tied" not in bound.passes for id, bound in bounds.BOUNDS.items() if id in ("A", "A_large", "A_small")
    )


REMEDY = "it computes tied attention, where K = V = X; for separate K and V use flash_optimal"


def test_a_tied_schedule_that_is_given_two_arrays_says_which_to_use():
    Q, X = drawn()
    with pytest.raises(TypeError, match=f"^shared_key_value takes Q and X, got also K, V; {REMEDY}$"):
        run(shared_key_value, M=60, Q=Q, K=X, V=X, Br=4)
    m = Machine(60)
    q, k, v = (m.slow(name, array) for name, array in (("Q", Q), ("K", X), ("V", X)))
    with pytest.raises(TypeError, match=rf"^shared_key_value takes Q and X, got 3 array\(s\); {REMEDY}$"):
        shared_key_value(m, q, k, v, Br=4)
    with pytest.raises(TypeError, match=r"^flash2 takes Q, K and V, got also X$"):
        run(flash2, M=60, Q=Q, X=X, Br=1, Bc=1)


@pytest.mark.parametrize(
    "schedule", [flash2, flash_optimal, scores_stored, resident_keys], ids=lambda s: s.name
)
def test_one_slow_array_may_stand_for_keys_and_values(schedule):
    """Then its words are counted under its one name, each time it is read."""
    Q, X = drawn()
    m, tiles = Machine(99), dict.fromkeys(schedule.tile_names, 3)
    q, x = m.slow("Q", Q), m.slow("X", X)
    with m.running():
        O = schedule(m, q, x, x, **tiles)
    assert exact.max_abs_error(m.take(O), exact.attention(Q, X, X)) < 1e-14
    form = schedule.cost(9, 4, **tiles)
    assert m.ledger.reads["X"] == form.reads["K"] + form.reads["V"] and m.ledger.total == form.total


def test_scores_that_overflow_are_refused_for_tied_keys_too():
    Q, X = drawn()
    with pytest.raises(ValueError, match="products of Q and K overflow float64"):
        run(shared_key_value, M=60, Q=1e300 * Q, X=1e300 * X, Br=4)
