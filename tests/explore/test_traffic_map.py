"""Tests of the traffic map: its numbers agree with costs, bounds and schedules for all controls."""

import asyncio
import math
import re
from itertools import pairwise

import pytest
from figure_layout import check_layout
from hypothesis import given
from hypothesis import strategies as st

from iocourse import bounds, schedules
from iocourse.course import guard
from iocourse.course.explore import TrafficExplorer, traffic_explorer, traffic_map
from iocourse.course.explore.draw.palette import BOUNDS, stroke_of
from iocourse.course.explore.draw.picture import Poly, Text
from iocourse.course.explore.figures.traffic_map import (
    M_at,
    TrafficMapView,
    _stroke,
    draw_traffic_map,
    rows_at_M,
    view_of,
)
from iocourse.course.explore.models import memory_regimes as facts
from iocourse.course.explore.models.memory_regimes import (
    COMPULSORY_WORDS,
    best_bound,
    best_schedule_ranges,
    bound_at,
    bound_label,
    bounds_of,
    memories,
    move,
    regime_borders,
    regimes,
    schedules_by_traffic,
    usual_bounds,
)
from iocourse.course.explore.widgets.explorer import VIEW

PASSES = list(COMPULSORY_WORDS)
sizes = st.tuples(st.integers(1, 300), st.integers(1, 40), st.integers(1, 20_000))


def number(text):
    """Return the first integer in a text."""
    return int(re.search(r"[\d,]*\d", text)[0].replace(",", ""))


# ---------------------------------------------------------------------- what it knows
@given(sizes, st.sampled_from(PASSES))
def test_the_best_at_M_is_that_of_the_schedules(shape, pass_):
    N, d, M = shape
    view = view_of(N, d, M, pass_)
    found = schedules_by_traffic(view.drawn, N, d, M)
    try:
        best = schedules.best(N, d, M, pass_)
    except ValueError:
        assert all(one.schedule.given_weights for one in found)
        if found:
            return
        assert f"M = {M:,}: none of the selected schedules fits." in draw_traffic_map(view).alt
        return
    assert (found[0].schedule, dict(found[0].tiles)) == (best.schedule, best.tiles)
    least, name = bounds.lower_bound(pass_, N, d, M)
    picture = draw_traffic_map(view)
    assert (
        f"M = {M:,}: {best.schedule.title} (" in picture.alt
        and f"traffic, {best.cost.total:,} words" in picture.alt
    )
    assert f"the lower bound {least:,} ({bounds.BOUNDS[name].title})" in picture.alt
    for one in found:
        assert one.words == one.schedule.cost(N, d, **dict(one.tiles)).total
    check_layout(picture)


@given(sizes, st.sampled_from(PASSES))
def test_the_bounds_are_those_of_the_machine(shape, pass_):
    N, d, M = shape
    assert best_bound(pass_, N, d, M)[0] == bounds.lower_bound(pass_, N, d, M)[0]
    for name in bounds_of(pass_):
        bound = bounds.BOUNDS[name]
        try:
            expected = bound(N, d) if name.startswith("compulsory") else bound(N, d, M + 4)
        except bounds.OutsideRegime:
            expected = 0
        assert bound_at(name, N, d, M) == expected


def test_every_bound_with_constants_is_offered_and_told_apart():
    for pass_ in PASSES:
        offered = bounds_of(pass_)
        assert set(usual_bounds(pass_)) <= set(offered)
        labels = [bound_label(name) for name in offered]
        assert len(set(labels)) == len(labels) and all(len(label) <= 20 for label in labels)
        assert len(offered) <= len(BOUNDS)
    assert "theta_attention" not in bounds_of("forward")
    assert len({(stroke.colour, stroke.dash) for stroke in BOUNDS}) == len(BOUNDS)
    assert not any(stroke.marker for stroke in BOUNDS)


BORDERS = {  # M/d²
    "forward": [1 / 4, 1 / 2, 1],
    "backward": [1 / 4, 1 / 2, 4 / 3, 5 / 2],
    "gradient": [1 / 4, 1 / 2, 1, 3 / 2],
}


@pytest.mark.parametrize("pass_", PASSES)
def test_regimes_end_where_the_next_sweeps_are_cheaper(pass_):
    assert regime_borders(pass_) == pytest.approx(BORDERS[pass_], rel=1e-6)
    d, N = 100, 10**6
    found = regimes(pass_, N, d, 16, 4, 10**9)
    names = [regime.name for regime in found]
    rows = names[-2]
    stored = ["N × N stored"] * (len(BORDERS[pass_]) - 1)
    assert names == ["nothing fits", "blocked products", *stored, rows, "compulsory"]
    assert [r.stop / d**2 for r in found[1:-2]] == pytest.approx(BORDERS[pass_], rel=1e-6)


