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
    source = "no processor: made-up numbers of a test, made up 0, no date, 1 thread, a quick run"
    picture = draw(record())
    assert source in texts(picture) and source in picture.alt and source in picture.numbers


@pytest.mark.parametrize(("section", "shown"), [
    ("forward", "0.0859 %, 158×"), ("gradient", "0.0859 %, 158×"), ("causal", "0.0107 %, 174×"),
])  # fmt: skip
def test_rows_stand_beside_what_was_published(section, shown):
    picture = explore.lowrank_vs_published(record(), section=section)
    assert "12  40,960    0.773 %, 79×" in picture.numbers and shown in picture.numbers
    assert {"published (forward), another machine", "ours, g = 2", "ours, g = 3"} <= set(texts(picture))
    assert ("published script, this machine" in texts(picture)) == (section == "forward")
    assert "published (forward), another machine: from 4.67 at 4 to 0.773 at 12" in picture.alt


def test_their_algorithm_is_over_the_same_baseline_as_ours():
    """The made-up speed-up of the script is 0.9 times the published one."""
    line = "published script, this machine: from 1.28 at 4 to 71.1 at 12"
    assert line in explore.lowrank_vs_published(record()).alt


def test_only_exact_attention_is_extrapolated_and_said_to_be():
    picture = explore.lowrank_scaling(record())
    assert texts(picture).count("SDPA, extrapolated") == 1 and "SDPA, extrapolated: from" in picture.alt
    fits = [fit for fit in record()["fits"] if fit["contender"] == "ours"]
    assert "SDPA, extrapolated" not in texts(explore.lowrank_scaling(record(fits=fits)))
    assert "1,048,576  exponent" in picture.numbers and "2.000" in picture.numbers


def test_there_is_a_panel_for_every_spread_and_refusals_are_in_the_numbers():
    picture = explore.lowrank_baselines(record())
    title = "error of O in %, logits spread by {}"
    assert {title.format(0.25), title.format(2)} <= set(texts(picture))
    assert "refused" in picture.numbers and "elu + 1: 40 at 8" in picture.alt
    assert "milliseconds" in texts(explore.lowrank_baselines(record(), against="ms"))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="section must be one of forward, gradient, causal, got 'backward'"):
        explore.lowrank_vs_published(record(), section="backward")
    with pytest.raises(ValueError, match="record must have rows of causal, got none"):
        explore.lowrank_vs_published(record(causal=[]), section="causal")
    with pytest.raises(ValueError, match="against must be features or ms, got 'words'"):
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
