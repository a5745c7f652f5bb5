"""Tests of schedules of the backward pass and dL/dX that store N x N matrices: counts, gains, tile sizes."""

from itertools import product

import numpy as np
import pytest

from iocourse import costs
from iocourse.machine import run
from iocourse.schedules import REGISTRY, best, of_pass

pytestmark = pytest.mark.quick


def words(name, N, d, M):
    schedule = REGISTRY[name]
    return schedule.cost(N, d, **schedule.tiles(N, d, M)).total


def with_a_sweep_for_D(name, N, d, M):
    """Return the words with D computed first, as in flash2_backward: dO and D are read a second time."""
    return words(name, N, d, M) + N * d + N


@pytest.mark.parametrize(
    ("name", "M", "total", "split"),
    [
        ("weights_stored", 5120, 620_748_800, 808_206_336),
        ("score_gradients_stored", 6144, 564_748_288, 671_711_232),
    ],
)
def test_the_words_to_the_last_at_N_8192_and_d_64(name, M, total, split):
    N, d = 8192, 64
    assert with_a_sweep_for_D(name, N, d, M) == total
    assert words("split_backward", N, d, M) == split
    schedule = REGISTRY[name]
    done = run(schedule, M=M, dry=True, **schedule.shapes(N, d), **schedule.tiles(N, d, M))
    assert done.ledger.total == total - N * d - N
    assert best(N, d, M, "backward").schedule.name == name


FIRST = ["flash1_backward", "flash2_backward", "fused_backward", "split_backward", "small_cache_backward"]
GAINS = [  # M/d², schedule, and the change in per cent, from least to most, with D made first
    (0.42, "weights_stored", -11.4, -8.4),
    (0.50, "weights_stored", -14.6, -12.5),
    (0.71, "weights_stored", -19.2, -16.9),
    (1.00, "weights_stored", -22.9, -20.1),
    (1.00, "score_gradients_stored", -14.4, -11.1),
    (1.19, "weights_stored", -24.1, -21.1),
    (1.19, "score_gradients_stored", -19.5, -17.1),
    (1.41, "weights_stored", -16.4, -14.7),
    (2.00, "score_gradients_stored", -8.8, -7.3),
]


@pytest.mark.parametrize(("share", "name", "most", "least"), GAINS)
def test_what_is_gained_over_the_schedules_that_store_less(share, name, most, least):
    for N, d in product((8192, 65536), (64, 128, 256)):
        M = round({0.71: 0.5**0.5, 1.19: 2**0.25, 1.41: 2**0.5, 0.42: 2**-1.25}.get(share, share) * d * d)
        before = min(words(other, N, d, M) for other in FIRST)
        change = 100 * (with_a_sweep_for_D(name, N, d, M) / before - 1)
        assert most - 0.1 < change < least + 0.1, (N, d, M)


LEADING = [  # schedule, x = d/√M, words in units of N² as N and d grow
    ("score_gradients_stored", 0.75, lambda x: 9 * x**2 + 2),
    ("weights_stored", 1.0, lambda x: 5 * x**2 + 5),
    ("weights_stored", 1.7, lambda x: 4 * x**2 + 7),  # tiles d/2 wide
    ("weights_precomputed", 1.0, lambda x: 4 * x**2 + 4),
    ("weights_precomputed", 1.7, lambda x: 3 * x**2 + 6),
    ("small_cache_precomputed", 4.0, lambda x: 8 * x + 2),
    ("gradient_dp_materialised", 0.9, lambda x: 7 * x**2 + 2),
    ("gradient_scores_materialised", 1.2, lambda x: 4 * x**2 + 5),
    ("gradient_scores_materialised", 1.7, lambda x: 3 * x**2 + 7),
]


@pytest.mark.parametrize(("name", "x", "leading"), LEADING)
def test_the_leading_constants(name, x, leading):
    N, d = 2**24, 2**12
    assert words(name, N, d, round((d / x) ** 2)) / N**2 == pytest.approx(leading(x), rel=0.005)


@pytest.mark.parametrize(
    ("pass_", "x", "name"),
    [
        ("backward", 0.55, "split_backward"),  # x² = 2/5 is the border
        ("backward", 0.70, "score_gradients_stored"),  # x² = 3/4
        ("backward", 0.95, "weights_stored"),
        ("backward", 1.90, "weights_stored"),  # x = 2
        ("backward", 2.20, "small_cache_backward"),
        ("gradient", 0.78, "gradient"),  # x² = 2/3
        ("gradient", 0.93, "gradient_dp_materialised"),  # x = 1
        ("gradient", 1.10, "gradient_scores_materialised"),
        ("gradient", 1.90, "gradient_scores_materialised"),  # x = 2
        ("gradient", 2.50, "gradient_small_cache"),  # its square tiles: 6x + 2⌈x⌉ + 3 words
    ],
)
def test_best_changes_where_the_leading_constants_cross(pass_, x, name):
    N, d = 2**24, 2**12
    assert best(N, d, round((d / x) ** 2), pass_).schedule.name == name