def test_regimes_say_their_leading_terms():
    told = [regime.words for regime in regimes("forward", 10**6, 100, 16, 4, 10**9)]
    assert told == ["", "4N²d/√M + N²", "1.5N²d²/M + 3N²", "2N²d²/M + 2N²", "4N²d²/M", "4Nd"]
    assert regimes("backward", 10**6, 100, 16, 4, 10**9)[-2].words == "14N²d²/M"


@given(sizes, st.sampled_from(PASSES))
def test_regimes_and_reigns_cover_the_axis_in_order(shape, pass_):
    N, d, least = shape
    high = 8 * N * d
    found = regimes(pass_, N, d, least, 4, high)
    assert found[-1].stop == high and all(a.stop == b.start for a, b in pairwise(found))
    asked = schedules.of_pass(pass_)
    at = memories(4, high)
    for reign in best_schedule_ranges(asked, N, d, at):
        for M in (M for M in at if reign.start <= M <= reign.stop):
            ranked = schedules_by_traffic(asked, N, d, M)
            assert reign.schedule in [m.schedule for m in ranked if m.words == ranked[0].words]


def test_where_the_tiles_of_the_best_are_too_many_for_a_line_they_stand_below_alone():
    picture = traffic_map(8192, 128, 16384, "gradient")
    check_layout(picture)
    drawn = " ".join(e.text for e in picture.elements if isinstance(e, Text))
    assert "M = 16,384: gradient_scores_materialised has the least traffic" in drawn
    assert "gradient_scores_materialised (Bm = 126" in picture.alt and "Bm = 126" in picture.numbers


def test_a_change_of_schedule_stands_where_it_happens_not_at_the_next_point_that_is_drawn():
    asked = [schedules.get(name) for name in ("small_cache", "flash_optimal")]
    for N, d in ((4096, 64), (8192, 128)):
        first, second = best_schedule_ranges(asked, N, d, memories(16, 16 * d * d))
        border = second.start
        words = {M: [s.count(N, d, M).total for s in asked] for M in (border - 1, border)}
        assert words[border - 1][0] <= words[border - 1][1] and words[border][0] > words[border][1]
        assert first.stop == border - 1 and border not in memories(16, 16 * d * d)


TURNS = [("forward", 200, 16), ("forward", 100, 16), ("backward", 256, 16), ("gradient", 200, 16)]


@pytest.mark.parametrize(("pass_", "N", "d"), TURNS)
def test_where_two_take_turns_the_later_reigns_from_where_it_is_overtaken_no_more(pass_, N, d):
    """All M between the evaluated values are tried, because a simple bisection would fail here."""
    at = memories(4, 8 * N * d)
    found = best_schedule_ranges(schedules.of_pass(pass_), N, d, at)
    turns = 0
    for earlier, later in pairwise(found):
        start = later.start
        before, asked = max(M for M in at if start > M), min(M for M in at if start <= M)
        fewer = {M: _fewer(earlier.schedule, later.schedule, N, d, M) for M in range(before + 1, asked + 1)}
        assert fewer[start] > 0 and all(fewer[M] >= 0 for M in range(start, asked + 1))
        since = max([M for M in range(before + 1, start) if fewer[M] < 0], default=before)
        assert all(fewer[M] == 0 for M in range(since + 1, start))
        turns += any(fewer[M] > 0 for M in range(before + 1, start))
    assert len(found) > 3 and turns > 0


def _fewer(earlier, later, N, d, M):
    """Return the traffic of the earlier schedule minus that of the later one."""
    first, second = move(earlier.name, N, d, M), move(later.name, N, d, M)
    return (first.words if first else math.inf) - (second.words if second else math.inf)


@given(sizes, st.sampled_from(PASSES), st.integers(1, 200))
def test_no_schedule_moves_more_words_in_more_memory(shape, pass_, more):
    """The property by which a part of the map is skipped when two schedules are compared."""
    N, d, M = shape
    for schedule in schedules.of_pass(pass_):
        small, large = move(schedule.name, N, d, M), move(schedule.name, N, d, M + more)
        assert small is None or large.words <= small.words


def test_the_table_lists_schedules_that_fit_those_that_do_not_and_bounds():
    view = view_of(1024, 64, 150, "forward", bounds=["A"])
    rows = {row[0]: row[1:] for row in rows_at_M(view)[1:]}
    assert set(rows) == {s.title for s in schedules.of_pass("forward")} | {"Theorem A"}
    assert rows["F2 flash2"] == ["does not fit", "", f"needs M = {schedules.flash2.smallest_M(1024, 64):,}"]
    small = schedules.small_cache
    assert number(rows["F5 small_cache"][0]) == small.cost(1024, 64, **small.tiles(1024, 64, 150)).total
    assert number(rows["Theorem A"][0]) == bounds.theorem_A(1024, 64, 154)
    least, _ = bounds.lower_bound("forward", 1024, 64, 150)
    assert rows["F5 small_cache"][1] == f"{number(rows['F5 small_cache'][0]) / least:.2f}"


