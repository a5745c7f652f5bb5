"""Tests of the low-rank backward pass: values of its polynomial exactly, and traffic for all tile sizes."""

import numpy as np
import pytest
from finite_differences import slope
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import bounds, costs, exact, monomials
from iocourse.machine import FastMemoryFull, Machine, run
from iocourse.schedules import low_rank, low_rank_backward, split_backward

SHAPES = [(1, 1), (1, 4), (2, 3), (3, 2), (4, 2), (5, 1)]  # d, g


def drawn(N, d, g, seed):
    """Everything the schedule takes, scores of at most 0.9: an odd degree is positive there too."""
    arrays = low_rank_backward.problem.draw(np.random.default_rng(seed), N, d, None)
    arrays["Q"] *= 0.9 * d**0.5 / np.abs(arrays["Q"] @ arrays["K"].T).max()
    return arrays | low_rank_backward.forward_extras.made(arrays, g=g)


def given_to_it(arrays):
    return {name: arrays[name] for name in low_rank_backward.operands}


def forward_sum(arrays, g):
    """Σ dO∘O of the forward schedule, on the emulator."""
    d = arrays["Q"].shape[1]
    form = {"rc": 10**6, "Bd": d + 1}
    done = run(low_rank, M=10**6, **{name: arrays[name] for name in "QKV"}, g=g, **form)
    return float((arrays["dO"] * done.O).sum())


@settings(max_examples=many(25, 60))
@given(st.data())
def test_a_run_is_its_polynomials_gradient_and_moves_what_its_closed_form_says(data):
    d, g = data.draw(st.sampled_from(SHAPES))
    N, r = data.draw(st.integers(1, 7)), monomials.rank_of(d, g)
    tiles = {"rc": data.draw(st.integers(1, r + 2)), "Bd": data.draw(st.integers(1, d + 2))}
    arrays = drawn(N, d, g, data.draw(st.integers(0, 10**6)))
    form = costs.low_rank_backward(N, d, g=g, **tiles)
    done = run(low_rank_backward, M=form.peak, **given_to_it(arrays), g=g, **tiles)
    assert done.ledger == form, done.ledger - form
    for got, want in zip(done.outputs, low_rank_backward.expected(arrays, None, {"g": g}), strict=True):
        assert exact.max_abs_error(got, want) < 1e-11
    shapes = low_rank_backward.shapes(N, d, g=g)
    assert shapes["T"] == (r, d + 1)
    assert run(low_rank_backward, M=form.peak, dry=True, **shapes, g=g, **tiles).ledger == form
    with pytest.raises(FastMemoryFull, match="For low_rank_backward, "):
        run(low_rank_backward, M=form.peak - 1, dry=True, **shapes, g=g, **tiles)


def test_it_is_the_derivative_of_what_the_forward_schedule_computes():
    arrays, g = drawn(6, 3, 2, 0), 2
    done = run(low_rank_backward, M=10**4, **given_to_it(arrays), g=g, rc=4, Bd=2)
    rng = np.random.default_rng(1)
    for name, gradient in zip("QKV", done.outputs, strict=True):
        way = rng.standard_normal((6, 3))
        wanted, error = slope(
            lambda t, name=name, way=way: forward_sum(arrays | {name: arrays[name] + t * way}, g)
        )
        assert abs(float((gradient * way).sum()) - wanted) <= error


def test_its_own_values_near_softmax_as_the_degree_grows():
    errors = []
    for g in (2, 4, 6):
        arrays = drawn(12, 3, g, 5)
        found = low_rank_backward.expected(arrays, None, {"g": g})
        right = low_rank_backward.problem.exact(arrays, None)
        errors.append(max(map(exact.max_abs_error, found, right)))
    assert errors[0] > 5 * errors[1] > 25 * errors[2] > 0


def test_two_sweeps_move_the_compulsory_words_and_the_state():
    """(16.13), with a smaller footprint, because do and dq share words."""
    N, d, g = 40_960, 12, 3
    r = monomials.rank_of(d, g)
    M = 2 * r * (d + 1) + 3 * d + 2
    form = low_rank_backward.count(N, d, M, g=g)
    assert form.total == 7 * N * d + r * (d + 1) == bounds.compulsory_backward(N, d) + 5915
    assert form.peak == M < 2 * r * (d + 1) + 5 * d + 2
    assert low_rank_backward.note(N, d, M, g=g) == "rank 455: both states of 5915 words fit"
    less = low_rank_backward.count(N, d, M - 1, g=g)
    assert less.peak < M and 2 * form.total < less.total < 3 * form.total
    assert low_rank_backward.note(N, d, M - 1, g=g) == "rank 455: each state of 5915 words in 2 tiles"


def test_states_cut_into_columns_move_eight_times_their_words_over_M():
    for d in (64, 128):
        N, g = 2**16, 2
        r = monomials.rank_of(d, g)
        M = 3 * (r + 1) + 2 * d  # three columns of a state
        words = low_rank_backward.count(N, d, M, g=g).total
        print(f"d={d}: {words * M / (r * N * d * d):.2f}")
        assert words * M / (r * N * d * d) == pytest.approx(8, rel=0.1)
        assert words < split_backward.count(N, d, M).total


@settings(max_examples=many(20, 40))
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 300))
def test_no_other_tile_that_fits_is_cheaper(d, g, spare):
    least = low_rank_backward.smallest_M(9, d, g=g)
    assert least == 2 * d + 2
    M, r = least + spare, monomials.rank_of(d, g)
    picked = low_rank_backward.cost(9, d, g=g, **low_rank_backward.tiles(9, d, M, g=g))
    tiles = ({"rc": rc, "Bd": Bd} for rc in range(1, r + 1) for Bd in range(1, d + 2))
    every = [costs.low_rank_backward(9, d, g=g, **one) for one in tiles]
    assert picked.peak <= M and picked.total == min(form.total for form in every if form.peak <= M)


def test_the_state_it_takes_has_the_shape_of_its_degree():
    m = Machine(999, dry=True)
    arrays = [m.slow(name, shape) for name, shape in low_rank_backward.shapes(8, 2, g=2).items()]
    with pytest.raises(ValueError, match=r"T has shape \(6, 3\); with Q \(8, 2\) it must be \(10, 3\)"):
        low_rank_backward(m, *arrays, g=3, rc=1, Bd=1)
    with pytest.raises(TypeError, match=r"^low_rank_backward needs g=…"):
        low_rank_backward(m, *arrays, rc=1, Bd=1)
    assert not low_rank_backward.given_weights