# ---- D, and P that is given ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "columns"),
    [("score_gradients_stored", "Bc"), ("weights_stored", "Bv"), ("weights_precomputed", "Bv")],
)
def test_D_is_stored_only_where_a_second_block_of_columns_asks_for_it(name, columns):
    N, d = 12, 4
    tiles = dict.fromkeys(REGISTRY[name].tile_names, 5)
    for size, written, read in ((12, 0, 0), (6, N, N), (5, N, 2 * N)):
        form = REGISTRY[name].cost(N, d, **tiles | {columns: size})
        assert (form.writes.get("D", 0), form.reads.get("D", 0)) == (written, read)


def test_given_weights_are_read_and_left_as_they_were():
    N, d = 6, 3
    for name in ("weights_precomputed", "small_cache_precomputed"):
        schedule = REGISTRY[name]
        drawn = schedule.problem.draw(np.random.default_rng(5), N, d, None)
        arrays = {operand: drawn[operand] for operand in schedule.operands}
        tiles = dict.fromkeys(schedule.tile_names, 2)
        done = run(schedule, M=99, **arrays, **tiles)
        assert schedule.given_weights and "P" not in done.ledger.writes and "Q" not in done.ledger.writes
        assert done.ledger.reads["P"] >= N * N


def test_who_is_given_P_stores_none():
    """weights_precomputed saves the pass that stores P: K once, Q and LSE once per key block, N² words."""
    N, d, M = 8192, 64, 4096
    tiles = REGISTRY["weights_stored"].tiles(N, d, M)
    given = {name: size for name, size in tiles.items() if name != "Bk"}
    spared = N * d + (N * d + N) * -(-N // tiles["Bk"]) + N * N
    assert (
        costs.weights_stored(N, d, **tiles).total - costs.weights_precomputed(N, d, **given).total == spared
    )
    assert REGISTRY["weights_precomputed"].tiles(N, d, M) == given


def test_given_P_and_O_less_moves_than_with_P_alone():
    """standard_backward takes no O and makes D from P and dP; the Nd words of O are the cheaper way."""
    for N, d, share in product((2048, 65536), (64, 256), (0.1, 0.3, 1.0, 2.0)):
        M = round(share * d * d)
        cheapest = min(words(name, N, d, M) for name in ("weights_precomputed", "small_cache_precomputed"))
        assert cheapest < words("standard_backward", N, d, M)


# ---- tile rules ------------------------------------------------------------------------------------------

GROUPS = {  # tiles that meet in a term of the words or of the footprint; no other pair does
    "score_gradients_stored": [("Br",), ("Bc",)],
    "weights_stored": [("Bk",), ("Bv",), ("Bo", "Bd")],
    "weights_precomputed": [("Bv",), ("Bo", "Bd")],
    "small_cache_precomputed": [("Br", "Bc"), ("Bm", "Bd")],
    "gradient_dp_materialised": [("Bm", "Bn"), ("Bf",), ("Bs",), ("Bq",), ("Bg",)],
    "gradient_scores_materialised": [("Bm", "Bn"), ("Bs",), ("Bo", "Bd"), ("Bq", "Be"), ("Bg",)],
}


@pytest.mark.parametrize("name", GROUPS)
def test_no_other_tiles_that_fit_are_cheaper(name):
    """Words are a sum over groups of tiles and the footprint a maximum: each group is tried by itself."""
    schedule = REGISTRY[name]
    assert sorted(sum(GROUPS[name], ())) == sorted(schedule.tile_names)
    for (N, d), spare in product(((11, 5), (17, 4), (7, 7), (5, 9), (1, 3)), (0, 1, 7, 20, 43, 90, 300)):
        M = schedule.smallest_M(N, d) + spare
        picked = schedule.tiles(N, d, M)
        total = schedule.cost(N, d, **picked).total
        for group in GROUPS[name]:
            others = product(range(1, max(N, d) + 1), repeat=len(group))
            forms = [schedule.cost(N, d, **picked | dict(zip(group, sizes, strict=True))) for sizes in others]
            assert total == min(form.total for form in forms if form.peak <= M), (N, d, M, group)


def test_they_stand_among_the_schedules_of_their_pass():
    assert set(GROUPS) <= {schedule.name for pass_ in ("backward", "gradient") for schedule in of_pass(pass_)}