def test_lines_keep_their_look_whichever_others_are_drawn():
    def look(picture):
        y = next(e.y for e in picture.elements if isinstance(e, Text) and e.text == "F5 small_cache")
        lines = [e for e in picture.elements if isinstance(e, Poly) and e.line == 2.2]
        return next(e for e in lines if len(e.points) == 2 and e.points[0][1] == pytest.approx(y - 0.36 * 13))

    alone, among = traffic_map(4096, 64, schedules=["small_cache"]), traffic_map(4096, 64)
    assert (look(alone).stroke, look(alone).dash) == (look(among).stroke, look(among).dash)
    for pass_ in PASSES:
        strokes = [_stroke(pass_, schedule.name) for schedule in schedules.of_pass(pass_)]
        assert len(set(strokes)) == len(strokes)
    assert len({stroke_of(position) for position in range(20)}) == 20  # more than there are today


def test_while_a_check_runs_the_map_gives_nothing_away_even_what_it_has_drawn_before():
    traffic_map(512, 32, 4096)
    for again in (
        lambda: traffic_map(512, 32, 4096),
        lambda: move("flash2", 512, 32, 4096),
        lambda: bound_at("A", 512, 32, 4096),
    ):
        with guard.solutions_blocked(), pytest.raises(guard.LibrarySolutionUsed):
            again()


REFUSED = [
    ({"N": 0}, ValueError, "N must be at least 1, got 0"),
    ({"d": 1.5}, TypeError, "d must be an integer of at least 1"),
    ({"M": 0}, ValueError, "M must be at least 1, got 0"),
    ({"pass_": "tied"}, ValueError, "pass_ must be one of forward, backward, gradient, got 'tied'"),
    (
        {"pass_": "sideways"},
        ValueError,
        "pass_ must be one of forward, backward, gradient, tied, got 'sideways'",
    ),
    (
        {"schedules": ["flash1_backward"]},
        ValueError,
        "unknown dense forward schedule 'flash1_backward'; expected one of naive",
    ),
    (
        {"schedules": ["block_sparse"]},
        ValueError,
        "unknown dense forward schedule 'block_sparse'; expected one of naive",
    ),
    (
        {"bounds": ["C"]},
        ValueError,
        "unknown forward bound with constants 'C'; expected one of compulsory, A",
    ),
    ({"bounds": ["theta_attention"]}, ValueError, "unknown forward bound with constants 'theta_attention'"),
    ({"schedules": [], "bounds": []}, ValueError, "nothing to draw: select at least one schedule"),
]


