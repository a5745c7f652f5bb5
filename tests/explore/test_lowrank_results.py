"""Tests of figures of recorded low-rank runs with made-up records, and of missing records."""

import pytest
from fake_lowrank_record import record
from figure_layout import texts

from iocourse.course import explore
from iocourse.course.explore.draw.line_chart import Line, Panel, panels_picture
from iocourse.course.explore.draw.palette import stroke_of
from iocourse.course.explore.draw.picture import Poly

DRAWN = [explore.lowrank_vs_published, explore.lowrank_scaling, explore.lowrank_baselines]


@pytest.mark.parametrize("draw", DRAWN)
def test_without_a_record_the_picture_says_so(draw):
    picture = draw(None, title="Mine")
    assert "no recorded run yet: `python -m tools.bench lowrank` makes one" in texts(picture)
    assert "no recorded run yet" in picture.alt and "no recorded run yet" in picture.numbers
    assert not any(isinstance(e, Poly) for e in picture.elements)


@pytest.mark.parametrize("draw", DRAWN)
def test_a_picture_says_where_its_numbers_come_from(draw):
    processor = "no processor: made-up numbers of a test (64-bit vectors)"
    source = f"{processor}, made up 0, no date, 1 thread, a quick run"
    picture = draw(record())
    assert source in texts(picture) and source in picture.alt and source in picture.numbers


@pytest.mark.parametrize("section", ["forward", "gradient", "causal", "causal_gradient"])
def test_rows_are_drawn_with_the_published_ones_and_the_control(section):
    picture = explore.lowrank_vs_published(record(), section=section)
    lines = [" ".join(line.split()) for line in picture.numbers.splitlines()]
    assert "12 40,960 ours, g = 3 1.5 158× compiled loops 79× 0.0859 0.172" in lines
    assert "12 4,096 mean of V 40 80" in lines
    assert {"published (forward), another machine", "ours, g = 2", "ours, g = 3", "mean of V"} <= set(
        texts(picture)
    )
    assert ("the script" in texts(picture)) == (section == "forward")
    assert "published (forward), another machine: from 4.67 at 4 to 0.773 at 12" in picture.alt
    assert "exact / low-rank multiply-adds against d" in picture.alt
    assert "ours, g = 3: from 1.42 at 4 to 79 at 12" in picture.alt


def test_their_algorithm_is_over_the_same_baseline_as_ours():
    """The made-up quotient of the script is 0.9 times the published one; on softmax its error is larger."""
    picture = explore.lowrank_vs_published(record())
    assert "the script: from 1.28 at 4 to 71.1 at 12" in picture.alt
    lines = [" ".join(line.split()) for line in picture.numbers.splitlines()]
    assert "12 40,960 the script 0.281 71.1× compiled loops 4× 0.773" in lines
    assert "the script, on softmax: from 9.35 at 4 to 1.55 at 12" in picture.alt


def test_only_published_rows_are_drawn_and_all_are_in_the_numbers():
    picture = explore.lowrank_vs_published(record())
    assert "4,096" in picture.numbers and "ours, g = 2: from 2.84 at 4 to 158 at 12" in picture.alt


def test_only_exact_attention_is_extrapolated_and_said_to_be():
    picture = explore.lowrank_scaling(record())
    assert texts(picture).count("exact, extrapolated") == 1 and "exact, extrapolated: from" in picture.alt
    fits = [fit for fit in record()["fits"] if fit["contender"] == "ours"]
    assert "exact, extrapolated" not in texts(explore.lowrank_scaling(record(fits=fits)))
    assert "1,048,576  exponent" in picture.numbers and "2.000" in picture.numbers


def test_the_fastest_exact_run_is_drawn_and_the_others_are_in_the_numbers():
    picture = explore.lowrank_scaling(record())
    assert "exact, compiled loops, d = 12" in texts(picture) and "exact, SDPA, d = 12" not in texts(picture)
    assert "exact, SDPA, d = 12, forward+backward" in picture.numbers
    quick = [
        time | {"ms": time["ms"] / 9} if time["contender"] == "SDPA" else time for time in record()["scaling"]
    ]
    assert "exact, SDPA, d = 12" in texts(explore.lowrank_scaling(record(scaling=quick)))


def test_there_is_a_panel_for_every_spread_and_refusals_are_in_the_numbers():
    picture = explore.lowrank_baselines(record())
    title = "error of O in %, logits spread by {}"
    assert {title.format(0.25), title.format(2)} <= set(texts(picture))
    assert "refused" in picture.numbers and "elu + 1: 40 at 8" in picture.alt
    assert "mean of V: 40 at 1" in picture.alt and "exact" not in picture.alt
    by_time = explore.lowrank_baselines(record(), against="ms")
    assert "milliseconds" in texts(by_time) and "fastest exact run: 0.0001 at 6" in by_time.alt
    by_work = explore.lowrank_baselines(record(), against="multiply_adds")
    assert "multiply-adds" in texts(by_work) and "fastest exact run: 0.0001 at 65" in by_work.alt
    assert "fastest at ≤ 0.1 %" in by_time.numbers and "1e-05 (9)" in by_time.numbers


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"section must be one of forward, gradient, .*, got 'backward'"):
        explore.lowrank_vs_published(record(), section="backward")
    with pytest.raises(ValueError, match="record must have published rows of causal, got none"):
        explore.lowrank_vs_published(record(causal=[]), section="causal")
    with pytest.raises(ValueError, match="against must be one of features, multiply_adds, ms, got 'words'"):
        explore.lowrank_baselines(record(), against="words")
    with pytest.raises(
        ValueError, match="panels must contain at least one panel, each with at least one line"
    ):
        panels_picture("T", [], "s", "1")


def test_a_label_stands_once_in_the_legend():
    lines = [Line("same", ((1.0, 2.0), (2.0, 3.0)), stroke_of(0))]
    panel = Panel("y", "x", lines, (None, None))
    picture = panels_picture("T", [panel, panel], "s", "1")
    assert texts(picture).count("same") == 1
