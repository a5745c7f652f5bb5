"""Time model: link data have sources, times of steps add up, overlap starts at the predicted row count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse import distributed
from iocourse.distributed.time_model import (
    HIDES,
    RankStep,
    cluster,
    flops_of_rank,
    ledgers_of,
    rows_that_hide,
    seconds,
)
from iocourse.gpu import CHIPS
from iocourse.gpu.chips import LINKS

links = st.sampled_from(list(LINKS))
on_links = st.builds(cluster, links, st.sampled_from(list(CHIPS)))


def test_every_link_has_its_facts_and_says_where_they_stand():
    for link in LINKS.values():
        assert link.gbytes_per_s > 0 and link.latency_us > 0
        assert any(house in link.source for house in ("NVIDIA", "IEEE")) and "latency: " in link.source
    rates = [link.gbytes_per_s for link in LINKS.values()]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(("link", "rows"), [("nvlink4", 1319), ("ndr", 11868), ("ethernet", 47472)])
def test_from_how_many_rows_on_the_ring_hides_its_words(link, rows):
    assert rows_that_hide("ring", cluster(link)) == pytest.approx(rows, rel=1e-3)


@given(on_links, st.integers(1, 512), st.integers(1, 64), st.sampled_from(list(HIDES)))
def test_at_that_row_products_and_words_take_the_same_time(on, d, H, what):
    n = rows_that_hide(what, on)
    backward, causal = "backward" in what, "causal" in what
    pairs = n * n / 2 if causal else n * n
    arrays = 2 if not backward else 3 if "rows" in what else 4
    flops = (10 if backward else 4) * pairs * d * H
    assert flops * on.gamma == pytest.approx(arrays * n * d * H * on.beta)


def test_a_hidden_step_takes_the_longer_of_the_two():
    on = cluster("ndr")
    flops, words = 1e9, 10**6
    computing, moving = flops * on.gamma, words * on.beta + 2 * on.alpha
    assert RankStep(flops, words, 2).seconds(on) == pytest.approx(computing + moving)
    assert RankStep(flops, words, 2, hidden=True).seconds(on) == pytest.approx(max(computing, moving))
    assert RankStep(flops, words, 2, times=7).seconds(on) == pytest.approx(7 * (computing + moving))
    assert seconds((RankStep(flops), RankStep(0, words, 2)), on) == pytest.approx(computing + moving)


@given(
    st.lists(st.tuples(st.floats(0, 1e15), st.integers(0, 10**9), st.integers(0, 99)), max_size=5), on_links
)
def test_hiding_never_costs_and_wins_half_at_most(steps, on):
    shown = seconds(tuple(RankStep(*one) for one in steps), on)
    hidden = seconds(tuple(RankStep(*one, hidden=True) for one in steps), on)
    assert shown / 2 <= hidden * (1 + 1e-12) and hidden <= shown


def test_flops_are_those_of_attention_benchmarks():
    assert flops_of_rank(64 * 64, 8, 3) == 4 * 64 * 64 * 8 * 3
    assert flops_of_rank(10, 1, backward=True) == 100


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: cluster("string"), "link must be one of nvlink5, nvlink4, .*, got 'string'"),
        (lambda: cluster("ndr", 86), "arch must be one of 75, 80, 89, 90, 100, got 86"),
        (lambda: rows_that_hide("star", cluster()), "what must be one of ring; .*; got 'star'"),
        (lambda: flops_of_rank(1, 0), "d must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_rows_that_make_no_grid_are_refused_with_those_that_do():
    grid = distributed.get("grid")
    with pytest.raises(ValueError, match=r"a must divide P = 8: one of 1, 2, 4, 8, got 3"):
        ledgers_of(grid, 8, 64, 4, a=3)
    assert len(ledgers_of(grid, 8, 64, 4, a=2)) == 8
