"""Tests of `lowrank_times` and its text: numbers of one row, one baseline, missing values."""

import pytest
from fake_lowrank_record import degree, record, row
from figure_layout import texts

from iocourse.course import explore
from iocourse.course.explore.draw.text import figures
from iocourse.course.explore.figures.lowrank_results import lowrank_times_words
from iocourse.course.explore.models.lowrank_record import (
    WHAT,
    compared,
    degrees,
    fastest,
    fastest_exact,
    panels_of,
    sizes,
    tokens,
)
from iocourse.data.records import load_record


def test_every_quotient_is_over_the_fastest_exact_run_of_its_section():
    found = load_record("lowrank")
    for d in sizes(found):
        for n in tokens(found, d):
            for one in (one for g in degrees(found, d, n) for one in compared(found, d, g, n)):
                first, *others = one.rows
                timed = [other for other in others if other.ms]
                assert first.who.startswith("exact, ") and first.quotient is first.error is None
                assert all(other.ms >= first.ms for other in timed if other.error is None)
                assert all(
                    other.quotient == pytest.approx(first.ms / other.ms) for other in timed if other.error
                )


def test_a_row_is_that_of_the_record():
    """Made-up times: exact softmax 20 ms, ours 1.5 ms, the script 0.9 · 79 times as fast as exact."""
    forward, both, *_ = found = compared(record(), 12, 2)
    assert [one.what for one in found] == list(WHAT.values())
    exact = ["exact, compiled loops", "exact, SDPA", "exact, in place", "mean of V"]
    script = ["the script", "the script, on softmax"]
    assert [one.who for one in forward.rows] == [*exact, *script, "ours, g = 2"]
    assert [one.ms and round(one.ms, 4) for one in forward.rows] == [
        20.0,
        30.0,
        40.0,
        None,
        0.2813,
        None,
        1.5,
    ]
    assert [one.error for one in forward.rows] == [None, None, None, 40.0, 0.773, 2 * 0.773, 0.773 / 2]
    assert all([one.who for one in other.rows] == [*exact, "ours, g = 2"] for other in (both, *found[2:]))
    assert forward.rows[-1].multiply_adds == 158 and both.rows[-1].usual == 0.773


def test_a_row_is_found_by_d_and_n():
    assert tokens(record(), 12) == [40_960, 4096] and degrees(record(), 12, 4096) == [2]
    assert compared(record(), 12, 2, 4096)[0].rows[-1].error == 0.5
    with pytest.raises(ValueError, match=r"n must be one of 40960, 4096 \(recorded at d = 12\), got 7"):
        compared(record(), 12, 2, 7)


def test_a_section_without_this_degree_is_left_out():
    rows = [row(4, degree(2, 1, 2), degree(3, 0.5, 2))]
    alone = record(rows, gradient=[row(4, degree(3, 0.5, 2))])
    assert [one.what for one in compared(alone, 4, 2)] == [
        "forward", "causal, forward", "causal, forward and backward",
    ]  # fmt: skip
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
        part = [f"{figures(bar.ms)} ms"] if bar.ms else []
        if bar.quotient is not None:
            part += [f"{figures(bar.quotient)}×", f"{figures(bar.multiply_adds)}× fewer multiply-adds"]
        part += [] if bar.error is None else [f"off by {figures(bar.error)} %"]
        assert ", ".join(part) in shown and " ".join(part) in picture.alt
    assert found["date"] in shown and found["date"] in picture.alt


@pytest.mark.parametrize(
    ("error", "ms", "said"),
    [
        (1.0, 1.0, "a smaller error and takes less time"),
        (1.0, 3.0, "a smaller error and takes more time"),
        (9.0, 1.0, "a larger error and takes less time"),
    ],
)
def test_words_compare_ours_with_the_script_of_the_same_run(error, ms, said):
    """The script has 20 / (0.9 · 9.43) = 2.36 ms and an error of 2.005."""
    found = compared(record([row(8, degree(2, error, 20 / ms, ms=ms))]), 8, 2)
    words = lowrank_times_words(found, 8, 2, 2560)
    assert words.endswith(f"It has {said} than the published script.")
    assert words.startswith(
        f"Forward, d = 8, n = 2,560, degree 2: {20 / ms:.3g} times as fast as the fastest"
    )


def test_the_fastest_below_an_error_is_found_and_nobody_where_there_is_none():
    rows = [
        {"spread": 0.5, "contender": "a", "features": 9, "error": 1.0, "ms": 5.0},
        {"spread": 0.5, "contender": "b", "features": 9, "error": 0.5, "ms": 7.0},
        {"spread": 0.5, "contender": "c", "features": None, "refused": "made up"},
    ]
    assert fastest(rows, 1.0)["contender"] == "a" and fastest(rows, 0.9)["contender"] == "b"
    assert fastest(rows, 0.4) is None
    exact = [rows[0] | {"contender": who, "features": None, "ms": ms} for who, ms in (("c", 8.0), ("d", 6.0))]
    assert fastest_exact([*rows, *exact])["contender"] == "d"  # a refused run and runs with features are not
    head = {"layer": 0, "head": 11, **rows[0]}
    assert list(panels_of([*rows, head])) == ["logits spread by 0.5", "head 0.11, logits spread by 0.5"]


# ---------------------------------------------------------------------- under one's hand
def test_the_table_offers_what_was_measured_at_its_d():
    table = explore.lowrank_table(8, 5)
    assert (table.state, table.svg) == (
        (8, 5, 2560),
        explore.lowrank_times(load_record("lowrank"), 8, 5).to_svg(),
    )
    assert "Forward, d = 8, n = 2,560, degree 5: " in table.words
    table.set("row", (12, 40_960))
    assert table.state == (12, 4, 40_960) and list(table.controls["g"].offered.values()) == [2, 3, 4]
    assert len(table.controls["row"].offered) == len(load_record("lowrank")["forward"])
    table.set("row", (12, 4096))
    assert "Forward, d = 12, n = 4,096, degree 4: " in table.words
    table.set("row", (32, 4096))
    assert table.state == (32, 3, 4096) and explore.lowrank_table(12, 3, 4096).state == (12, 3, 4096)
    with pytest.raises(
        ValueError, match=r"d must be one of 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 32 \(recorded\), got 3"
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