@pytest.mark.parametrize(("change", "error", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_bad_input_is_named(change, error, text):
    with pytest.raises(error, match=text):
        traffic_map(**{"N": 64, "d": 8, "M": 99} | change)


@pytest.mark.parametrize("M_range", [(50, 50), (0, 50), (9, 4)])
def test_an_empty_range_is_named(M_range):
    with pytest.raises(ValueError, match="M_range"):
        traffic_map(64, 8, M_range=M_range)


# ---------------------------------------------------------------------- the widget
@pytest.fixture
def explorer():
    """Return a new widget."""
    return traffic_explorer()


def test_it_starts_as_documented(explorer):
    assert isinstance(explorer, TrafficExplorer)
    assert repr(explorer).startswith(
        "explore.traffic_explorer(N=4096, d=64, M=16384, pass_='forward', schedules=('naive'"
    )
    assert explorer.picture == traffic_map(4096, 64, 16_384)
    given = traffic_explorer(512, 32, 777, "backward", ["split_backward"], ["C", "C_line"])
    assert given.state == view_of(512, 32, 777, "backward", ["split_backward"], ["C", "C_line"])


@pytest.mark.parametrize(("name", "value"), [("N", 65_536), ("d", 96), ("M", 64), ("pass", "gradient")])
def test_every_control_changes_picture_and_numbers(explorer, name, value):
    before = explorer.svg, explorer.words
    explorer.set(name, value)
    view = explorer.state
    assert isinstance(view, TrafficMapView) and getattr(view, "pass_" if name == "pass" else name) == value
    assert explorer.svg == draw_traffic_map(view).to_svg() != before[0]
    assert explorer.words != before[1]
    for row in rows_at_M(view)[1:]:
        assert f"<td>{row[0]}</td><td>{row[1]}</td>" in explorer.words.replace("&#x27;", "'")


@pytest.mark.parametrize("pass_", PASSES)
def test_every_tick_takes_a_line_away_and_brings_it_back(explorer, pass_):
    explorer.set("pass", pass_)
    ticks = [one for one in explorer.controls.values() if one.kind == "tick" and not one.hidden]
    assert {tick.group for tick in ticks} == {"schedules", "bounds"}
    for tick in ticks:
        explorer.set(tick.name, not tick.value)
        name = tick.name.removeprefix(f"{pass_} ")
        assert (name in getattr(explorer.state, tick.group)) == tick.value
        assert explorer.svg == explorer.shown().picture.to_svg()
        explorer.set(tick.name, not tick.value)
    assert explorer.state == view_of(4096, 64, 16_384, pass_)


def test_only_the_ticks_of_the_pass_are_offered(explorer):
    def offered():
        return {one.label for one in explorer.controls.values() if not one.hidden}

    assert "F2 flash2" in offered() and "B4 split_backward" not in offered()
    explorer.set("pass", "backward")
    assert "B4 split_backward" in offered() and "F2 flash2" not in offered()


def test_without_any_tick_it_says_what_to_do(explorer):
    for one in list(explorer.controls.values()):
        if one.kind == "tick" and one.value:
            explorer.set(one.name, False)
    assert explorer.svg == ""
    assert "Nothing to draw: select at least one schedule" in explorer.words
    shown, _ = explorer._repr_mimebundle_()  # as in another cell
    assert VIEW in shown and shown["text/plain"] == explorer.spoken
    assert "Nothing to draw" in explorer.page()["spoken"] and explorer.page()["grabs"] == []
    explorer.set("forward naive", True)
    assert explorer.svg == explorer.shown().picture.to_svg()


def test_an_explorer_of_nothing_is_refused_as_its_picture_is():
    for make in (traffic_map, traffic_explorer):
        with pytest.raises(ValueError, match="nothing to draw: select at least one schedule"):
            make(4096, 64, 16_384, "forward", schedules=[], bounds=[])


def test_the_line_at_M_is_dragged(explorer):
    (strip,) = explorer.grabs
    x, y = strip.x + strip.width / 2, strip.y + 40
    assert M_at(explorer.state, x) == pytest.approx(16_384, rel=0.01)
    explorer.touched("down", x, y)
    assert explorer.value("M") == 16_384
    explorer.touched("move", x + 50, y)
    M = explorer.value("M")
    assert 16_384 < M == M_at(explorer.state, x + 50)
    assert f"M = {M:,}: " in explorer.svg and f"M = {M:,}: " in explorer.page()["spoken"]
    (moved,) = explorer.grabs
    assert moved.x == pytest.approx(strip.x + 50, abs=1)
    explorer.touched("move", -1e6, y)
    assert explorer.value("M") == explorer.state.low == 4


def heard(explorer, *messages, rest=0.2):
    """Process messages of the page in a running event loop, as a kernel does, and then wait."""

    async def page():
        for turn, (name, text) in enumerate(messages, start=1):
            explorer._heard(
                explorer.widget, {"turn": f"me {turn}", "do": "set", "name": name, "text": text}, []
            )
        await asyncio.sleep(rest)

    asyncio.run(page())


def worked_out(explorer, name, value):
    """Return the number of schedules evaluated without cache for the map of a control value."""
    before = facts._move.cache_info().misses
    explorer.set(name, value)
    return facts._move.cache_info().misses - before


@pytest.mark.parametrize(("name", "text", "stands", "beside"), [
    ("N", "6,144", 6144, [8192, 4096]),
    ("d", "96", 96, [128, 64]),
    ("N", "65,536", 65_536, [49_152]),  # the last: there is none after it
    ("d", "1", 1, [2]),
])  # fmt: skip
def test_while_the_page_rests_the_next_maps_are_worked_out(explorer, name, text, stands, beside):
    explorer.set(name, beside[-1])
    for kept in facts.CACHES:
        kept.cache_clear()
    heard(explorer, (name, text))
    page = explorer.page()
    assert explorer.value(name) == stands and page["svg"] == explorer.shown().picture.to_svg()
    assert [worked_out(explorer, name, value) for value in beside] == [0] * len(beside)
    explorer.set(name, stands)
    assert explorer.page() == page


def test_a_page_that_asks_on_is_not_kept_waiting_for_maps_ahead(explorer, monkeypatch):
    looked, shown = [], explorer.shown
    monkeypatch.setattr(explorer, "shown", lambda: [looked.append(explorer.value("N")), shown()][1])
    heard(explorer, ("N", "6,144"), ("N", "8,192"))
    assert looked == [6144, 8192, 6144, 8192, 12_288]
    looked.clear()
    heard(explorer, ("M", "20,480"))
    assert looked == [8192], "another M needs few new results"


def test_a_map_ahead_that_fails_leaves_the_control_where_it_stands(explorer, monkeypatch):
    explorer.set("N", 8192)
    monkeypatch.setattr(explorer, "shown", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        explorer._look_ahead(explorer._turn)
    assert explorer.value("N") == 8192
