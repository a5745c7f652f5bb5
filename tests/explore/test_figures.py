"""Tests of figures: numbers agree with costs, bounds and ledgers, and bad input is named."""

import re
import sys
from math import log

import numpy as np
import pytest
from figure_examples import attention, ledger
from figure_layout import texts

from iocourse import bounds, costs, schedules
from iocourse.console import with_unit
from iocourse.course import explore
from iocourse.course.explore.draw.line_chart import Frame, Line, Scale, area_below, spread
from iocourse.course.explore.draw.palette import ARRAY_FILLS, BOUND, FORBIDDEN, SKY
from iocourse.course.explore.draw.picture import Poly, Rect, Text
from iocourse.course.explore.draw.shapes import read_and_written
from iocourse.course.explore.draw.text import big, figures, words
from iocourse.course.explore.figures.fast_memory import COLUMNS, condensed
from iocourse.course.explore.figures.rank_work import BAND
from iocourse.course.explore.models.schedule_selection import ROW_TILED
from iocourse.doctor import install_command
from iocourse.ledger import Ledger


# ---------------------------------------------------------------------- work of ranks
def test_rows_that_a_rank_needs_have_the_colours_of_their_arrays():
    boxes = [one for one in explore.rank_work(6, 2).elements if isinstance(one, Rect)]
    queries = [(one.fill, one.hatch) for one in boxes if one.width == BAND]
    keys = [(one.fill, one.hatch) for one in boxes if one.height == BAND]
    assert queries == [ARRAY_FILLS["Q"]] and keys == [ARRAY_FILLS["K"]]


# ---------------------------------------------------------------------- words against memory
@pytest.mark.parametrize(("N", "d"), [(4096, 64), (1000, 37), (1, 1)])
def test_the_table_of_words_holds_closed_forms_and_bounds(N, d):
    lines = [
        re.split(r" {2,}", line.strip())
        for line in explore.traffic_vs_memory(N, d).numbers.replace("no tile fits", "-").splitlines()
    ]
    titles, names = lines[0][1:-1], ROW_TILED
    assert titles == [schedules.get(name).title for name in names]
    for M, *values, bound in (
        [int(cell.replace(",", "")) if cell != "-" else None for cell in row] for row in lines[1:-1]
    ):
        assert bound == bounds.lower_bound("forward", N, d, M)[0]
        for name, value in zip(names, values, strict=True):
            schedule = schedules.get(name)
            if value is None:
                assert schedule.smallest_M(N, d) > M
            else:
                assert value == schedule.cost(N, d, **schedule.tiles(N, d, M)).total
    assert lines[-1] == [f"compulsory 4Nd: {4 * N * d:,} words"]


def test_the_line_runs_through_the_closed_forms():
    N, d, low, high = 4096, 64, 1024, 2**18
    picture = explore.traffic_vs_memory(N, d, ["flash_optimal"], (low, high))
    line = max(
        (e for e in picture.elements if isinstance(e, Poly) and e.dash == ()), key=lambda e: len(e.points)
    )
    schedule, (first, last) = schedules.get("flash_optimal"), (line.points[0], line.points[-1])

    def total(M):
        return schedule.cost(N, d, **schedule.tiles(N, d, M)).total

    for x, y in line.points:
        M = round(low * (high / low) ** ((x - first[0]) / (last[0] - first[0])))
        down = (y - first[1]) / (last[1] - first[1])
        assert down == pytest.approx(log(total(M) / total(low)) / log(total(high) / total(low)), abs=1e-6)


def test_schedules_without_a_tile_are_left_out_and_named():
    picture = explore.traffic_vs_memory(64, 16, ["flash1", "naive"], (40, 60))
    assert "flash1 needs 67 words and is left out" in picture.alt
    assert "flash1" not in texts(picture)


# ---------------------------------------------------------------------- order of tiles
def _outlined(picture):
    return next(e for e in picture.elements if isinstance(e, Rect) and e.line == 3.5 and e.width != 22)


