"""Tests of masks: their ranges and counts agree with `sees`, evaluated pair by pair."""

import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import costs, exact, masks, run
from iocourse.machine import Machine
from iocourse.schedules import REGISTRY, block_sparse, flash2_backward

EXAMPLES = 400


def tiles_of(draw, N, Br, Bc):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.random((-(-N // Br), -(-N // Bc))) < draw(st.sampled_from([0.0, 0.2, 0.5, 0.9]))


@st.composite
def any_mask(draw):
    """Strategy: a mask of each kind, including smaller edge tiles, tiles larger than N and empty rows."""
    N = draw(st.integers(1, 24))
    kind = draw(st.sampled_from(["full", "causal", "window", "tiles", "causal tiles"]))
    if kind == "window":
        return masks.Window(N, draw(st.integers(0, N + 2)))
    if kind in ("full", "causal"):
        return {"full": masks.Full, "causal": masks.Causal}[kind](N)
    Br, Bc = draw(st.integers(1, N + 2)), draw(st.integers(1, N + 2))
    drawn = tiles_of(draw, N, Br, Bc)
    return masks.BlockMask(N, drawn, Br, Bc, causal=kind == "causal tiles", allow_empty=True)


def rows_of(ranges):
    return [row for start, stop in ranges for row in range(start, stop)]


def needed(mask, start, stop):
    """Return Booleans (N,): the columns that rows start:stop need; a partly needed tile counts completely."""
    if not isinstance(mask, masks.BlockMask):
        return mask.pairs()[start:stop].any(axis=0)
    seen = np.kron(mask.tiles, np.ones((mask.Br, mask.Bc), dtype=bool))[:, : mask.N]
    return seen[start // mask.Br * mask.Br : -(-stop // mask.Br) * mask.Br].any(axis=0)


def rows_needed(mask, start, stop):
    """Return Booleans (N,): the rows that columns start:stop need."""
    if not isinstance(mask, masks.BlockMask):
        return mask.pairs()[:, start:stop].any(axis=1)
    seen = np.kron(mask.tiles, np.ones((mask.Br, mask.Bc), dtype=bool))[: mask.N]
    return seen[:, start // mask.Bc * mask.Bc : -(-stop // mask.Bc) * mask.Bc].any(axis=1)


@settings(max_examples=EXAMPLES)
@given(any_mask())
def test_the_numbers_are_those_of_the_pairs(mask):
    pairs = mask.pairs()
    assert pairs.shape == (mask.N, mask.N) and pairs.dtype == bool
    assert mask.nnz == pairs.sum()
    assert mask.nonempty_rows == pairs.any(axis=1).sum()
    assert mask.nonempty_columns == pairs.any(axis=0).sum()
    assert ((mask.additive() == 0) == pairs).all() and ((mask.additive() == -np.inf) == ~pairs).all()
    assert all(
        pairs[i, j] == mask.sees(np.array(i), np.array(j)) for i in (0, mask.N - 1) for j in (0, -1 % mask.N)
    )


@settings(max_examples=EXAMPLES)
@given(any_mask(), st.integers(1, 26))
def test_columns_are_those_that_some_row_of_the_block_needs(mask, b):
    pairs = mask.pairs()
    for start in range(0, mask.N, b):
        stop = min(mask.N, start + b)
        ranges = mask.columns(start, stop)
        assert all(0 <= begin < end <= mask.N for begin, end in ranges)
        assert all(a[1] < b[0] for a, b in pairwise(ranges))  # in order, neighbours joined
        found = np.zeros(mask.N, dtype=bool)
        found[rows_of(ranges)] = True
        assert (found == needed(mask, start, stop)).all()
        assert not (pairs[start:stop] & ~found).any()


@settings(max_examples=EXAMPLES)
@given(any_mask(), st.integers(1, 26))
def test_visits_are_the_rows_needed_and_first_once_for_each(mask, b):
    pairs = mask.pairs()
    firsts, visited = np.zeros(mask.N, dtype=int), np.zeros(mask.N, dtype=bool)
    for start in range(0, mask.N, b):
        stop = min(mask.N, start + b)
        visits = mask.visits(start, stop)
        rows = rows_of((visit.start, visit.stop) for visit in visits)
        assert rows == sorted(set(rows)) and all(visit.start < visit.stop for visit in visits)
        found = np.zeros(mask.N, dtype=bool)
        found[rows] = True
        assert (found == rows_needed(mask, start, stop)).all()
        assert not (pairs[:, start:stop] & ~found[:, None]).any()
        for visit in visits:
            firsts[visit.start : visit.stop] += visit.first
            assert visit.first == (not visited[visit.start : visit.stop].any())
            assert visit.first or visited[visit.start : visit.stop].all()
        visited |= found
    assert (firsts == visited).all()
    unseen = np.zeros(mask.N, dtype=bool)
    unseen[rows_of(mask.unseen_rows())] = True
    assert (unseen == ~visited).all()


def loaded(mask, b, begin, needs):
    """Return the columns (or rows) that blocks of b need, summed; the first block starts at `begin`."""
    blocks = [(max(0, start), min(mask.N, start + b)) for start in range(begin, mask.N, b)]
    return sum(int(needs(mask, *block).sum()) for block in blocks)


@settings(max_examples=EXAMPLES)
@given(any_mask(), st.integers(1, 26))
def test_the_short_block_is_at_the_end_where_it_costs_less_and_last_if_both_cost_the_same(mask, b):
    for columns, needs in ((False, needed), (True, rows_needed)):
        first, last = (loaded(mask, b, begin, needs) for begin in (-(-mask.N % b), 0))
        asked = mask.short_first(b, columns=columns)
        assert (first if asked else last) == min(first, last)
        assert first < last or not asked or isinstance(mask, masks.Causal)  # where it never costs more


def test_the_short_block_of_a_mask_that_shrinks_along_the_rows_is_the_last():
    for N, b in ((21, 20), (22, 5), (100, 64)):
        growing, shrinking = (
            masks.BlockMask(N, half(np.ones((N, N), dtype=bool)), 1) for half in (np.tril, np.triu)
        )
        for columns in (False, True):
            assert growing.short_first(b, columns=columns) is not columns
            assert shrinking.short_first(b, columns=columns) is columns
        assert masks.Causal(N).short_first(b) and not masks.Window(N, 3).short_first(b)


def test_a_mask_knows_whether_all_blocks_are_alike():
    kinds = [masks.Full(8), masks.Causal(8), masks.Window(8, 2), masks.causal(8, 2)]
    assert [mask.alike for mask in kinds] == [True, False, False, False]


def test_what_a_mask_shows():
    assert repr(masks.Window(100, 3)) == "Window(N=100, w=3): 688 of 10,000 pairs visible"
    assert repr(masks.Causal(1000)) == "Causal(N=1000): 500,500 of 1,000,000 pairs visible"
    assert repr(masks.causal(10, 4)) == "BlockMask(N=10, 3 x 3 tiles of 4 x 4): 6 of 9 tiles not empty"


# ---- builders --------------------------------------------------------------------------------------------


def count(mask):
    return int(mask.tiles.sum())


@pytest.mark.parametrize("nb", [1, 2, 5, 16])
@pytest.mark.parametrize("B", [1, 4])
def test_tiles_of_causal_and_window(nb, B):
    N = nb * B - (B > 1)  # ragged
    assert count(masks.causal(N, B)) == nb * (nb + 1) // 2
    assert (masks.causal(N, B).pairs() == masks.Causal(N).pairs()).all()
    for w in range(nb + 2):
        inside = min(w, nb - 1)
        assert count(masks.sliding_window(N, B, w)) == nb * (2 * inside + 1) - inside * (inside + 1)


def test_tiles_of_the_other_builders():
    nb = 12
    bird = masks.bigbird(48, 4, 2, 1, 3, seed=5).tiles
    I, J = np.arange(nb)[:, None], np.arange(nb)[None, :]
    fixed = (np.abs(I - J) <= 1) | (I < 2) | (J < 2)
    assert bird[fixed].all()
    assert ((bird & ~fixed).sum(axis=1) == np.minimum(3, (~fixed).sum(axis=1))).all()
    assert masks.bigbird(48, 4, 0, 0, 99).tiles.all()  # a row with fewer tiles left gets them all
    assert (masks.strided(48, 4, 5).tiles == ((I == J) | (J % 5 == 0))).all()
    assert (masks.random(48, 4, 0.0).tiles == (I == J)).all() and masks.random(48, 4, 1).tiles.all()
    density = (count(masks.random(400, 4, 0.3)) - 100) / (100 * 99)
    assert density == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    "build",
    [lambda seed: masks.bigbird(64, 2, 1, 1, 3, seed=seed), lambda seed: masks.random(64, 2, 0.3, seed=seed)],
)
def test_chance_is_decided_by_the_seed(build):
    assert build(3) == build(3) and build(3) != build(4)
    assert build(0) != masks.causal(64, 2) and build(0) != "a mask"


def test_the_six_word_counts_of_the_course():
    """Row blocks with the mask's own tiles, N = 4096, d = 64, B = 64: 2Nd + 2dB·(number of tiles)."""
    N, d, B = 4096, 64, 64
    built = {
        "dense": (masks.BlockMask(N, np.ones((64, 64), dtype=bool), B), 34.1),
        "causal": (masks.causal(N, B), 17.6),
        "window": (masks.sliding_window(N, B, 1), 2.08),
        "bigbird": (masks.bigbird(N, B, 1, 1, 2), 4.13),
        "strided": (masks.strided(N, B, 8), 5.18),
        "random": (masks.random(N, B, 0.1), 4.49),
    }
    for name, (mask, millions) in built.items():
        words = costs.block_sparse(N, d, mask=mask, Br=B, Bc=B).total
        assert words == 2 * N * d + 2 * d * B * count(mask), name
        slack = 0.03 if name in ("bigbird", "random") else 0.003  # other seeds, other tiles
        assert words / 1e6 == pytest.approx(millions, rel=slack), name


def test_a_tile_of_single_pairs_is_covered():
    rng = np.random.default_rng(0)
    for N, B, density in ((13, 4, 0.02), (16, 4, 0.3), (5, 9, 0.5)):
        pairs = (rng.random((N, N)) < density) | np.eye(N, dtype=bool)
        mask = masks.covering_blocks(pairs, B)
        assert not (pairs & ~mask.pairs()).any()
        for I, J in np.argwhere(mask.tiles):
            assert pairs[I * B : (I + 1) * B, J * B : (J + 1) * B].any()


# ---- bad input -------------------------------------------------------------------------------------------

GRID = np.ones((2, 2), dtype=bool)
HOLED = np.array([[True, False], [False, False]])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: masks.Causal(0), ValueError, "^N must be at least 1, got 0"),
        (lambda: masks.Full(2.0), TypeError, "^N must be"),
        (lambda: masks.Window(8, -1), ValueError, "^w must be at least 0, got -1"),
        (lambda: masks.Window(8, 1.5), TypeError, "^w must be"),
        (lambda: masks.Window(8, False), TypeError, "^w must be"),
        (lambda: masks.BlockMask(8, GRID, 0), ValueError, "^Br must be"),
        (lambda: masks.BlockMask(8, GRID, 4, 0), ValueError, "^Bc must be"),
        (
            lambda: masks.BlockMask(8, GRID, 3),
            ValueError,
            r"^tiles must have shape \(3, 3\) for this N, Br and Bc, got \(2, 2\)",
        ),
        (
            lambda: masks.BlockMask(8, GRID[0], 4),
            ValueError,
            r"^tiles must have shape \(2, 2\) .* got \(2,\)",
        ),
        (
            lambda: masks.BlockMask(8, GRID.astype(int), 4),
            TypeError,
            "^tiles must be Boolean, .* got dtype int64",
        ),
        (
            lambda: masks.BlockMask(7, HOLED, 4),
            ValueError,
            r"^tiles\[1\] leaves 3 queries without any key, the first is query 4 .*4:7\).*allow_empty",
        ),
        (
            lambda: masks.BlockMask(8, HOLED[::-1, ::-1] | HOLED, 2, 4, causal=True),
            ValueError,
            "^tiles must have shape",
        ),
        (
            lambda: masks.BlockMask(8, np.array([[False, True], [True, True]]), 4, causal=True),
            ValueError,
            r"^tiles\[0\] leaves 4 queries without any key, the first is query 0",
        ),
        (
            lambda: masks.BlockMask(8, np.array([[False, True, True]]), 8, 3, causal=True),
            ValueError,
            r"^tiles\[0\] leaves 3 queries without any key, the first is query 0 ",
        ),
        (lambda: masks.causal(8, 0), ValueError, "^B must be"),
        (lambda: masks.sliding_window(8, 2, -1), ValueError, "^w must be"),
        (lambda: masks.sliding_window(8, 2, False), TypeError, "^w must be"),
        (lambda: masks.bigbird(8, 2, -1, 1, 1), ValueError, "^g must be"),
        (lambda: masks.bigbird(8, 2, 1, 1, 0.5), TypeError, "^r must be"),
        (lambda: masks.strided(8, 2, 0), ValueError, "^s must be"),
        (lambda: masks.random(8, 2, 1.5), ValueError, r"^p must be a probability from 0 to 1, got 1\.5"),
        (lambda: masks.random(8, 2, float("nan")), ValueError, "^p must be"),
        (lambda: masks.random(8, 2, "0.1"), ValueError, "^p must be"),
        (lambda: masks.random(8, 2, True), ValueError, "^p must be"),
        (
            lambda: masks.covering_blocks(np.ones((2, 3), dtype=bool), 2),
            ValueError,
            r"^pairs must be .*\(2, 3\)",
        ),
        (
            lambda: masks.covering_blocks(np.ones((2, 2)), 2),
            ValueError,
            "^pairs must be boolean.* got float64",
        ),
        (lambda: masks.covering_blocks(np.zeros((2, 2), dtype=bool), 2), ValueError, r"^tiles\[0\] leaves 2"),
    ],
)
def test_bad_masks_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_empty_rows_are_allowed_when_asked_for():
    mask = masks.BlockMask(7, HOLED, 4, allow_empty=True)
    assert mask.nonempty_rows == 4 and mask.unseen_rows() == [(4, 7)]
    assert masks.BlockMask(7, ~GRID, 4, allow_empty=True).nnz == 0


def test_the_grid_is_the_masks_own():
    given_grid = GRID.copy()
    mask = masks.BlockMask(8, given_grid, 4)
    given_grid[:] = False
    assert mask.tiles.all()
    mask.columns(0, 8).clear()
    assert mask.columns(0, 8) == [(0, 8)]
    with pytest.raises(ValueError, match="read-only"):
        mask.tiles[0, 0] = False


# ---- schedules take masks --------------------------------------------------------------------------------

TAKE_MASKS = [s for s in REGISTRY.values() if "mask" in (*s.needs, *s.options)]


def test_which_schedules_take_masks():
    """All exact backward schedules, and the forward schedules for masks."""
    backward = [s for s in REGISTRY.values() if s.pass_ == "backward" and s.approximates is None]
    assert len(backward) >= 6 and set(backward) <= set(TAKE_MASKS) and block_sparse in TAKE_MASKS
    assert all("mask" in s.needs for s in TAKE_MASKS if s not in backward)


@pytest.mark.parametrize("schedule", TAKE_MASKS, ids=lambda s: s.name)
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (masks.Causal(9), ValueError, "^mask must be for N = 8, the rows of the arrays, got N = 9"),
        (np.ones((8, 8), dtype=bool), TypeError, r"^mask must be one of iocourse\.masks, got ndarray"),
        ("causal", TypeError, r"^mask must be one of iocourse\.masks, got str"),
    ],
)
def test_a_wrong_mask_is_named_in_run_and_cost(schedule, mask, error, message):
    tiles = dict.fromkeys(schedule.tile_names, 2)
    m = Machine(999, dry=True)
    arrays = [m.slow(name, shape) for name, shape in schedule.shapes(8, 2).items()]
    with pytest.raises(error, match=message):
        schedule(m, *arrays, mask=mask, **tiles)
    with pytest.raises(error, match=message):
        schedule.cost(8, 2, mask=mask, **tiles)
    with pytest.raises(error, match=message):
        schedule.tiles(8, 2, 999, mask=mask)


