"""Tests of `distributed_traffic`: its numbers are those of closed forms, bounds and time model."""

import re

import pytest
from figure_layout import check_layout
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import distributed
from iocourse.course.explore import distributed_explorer, distributed_traffic
from iocourse.course.explore.figures.distributed_traffic import (
    DistributedTrafficView,
    P_at,
    _bound_line,
    _lines,
    line_at_P,
    traffic_rows,
)
from iocourse.course.explore.widgets.traffic_explorers import FEWEST
from iocourse.distributed import time_model
from iocourse.distributed.bounds import BOUNDS, lower_bound
from iocourse.distributed.time_model import COMPARED, cluster, compare_schedules
from iocourse.gpu.chips import LINKS

views = st.builds(
    DistributedTrafficView,
    st.sampled_from(list(COMPARED)),
    st.integers(1, 40),
    st.none(),
    st.integers(1, 3000),
    st.integers(1, 128),
    st.sampled_from([1, 2, 6, 16]),
    st.sampled_from(list(LINKS)),
)


@given(views)
@settings(max_examples=8)
def test_the_picture_says_what_the_closed_forms_say(v):
    drawn = distributed_traffic(*v[:2], N=v.N, d=v.d, H=v.H, link=v.link)
    check_layout(drawn)
    least, id = v.bound
    for entry in v.entries():
        sizes = {"H": v.H} | ({} if entry.a is None else {"a": entry.a})
        ledgers = distributed.get(entry.name).ledgers(v.P, v.N, v.d, **sizes)
        assert entry.words == max(ledger.words for ledger in ledgers) >= least
        assert f"{entry.title(v.P)} {entry.words:,} words" in drawn.alt
        assert f"{entry.memory:,}" in drawn.numbers
    assert f"lower bound ({id}) {least:,} words" in drawn.alt
    assert "Times are modelled, to rank schedules" in drawn.text


@given(views)
@settings(max_examples=8)
def test_no_line_comes_below_the_bound(v):
    bound = dict(_bound_line(v).points)
    for line in _lines(v):
        assert all(words >= bound.get(P, 0) for P, words in line.points)


@pytest.mark.parametrize("pass_", COMPARED)
def test_the_black_line_is_the_bound_of_the_pass(pass_):
    v = DistributedTrafficView(pass_, 16, None, 4096, 64, 1, "ndr")
    kind, causal = "backward" if pass_ == "backward" else "forward", pass_ == "causal"
    least = {P: lower_bound(kind, 4096, 64, P, causal=causal)[0] for P in (2, 4, 8, 16, 32, 64, 128, 256)}
    assert dict(_bound_line(v).points) == {P: words for P, words in least.items() if words}
    assert len(_bound_line(v).points) >= 6


def test_lines_end_where_the_heads_do_and_a_claim_is_no_bound():
    v = DistributedTrafficView("forward", 16, None, 32768, 128, 16, "nvlink4").checked()
    ends = {line.label: line.points[-1][0] for line in _lines(v)}
    assert ends["ulysses"] == 16 and ends["ring"] == ends["ulysses ring"] == 256
    assert "bound, claimed from" in distributed_traffic("forward", 16, N=32768, d=128, H=16).alt
    assert "claimed" not in distributed_traffic("forward", 16, N=32768, d=128).alt
    at_64 = v._replace(P=64)
    claimed = next(row for row in traffic_rows(at_64) if row[0] == "claimed, not proved")
    assert claimed[1] == f"{BOUNDS['network_few_heads'](32768, 128, 64, 16):,}"
    assert traffic_rows(at_64)[-1][1] == f"{lower_bound('forward', 32768, 128, 64, H=16)[0]:,}"
    assert len(traffic_rows(v)) == len(traffic_rows(at_64))  # at 64 a claim more, and Ulysses less


def test_on_a_fast_link_the_ring_hides_its_words_and_on_a_slow_one_ulysses_is_first():
    def first(link):
        found = compare_schedules("forward", 32768, 128, 16, cluster(link), H=32)
        return min(found, key=lambda one: one.hidden).name

    ring, _, ulysses, _ = compare_schedules("forward", 32768, 128, 16, cluster("nvlink4"), H=32)
    assert ring.words == 8 * ulysses.words and ring.hidden < ulysses.hidden
    assert first("nvlink4") == "ring" and first("ndr").startswith("ulysses")


@pytest.mark.parametrize("pass_", COMPARED)
def test_what_is_hidden_is_never_slower(pass_):
    for P in (1, 2, 12):
        for entry in compare_schedules(pass_, 4096, 64, P, cluster("ndr"), H=12):
            assert 0 < entry.hidden <= entry.exposed
            assert P > 1 or entry.words == 0


