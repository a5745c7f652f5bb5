"""Tests of closed forms: leading constants, masks, arguments. `tests/schedules` compares each with a run."""

import inspect
from itertools import product
from math import ceil, sqrt

import numpy as np
import pytest
from finite_differences import wrong_entries
from hypothesis import given
from hypothesis import strategies as st

from iocourse import costs, exact, masks
from iocourse.costs.closed_form import column_sweep, row_sweep
from iocourse.machine import run
from iocourse.schedules import REGISTRY, best, flash1, flash2, flash_optimal, of_pass
from iocourse.schedules.flash1 import published_tiles

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("schedule", "shape", "tiles"),
    [
        (flash1, (64, 8, 512), {"Br": 1, "Bc": 29}),
        (flash1, (64, 32, 300), {"Br": 1, "Bc": 3}),
        (flash2, (64, 8, 512), {"Br": 26, "Bc": 1}),
        (flash_optimal, (64, 8, 512), {"Br": 26, "Bc": 1}),
        (flash_optimal, (64, 32, 300), {"Br": 4, "Bc": 1}),
        (REGISTRY["square_tiling"], (64, 8, 512), {"B": 15}),
        (REGISTRY["square_tiling"], (64, 32, 300), {"B": 9}),
        (REGISTRY["small_cache_fused"], (64, 8, 512), {"Br": 13, "Bc": 32}),
        (REGISTRY["small_cache_fused"], (64, 32, 300), {"Br": 13, "Bc": 17}),
        (REGISTRY["fused_backward"], (64, 8, 512), {"Br": 1, "Bc": 14}),
        (REGISTRY["split_backward"], (64, 8, 512), {"Br1": 18, "Bc1": 1, "Br2": 1, "Bc2": 14}),
    ],
)
def test_golden_tiles(schedule, shape, tiles):
    assert schedule.tiles(*shape) == tiles


def constant(schedule, d, M, N=2**22, tiles=None):
    """Return the words moved in units of N²d²/M; for large N this is the leading constant."""
    form = schedule.cost(N, d, **(tiles or schedule.tiles(N, d, M)))
    assert form.peak <= M
    return form.total * M / (N * d) ** 2


