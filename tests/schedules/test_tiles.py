"""Tests of tile choices: they are the best of the loop order, so that more memory never increases traffic."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse.costs import distinct_sizes
from iocourse.schedules import REGISTRY

DENSE = [schedule for schedule in REGISTRY.values() if not schedule.needs]
PUBLISHED = [schedule for schedule in DENSE if schedule.publish]
TOGETHER = 1024  # tile sizes tried together by brute force
every_dense = pytest.mark.parametrize("schedule", DENSE, ids=lambda schedule: schedule.name)


@every_dense
@settings(max_examples=many(40, 150))
@given(st.integers(1, 5000), st.integers(1, 128), st.integers(0, 10**5), st.integers(1, 10**4))
def test_more_memory_never_moves_more_words(schedule, N, d, spare, more):
    M = schedule.smallest_M(N, d) + spare
    assert schedule.count(N, d, M + more).total <= schedule.count(N, d, M).total


def sizes(N, d):
    """Those worth trying for one tile."""
    return {*distinct_sizes(N), *distinct_sizes(d)}


@cache
def every_tiling(schedule, N, d):
    """(words, footprint) for all sizes worth trying, the fewest words first."""
    tried = product(sizes(N, d), repeat=len(schedule.tile_names))
    forms = (schedule.cost(N, d, **dict(zip(schedule.tile_names, tiles, strict=True))) for tiles in tried)
    return sorted((form.total, form.peak) for form in forms)


@every_dense
@settings(max_examples=many(30, 100))
@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 400))
def test_no_tiles_of_the_same_loop_order_move_fewer_words(schedule, N, d, spare):
    while len(sizes(N, d)) ** len(schedule.tile_names) > TOGETHER:
        N, d = (N + 1) // 2, (d + 1) // 2
    M = schedule.smallest_M(N, d) + spare
    best = next(words for words, peak in every_tiling(schedule, N, d) if peak <= M)
    assert schedule.count(N, d, M).total <= best


def test_order_times_tile():
    """FlashAttention-1's order and the row-block order, with the sizes of the papers and with their best."""
    N, d = 2**22, 64
    M = 64 * d * d

    def constant(name, published):
        return REGISTRY[name].count(N, d, M, published=published).total / (N * N * d * d / M)

    found = [constant(name, published) for name in ("flash1", "flash2") for published in (True, False)]
    assert [f"{value:.2f}" for value in found] == ["12.25", "6.18", "8.00", "4.10"]
    assert constant("flash_optimal", False) == constant("flash2", False)


@pytest.mark.parametrize("schedule", PUBLISHED, ids=lambda schedule: schedule.name)
def test_published_tiles_fit_or_say_how_many_words_are_short(schedule):
    fitting = 0
    for M in (100, 400, 600, 700, 5000, 10**6):
        sizes = schedule.publish(64, 8, M)
        short = schedule.cost(64, 8, **sizes).peak - M
        if short <= 0:
            fitting += 1
            assert schedule.tiles(64, 8, M, published=True) == sizes
            assert schedule.count(64, 8, M, published=True).total >= schedule.count(64, 8, M).total
        else:
            with pytest.raises(ValueError, match=rf"^published: .* {short:,} more than M = {M:,};"):
                schedule.tiles(64, 8, M, published=True)
    assert fitting


def test_where_no_sizes_are_published_the_schedules_that_have_some_are_named():
    assert [schedule.name for schedule in PUBLISHED] == [
        "flash2",
        "flash1",
        "square_tiling",
        "flash1_backward",
    ]
    with pytest.raises(
        ValueError,
        match="flash_optimal has no published tile sizes; schedules with some are flash2, flash1, ",
    ):
        REGISTRY["flash_optimal"].count(64, 8, 512, published=True)
    with pytest.raises(TypeError, match="published"):
        REGISTRY["flash1"].tiles(64, 8, 512, published="yes")
