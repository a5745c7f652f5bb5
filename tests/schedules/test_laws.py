"""The laws every schedule keeps: it moves what its closed form says, and its values are exact attention's.

The tests run over the registry, so a schedule that is added tomorrow is held to them too.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import costs, exact
from iocourse.bounds import lower_bound
from iocourse.machine import FastMemoryFull, run
from iocourse.schedules import REGISTRY, matmul, matmul_tiles

SHAPES = 1000  # on the dry machine, for each schedule
SHAPES_WITH_VALUES = 200

forward = pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))


def upto(extent):
    """1 and `extent` more often than chance would have them."""
    return st.one_of(st.just(1), st.just(extent), st.integers(1, extent))


@st.composite
def sizes(draw, schedule, N, d):
    """(N, d, tiles) with ragged edges, tiles larger than N, N = 1 and d = 1 among them."""
    n, h = draw(upto(N)), draw(upto(d))
    return n, h, {name: draw(upto(n + 5)) for name in schedule.tile_names}


def hold(law, strategy, examples):
    """Try `law` on so many examples, and say how many it was."""
    ran = 0

    @settings(max_examples=examples)
    @given(strategy)
    def counted(example):
        nonlocal ran
        ran += 1
        law(*example)

    counted()
    print(f"{ran} examples")
    assert ran >= examples


def inputs(N, d, seed, size=1.0):
    rng = np.random.default_rng(seed)
    return {name: size * rng.standard_normal((N, d)) for name in "QKV"}


def only_shapes(arrays):
    return {name: array.shape for name, array in arrays.items()}


@forward
def test_a_dry_run_moves_what_the_closed_form_says_and_fits_its_footprint_exactly(schedule):
    def law(size, lse):
        N, d, tiles = size
        form = schedule.cost(N, d, lse=lse, **tiles)
        given = dict.fromkeys("QKV", (N, d)) | tiles | {"lse": lse, "dry": True}
        ledger = run(schedule, M=form.peak, **given).ledger
        assert ledger == form, ledger - form
        with pytest.raises(FastMemoryFull):
            run(schedule, M=form.peak - 1, **given)

    hold(law, st.tuples(sizes(schedule, 300, 64), st.booleans()), SHAPES)


@forward
def test_a_run_has_exact_values_and_the_same_ledger_as_every_dry_run(schedule):
    def law(size, lse, seed, factor):
        N, d, tiles = size
        arrays = inputs(N, d, seed, factor)
        form = schedule.cost(N, d, lse=lse, **tiles)
        done = run(schedule, M=form.peak, **arrays, **tiles, lse=lse)
        dry = run(schedule, M=form.peak, dry=True, **only_shapes(arrays), **tiles, lse=lse)
        unrolled = run(schedule, M=form.peak, dry=True, unroll=True, **only_shapes(arrays), **tiles, lse=lse)
        assert done.ledger == form, done.ledger - form
        assert dry.ledger == done.ledger == unrolled.ledger
        assert unrolled.ledger.moves == done.ledger.moves
        assert_values(done, arrays, lse)
        with pytest.raises(FastMemoryFull):
            run(schedule, M=form.peak - 1, **arrays, **tiles, lse=lse)

    factors = st.sampled_from([1.0, 1.0, 1e-3, 30.0])
    hold(
        law,
        st.tuples(sizes(schedule, 24, 8), st.booleans(), st.integers(0, 10**6), factors),
        SHAPES_WITH_VALUES,
    )


def assert_values(done, arrays, lse):
    Q, K, V = arrays["Q"], arrays["K"], arrays["V"]
    S = exact.scores(Q, K)
    rounding = 1e-13 * (1 + np.abs(S).max()) * (1 + np.abs(V).max())
    assert exact.max_abs_error(done.O, exact.attention(Q, K, V)) < rounding
    assert len(done.outputs) == 1 + lse
    if lse:
        assert exact.max_abs_error(done.outputs[1], exact.log_sum_exp(S)) < rounding


@forward
def test_the_chosen_tiles_fit_and_one_word_below_the_smallest_M_none_does(schedule):
    def law(N, d, spare):
        least = schedule.smallest_M(N, d)
        M = least + spare
        tiles = schedule.tiles(N, d, M)
        form = schedule.cost(N, d, **tiles)
        assert form.peak <= M and min(tiles.values()) >= 1
        assert form.total >= lower_bound("forward", N, d, M)[0]
        assert isinstance(schedule.note(N, d, M), str)
        with pytest.raises(ValueError, match=rf"M = {least - 1} .* the smallest M that works is {least}$"):
            schedule.tiles(N, d, least - 1)

    spare = st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 10**5))
    hold(law, st.tuples(upto(5000), upto(256), spare), 300)


@forward
def test_hostile_logits_stay_finite(schedule):
    N, d = 13, 4
    arrays = inputs(N, d, seed=1)
    arrays["Q"] *= 1e4
    tiles = schedule.tiles(N, d, 60)
    assert_values(run(schedule, M=60, **arrays, **tiles), arrays, lse=False)


# ---- the matrix product ----------------------------------------------------------------------------------

product_sizes = st.tuples(*[upto(90)] * 3, *[upto(95)] * 2)
small_product_sizes = st.tuples(*[upto(12)] * 3, *[upto(14)] * 2, st.integers(0, 10**6))


def test_matmul_moves_what_its_closed_form_says():
    def law(m, n, k, bm, bn):
        form = costs.matmul(m, n, k, bm=bm, bn=bn)
        given = {"dry": True, "A": (m, k), "B": (k, n), "bm": bm, "bn": bn}
        ledger = run(matmul, M=form.peak, **given).ledger
        assert ledger == form, ledger - form
        with pytest.raises(FastMemoryFull):
            run(matmul, M=form.peak - 1, **given)

    hold(law, product_sizes, SHAPES)


def test_matmul_has_exact_values_and_the_same_ledger_as_every_dry_run():
    def law(m, n, k, bm, bn, seed):
        rng = np.random.default_rng(seed)
        A, B = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        form = costs.matmul(m, n, k, bm=bm, bn=bn)
        done = run(matmul, M=form.peak, A=A, B=B, bm=bm, bn=bn)
        unrolled = run(matmul, M=form.peak, dry=True, unroll=True, A=A.shape, B=B.shape, bm=bm, bn=bn)
        assert done.ledger == form == unrolled.ledger
        assert unrolled.ledger.moves == done.ledger.moves
        assert exact.max_abs_error(done.O, A @ B) < 1e-12
        with pytest.raises(FastMemoryFull):
            run(matmul, M=form.peak - 1, A=A, B=B, bm=bm, bn=bn)

    hold(law, small_product_sizes, SHAPES_WITH_VALUES)


def test_the_chosen_product_tiles_fit_and_no_other_pair_of_sides_is_cheaper():
    def law(m, n, k, M):
        tiles = matmul_tiles(m, n, k, M)
        assert costs.matmul(m, n, k, **tiles).peak <= M
        best = min(
            costs.matmul(m, n, k, bm=bm, bn=bn).total
            for bn in range(1, n + 1)
            if (bm := min(m, (M - bn) // (bn + 1))) >= 1
        )
        assert costs.matmul(m, n, k, **tiles).total == best

    hold(law, st.tuples(upto(40), upto(40), upto(40), st.integers(3, 2000)), 200)


def test_matmul_names_the_smallest_M():
    assert matmul_tiles(9, 9, 9, 3) == {"bm": 1, "bn": 1}
    with pytest.raises(ValueError, match=r"M = 2 .*smallest M that works is 3"):
        matmul_tiles(9, 9, 9, 2)