LARGE = {  # words in units of N²d²/M at d = 64, for M = 16d² and M = 64d²
    "naive": (82, 322),
    "flash1": (6.20, 6.18),
    "flash2": (4.11, 4.10),
    "flash_optimal": (4.11, 4.10),
    "resident_keys": (4.11, 4.10),
    "shared_key_value": (2.06, 2.05),
    "flash1_backward": (20.3, 20.2),
    "flash2_backward": (16.3, 16.2),
    "fused_backward": (16.3, 16.2),
    "split_backward": (14.3, 14.3),
    "gradient": (10.2, 10.2),
    "gradient_reassociated": (9.8, 8.5),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_leading_constants_for_large_caches(name):
    found = [constant(REGISTRY[name], 64, times * 64**2) for times in (16, 64)]
    print(f"{name}: {found[0]:.3f} and {found[1]:.3f}")
    assert found == pytest.approx(LARGE[name], rel=0.01)
    if name == "split_backward":
        assert max(found) <= 14.4


def test_the_leading_constants_as_functions_of_d():
    d, M = 64, 64 * 64**2
    published = flash1.tiles(2**22, d, M, published=True)
    assert constant(flash1, d, M, tiles=published) == pytest.approx(12 * (1 + 4 / (3 * d)), rel=1e-3)
    assert constant(flash1, d, M) == pytest.approx(6 * (1 + 11 / (6 * d)), rel=2e-3)
    assert constant(flash_optimal, d, M) == pytest.approx(4 * (1 + 3 / (2 * d)), rel=2e-3)


def side(M, rows):
    """Return the b with b² + rows·b = M: the side of a square tile that fits with `rows` of its sides."""
    return sqrt(M + rows**2 / 4) - rows / 2


SMALL = {  # words in units of N²d/√M: the constant with √M - O(1) as the side of a tile, and what N² adds
    "square_tiling": lambda s, M, d: 4 * s / int(side(M / 3, 1 / 3)) + s / d,
    "small_cache": lambda s, M, d: 4 * s / side(M, 4) + s / d,
    "small_cache_fused": lambda s, M, d: 2 * sqrt(6) * s / side(M, 4),
    "standard_backward": lambda s, M, d: 8 * s / side(M, 2) + 6 * s / d,
    "small_cache_backward": lambda s, M, d: 4 * s / side(M, 3) + 6 * s / side(M, 2) + 3 * s / d,
    "gradient_small_cache": lambda s, M, d: 6 * s / side(M, 4) + (2 * ceil(d / side(M, 4)) + 3) * s / d,
}


@pytest.mark.parametrize("M", [4096, 16384, 65536])
@pytest.mark.parametrize("name", SMALL)
def test_the_leading_constants_for_small_caches(name, M):
    d, s = 4096, sqrt(M)
    found = constant(REGISTRY[name], d, M) * d / s
    print(f"{name} at M = {M}: {found:.3f}")
    assert found == pytest.approx(SMALL[name](s, M, d), rel=0.01)


@pytest.mark.parametrize("d", [64, 128, 256, 512, 1024])
def test_the_best_schedule_changes_at_a_quarter_and_at_all_of_d_squared(d):
    """Between them scores are stored: in tiles of half the columns up to d²/2, in whole rows of O above.

    There the tiled one with whole rows is as good, by turns a row better or a rounding worse.
    """
    N = 2**22
    names = {share: best(N, d, round(share * d * d)).schedule.name for share in (0.24, 0.35, 0.7, 1.1)}
    assert names.pop(0.7) in ("scores_stored", "scores_stored_tiled")
    assert names == {0.24: "small_cache", 0.35: "scores_stored_tiled", 1.1: "flash_optimal"}
    for name, share in (("small_cache", 0.24), ("flash_optimal", 1.1)):
        M = round(share * d * d)
        assert best(N, d, M).cost == REGISTRY[name].cost(N, d, **REGISTRY[name].tiles(N, d, M))


def test_best_is_the_cheapest_of_those_that_fit():
    for pass_, N, d, M in (("forward", 100, 16, 200), ("backward", 512, 16, 2000), ("gradient", 64, 8, 300)):
        choice = best(N, d, M, pass_)
        totals = {
            s.name: s.cost(N, d, **s.tiles(N, d, M)).total for s in of_pass(pass_) if s.smallest_M(N, d) <= M
        }
        assert choice.cost.total == min(totals.values()) == totals[choice.schedule.name]
        assert choice.cost.peak <= M and choice.cost == choice.schedule.cost(N, d, **choice.tiles)
    with pytest.raises(
        ValueError, match=r"^M = 2 is too small for every forward schedule .*\. At least M = 4 is needed$"
    ):
        best(64, 8, 2)
    with pytest.raises(ValueError, match=r"^pass_ must be one of forward, backward, .*, got 'sideways'$"):
        best(64, 8, 512, "sideways")
    with pytest.raises(TypeError, match=r"^M must be"):
        best(64, 8, 51.2)


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("square_tiling", lambda s: 4 * 3**0.5 + s),
        ("small_cache", lambda s: 4 + s),
        ("small_cache_fused", lambda s: 24**0.5),
        ("small_cache_backward", lambda s: 10 + 3 * s),
        ("gradient_small_cache", lambda s: 8 + 3 * s + 6 * 2**14 / 2**22),  # the last is 6Nd²/√M
    ],
)
def test_the_small_cache_constants_as_published_once_tiles_are_large(name, constant):
    """Within 1 %, if rounding and a few words per row are small compared with √M."""
    N, d, M = 2**22, 2**14, 2**16
    schedule = REGISTRY[name]
    words = schedule.cost(N, d, **schedule.tiles(N, d, M)).total
    assert words * M**0.5 / (N * N * d) == pytest.approx(constant(M**0.5 / d), rel=0.01)


GIVEN_WEIGHTS = {"standard_backward", "weights_precomputed", "small_cache_precomputed"}


def test_best_does_not_take_what_was_stored_for_it():
    """Three schedules read P, whose N² words an earlier pass moved: two are cheaper here but excluded."""
    N, d, M = 8192, 64, 512
    assert {s.name for s in REGISTRY.values() if s.given_weights} == GIVEN_WEIGHTS
    choice = best(N, d, M, "backward")
    for name in ("standard_backward", "small_cache_precomputed"):
        given = REGISTRY[name]
        assert given.cost(N, d, **given.tiles(N, d, M)).total < choice.cost.total, name
    assert choice.schedule.name == "small_cache_backward"


# ---- masks -----------------------------------------------------------------------------------------------


def test_the_rows_picked_for_a_mask_are_the_cheapest_of_all_that_fit():
    N, d = 45, 3
    made = [masks.Causal(N), masks.Window(N, 4), masks.bigbird(N, 4, 1, 1, 1), masks.random(N, 6, 0.2)]
    for mask in [*made, masks.strided(N, 5, 3), masks.causal(N, 7)]:
        for M in (12, 60, 150, 400, 999):
            forms = [costs.block_sparse(N, d, mask=mask, Br=Br, Bc=1) for Br in range(1, N + 1)]
            picked = REGISTRY["block_sparse"].tiles(N, d, M, mask=mask)
            least = min(form.total for form in forms if form.peak <= M)
            assert costs.block_sparse(N, d, mask=mask, **picked).total == least


