"""Tests of `lowrank_times` and its text: numbers of one row, one baseline, missing values."""

import pytest
from fake_lowrank_record import degree, record, row
from figure_layout import texts

from iocourse.course import explore
from iocourse.course.explore.draw.text import figures
from iocourse.course.explore.figures.lowrank_results import lowrank_times_words
from iocourse.course.explore.models.lowrank_record import compared, degrees, fastest, panels_of, sizes
from iocourse.data.records import load_record


def test_every_speed_up_is_over_the_baseline_of_its_section():
    found = load_record("lowrank")
    for d in sizes(found):
        for g in degrees(found, d):
            for one in compared(found, d, g):
                first, *others = one.rows
                assert first.speedup == 1 and first.error is None and first.who.startswith("exact")
                assert all(other.speedup == pytest.approx(first.ms / other.ms) for other in others)


def test_a_row_is_that_of_the_record():
    """Made-up times: exact softmax 20 ms, ours 1.5 ms, the script 0.9 · 79 times as fast as exact."""
    forward, both, causal = compared(record(), 12, 2)
    assert [one.who for one in forward.rows] == ["exact, SDPA", "the script", "ours, g = 2"]
    assert [round(one.ms, 4) for one in forward.rows] == [20.0, 0.2813, 1.5]
    assert forward.rows[1].error == 0.773 and forward.rows[2].error == 0.773 / 2
    assert (
        [one.who for one in both.rows] == [one.who for one in causal.rows] == ["exact, SDPA", "ours, g = 2"]
    )


def test_a_section_without_this_degree_is_left_out():
    rows = [row(4, degree(2, 1, 2), degree(3, 0.5, 2))]
    alone = record(rows, gradient=[row(4, degree(3, 0.5, 2))])
    assert [one.what for one in compared(alone, 4, 2)] == ["forward", "the same, causal"]
    assert degrees(alone, 4) == [2, 3]


def test_what_was_not_measured_is_refused_and_what_was_is_named():
    with pytest.raises(ValueError, match=r"d must be one of 4, 8, 12 \(recorded\), got 5"):
        explore.lowrank_times(record(), 5)
    with pytest.raises(ValueError, match=r"g must be one of 2, 3 \(recorded at d = 12\), got 7"):
        explore.lowrank_times(record(), 12, 7)
    assert "no recorded run yet" in explore.lowrank_times(None).alt


def test_the_picture_has_every_number_and_where_it_comes_from():
    found = load_record("lowrank")
    picture = explore.lowrank_times(found, 12, 3)
    shown = " ".join(texts(picture))
    for bar in (bar for one in compared(found, 12, 3) for bar in one.rows):
        part = [f"{figures(bar.ms)} ms"]
        if bar.error is not None:
            part += [f"{figures(bar.speedup)}×", f"off by {figures(bar.error)} %"]
        assert ", ".join(part) in shown and " ".join(part) in picture.alt
    assert found["date"] in shown and found["date"] in picture.alt


@pytest.mark.parametrize(
    ("error", "ms", "said"),
    [
        (1.0, 1.0, "a smaller error and less time"),
        (1.0, 3.0, "a smaller error and more time"),
        (9.0, 1.0, "a larger error and less time"),
    ],
)
def test_words_hold_ours_against_the_script_of_the_same_run(error, ms, said):
    """The script has 20 / (0.9 · 9.43) = 2.36 ms and an error of 2.005."""
    found = compared(record([row(8, degree(2, error, 20 / ms, ms=ms))]), 8, 2)
    assert lowrank_times_words(found).startswith(f"Forward: {said} than the published script; ")


def test_the_fastest_below_an_error_is_found_and_nobody_where_there_is_none():
    rows = [
        {"spread": 0.5, "contender": "a", "features": 9, "error": 1.0, "ms": 5.0},
        {"spread": 0.5, "contender": "b", "features": 9, "error": 0.5, "ms": 7.0},
        {"spread": 0.5, "contender": "c", "features": None, "refused": "made up"},
    ]
    assert fastest(rows, 1.0)["contender"] == "a" and fastest(rows, 0.9)["contender"] == "b"
    assert fastest(rows, 0.4) is None
    head = {"layer": 0, "head": 11, **rows[0]}
    assert list(panels_of([*rows, head])) == ["logits spread by 0.5", "head 0.11, logits spread by 0.5"]


# ---------------------------------------------------------------------- under one's hand
def test_the_table_offers_what_was_measured_at_its_d():
    table = explore.lowrank_table(8, 5)
    assert (table.state, table.svg) == (
        (8, 5),
        explore.lowrank_times(load_record("lowrank"), 8, 5).to_svg(),
    )
    assert "Forward: a smaller error and more time than the published script; " in table.words
    table.set("d", 12)
    assert table.state == (12, 4) and list(table.controls["g"].offered.values()) == [2, 3, 4]
    table.set("g", 2)
    assert "a smaller error and less time" in table.words
    with pytest.raises(
        ValueError, match=r"d must be one of 4, 5, 6, 7, 8, 9, 10, 11, 12 \(recorded\), got 3"
    ):
        explore.lowrank_table(3)


def test_without_a_record_or_widgets_there_is_a_picture(monkeypatch):
    from iocourse.course.explore.widgets import lowrank_explorers as module

    monkeypatch.setenv("IOCOURSE_WIDGETS", "0")
    assert explore.lowrank_table() == explore.lowrank_times(load_record("lowrank"))
    monkeypatch.delenv("IOCOURSE_WIDGETS")
    monkeypatch.setattr(module, "load_record", lambda name: None)
    empty = explore.lowrank_table()
    assert "no recorded run yet" in empty.picture.alt and "no recorded run yet" in empty.words
    assert not empty.controls
