"""Tests that each ratio to exact attention comes with the remark that a faster exact run exists."""

import re
from pathlib import Path

import pytest
from fake_lowrank_record import record
from figure_layout import check_layout, texts

from iocourse.course import explore
from iocourse.course.course_map import course_map, lesson_of
from iocourse.data.records import load_record
from tools.bench.lowrank import pictures
from tools.bench.lowrank.text import text

ROOT = Path(__file__).parents[2]
SAID = "exact run of compiled loops was measured 1.1 to 3.8 times faster than this baseline"
TOLD = "by another factor in each row and pass, so every ratio is an upper limit"
RATIO = re.compile(r"[\d,.]+×")
PAGES = (
    "docs/guide/low-rank.md",
    *(f"solutions/{course_map()[lesson_of(id)].file}.py" for id in ("17A", "17C")),
)


def says_it(words):
    joined = " ".join(words.split())
    return SAID in joined and TOLD in joined


@pytest.mark.parametrize("found", [record(), load_record("lowrank")], ids=["made up", "recorded"])
def test_every_table_of_the_bench_with_a_ratio_says_it(found):
    every = text(found).split("\n\n")
    parts = [part for part in every if RATIO.search(part) and not part.startswith("milliseconds at n")]
    assert [part.split()[0].rstrip(":") for part in parts] == [
        "forward", "forward+backward", "causal", "goals",
    ]  # fmt: skip
    assert all(map(says_it, parts))


@pytest.mark.parametrize("section", ["forward", "gradient", "causal"])
@pytest.mark.parametrize("found", [record(), load_record("lowrank")], ids=["made up", "recorded"])
def test_every_picture_of_rows_says_it_to_the_eye_in_words_and_in_numbers(found, section):
    for picture in (explore.lowrank_vs_published(found, section=section), explore.lowrank_times(found, 8, 3)):
        check_layout(picture)
        assert RATIO.search(picture.numbers)
        assert says_it(picture.numbers) and says_it(picture.alt) and says_it(" ".join(texts(picture)))


def test_every_recorded_picture_with_a_ratio_says_it():  # that the site does: tests/site/test_built_site.py
    drawn = pictures(load_record("lowrank"))
    with_ratio = [name for name, picture in drawn.items() if RATIO.search(picture.numbers)]
    assert with_ratio == ["rows", "gradient"] and all(says_it(drawn[name].numbers) for name in with_ratio)


def test_the_explorer_says_it_at_every_setting():
    table = explore.lowrank_table(8, 3)
    assert says_it(table.words)
    table.set("d", 12)
    assert "times as fast as exact attention" in table.words and says_it(table.words)


@pytest.mark.parametrize("page", PAGES)
def test_pages_that_state_a_ratio_say_it_once(page):
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert words.count(SAID) == words.count(TOLD) == 1