def keys_of_causal_rows(N, b):
    """Return kN - b·k(k - 1)/2, k = ⌈N/b⌉: the keys that blocks of b rows load with the short block first."""
    k = -(-N // b)
    return k * N - b * k * (k - 1) // 2


@pytest.mark.parametrize(
    ("N", "d", "M", "words"),
    [(1024, 64, 58_368, 353_408), (2048, 64, 58_368, 1_003_264), (2048, 32, 16_384, 748_544)],
)
def test_the_words_of_causal_attention_to_the_last(N, d, M, words):
    mask, schedule, Br = masks.Causal(N), REGISTRY["block_sparse"], (M - d) // (2 * d + 3)
    assert words == 2 * N * d + 2 * d * keys_of_causal_rows(N, Br)
    assert schedule.tiles(N, d, M, mask=mask) == {"Br": Br, "Bc": 1}  # the largest that fits
    ledger = run(schedule, M=M, dry=True, **schedule.shapes(N, d), mask=mask, Br=Br, Bc=1).ledger
    assert schedule.count(N, d, M, mask=mask).total == ledger.total == words


@given(st.integers(1, 60), st.integers(1, 70))
def test_no_other_cut_of_causal_rows_into_blocks_loads_fewer_keys(N, b):
    least = [0]  # for the rows before `stop`; their last block has at most b rows and needs `stop` keys
    for stop in range(1, N + 1):
        least.append(min(least[max(0, stop - b) : stop]) + stop)
    assert row_sweep(masks.Causal(N), N, b).met == keys_of_causal_rows(N, b) == least[N]


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 70), st.integers(1, 70))
def test_split_backward_under_a_causal_mask_has_the_short_rows_first_and_the_short_columns_last(N, d, Br, Bc):
    tiles, mask = {"Br1": Br, "Bc1": 1, "Br2": 1, "Bc2": Bc}, masks.Causal(N)
    schedule = REGISTRY["split_backward"]
    form = schedule.cost(N, d, mask=mask, **tiles)
    ledger = run(schedule, M=form.peak, dry=True, **schedule.shapes(N, d), mask=mask, **tiles).ledger
    rows, columns = map(sum, ledger.phases.values())
    assert rows == 4 * N * d + 2 * N + 2 * d * keys_of_causal_rows(N, Br)
    assert columns == 4 * N * d + (2 * d + 2) * keys_of_causal_rows(N, Bc)
    assert ledger == form


def test_of_a_windows_blocks_one_stands_for_all_that_are_alike():
    for N, w, b in product(range(1, 25), range(0, 26, 3), range(1, 26)):
        mask, every = masks.Window(N, w), masks.Window(N, w)
        every.reach = None  # as a mask of which nothing is known: each of its blocks is looked at
        for sweep in (row_sweep, column_sweep):
            assert sweep(mask, N, b) == sweep(every, N, b), (N, w, b)


@pytest.mark.parametrize("name", ["flash1_backward", "flash2_backward", "fused_backward", "split_backward"])
def test_a_mask_that_hides_nothing_costs_what_no_mask_does(name):
    schedule, N, d = REGISTRY[name], 23, 4
    for tile in (1, 3, 8, 30):
        tiles = dict.fromkeys(schedule.tile_names, tile)
        whole = masks.BlockMask(N, np.ones((6, 6), dtype=bool), 4)
        dense = schedule.cost(N, d, **tiles)
        assert schedule.cost(N, d, mask=masks.Full(N), **tiles) == dense
        assert schedule.cost(N, d, mask=whole, **tiles).total == dense.total


def test_a_mask_saves_no_word_where_the_scores_are_stored():
    stored = ("small_cache_backward", "score_gradients_stored", "weights_stored")
    for name in (*GIVEN_WEIGHTS, *stored):
        tiles = dict.fromkeys(REGISTRY[name].tile_names, 3)
        form = REGISTRY[name].cost(12, 4, **tiles)
        assert REGISTRY[name].cost(12, 4, mask=masks.Causal(12), **tiles) == form


# ---- gradients are derivatives ---------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", of_pass("gradient"), ids=lambda s: s.name)
def test_dX_is_the_derivative_of_the_loss(schedule):
    drawn = schedule.problem.draw(np.random.default_rng(3), 5, 3, None)
    tiles = dict.fromkeys(schedule.tile_names, 2)
    dX = run(schedule, M=999, **{name: drawn[name] for name in schedule.operands}, **tiles).O
    others = {name: drawn[name] for name in ("A1", "A2", "A3", "Y", "E")}
    assert np.abs(dX).max() > 0.1
    assert wrong_entries(lambda X: exact.loss_x(X, **others), drawn["X"], dX) == {}


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "causal"])
@pytest.mark.parametrize("schedule", of_pass("backward"), ids=lambda s: s.name)
def test_dQ_dK_dV_are_the_derivatives_of_attention(schedule, masked):
    mask = masks.Causal(5) if masked else None
    a = schedule.problem.draw(np.random.default_rng(4), 5, 3, mask)
    settings = dict.fromkeys(schedule.tile_names, 2) | ({"mask": mask} if masked else {})
    done = run(schedule, M=999, **{name: a[name] for name in schedule.operands}, **settings)
    inputs = {name: a[name] for name in "QKV"}
    for name, got in zip("QKV", done.outputs, strict=True):

        def loss(value, name=name):
            return float((a["dO"] * exact.attention(**{**inputs, name: value}, causal=masked)).sum())

        assert wrong_entries(loss, a[name], got) == {}


