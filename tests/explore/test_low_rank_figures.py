"""Tests of figures of low rank: polynomial errors, rank, break-even length and causal tiles."""

import re
from math import comb

import numpy as np
import pytest
from figure_layout import check_layout

from iocourse import costs, schedules
from iocourse.course.explore import (
    causal_tiles,
    lowrank_passes,
    polynomial_errors,
    rank_growth,
    traffic_vs_length,
)
from iocourse.course.explore.draw.palette import BLACK, BLUE, STROKES, VERMILION
from iocourse.course.explore.draw.picture import Poly, Rect
from iocourse.course.explore.figures.lowrank_passes import EXACT, FAR, IN_STATE, SIDE, X, Y
from iocourse.course.explore.models.lowrank_explorer import percent
from iocourse.lowrank.polynomials import chebyshev, hermite, minimax, taylor


def lines_of(drawn, colour, points):
    """Return the lines with `points` points in a colour."""
    return [
        one.points for one in drawn.elements
        if isinstance(one, Poly) and one.stroke == colour and not one.fill and len(one.points) == points
    ]  # fmt: skip


def numbers_in(drawn):
    """Return the words of each line of the numbers."""
    return [line.split() for line in drawn.numbers.splitlines()]


# ---------------------------------------------------------------------- errors of polynomials
CURVES = [("taylor", 3), ("chebyshev", 4), ("minimax", 2), ("hermite", 5)]
s = np.linspace(-1.5, 1.5, 601)
DENSE = [
    taylor(3), chebyshev(4, 1.5), minimax(2, 1.5), np.exp(0.15) * hermite(5, np.array([0.3]))[:, 0]
]  # fmt: skip


def test_each_curve_is_the_relative_error_of_its_polynomial():
    drawn = polynomial_errors(1.5, CURVES, variance=0.3)
    check_layout(drawn)
    for k, p in enumerate(DENSE):
        (points,) = lines_of(drawn, STROKES[k].colour, 601)
        error = abs(np.polyval(p[::-1], s) * np.exp(-s) - 1)
        heights = np.array([y for _, y in points])
        shown = heights < heights.max() - 1  # above the lower end of the axis
        # a logarithmic axis: pixels are linear in the logarithm of the error
        slope, start = np.polyfit(np.log(error[shown]), heights[shown], 1)
        assert start + slope * np.log(error[shown]) == pytest.approx(heights[shown], abs=1e-6)
        assert slope < 0


def test_the_table_says_the_largest_error_and_where_the_polynomial_is_positive():
    drawn = polynomial_errors(1.5, CURVES, variance=0.3, error=0.01)
    dense = [abs(np.polyval(p[::-1], s) * np.exp(-s) - 1).max() for p in DENSE]
    for (name, g), largest, line in zip(CURVES, dense, drawn.numbers.splitlines()[1:], strict=True):
        assert line.strip().startswith(f"{name}, g = {g}")
        assert f" {percent(largest)} " in line
    assert "|s| < 1.6" in drawn.numbers.splitlines()[1] and "A dashed line marks 1 %." in drawn.alt
    assert "all s" in polynomial_errors(1.0, [("taylor", 4)]).numbers