def test_a_mask_that_is_needed_and_one_that_is_not_taken():
    with pytest.raises(TypeError, match=r"^block_sparse needs mask=…"):
        block_sparse.cost(8, 2, Br=2, Bc=2)
    for name in ("flash2", "gradient", "window"):
        schedule = REGISTRY[name]
        tiles = dict.fromkeys(schedule.tile_names, 2) | dict.fromkeys(schedule.needs, 2)
        with pytest.raises(TypeError, match=f"^{name} does not accept mask"):
            schedule.cost(8, 2, **tiles, mask=masks.Causal(8))


def test_a_mask_that_hides_every_pair_has_tiles_and_zeros():
    nothing = masks.BlockMask(6, np.zeros((2, 2), dtype=bool), 3, allow_empty=True)
    for schedule in TAKE_MASKS:
        least = schedule.smallest_M(6, 2, mask=nothing)
        tiles = schedule.tiles(6, 2, least, mask=nothing)
        assert schedule.cost(6, 2, mask=nothing, **tiles).peak <= least
    drawn = flash2_backward.problem.draw(np.random.default_rng(0), 6, 2, nothing)
    assert not any(np.abs(g).max() for g in flash2_backward.problem.exact(drawn, nothing))
    assert exact.max_abs_error(drawn["O"], np.zeros((6, 2))) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: masks.Full(24),
        lambda: masks.Causal(24),
        lambda: masks.Window(24, 3),
        lambda: masks.causal(24, 8),
        lambda: masks.bigbird(24, 4, 1, 1, 1),
    ],
    ids=["full", "causal", "window", "causal tiles", "BigBird"],
)
def test_a_mask_that_was_used_is_freed(make):
    """By a schedule on numbers and dry, and by closed forms."""
    mask, (Q, K, V) = make(), np.random.default_rng(0).standard_normal((3, 24, 8))
    tiles = {"mask": mask, "Br": 8, "Bc": 4}
    for dry in (False, True):
        run(block_sparse, Q=Q, K=K, V=V, M=1000, dry=dry, **tiles)
    costs.block_sparse(24, 8, **tiles), costs.fused_backward(24, 8, **tiles)
    freed = weakref.ref(mask)
    del mask, tiles
    gc.collect()
    assert freed() is None
