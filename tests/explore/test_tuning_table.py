"""Tests of the tuning table: a rule on a column, compared with chance."""

from itertools import combinations

import pytest
import skips
from figure_layout import check_layout, texts

from iocourse.course import explore
from iocourse.course.explore.draw.picture import Text
from iocourse.course.explore.figures.tuning_table import draw_tuning_table, read, tuning_table_picture
from iocourse.course.explore.models.tuning_table import (
    COLUMNS,
    TuningState,
    columns_of,
    dots,
    keeps,
    result,
    rows_of,
    shipped_tables,
    verdict,
)

skips.unless_installed("anywidget")

MADE_UP = [
    {"ms": 3.0, "x": 1, "stages": 2, "rows_per_warpgroup": 32, "warpgroups_per_sm": 4},
    {"ms": 1.0, "x": 2, "stages": 3, "rows_per_warpgroup": 64, "warpgroups_per_sm": 2},
    {"ms": 2.0, "x": 1, "stages": 3, "rows_per_warpgroup": 64, "warpgroups_per_sm": 1},
    {"ms": 4.0, "x": 5, "stages": 4, "rows_per_warpgroup": 128, "warpgroups_per_sm": 2},
]


def found(rule="smallest", **filters):
    s = TuningState("made up", "x", rule, **filters)
    return result(s, dots(s, MADE_UP))


@pytest.mark.parametrize("times", [[1.0], [1.0, 1.0, 2.0], [1.0, 1.5, 2.0, 2.5, 9.0]])
def test_chance_is_the_mean_over_all_samples_of_the_kept_ones(times):
    rows = [{"ms": 0.5, "x": 0, "stages": 4}, *({"ms": ms, "x": 1, "stages": 3} for ms in times)]
    s = TuningState("made up", "x", "smallest", stages=3)
    one = result(s, dots(s, rows))
    samples = [min(some) / 0.5 for some in combinations(times, min(3, len(times)))]
    assert one.three == pytest.approx(sum(samples) / len(samples))
    assert one.one == pytest.approx(sum(times) / len(times) / 0.5)


def test_a_rule_takes_the_mean_over_ties_and_counts_them_against_itself():
    one = found()
    assert [dot.y for dot in one.chosen] == [2.0, 3.0] and one.regret == 2.5
    assert (one.place, one.tied, one.kept, one.one) == (3, 1, 4, 2.5)
    assert found("largest").regret == 4.0 and found("largest").place == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ((MADE_UP, "x"), "the fastest (a configuration) has place 3 of 4."),
        (("draft, d = 64", "words"), "stages) is among the first 18 of 36, which are tied."),
        (("queries, d = 64", "blocks"), "stages) is among places 4 to 9 of 9, which are tied."),
        (("draft, d = 64",), "(128 × 64, 8 warps, 3 stages) has place 16 of 36."),
    ],
)
def test_the_place_of_a_tie_is_given_with_its_ties(call, text):
    assert text in tuning_table_picture(*call).alt


def test_the_place_is_that_of_the_fastest_kept_one():
    rows = [row for row in rows_of("draft, d = 64") if row["stages"] == 2]
    best = min(rows, key=lambda row: row["ms"])
    name = f"{best['BM']} × {best['BN']}, {best['warps']} warps, 2 stages"
    assert f"the fastest ({name})" in tuning_table_picture("draft, d = 64", "words", stages=2).alt


@pytest.mark.parametrize("table", shipped_tables())
def test_a_table_of_a_half_names_the_other_half(table):
    text = "Each time includes the other half of the backward pass, so these ratios are closer to 1"
    assert (text in tuning_table_picture(table).alt) == table.startswith(("queries", "keys"))


@pytest.mark.parametrize("column", ["words", "blocks", "BM", "stages"])
def test_at_least_two_values_are_on_the_axis_of_a_narrow_page(column):
    rows = rows_of("draft, d = 64")
    drawn = draw_tuning_table(read(TuningState("draft, d = 64", column, "smallest"), rows), narrow=True)
    bottom = [one.text for one in drawn.elements if isinstance(one, Text) and one.anchor == "middle"]
    assert len(bottom) >= 3, "two values and the name of the axis"


def test_filters_keep_only_what_they_name():
    assert found(stages=3).kept == 2 and found(stages=3).regret == 2.0
    assert found(rows=64).kept == 3 and found(warpgroups=2).kept == 3
    assert found(stages=3, rows=64, warpgroups=2).regret == 1.0
    assert found(stages=1) is None
    assert keeps(TuningState("", "", "", stages=3, rows=64), {"ms": 1.0}), "a column that is not there"


def test_time_is_compared_with_the_fastest_of_the_whole_table():
    assert [dot.y for dot in found(rows=128).chosen] == [4.0]


def test_the_verdict_compares_with_chance():
    assert verdict(found()) == "No better than one at random (2.50); timing three at random (1.25)"
    pruned = found(stages=3, rows=64, warpgroups=2)
    assert verdict(pruned) == "At least as good as timing three at random (1.00); one at random (1.00)"
    between = found()._replace(regret=2.0)
    assert (
        verdict(between) == "Better than one at random (2.50), not as good as timing three at random (1.25)"
    )


@pytest.mark.parametrize("table", shipped_tables())
def test_every_column_of_every_table_is_drawn_with_every_dot(table):
    rows = rows_of(table)
    assert set(columns_of(rows)) == set(COLUMNS)
    for column in columns_of(rows):
        for narrow in (False, True):
            s = TuningState(table, column, "smallest", stages=3)
            picture = draw_tuning_table(read(s, rows), narrow)
            check_layout(picture)
            assert picture.width <= (400 if narrow else 760)
        shown = [line for line in picture.numbers.splitlines() if "×" in line and "stage" in line]
        assert len([line for line in shown if line.lstrip()[0].isdigit()]) == len(rows)


def test_rules_on_the_shipped_tables():
    draft = tuning_table_picture("draft, d = 64", "warps_per_sm", "largest")
    assert "No better than one at random" in draft.alt
    pruned = tuning_table_picture("draft, d = 128", "words", stages=3, rows=64, warpgroups=2)
    assert "6 of 32 configurations" in pruned.alt and "one at random (1.10)" in pruned.alt
    assert "dropped" in texts(pruned)


def test_own_rows_are_a_table():
    one = explore.tuning_table(MADE_UP, "x", "largest")
    assert "Largest x: a configuration 4.00 × the fastest" in one.words
    one.set("rule", "smallest")
    assert "2 tied configurations, mean 2.50 × the fastest" in one.words
    one.set("stages", 1)
    assert "The filters keep no configuration." in one.words


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"table": "forward"}, "table must be one of draft, d = 64; .*; or a list of rows; got 'forward'"),
        ({"table": []}, "table must have at least one row, got none"),
        ({"table": [{"words": 3}]}, "table has no times: row 0 needs ms, a positive number, got None"),
        ({"table": [*MADE_UP, {"ms": 0}], "column": "x"}, "table has no times: row 4 needs ms, .* got 0"),
        ({"column": "speed"}, "column must be one of words, .*; got 'speed'"),
        ({"column": "ms"}, r"got 'ms' \(ms is the time itself\)"),
        ({"rule": "least"}, "rule must be smallest or largest; got 'least'"),
        ({"rows": -1}, "rows must be an integer of at least 0, or None for all; got -1"),
    ],
)
def test_bad_input_is_named_in_one_line(call, text):
    for draw in (tuning_table_picture, explore.tuning_table):
        with pytest.raises(ValueError, match=text) as caught:
            draw(**call)
        assert "\n" not in str(caught.value)