def test_flash2_goes_along_rows_and_flash1_down_columns():
    tiles = {"Br": 4, "Bc": 8}
    along, down = (
        explore.tile_order("flash2", 32, 4, tiles, step=1),
        explore.tile_order("flash1", 32, 4, tiles, step=1),
    )
    assert "along each row of tiles" in along.alt and "down each column of tiles" in down.alt
    assert "tile 1: rows 0 to 3, columns 8 to 15" in along.numbers
    assert "tile 1: rows 4 to 7, columns 0 to 7" in down.numbers
    assert _outlined(along).x > _outlined(down).x and _outlined(along).y < _outlined(down).y


@pytest.mark.parametrize("name", ["flash1", "flash2", "flash_optimal"])
@pytest.mark.parametrize(("N", "Br", "Bc"), [(1, 1, 1), (10, 3, 4), (7, 7, 1), (9, 20, 30)])
def test_every_tile_is_visited_once(name, N, Br, Bc):
    picture = explore.tile_order(name, N, 2, {"Br": Br, "Bc": Bc})
    count = costs.ceil_div(N, Br) * costs.ceil_div(N, Bc)
    assert picture.numbers.startswith(f"{count:,} tiles drawn")
    assert "Every score is covered." in picture.alt


def test_a_backward_pass_is_drawn_too():
    picture = explore.tile_order("split_backward", 16, 4, {"Br1": 4, "Bc1": 8, "Br2": 8, "Bc2": 4})
    assert picture.numbers.startswith("16 tiles drawn") and "Every score is covered." in picture.alt


def test_a_long_trace_is_cut_and_says_so():
    assert "Only the first" in explore.tile_order("flash_optimal", 4096, 64, {"Br": 64, "Bc": 1}).alt
    assert "computes no tile" in explore.tile_order("flash1", 4096, 64, {"Br": 1, "Bc": 64}).alt


# ---------------------------------------------------------------------- fast memory
def test_the_timeline_has_the_ledgers_peak():
    record = ledger("flash2", Br=16, Bc=8)
    picture = explore.memory_timeline(record, 700)
    assert f"The peak, {record.peak:,} words" in picture.alt
    assert f"peak {record.peak:,}" in texts(picture)
    assert "row statistics     32" in picture.numbers and "scores    128" in picture.numbers


def test_a_long_timeline_keeps_the_peak_of_every_column():
    record = ledger("flash_optimal", N=200, M=900, Br=40, Bc=1)
    assert len(record.moves) > 1000
    picture = explore.memory_timeline(record, 900)
    tallest = min(e.y for e in picture.elements if isinstance(e, Rect))
    limit = next(e for e in picture.elements if isinstance(e, Poly) and e.dash == (9, 4)).points[0][1]
    base = 372.0
    assert (base - tallest) / (base - limit) == pytest.approx(record.peak / 900, abs=1e-9)
    assert "Each column shows the fullest of" in picture.alt


def test_a_column_of_many_moves_shows_the_fullest():
    amounts = [{"Q": k % 7} for k in range(3 * COLUMNS)]
    columns, share = condensed(amounts)
    assert share == 3 and len(columns) == COLUMNS
    assert [c["Q"] for c in columns[:4]] == [2, 5, 6, 4]


def test_a_footprint_says_whether_it_fits():
    parts = {"Q": 4096, "O": 4096, "row statistics": 128, "K": 4096, "V": 4096, "scores": 4096}
    assert costs.flash2(1024, 64, Br=64, Bc=64).peak == sum(parts.values())
    assert "does not fit, 4,224 words over M" in explore.footprint_bar(parts, 16_384).alt
    assert "fits, 0 words free" in explore.footprint_bar(parts, 20_608).numbers
    assert "does not fit, 1 words over M" not in explore.footprint_bar(parts, 20_607).alt
    assert "does not fit, 1 word over M." in explore.footprint_bar(parts, 20_607).alt


# ---------------------------------------------------------------------- attention, curves, bars
def test_the_map_names_its_largest_weight():
    P, tokens = attention(20)
    row, column = np.unravel_index(P.argmax(), P.shape)
    picture = explore.attention_map(P, tokens)
    assert f'row {row}, column {column} ("{tokens[row]}" to "{tokens[column]}")' in picture.alt
    assert f"largest weight {P.max():.3g}" in picture.numbers