@pytest.mark.parametrize("name", ["grid", "grid_backward", "ulysses", "ulysses_ring"])
def test_messages_are_those_of_a_dry_run(name):
    from iocourse.distributed.time_model import messages_of

    P, schedule = 12, distributed.get(name)
    for a in (1, 2, 3, 4, 6, 12) if "a" in schedule.options else (None,):
        run = schedule.dry(P, 24, 2, H=12, **({} if a is None else {"a": a}))
        calls = [one for one in run.ledgers[0].exchanges if one.kind != "shift"]
        assert messages_of(name, P, a) == sum(len(call.ranks) - 1 for call in calls)


# ---------------------------------------------------------------------- the grid and the line at P
def test_a_grid_that_is_asked_for_is_shown():
    table = distributed_traffic("forward", 8, N=4096, d=64, a=1).numbers
    words = int(re.search(r"grid 1 × 8 +([\d,]+)", table)[1].replace(",", ""))
    assert words == max(one.words for one in distributed.get("grid").ledgers(8, 4096, 64, a=1))
    assert "grid 4 × 2" in distributed_traffic("forward", 8, N=4096, d=64).numbers


@pytest.mark.parametrize("P", [1, 2, 5, 16, 200])
def test_the_line_at_P_stands_at_P(P):
    v = DistributedTrafficView("forward", P, None, 4096, 64, 1, "ndr").checked()
    x, _, width, _ = line_at_P(v)
    assert P_at(v, x + width / 2) == max(P, 2)


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"pass_": "sideways"}, ValueError, "pass_ must be one of forward, .*, got 'sideways'"),
        ({"P": 0}, ValueError, "P must be at least 1, got 0"),
        ({"P": 5000}, ValueError, "P must be at most 1,024, got 5,000"),
        ({"N": 1.5}, TypeError, "N must be an integer of at least 1"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"H": -1}, ValueError, "H must be at least 1, got -1"),
        ({"P": 8, "a": 3}, ValueError, "a must divide P = 8: one of 1, 2, 4, 8, got 3"),
        ({"a": 0}, ValueError, "a must be at least 1, got 0"),
        ({"link": "string"}, ValueError, "link must be one of nvlink5, .*, got 'string'"),
    ],
)
def test_bad_input_is_named(change, error, said):
    for make in (distributed_traffic, distributed_explorer):
        with pytest.raises(error, match=said):
            make(**change)


# ---------------------------------------------------------------------- the explorer
def test_who_moves_as_few_is_counted():
    assert (
        "causal contiguous moves the least of 3 counted, 458,752 words (tied with 2), "
        in distributed_explorer("causal", 8, N=4096, d=64, H=1).page()["spoken"]
    )
    assert "(tied with " not in distributed_explorer(H=1).page()["spoken"]


@pytest.mark.parametrize("pass_", COMPARED)
def test_the_least_is_that_of_the_schedules_counted(pass_):
    """Other schedules exist: with heads, an all-to-all could move fewer words than the causal rings."""
    entries = compare_schedules(pass_, 131072, 128, 64, cluster("nvlink4"), H=64)
    least = min(entries, key=lambda one: one.words)
    said = f"P = 64: {least.title(64)} moves the least of {len(entries)} counted, "
    assert said in distributed_explorer(pass_, 64, N=131072, d=128, H=64).page()["spoken"]


def test_grids_are_those_of_the_ranks():
    explorer = distributed_explorer(P=12, a=3)
    assert list(explorer.controls["a"].options) == [FEWEST, "1", "2", "3", "4", "6", "12"]
    explorer.set("P", 16)  # 3 does not divide it
    assert explorer.value("a") is None and "grid 4 × 4" in explorer.picture.numbers


@pytest.mark.parametrize("name", ["N", "d", "H"])
@pytest.mark.parametrize("pass_", COMPARED)
def test_another_step_finds_the_busiest_ranks_worked_out(pass_, name):
    explorer = distributed_explorer(pass_, P=6, N=1024, d=32, H=8)
    first, second = [
        value for value in explorer.controls[name].options.values() if value > explorer.value(name)
    ][:2]
    explorer.set(name, first)
    explorer._look_ahead(explorer._turn)
    before = time_model._busiest.cache_info().misses
    explorer.set(name, second)
    assert time_model._busiest.cache_info().misses == before


def test_the_line_can_be_dragged():
    explorer = distributed_explorer()
    x, y = explorer.grabs[0].middle
    explorer.touched("down", x, y)
    explorer.touched("move", x + 150, y)
    there = explorer.value("P")
    assert there > 16 and explorer.grabs[0].middle[0] == pytest.approx(x + 150, abs=6)
    explorer.touched("move", x - 2000, y)
    explorer.touched("up", x - 2000, y)
    assert explorer.value("P") <= 2


def test_the_line_stops_at_the_end_of_its_slider():
    explorer = distributed_explorer(P=300, N=2048)
    x, y = explorer.grabs[0].middle
    explorer.touched("down", x, y)
    explorer.touched("move", x + 2000, y)
    assert explorer.value("P") == 300