# ---- arguments -------------------------------------------------------------------------------------------


def test_published_blocks_fit_from_8d2_plus_8d_on():
    """For M a multiple of d; below 4d² they never fit."""
    N, d = 2**16, 16
    limit = 8 * d * d + 8 * d

    def fits(M):
        return costs.flash1(N, d, **published_tiles(N, d, M)).peak <= M

    multiples = range(4 * d, 4 * limit, 4 * d)
    fitting = [M for M in multiples if fits(M)]
    assert fitting == list(range(limit, 4 * limit, 4 * d))
    assert not any(fits(M) for M in range(1, 4 * d * d))


FORMS = [costs.matmul, *(schedule.cost_form for schedule in REGISTRY.values())]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_bad_sizes_are_named(form):
    asked = inspect.signature(form).parameters
    names = [name for name in asked if name not in ("lse", "mask")]
    good = dict.fromkeys(names, 4) | ({"mask": masks.Causal(4)} if "mask" in asked else {})
    assert form(**good).total > 0
    for name in names:
        wrong = [(-1, ValueError), (2.0, TypeError), (True, TypeError)] + [(0, ValueError)] * (name != "w")
        for value, error in wrong:
            with pytest.raises(error, match=rf"^{name} must be"):
                form(**{**good, name: value})


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
def test_a_schedule_names_tiles_it_does_not_have_or_lacks(schedule):
    tiles = dict.fromkeys(schedule.tile_names, 2)
    problem = {"mask": {"mask": masks.Causal(8)}, "w": {"w": 1}, "g": {"g": 2}}
    problem = problem.get("".join(schedule.needs), {})
    has = ", ".join(tiles) or "none"
    with pytest.raises(
        TypeError, match=f"^unknown tile size 'Bx'; the tile sizes of {schedule.name} are {has}$"
    ):
        schedule.cost(8, 4, **tiles, **problem, Bx=2)
    for tile in tiles:
        with pytest.raises(TypeError, match=rf"needs the tile size\(s\) {tile};"):
            schedule.cost(8, 4, **{name: 2 for name in tiles if name != tile}, **problem)
    for name in ("mask", "w", "g", "lse"):
        if name not in (*schedule.needs, *schedule.options):
            with pytest.raises(TypeError, match=f"^{schedule.name} does not accept {name}; remove it$"):
                schedule.cost(8, 4, **tiles, **problem, **{name: 1})


def test_best_pair_tries_every_number_of_blocks():
    for extent in (1, 7, 30, 100):
        sizes = list(costs.distinct_sizes(extent))
        assert {-(-extent // b) for b in sizes} == {-(-extent // b) for b in range(1, extent + 1)}
        assert all(b == 1 or -(-extent // (b - 1)) > -(-extent // b) for b in sizes)


@given(
    st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**5)
)
def test_best_sizes_tries_few_sizes_and_finds_the_pair_that_all_of_them_have(extent, other, p, q, spare):
    asked = []

    def partner(a):
        return min(other, (p + q + spare - p * a) // (a + q - 1))

    def cost(a, b):
        asked.append((a, b))
        return p * costs.ceil_div(extent, a) + q * costs.ceil_div(other, b)

    found = costs.best_sizes(cost, extent, lambda a: (partner(a),))
    tried = len(asked)
    assert found == costs.best_pair(cost, extent, partner)
    assert tried < 100


def test_best_sizes_says_all_the_sizes_of_which_there_may_be_several():
    found = costs.best_sizes(lambda a, b, c: -a * b * c, 8, lambda a: (12 - a, 9 - a))
    best = max(costs.distinct_sizes(8), key=lambda a: a * (12 - a) * (9 - a))
    assert found == (best, 12 - best, 9 - best) == (3, 9, 6)


def test_one_key_at_a_time_is_the_tile_of_flash_optimal_where_none_is_named():
    assert costs.flash_optimal(50, 8, Br=7) == costs.flash_optimal(50, 8, Br=7, Bc=1)
    assert costs.flash_optimal(50, 8, Br=7) != costs.flash_optimal(50, 8, Br=7, Bc=2)