def test_keys_that_hold_the_weight():
    even = explore.attention_map(np.full((10, 10), 0.1))
    assert "is in 9 of its 10 keys" in even.alt
    assert "is in 1 of its 10 keys" in explore.attention_map(np.eye(10)).alt


def test_a_prediction_has_the_colour_of_its_points():
    picture = explore.curve(
        {"a": [(1, 1)], "b": [(1, 2)]}, {"b": [(1, 2), (2, 4)]}, title="T", xlabel="x", ylabel="y"
    )
    line = next(e for e in picture.elements if isinstance(e, Poly) and e.line == 2.2)
    fills = {e.fill for e in picture.elements if isinstance(e, Poly) and e.fill}
    assert line.stroke in fills
    assert "b, predicted" in texts(picture)


def test_the_numbers_under_a_curve_are_few_and_say_what_is_left_out():
    points = [(x, 3 * x) for x in range(1, 41)]
    few = explore.curve({"a": points[:5]}, {"b": [(2, 7)]}, title="T", xlabel="N", ylabel="words").numbers
    assert [line.split() for line in few.splitlines()[:4]] == [
        ["words"],
        ["N", "a", "b"],
        ["1", "3"],
        ["2", "6", "7"],
    ]
    many = explore.curve({"a": points}, title="T", xlabel="N", ylabel="words").numbers.splitlines()
    assert len(many) <= 16 and many[2].split() == ["1", "3"] and many[-2].split() == ["40", "120"]
    assert many[-1] == f"{len(many) - 3} of 40 values of N"


def test_a_note_stands_below_its_line_and_in_the_words():
    points = [(2**k, 2.0 ** (20 - k)) for k in range(9)]
    picture = explore.curve({}, {"falls": points}, title="T", xlabel="x", ylabel="y", notes={"falls": "−1"})
    line = next(e for e in picture.elements if isinstance(e, Poly) and e.line == 2.2)
    note = next(e for e in picture.elements if isinstance(e, Text) and e.text == "−1")
    x, y = line.points[4]
    assert note.anchor == "end" and x - 30 < note.x < x and y < note.y < y + 40
    assert picture.alt.endswith(" Note on falls: −1.")


def test_a_bar_keeps_its_length_when_its_unit_changes():
    picture = explore.running_max_rescaling([[1, 1], [4, 2], [1]])
    bars = [e for e in picture.elements if isinstance(e, Rect)][2:]  # after those of the legend
    one = bars[0].width / 2
    assert [round(e.width / one, 9) for e in bars] == [2, 2, 6, 8, 1]
    assert [line.split()[-3:] for line in picture.numbers.splitlines()[2:]] == [
        ["0.25", "4", "2"],
        ["1", "4", "2.25"],
    ]


def test_a_tree_of_merges_ends_in_the_sum_and_changes_the_smaller_unit_alone():
    parts = [(2, 1.5), (8, 2), (1, 2), (4, 1.5), (0.5, 4)]
    picture = explore.merge_tree(parts)
    *_, unit, count = picture.numbers.splitlines()[-1].split()
    assert float(unit) * float(count) == sum(u * c for u, c in parts)
    changed = [e for e in picture.elements if isinstance(e, Poly) and e.line == 3]
    assert len(changed) == 4 == len(picture.numbers.splitlines()) - 1  # of each of four merges, one side


def test_bars_are_as_long_as_their_numbers():
    picture = explore.bars({"one": 100, "two": 50, "none": 0}, title="T")
    lengths = [e.width for e in picture.elements if isinstance(e, Rect)]
    assert lengths[1] == pytest.approx(lengths[0] / 2) and lengths[2] == 0
    assert "one  100 words" in picture.numbers


# ---------------------------------------------------------------------- scales
def test_scales_put_values_where_they_belong():
    scale = Scale(1, 1000, 0, 300, 10)
    assert [scale(v) for v in (1, 10, 1000)] == pytest.approx([0, 100, 300])
    assert scale.ticks() == [1, 10, 100, 1000]
    assert Scale(0, 10, 50, 0)(5) == 25