def test_a_variance_beyond_the_clip_changes_nothing():
    assert polynomial_errors(1, [("hermite", 2)], variance=0.8).elements == (
        polynomial_errors(1, [("hermite", 2)], variance=5.0).elements
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"R": 0}, "R must be positive and at most 300, got 0"),
        ({"R": 301}, "R must be positive and at most 300, got 301"),
        ({"R": 20}, "R must be at most 15 for minimax, got 20"),
        ({"curves": []}, "curves must have 1 to 7 entries, got 0"),
        ({"curves": [("taylor", 1)] * 8}, "curves must have 1 to 7 entries, got 8"),
        ({"curves": [("tailor", 1)]}, "curves must name polynomials among hermite"),
        ({"curves": [("taylor", 0)]}, "degree must be at least 1, got 0"),
        ({"variance": -1}, "variance must be 0 or more and finite, got -1"),
        ({"error": 0}, "error must be positive and finite, got 0"),
    ],
)
def test_bad_curves_are_named(change, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        polynomial_errors(**{"R": 1.0, "curves": [("minimax", 2)]} | change)


# ---------------------------------------------------------------------- rank
@pytest.mark.parametrize("of", ["rank", "state"])
def test_ranks_are_binomials_on_a_logarithmic_axis(of):
    ds, degrees = (4, 12, 64), (1, 2, 3, 5)
    drawn = rank_growth(ds, degrees, of=of, lines={"a": 100.0, "b": 10_000.0})
    check_layout(drawn)
    rows = numbers_in(drawn)[1:5]
    assert rows == [[str(g), *[f"{comb(d + g, g):,}" for d in ds]] for g in degrees]
    values, heights = [], []
    for k, d in enumerate(ds):
        (points,) = lines_of(drawn, STROKES[k].colour, 4)
        assert [x for x, _ in points] == pytest.approx(
            [points[0][0] + (points[-1][0] - points[0][0]) * (g - 1) / 4 for g in degrees]
        )
        values += [comb(d + g, g) * (d + 1 if of == "state" else 1) for g in degrees]
        heights += [y for _, y in points]
    slope, start = np.polyfit(np.log(values), heights, 1)
    assert start + slope * np.log(values) == pytest.approx(heights, abs=1e-6)


def test_lines_say_which_degree_is_the_last_within():
    told = rank_growth((4, 64), range(1, 7), lines={"tiny": 10.0, "M": 16_384.0}).alt
    assert "tiny (10): the largest degree within this limit is none at d = 4, none at d = 64." in told
    assert "M (16,384): the largest degree within this limit is 6 at d = 4, 1 at d = 64." in told
    assert comb(66, 2) * 65 > 16_384 >= 65 * 65
    of_rank = rank_growth((4, 64), range(1, 7), of="rank", lines={"n": 2145}).alt
    assert "n (2,145): the largest degree within this limit is 6 at d = 4, 2 at d = 64." in of_rank


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"of": "words"}, "of must be 'state' or 'rank', got 'words'"),
        ({"ds": []}, "ds must have 1 to 7 entries, got 0"),
        ({"ds": range(1, 9)}, "ds must have 1 to 7 entries, got 8"),
        ({"ds": [0]}, "d must be at least 1, got 0"),
        ({"degrees": []}, "degrees must contain at least one degree"),
        ({"degrees": [0]}, "degree must be at least 1, got 0"),
        ({"lines": {"x": 0}}, "lines['x'] must be positive and finite, got 0"),
    ],
)
def test_bad_ranks_are_named(change, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        rank_growth(**change)


# ---------------------------------------------------------------------- the crossing
def diamonds(drawn):
    """Return the positions of the diamonds, which mark n*."""
    marks = [one.points for one in drawn.elements if isinstance(one, Poly) and one.fill == BLACK]
    return [np.mean(points, axis=0) for points in marks]


@pytest.mark.parametrize(("d", "g"), [(12, 3), (16, 4), (64, 2)])
def test_the_crossing_stands_on_low_ranks_line_at_n_star(d, g):
    Ms = [4096, 16_384]
    drawn = traffic_vs_length(d, g, Ms)
    check_layout(drawn)
    found = [schedules.break_even_length(d, g, M) for M in Ms]
    flash = [
        lambda n, M=M: costs.flash_optimal(n, d, **schedules.flash_optimal.tiles(n, d, M)).total for M in Ms
    ]
    for one, exact, mark, colour, row in zip(
        found, flash, diamonds(drawn), (VERMILION, BLUE), numbers_in(drawn)[1:], strict=True
    ):
        low = costs.low_rank(one.N, d, g=g, **one.tiles).total
        assert low < exact(one.N) and costs.low_rank(one.N - 1, d, g=g, **one.tiles).total >= exact(one.N - 1)
        assert row[1] == f"{one.N:,}"
        assert float(row[3].replace(",", "")) == pytest.approx(low / one.N, rel=1e-3)
        dashed = next(
            element.points for element in drawn.elements
            if isinstance(element, Poly) and element.stroke == colour and element.dash == (9, 4)
        )  # fmt: skip
        assert mark[1] == pytest.approx(dashed[0][1])
        share = (mark[0] - dashed[0][0]) / (dashed[-1][0] - dashed[0][0])
        low_n, high_n = max(1, min(f.N for f in found) // 16), 16 * max(f.N for f in found)
        assert share == pytest.approx(np.log(one.N / low_n) / np.log(high_n / low_n))


def test_a_crossing_outside_the_range_is_not_drawn_but_said():
    drawn = traffic_vs_length(12, 3, [4096], Ns=(10, 20))
    assert not diamonds(drawn) and f"from n = {schedules.break_even_length(12, 3, 4096).N} on" in drawn.alt


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((12, 3, []), "Ms must have 1 to 3 entries, got 0"),
        ((12, 3, [100, 200, 300, 400]), "Ms must have 1 to 3 entries, got 4"),
        ((12, 3, [7]), "M = 7 is too small to compare at d = 12"),
        ((0, 3, [100]), "d must be at least 1, got 0"),
        ((12, 0, [100]), "degree must be at least 1, got 0"),
    ],
)
def test_bad_lengths_are_named(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        traffic_vs_length(*arguments)


def test_an_empty_range_is_named():
    with pytest.raises(ValueError, match=re.escape("Ns must be a first n and a larger last one, got (9, 9)")):
        traffic_vs_length(12, 3, [4096], Ns=(9, 9))


# ---------------------------------------------------------------------- causal tiles
def pixels(drawn, fill):
    """Return the area of the tiles in a fill as a share of all pairs."""
    inside = [
        one for one in drawn.elements
        if isinstance(one, Rect) and one.fill == fill and one.x < X + SIDE and one.y >= Y
    ]  # fmt: skip
    return sum(one.width * one.height for one in inside) / SIDE**2


@pytest.mark.parametrize(("n", "C"), [(512, 64), (500, 64), (37, 5), (9, 9), (8, 1), (5, 99)])
def test_pairs_are_counted_as_a_mask_has_them(n, C):
    drawn = causal_tiles(n, C)
    row, column = np.indices((n, n))
    seen, near = column <= row, row // C == column // C
    table = {cells[0]: int(cells[1].replace(",", "")) for cells in numbers_in(drawn)[1:4]}
    assert table == {"exact": (seen & near).sum(), "polynomial": (seen & ~near).sum(), "seen": seen.sum()}
    assert pixels(drawn, FAR.colour) == pytest.approx((seen & ~near).sum() / n**2)


def test_triangles_lie_on_the_diagonal():
    drawn = causal_tiles(500, 64)
    triangles = [one.points for one in drawn.elements if isinstance(one, Poly) and one.fill == EXACT.colour]
    starts = np.minimum(np.arange(9) * 64, 500) * SIDE / 500
    for k, corners in enumerate(triangles[:8]):
        assert corners[0] == pytest.approx((X + starts[k], Y + starts[k]))
        assert corners[2] == pytest.approx((X + starts[k + 1], Y + starts[k + 1]))


@pytest.mark.parametrize("at", range(8))
def test_what_a_tile_takes_from_the_state_is_shown_and_said(at):
    first, stop = 64 * at, min(500, 64 * at + 64)
    forward, backward = (causal_tiles(500, 64, at=at, pass_=pass_) for pass_ in ("forward", "backward"))
    check_layout(forward), check_layout(backward)
    size = stop - first
    assert pixels(forward, IN_STATE.colour) == pytest.approx(size * first / 500**2)
    assert pixels(backward, IN_STATE.colour) == pytest.approx(size * (500 - stop) / 500**2)
    assert (f"of keys 0 to {first - 1}" if at else "T is 0") in forward.numbers
    assert (f"of queries {stop} to 499" if stop < 500 else "U is 0") in backward.numbers


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n": 0, "C": 1}, "n must be at least 1, got 0"),
        ({"n": 9, "C": 0}, "C must be at least 1, got 0"),
        ({"n": 65, "C": 1}, "n = 65 with C = 1 has 65 tiles per side; use at most 64"),
        ({"n": 9, "C": 4, "at": 3}, "at must be from 0 to 2, got 3"),
        ({"n": 9, "C": 4, "pass_": "both"}, "pass_ must be 'forward' or 'backward', got 'both'"),
    ],
)
def test_bad_tiles_are_named(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        causal_tiles(**arguments)


@pytest.mark.parametrize(("pass_", "tokens", "states"), [("forward", 4, 1), ("backward", 7, 2)])
def test_sweeps_are_drawn_in_one_scale(pass_, tokens, states):
    """Areas are proportional to words, except for strips that would be too thin to see."""
    N, d, r = 90, 9, 220
    picture = lowrank_passes(N, d, 3, pass_=pass_)
    boxes = [one for one in picture.elements if isinstance(one, Rect) and one.y < 320]  # not the key
    drawn = [box.width * box.height for box in boxes]
    words = [N * N, *[N * d] * tokens, *[r * (d + 1)] * states]
    assert sorted(area / drawn[0] for area in drawn) == pytest.approx(sorted(w / words[0] for w in words))
    assert all(f"{count:,}" in picture.numbers for count in words)


def test_another_pass_than_two_is_refused():
    with pytest.raises(ValueError, match="pass_ must be 'forward' or 'backward', got 'both'"):
        lowrank_passes(8, 2, 2, pass_="both")
