"""Tests of `benchmark_bars` with made-up records: lengths of bars, and reasons of refusals."""

import pytest
from figure_examples import bench_record
from figure_layout import texts

from iocourse.course import explore
from iocourse.course.explore.draw.palette import BLUE, INK
from iocourse.course.explore.draw.picture import Poly, Rect


def bars(picture, colour):
    return [e for e in picture.elements if isinstance(e, Rect) and e.fill == colour]


def test_bars_are_as_long_as_the_rates():
    record = bench_record((1024, 2048), ("fused", "SDPA flash"))
    found = bars(explore.benchmark_bars(record), BLUE)
    rates = [row["tflops"] for row in record["rows"] if row["contender"] == "fused"]
    full_then_causal = [rates[0], rates[2], rates[1], rates[3]]
    for bar, rate in zip(found, full_then_causal, strict=True):
        assert bar.width / found[0].width == pytest.approx(rate / rates[0])


def test_the_black_line_stands_at_the_end_of_sdpa_flash():
    record = bench_record((1024,), ("fused", "SDPA flash"), kinds=(0,))
    picture = explore.benchmark_bars(record)
    line = next(e for e in picture.elements if isinstance(e, Poly) and e.stroke == INK)
    flash = next(e for e in picture.elements if isinstance(e, Rect) and e.fill == "#BDBDBD")
    assert line.points[0][0] == pytest.approx(flash.x + flash.width)
    assert "black line: SDPA flash in the same run" in texts(picture)


def test_without_sdpa_flash_no_black_line_is_spoken_of():
    assert not any(
        "black line" in text for text in texts(explore.benchmark_bars(bench_record((128,), ("fused",))))
    )


def test_full_and_causal_stand_apart_or_alone():
    record = bench_record((1024,), ("fused",))
    assert {"full", "causal"} <= set(texts(explore.benchmark_bars(record)))
    assert "full" not in texts(explore.benchmark_bars(record, causal=True))


def test_a_refusal_is_in_the_picture_and_its_reason_in_the_numbers():
    picture = explore.benchmark_bars(bench_record((1024, 8192), ("fused", "SDPA math")))
    assert texts(picture).count("refused") == 2
    assert "SDPA math refused N = 8,192 full, N = 8,192 causal: made up: out of memory" in picture.numbers
    assert "2 of 8 bars are missing" in picture.alt


def test_without_refusals_none_are_spoken_of():
    assert "missing" not in explore.benchmark_bars(bench_record((1024,), ("fused",))).alt


def test_a_contender_without_a_row_is_not_measured():
    record = bench_record((1024, 2048), ("fused", "SDPA flash"))
    del record["rows"][0]  # ours, N = 1,024, full
    picture = explore.benchmark_bars(record)
    assert picture.numbers.count("not measured") == 1
    assert len(bars(picture, BLUE)) == 3


def test_the_picture_says_where_its_numbers_come_from():
    picture = explore.benchmark_bars(bench_record((1024,), ("fused",)))
    source = "no device: made-up numbers of a test, made up 0, no date"
    assert f"{source}, a quick run" in texts(picture) and source in picture.alt and source in picture.numbers


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"pass_": "backward"}, r"no rows with {'pass': 'backward'.*\('forward', 128, 'bfloat16'\)"),
        ({"d": 64}, "no rows with"),
        ({"dtype": "float16"}, "no rows with"),
    ],
)
def test_rows_that_are_not_there_are_named(asked, message):
    with pytest.raises(ValueError, match=message):
        explore.benchmark_bars(bench_record((1024,), ("fused",)), **asked)


def test_no_record_is_no_picture():
    with pytest.raises(ValueError, match="record must not be None: no recorded run yet"):
        explore.benchmark_bars(None)