@pytest.mark.parametrize(
    "scale", [Scale(3, 4, 0, 1, 10), Scale(5, 7, 0, 1, 2), Scale(1, 1e12, 0, 1, 10), Scale(-2, 5, 0, 1)]
)
def test_there_are_always_some_ticks_and_not_too_many(scale):
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 9 and all(scale.low <= tick <= scale.high for tick in ticks)


def test_labels_are_spread_in_their_order():
    placed = spread([10, 12, 11, 99], gap=10, low=0, high=100)
    assert placed[0] < placed[2] < placed[1] < placed[3] <= 100
    assert min(abs(a - b) for a in placed for b in placed if a != b) >= 10


def test_numbers_as_text():
    assert [words(v) for v in (16_384, 0.25, 1234.5, 3.0)] == ["16,384", "0.25", "1,234", "3"]


# ---------------------------------------------------------------------- bad input
ONE = {"Br": 1, "Bc": 1}
RUN = ledger("flash2", Br=4, Bc=4)
AXES = {"title": "T", "xlabel": "x", "ylabel": "y"}
REFUSED = [
    (lambda: explore.traffic_vs_memory(0, 64), "N must be at least 1, got 0"),
    (lambda: explore.traffic_vs_memory(64, 1.5), "d must be an integer of at least "),
    (lambda: explore.traffic_vs_memory(64, 8, ["flash3"]), "'flash3'; expected one of naive, flash2"),
    (lambda: explore.traffic_vs_memory(64, 8, ["block_sparse"]), "'block_sparse'; expected one of naive"),
    (lambda: explore.traffic_vs_memory(64, 8, ["flash1_backward"]), "unknown dense forward schedule"),
    (
        lambda: explore.traffic_vs_memory(64, 8, M_range=(50, 50)),
        r"M_range must be a first M and a larger last one, got \(50, 50\)",
    ),
    (lambda: explore.traffic_vs_memory(64, 8, M_range=(0, 50)), "M_range must be at least 1"),
    (lambda: explore.tile_order("flash", 8, 2, ONE), "known schedules are naive, flash2"),
    (lambda: explore.tile_order("flash2", 8, 2, {"Br": 1}), "needs the tile size"),
    (lambda: explore.tile_order("flash2", 8, 2, {"Br": 0, "Bc": 1}), "Br must be at least 1"),
    (
        lambda: explore.tile_order("flash2", 8, 2, {"Br": 4, "Bc": 4}, 4),
        "step must be from 0 to 3 for flash2 here, got 4",
    ),
    (lambda: explore.memory_timeline(Ledger(), 8), "ledger has no moves"),
    (lambda: explore.memory_timeline(RUN, 0), "M must be at least 1"),
    (lambda: explore.footprint_bar({}, 8), "at least one part"),
    (lambda: explore.footprint_bar({"Q": -1}, 8), "none below 0"),
    (
        lambda: explore.attention_map(np.ones((2, 3))),
        r"P must be one square matrix \(N, N\), got shape \(2, 3\)",
    ),
    (lambda: explore.attention_map([[np.nan]]), "not finite"),
    (
        lambda: explore.attention_map(np.eye(3), ["a"]),
        "tokens must have one entry for each of the N = 3 rows of P, got 1",
    ),
    (lambda: explore.curve({}, **AXES), "at least one point"),
    (lambda: explore.curve({"a": [(0, 1)]}, **AXES), "x = 0"),
    (
        lambda: explore.curve({"a": [(1, 1)]}, notes={"b": "steep"}, **AXES),
        "notes must have labels among a, got 'b'",
    ),
    (lambda: explore.running_max_rescaling([]), "at least one piece"),
    (lambda: explore.running_max_rescaling([[1], []]), "none of them empty"),
    (
        lambda: explore.running_max_rescaling([[1, 0]]),
        "pieces must contain positive and finite numbers, got 0",
    ),
    (lambda: explore.merge_tree([]), "parts must have 1 to 8 entries, got 0"),
    (
        lambda: explore.merge_tree([(1, float("inf"))]),
        "parts must have positive and finite units and counts, got inf",
    ),
    (lambda: explore.bars({}, title="T"), "at least one value"),
    (lambda: explore.bars({"a": float("inf")}, title="T"), "a = inf"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_bad_input_names_the_argument(call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call()


def test_a_notebook_prints_the_numbers_below_the_picture(capsys, monkeypatch):
    picture = explore.tile_order("flash2", 8, 2, {"Br": 4, "Bc": 4})
    monkeypatch.setattr("iocourse.course.explore.draw.picture.display_then_replace", lambda *given: None)
    picture._ipython_display_()
    shown = capsys.readouterr().out
    assert shown.endswith(picture.numbers + "\n")


def test_without_matplotlib_a_cell_shows_the_svg_and_one_line_that_installs_it(capsys, monkeypatch):
    shown, picture = [], explore.bars({"a": 3.0}, title="t")
    monkeypatch.setattr(
        "iocourse.course.explore.draw.picture.display_then_replace", lambda *parts: shown.append(parts)
    )
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    picture._ipython_display_()
    assert shown == [({"text/plain": picture.text}, picture.to_html(), {})]
    line, *numbers = capsys.readouterr().out.splitlines()
    assert line.endswith(
        f"needs matplotlib, which is not installed here: {install_command.command('course')}"
    )
    assert numbers == picture.numbers.splitlines()


def test_bars_say_what_their_marks_are():
    picture = explore.bars({"a": 3.0}, {"a": 2.0}, title="t", mark="by (3.3)")
    assert "by (3.3) 2" in picture.numbers and "Black marks: by (3.3)." in picture.alt
    assert "black mark: by (3.3)" in picture.to_svg()


def test_a_mark_that_all_bars_share_is_told_once():
    picture = explore.bars({"a": 3.0, "b": 4.0}, {"a": 2.0, "b": 2.0}, title="t", mark="by (3.3)")
    assert picture.alt.count("by (3.3)") == picture.numbers.count("by (3.3)") == 1
    assert "Black marks: by (3.3) 2." in picture.alt and "by (3.3) 2" in picture.numbers
    apart = explore.bars({"a": 3.0, "b": 4.0}, {"a": 2.0, "b": 1.0}, title="t", mark="by (3.3)")
    assert "by (3.3) 1" in apart.alt and "Black marks: by (3.3)." in apart.alt


# ---------------------------------------------------------------------- numbers in words
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (with_unit(1, "word"), "1 word"),
        (with_unit(0, "word"), "0 words"),
        (with_unit(4096, "such program"), "4,096 such programs"),
        (figures(0.123456), "0.123"),
        (figures(123456.0, 2), "120,000"),
        (figures(2.0), "2"),
        (big(10**12 - 1), "999,999,999,999"),
        (big(10**12), "10¹²"),
        (read_and_written(64, 0), "64 read"),
        (read_and_written(64, 32), "64 read, 32 written"),
        (read_and_written(0, 0), "0"),
    ],
)
def test_numbers_are_said_the_same_everywhere(said, expected):
    assert said == expected


def test_the_area_below_the_highest_of_the_bounds_is_filled():
    frame = Frame(Scale(1, 4, 0, 300), Scale(0, 10, 200, 0))
    lines = [Line("low", ((1, 2), (4, 2)), BOUND), Line("high", ((1, 1), (2, 5)), BOUND)]
    (area,) = area_below(frame, lines)
    assert area.points == ((0, 160), (100, 100), (300, 160), (300, 200), (0, 200))
    assert area.fill == FORBIDDEN
    assert area_below(frame, [Line("one point", ((1, 2),), BOUND)]) == []


def test_on_a_logarithmic_axis_values_are_points_and_the_axis_says_so():
    found = explore.bars({"a": 130.0, "b": 0.222}, {"b": 2.0}, title="Memories", unit="MiB", log=True)
    plain = explore.bars({"a": 130.0, "b": 0.222}, {"b": 2.0}, title="Memories", unit="MiB")
    assert "MiB, logarithmic axis" in texts(found) and "Points on a logarithmic axis in MiB" in found.alt
    assert not any(isinstance(one, Rect) and one.fill == SKY for one in found.elements)
    assert {"1", "10", "100"} <= set(texts(found))  # the decades, with their grid lines
    assert "logarithmic" not in plain.to_svg()
    widths = [one.width for one in plain.elements if isinstance(one, Rect) and one.fill == SKY]
    assert widths[0] / widths[1] == pytest.approx(130 / 0.222)
