"""Tests of the low-rank explorer: errors against dense attention, closed-form traffic, recommendation."""

import re

import numpy as np
import pytest
from figure_layout import check_layout
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import costs, exact, lowrank, schedules
from iocourse.course.explore import low_rank_explorer, low_rank_explorer_picture
from iocourse.course.explore.draw.palette import SKY
from iocourse.course.explore.draw.picture import Poly, Rect
from iocourse.course.explore.figures.lowrank_explorer import (
    BINS,
    SHARES,
    B_at,
    draw_lowrank_explorer,
    facts_of,
)
from iocourse.course.explore.models.lowrank_explorer import (
    DEGREES,
    SAMPLED_KEYS,
    Facts,
    LowRankState,
    big,
    gaussian_logits,
    head_logits,
    in_bytes,
    logits_of,
    number_rows,
    percent,
    smallest_covering_B,
)
from iocourse.course.explore.widgets.lowrank_explorers import ERRORS, SIGMAS
from iocourse.data import real_head, real_heads
from iocourse.lowrank.polynomials import CLIP, NAMES, hermite, largest_error
from iocourse.monomials import rank_of
from tools.bench import widget_latency as bench


def arrays(n_q=40, n_k=50, d=5, size=0.7, seed=0):
    """Return queries and keys with entries up to `size`; the mean of the keys is not 0."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-size, size, (n_q, d)), rng.uniform(-size, size, (n_k, d)) + 0.3


def facts(degree=3, n=None, M=16_384, d=None, polynomial="hermite", B=None, error=0.01, **data):
    """Return the results of a state; `data` has sigma, head, or Q and K."""
    data = {"sigma": 0.3, "head": None, "Q": None, "K": None} | data
    return facts_of(degree, n, M, d, polynomial, B, error, **data)


# ---------------------------------------------------------------------- the logits
def test_logits_are_those_of_the_softmax():
    Q, K = arrays()
    data = logits_of(Q, K)
    S = Q @ K.T / np.sqrt(5)
    centred = S - S.mean(axis=1, keepdims=True)
    assert data.S.shape == (40, 50)  # all of them, in another order
    assert np.sort(data.S, axis=None) == pytest.approx(np.sort(centred, axis=None))
    assert np.sort(data.weights, axis=None) == pytest.approx(np.sort(exact.softmax(S), axis=None))
    assert data.std == pytest.approx(np.sqrt(centred.var(axis=1).mean()))
    assert data.largest == pytest.approx(abs(centred).max())
    assert data.largest <= data.limit <= data.entry**2 * np.sqrt(5)


def test_of_many_rows_and_keys_a_part_is_taken():
    Q, K = np.random.default_rng(1).normal(size=(2, 5000, 3))
    data = logits_of(Q, K)
    assert data.S.shape == (64, SAMPLED_KEYS) and data.n == 5000
    assert data.variances.shape == (64,)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("d", [4, 64])
def test_gaussian_logits_have_the_standard_deviation_asked_for(d, sigma):
    data = gaussian_logits(d, sigma)
    assert data.drawn and data.S.shape == (64, SAMPLED_KEYS)
    assert data.S.std() == pytest.approx(sigma, rel=0.1)


def test_heads_are_the_shipped_ones():
    data, head = head_logits(1, 8), real_head(1, 8)
    assert (data.n, data.d) == head.Q.shape == (471, 32)
    S = exact.scores(head.Q.astype(float), head.K.astype(float))
    assert data.std == pytest.approx(np.sqrt(S.var(axis=1).mean()), rel=0.1)  # of 69 rows


def test_quantiles_are_of_logits_and_of_attention_weight():
    data = logits_of(*arrays())
    of_logits, of_weight = data.quantiles((0.1, 0.5))
    flat, weight = data.S.ravel(), data.weights.ravel() / data.weights.sum()
    for share, low, high in zip((0.1, 0.5), of_logits, of_weight, strict=True):
        assert (flat <= low).mean() == pytest.approx(share, abs=2 / flat.size)
        assert weight[flat <= high].sum() >= share > weight[flat < high].sum()


# ---------------------------------------------------------------------- errors
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_measured_error_is_that_of_low_rank_attention_itself(name, degree, seed):
    Q, K = arrays(seed=seed)
    f = facts(degree, polynomial=name, Q=Q, K=K)
    radius = {"radius": f.R} if name in ("chebyshev", "minimax") else {}
    W = lowrank.attention(Q, K, np.eye(50), degree=degree, polynomial=name, engine="numpy", **radius)
    dense = exact.softmax(exact.scores(Q, K))
    assert f.measured == pytest.approx(np.linalg.norm(W - dense) / np.linalg.norm(dense), rel=1e-9)


@given(
    st.sampled_from(NAMES),
    st.sampled_from(DEGREES),
    st.floats(0.05, 1.2),
    st.integers(1, 8),
    st.integers(0, 9),
)
def test_a_certified_error_holds_for_all_data_within_the_bound(name, degree, B, d, seed):
    rng = np.random.default_rng(seed)
    Q, K = rng.uniform(-B / 2, B / 2, (2, 20, d))
    Q = rng.choice([-B, B], (20, d)) if seed % 2 else 2 * Q  # K's entries less their mean are up to B too
    f = facts(degree, polynomial=name, B=B, Q=Q, K=K)
    assert f.within and not f.beyond
    assert f.measured <= f.certified + 1e-12


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("R", [0.3, 1.5, 4.0])
def test_epsilon_is_the_largest_error_on_the_interval(name, R):
    f = Facts(LowRankState(4, 100, 4096, name, (R / np.sqrt(12)) ** 0.5, 0.01), gaussian_logits(12, 0.3))
    assert pytest.approx(R) == f.R
    s = np.linspace(-R, R, 4001)
    rows = [f.p.coefficients]
    if f.p.per_row:
        variances = np.linspace(0, min(CLIP, R * R), 801)
        rows = (np.exp(variances / 2) * hermite(4, variances)).T
    densely = max(abs(np.polyval(p[::-1], s) * np.exp(-s) - 1).max() for p in rows)
    assert f.off == pytest.approx(densely, rel=1e-2)
    assert name == "hermite" or f.off == largest_error(f.p.coefficients, f.R)
    assert f.certified == (np.inf if f.off >= 1 else 2 * f.off / (1 - f.off))


@pytest.mark.parametrize(("sigma", "degree"), [(0.25, 2), (0.25, 4), (0.5, 2), (0.5, 4)])
def test_the_poisson_rule_predicts_what_is_measured_of_gaussian_logits(sigma, degree):
    f = facts(degree, d=16, sigma=sigma)
    assert f.measured == pytest.approx(f.predicted, rel=0.4)
    assert facts(degree, d=16, sigma=sigma, polynomial="taylor").measured > f.measured


def test_the_smallest_degree_by_the_rule_is_the_first_whose_prediction_is_allowed():
    f = facts(d=8, sigma=0.5, error=0.01)
    assert f.enough == 4
    assert facts(4, d=8, sigma=0.5).predicted <= 0.01 < facts(3, d=8, sigma=0.5).predicted
    assert facts(sigma=3.0).enough is None


@pytest.mark.parametrize("data", [gaussian_logits(12, 0.3), head_logits(0, 2), logits_of(*arrays())])
def test_the_covering_bound_is_the_smallest_of_three_figures(data):
    B = smallest_covering_B(data)
    assert float(f"{B:.3g}") == B
    assert B**2 * np.sqrt(data.d) >= data.largest
    unit = 10.0 ** (np.floor(np.log10(B)) - 2)
    assert (B - unit) ** 2 * np.sqrt(data.d) < data.largest
    assert Facts(LowRankState(3, 9, 9999, "taylor", B, 0.1), data).beyond == 0


# ---------------------------------------------------------------------- words
@given(st.sampled_from(DEGREES), st.integers(1, 10**6), st.integers(300, 10**6), st.integers(1, 64))
@settings(max_examples=60)
def test_words_and_the_crossing_are_the_schedules_own(degree, n, M, d):
    f = facts(degree, n, M, d=d)
    low, flash = schedules.low_rank, schedules.flash_optimal
    assert f.rank == rank_of(d, degree) and f.state == f.rank * (d + 1)
    assert f.low_rank == costs.low_rank(n, d, g=degree, **low.tiles(n, d, M, g=degree))
    assert f.exact == costs.flash_optimal(n, d, **flash.tiles(n, d, M))
    assert max(f.low_rank.peak, f.exact.peak) <= M
    assert (f.low_rank.total < f.exact.total) == (n >= f.break_even.N)


def test_a_state_that_fits_moves_every_word_once():
    f = facts(3, 40_960, 16_384)
    assert f.pieces == 1 and f.low_rank.total == 4 * 40_960 * 12
    assert facts(3, 40_960, 4096).pieces == 2


# ---------------------------------------------------------------------- the verdict
def test_exact_attention_where_it_moves_fewer_words():
    f = facts(3, 200)
    assert f.verdict[0].startswith("Exact attention has less traffic at this n: low rank has 1 times")
    assert f"n* = {f.break_even.N:,} on" in f.verdict[0]
    few = facts(4, 500, 4096)
    ratio = few.low_rank.total / few.exact.total
    assert few.verdict[0].startswith(
        f"Exact attention has less traffic at this n: low rank has {ratio:.3g} times"
    )


def test_low_rank_where_it_moves_fewer_words_and_is_good_enough():
    f = facts()
    ratio = f.exact.total / f.low_rank.total
    assert f.verdict[0].startswith(f"Low rank: it has 1/{ratio:.3g} of the traffic of exact attention")
    assert percent(f.measured) in f.verdict[0]


def test_exact_attention_where_the_error_is_too_large():
    f = facts(error=0.0001)
    assert f.verdict[0].startswith("Exact attention: low rank of degree 3 has 1/34.5 of")
    assert f"but its weights are off by {percent(f.measured)} (allowed error 0.01 %)" in f.verdict[0]
    real = facts(3, head=(0, 2))
    assert "its weights are not usable" in real.verdict[0]
    assert real.verdict[2] == "By the Poisson rule, no degree up to 12 suffices for 1 % here."


@pytest.mark.parametrize(("layer", "head"), real_heads())
def test_no_shipped_head_is_fit_for_low_rank(layer, head):
    for degree in (2, 4, 6):
        assert facts(degree, head=(layer, head)).verdict[0].startswith("Exact attention")


def test_the_certificate_says_whom_it_holds_for():
    Q, K = arrays(size=0.3)
    K -= K.mean(axis=0)
    B = 1.01 * max(abs(Q).max(), abs(K).max())
    sure = facts(4, Q=Q, K=K, B=B)
    certified = f"certified to be at most {percent(sure.certified)}"
    assert sure.verdict[1].endswith(f"{certified}. All logits of the data are within ±R.")
    beyond = facts(4, Q=Q, K=K, B=0.1)
    assert f"{percent(beyond.beyond)} of the logits of the data are outside ±R" in beyond.verdict[1]
    assert beyond.beyond == (abs(Q @ K.T / np.sqrt(5)) > 0.1**2 * np.sqrt(5)).mean()
    assert "normal entries have no bound" in facts(B=4.0).verdict[1]
    assert not facts(B=4.0).within


@pytest.mark.parametrize(
    ("error", "said"),
    [(0.5, "50 %"), (0.0123, "1.2 %"), (1e-7, "10⁻⁵ %"), (1e-13, "below 10⁻¹⁰ %"), (0, "0 %"),
     (11, "over 1000 %"), (np.inf, "none")],
)  # fmt: skip
def test_errors_in_words(error, said):
    assert percent(error) == said


def test_large_numbers_in_words():
    assert big(123_456) == "123,456" and big(7 * 10**16) == "7·10¹⁶"
    assert [in_bytes(one) for one in (5, 23_660, 3 * 2**30)] == ["5 bytes", "23.1 KiB", "3 GiB"]


# ---------------------------------------------------------------------- the picture
@given(
    st.sampled_from(DEGREES), st.sampled_from([4, 12, 64, 128]), st.sampled_from([32, 40_960, 2**22]),
    st.sampled_from([1024, 16_384, 2**20]), st.sampled_from(NAMES),
    st.sampled_from([None, 0.1, 0.5, 2.0, 8.0]), st.sampled_from([0.05, 0.3, 2.0]),
    st.sampled_from([None, (0, 2), (5, 0)]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_picture_says_every_number(degree, d, n, M, polynomial, B, sigma, head):
    f = facts(degree, n, M, d if head is None else None, polynomial, B, sigma=sigma, head=head)
    drawn = draw_lowrank_explorer(f)
    check_layout(drawn)
    svg = drawn.to_svg()
    for name, value in number_rows(f):
        assert name in svg.replace("&gt;", ">").replace("&lt;", "<") and f">{value}</text>" in svg
        assert name in drawn.numbers and value in drawn.numbers
    assert big(f.low_rank.total) in drawn.numbers and big(f.exact.total) in drawn.numbers
    assert all(sentence in drawn.alt for sentence in f.verdict)


def test_bars_are_the_histogram_on_the_axis_of_the_curve():
    f = facts(3, polynomial="taylor", B=0.8)
    drawn = draw_lowrank_explorer(f)
    bars = [one for one in drawn.elements if isinstance(one, Rect) and one.fill == SKY and one.y < SHARES[1]]
    bars = [one for one in bars if one.y + one.height == SHARES[1]]
    curve = next(one for one in drawn.elements if isinstance(one, Poly) and len(one.points) == 481)
    left, right = curve.points[0][0], curve.points[-1][0]
    reach = 1.04 * f.R  # beyond the largest logit
    counts, _ = np.histogram(f.data.S, bins=BINS, range=(-reach, reach))
    assert len(bars) == (counts > 0).sum()
    heights = np.array([one.height for one in bars])
    assert heights / heights.sum() == pytest.approx(counts[counts > 0] / counts.sum(), abs=1e-4)
    middle = [one.x + one.width / 2 for one in bars]
    centres = left + (right - left) * (np.flatnonzero(counts) + 0.5) / BINS
    assert middle == pytest.approx(centres)


def hatched(drawn):
    """Return the hatched intervals, where p is not positive, as fractions of the axis."""
    rects = [one for one in drawn.elements if isinstance(one, Rect) and one.hatch == "x" and one.height > 50]
    return [((one.x - 84) / 472, (one.x + one.width - 84) / 472) for one in rects]


def test_where_the_polynomial_is_negative_the_chart_is_hatched():
    drawn = low_rank_explorer_picture(3, polynomial="taylor", sigma=1.0, d=4)
    f = facts(3, polynomial="taylor", sigma=1.0, d=4)
    ((left, right),) = hatched(drawn)
    reach = 1.04 * max(f.data.largest, f.R)
    assert left == 0 and right * 2 * reach - reach == pytest.approx(-1.596, abs=2 * reach / 480)
    assert "The polynomial is positive only for |s| < 1.6." in drawn.alt
    assert not hatched(low_rank_explorer_picture(4, polynomial="taylor", sigma=1.0, d=4))


def test_a_polynomial_that_cannot_be_made_is_said_to_be_so():
    drawn = low_rank_explorer_picture(3, polynomial="minimax", B=50.0)
    assert "minimax needs R of at most 15" in drawn.to_svg()
    assert re.search(r"measured on the sample +none", drawn.numbers)


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"degree": 0}, ValueError, "degree must be at least 1, got 0"),
        ({"degree": 13}, ValueError, "degree must be at most 12, got 13"),
        ({"degree": 2.5}, TypeError, "degree must be an integer of at least "),
        ({"n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"M": 20}, ValueError, "M = 20 is too small to compare at d = 12"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"polynomial": "tailor"}, ValueError, "polynomial must be one of hermite, taylor, .*, got 'tailor'"),
        ({"B": 0}, ValueError, "B must be positive and finite, got 0"),
        ({"B": float("nan")}, ValueError, "B must be positive and finite, got nan"),
        ({"error": 1}, ValueError, "error must be between 0 and 1, got 1"),
        ({"sigma": -1}, ValueError, "sigma must be positive and finite, got -1"),
        ({"head": (9, 9)}, ValueError, "layer=9: no head of this layer is stored"),
        ({"head": (0, 2), "d": 12}, ValueError, "d must be 32, the number of columns of the data, got 12"),
        ({"Q": np.ones((3, 2))}, ValueError, "Q and K must be given together, got K = None"),
        ({"K": np.ones((3, 2))}, ValueError, "Q and K must be given together, got Q = None"),
        ({"Q": np.ones((3, 2)), "K": np.ones((3, 4))}, ValueError, r"shapes \(3, 2\) and \(3, 4\)"),
        (
            {"Q": np.ones((3, 2)), "K": np.ones((3, 2)), "head": (0, 2)},
            ValueError,
            r"head must be None if Q and K are given, got \(0, 2\)",
        ),
        (
            {"Q": np.ones((3, 2)), "K": [[1, 1], [1, np.inf]]},
            ValueError,
            "K must be finite, but has an entry that is not in row 1",
        ),
        (
            {"Q": np.full((3, 2), 1e90), "K": np.ones((3, 2))},
            ValueError,
            "Q must have entries up to 1e.70, got 1e.90",
        ),
    ],
)
def test_bad_input_is_named(change, error, text):
    with pytest.raises(error, match=text):
        low_rank_explorer_picture(**change)
    with pytest.raises(error, match=text):
        low_rank_explorer(**change)


# ---------------------------------------------------------------------- the widget
@pytest.fixture
def explorer():
    """Return a new widget."""
    return low_rank_explorer()


@pytest.mark.parametrize(
    ("name", "value", "given"), [("degree", 6, {"degree": 6}), ("data", "head 4.5", {"head": (4, 5)})]
)
def test_words_beside_the_picture_are_the_verdict_on_its_setting(explorer, name, value, given):
    B = explorer.state.B
    explorer.set(name, value)
    expected = facts(**{"n": 40_960, "B": B} | given)
    assert explorer.state == expected.s and explorer.data.name == expected.data.name
    said = explorer.words.replace("&#x27;", "'").replace("&gt;", ">")
    assert all(sentence in said for sentence in expected.verdict[1:])
    assert explorer.page()["spoken"] == expected.verdict[0]  # which stands in the picture


def test_cover_moves_the_bound_to_the_data(explorer):
    explorer.set("data", "head 0.2")
    assert explorer.controls["d"].disabled and explorer.controls["sigma"].disabled
    assert Facts(explorer.state, explorer.data).beyond > 0
    explorer.press("cover")
    assert smallest_covering_B(head_logits(0, 2)) == explorer.state.B
    said = f"B = {explorer.state.B:g} is the smallest whose R covers the sampled logits."
    assert said in explorer.words and explorer.spoken.endswith(said)
    assert Facts(explorer.state, explorer.data).beyond == 0
    assert explorer.svg == explorer.shown().picture.to_svg()
    explorer.set("data", "Gaussian")
    assert not explorer.controls["d"].disabled and explorer.data.d == 12


def test_the_line_at_R_is_dragged(explorer):
    (strip,) = explorer.grabs
    x, y = strip.x + strip.width / 2, strip.y + 40
    before = explorer.state.B
    assert B_at(Facts(explorer.state, explorer.data), x) == pytest.approx(before, rel=0.01)
    explorer.touched("down", x, y)
    explorer.touched("move", x - 60, y)
    assert before > explorer.state.B and explorer.svg == explorer.shown().picture.to_svg()
    smaller = explorer.state.B
    explorer.touched("move", x + 500, y)
    assert smaller < explorer.state.B
    explorer.touched("move", -1e6, y)
    assert explorer.state.B == 0.125


def test_given_queries_and_keys_are_a_source_beside_the_others():
    Q, K = arrays()
    explorer = low_rank_explorer(2, Q=Q, K=K)
    assert explorer.value("data") == "Q and K"
    assert (explorer.data.n, explorer.data.d, explorer.state.n) == (50, 5, 50)
    explorer.set("data", "Gaussian")
    assert explorer.data.drawn and explorer.data.d == 5
    explorer.set("data", "Q and K")
    assert explorer.svg == low_rank_explorer_picture(2, Q=Q, K=K).to_svg()
    assert "Q and K" not in low_rank_explorer().controls["data"].options


def test_the_benchmark_times_every_control_that_changes_the_picture(explorer):
    assert set(bench.LOW_RANK) == set(explorer.controls) - {"error", "cover"}
    for name, values in bench.LOW_RANK.items():
        for value in values:
            explorer.set(name, value)


def test_it_starts_where_it_is_told_to():
    explorer = low_rank_explorer(5, 1000, 3000, d=7, polynomial="taylor", B=0.77, error=0.025, sigma=0.35)
    assert explorer.state == LowRankState(5, 1000, 3000, "taylor", 0.77, 0.025)
    assert (explorer.value("d"), explorer.value("sigma")) == (7, 0.35)
    assert list(explorer.controls["error"].options) == [*ERRORS, "2.5 %"]
    assert low_rank_explorer(head=(2, 9)).value("data") == "head 2.9"
    labels = list(low_rank_explorer().controls["sigma"].options)
    assert labels == [f"{value:g}" for value in SIGMAS]


def test_the_sliders_of_d_and_sigma_are_those_of_the_data(explorer):
    drawn = explorer.value("d"), explorer.value("sigma")
    explorer.set("data", "head 0.2")
    assert (explorer.value("d"), explorer.value("sigma")) == (32, 19.3)
    assert explorer.controls["d"].disabled and explorer.controls["sigma"].disabled
    assert "d = 32" in explorer.picture.alt and "19.3" in explorer.picture.numbers
    assert explorer.page()  # a value between the options has a place on the slider
    explorer.set("data", "Gaussian")
    assert (explorer.value("d"), explorer.value("sigma")) == drawn
    explorer.set("sigma", 0.5)
    explorer.set("data", "head 0.2")
    explorer.set("data", "Gaussian")
    assert explorer.value("sigma") == 0.5
