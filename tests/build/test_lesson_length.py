"""Tests of the limits of a lesson's length, and of predictions whose answer is not visible below them."""

from itertools import chain, takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.build import exercise_tables
from tools.build.lesson import read_lessons
from tools.build.percent_format import parse, shown, side
from tools.build.project import read_project
from tools.build.rules import lesson_length, prediction_spoilers

ROOT = Path(__file__).parents[2]
PATH = Path("solutions/04_flash_forward.py")
STEMS = [path.stem for path in sorted((ROOT / "solutions").glob("[0-9]*.py"))]


def cells(text):
    return parse(text, PATH)


def markdown(text):
    return "# %% [markdown]\n" + "".join(f"# {line}\n" if line else "#\n" for line in text.split("\n"))


# ---- words, formulas, minutes, cells ---------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["tile", "$N^2 d$", "64", "[paper](https://arxiv.org/abs/1)", "`m.load(K)`"]))
)
def test_a_word_is_a_word_and_so_is_a_formula_a_link_or_a_name(words):
    assert lesson_length.words_of(" ".join(words)) == len(words)


@pytest.mark.parametrize(
    "text",
    [
        "$$ W = 2Nd \\tag{4.1} $$",
        "<details><summary></summary>",
        "<!-- exercises -->",
        "| --- | ---: |",
        "- ",
    ],
)
def test_what_nobody_reads_as_words_is_none(text):
    assert lesson_length.words_of(text) == 0


def test_minutes_are_words_formulas_and_predictions():
    text = (
        markdown("word " * 260)
        + markdown("$$ x $$\n\n$$ y $$")
        + markdown("**Predict** (guess). **Predict** (compute).")
    )
    found = lesson_length.length_of(cells(text))
    assert (found.words, found.formulas, found.predictions, found.cells) == (264, 2, 3, 3)
    assert found.reading == 6  # 264/130 + 2/4 + 1 + 2 = 5.53


def listing(lines, marker="# %%"):
    return f"{marker}\n" + "x = 1\n\n" * lines


def test_a_listing_takes_a_minute_for_eight_lines_and_a_shorter_cell_none():
    title = markdown("word " * 130)
    for lines, minutes in ((50, 1), (51, 1 + 7), (80, 1 + 10), (81, 1 + 11)):
        found = lesson_length.length_of(cells(title + listing(lines)))
        assert found.reading == minutes, lines  # 51/8 = 6.4, rounded up with the minute of the text
    two_short_cells = lesson_length.length_of(cells(title + listing(30) + listing(30)))
    assert (two_short_cells.listings, two_short_cells.reading) == (0, 1)


def test_a_short_cell_with_the_tag_listing_is_read_line_by_line():
    found = lesson_length.length_of(cells(markdown("# Title") + listing(16, '# %% tags=["listing"]')))
    assert (found.listings, found.reading) == (16, 3)  # 16/8 and the title


def test_the_lines_of_an_exercise_take_its_own_minutes():
    exercise = listing(60, '# %% tags=["exercise"] name="ex-4A"') + "x = 2  #> x = ...\n"
    assert lesson_length.length_of(cells(markdown("# Title") + exercise)).listings == 0
    solved_only = listing(60, '# %% tags=["solution-only"]')
    assert lesson_length.length_of(cells(markdown("# Title") + solved_only)).listings == 0


def test_only_the_machine_on_one_page_is_longer_than_a_screen():
    lessons = read_lessons(ROOT, read_project(ROOT))
    long = [one.stem for one in lessons if any(map(_longer_than_a_screen, one.cells))]
    assert long == ["02_two_level_memory"]


def _longer_than_a_screen(cell):
    if cell.kind != "code" or "exercise" in cell.tags or not shown(cell, solved=False):
        return False
    return sum(map(bool, side(cell, solved=False))) > lesson_length.LISTING


def test_cells_that_only_the_solved_side_has_take_no_time():
    only = '# %% [markdown] tags=["solution-only"]\n# word word\n'
    assert lesson_length.length_of(cells(markdown("# Title") + only)) == lesson_length.length_of(
        cells(markdown("# Title"))
    )


PICTURE = {"cell_type": "code", "source": "", "outputs": [{"data": {"image/png": ""}}]}
TEXT = {"cell_type": "markdown", "source": ["some words"]}


def faults(*notebook, words=10, count=10, minutes=10, name=PATH):
    size = lesson_length.LessonLength(words, 0, 0, count)
    return [one.split(":1: ")[1] for one in lesson_length.problems(size, minutes, {"cells": notebook}, name)]


def test_a_lesson_that_fits_has_no_fault():
    assert faults(TEXT, PICTURE) == []
    assert faults(TEXT, TEXT, TEXT, TEXT, PICTURE, words=3500, count=60, minutes=63) == []


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({"words": 3501}, "3,501 words, expected at most 3,500: move the rest"),
        ({"count": 61}, "61 cells, expected at most 60: move the rest"),
        ({"minutes": 90}, "91 minutes, expected at most 90: move the rest"),
    ],
)
def test_a_longer_one_is_refused_with_its_size(size, said):
    (fault,) = faults(TEXT, PICTURE, **size)
    assert fault.startswith(said)


def test_the_first_question_of_lessons_00_to_13b_comes_within_300_words():
    text = markdown("one two $x$") + "\n# %%\nx = 1\n\n" + markdown("four")
    asked = '\n# %% tags=["predict"]\npredict("4.1", x=...)\n\n'
    assert lesson_length.length_of(cells(text + asked + markdown("five"))).start == 4

    def found(start, path):
        size = lesson_length.LessonLength(400, 0, 0, 10, start=start)
        return [*lesson_length.problems(size, 10, {"cells": [PICTURE]}, path)]

    for path in (PATH, Path("solutions/09b_beyond_the_model.py"), Path("solutions/10_triton_basics.py")):
        (fault,) = found(301, path)
        assert fault == f"{path}:1: 301 words before the first question, expected at most 300"
        assert found(300, path) == []
    assert found(301, Path("solutions/15_polynomial_attention.py")) == []


def test_pictures_come_first_and_lesson_00_has_two():
    assert faults(TEXT, TEXT, TEXT, TEXT, TEXT, PICTURE) == ["no figure in the first 5 cells: add one"]
    assert faults(TEXT) == ["0 figures, expected at least 1", "no figure in the first 5 cells: add one"]
    first = Path("solutions/00_start_here.py")
    assert faults(TEXT, PICTURE, name=first) == ["1 figures, expected at least 2"]
    assert faults(PICTURE, PICTURE, words=1801, name=first)[0].startswith(
        "1,801 words, expected at most 1,800"
    )


@pytest.mark.parametrize("stem", STEMS)
def test_every_notebook_says_its_minutes_at_its_head(stem):
    (lesson,) = read_lessons(ROOT, read_project(ROOT), [stem])
    reading, exercises = lesson.length.reading, lesson.exercises
    told = f"{reading + exercises}: {reading} to" if exercises else f"{reading}, all to"
    minutes = f"{told} read and predict"
    opening = takewhile(
        lambda line: not line.startswith("## "), chain(*(cell.lines for cell in lesson.cells))
    )
    assert f"**Minutes**: {minutes}" in "\n".join(opening)


def test_optional_exercises_do_not_count():
    exercise = '# %% tags=["exercise"] name="ex-{0}"\ndef f():\n    ### BEGIN SOLUTION\n    return 1\n'
    exercise += "    ### END SOLUTION\n"
    marker = "<!-- exercises --><!-- exercise 4A --><!-- exercise 4B --><!-- minutes without 4B -->"
    source = cells(markdown(marker) + exercise.format("4A") + exercise.format("4B"))
    assert exercise_tables.minutes_of(source, PATH) == exercise_tables.find("4A").minutes


# ---- predictions -----------------------------------------------------------------------------------------

ASKED = '# %% tags=["predict"]\npredict("4.1", words=5_120)  #> predict("4.1", words=...)\n'
MEASURED = '# %%\nmeasured("4.1", words=5120)\n'
SOLVED = {
    "cells": [
        {
            "cell_type": "code",
            "source": ['measured("4.1", words=5120)'],
            "outputs": [{"text": ["words: 5,121 measured, 5,120 predicted: off by 1\n"]}],
        }
    ]
}
READING = "<details><summary>What came out</summary>\n\n5,120 words.\n\n</details>"


def spoiled(*, before="**Predict** (guess). How many words?", reading=READING, after="## 4.2 Next\n5,120"):
    text = markdown(before) + ASKED + MEASURED + markdown(reading) + markdown(after)
    return [one.split(": ", 1)[1] for one in prediction_spoilers.problems(cells(text), SOLVED, PATH, {"4.1"})]


def test_a_folded_reading_spoils_nothing_and_the_next_section_may_tell():
    assert spoiled() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"before": "How many words?"}, 'prediction 4.1: the text above it has no "**Predict** (guess)"'),
        (
            {"before": "**Predict** (think). How many?"},
            'prediction 4.1: the text above it has no "**Predict** (guess)"',
        ),
        (
            {"reading": "Look at it."},
            "prediction 4.1: the text that explains it must begin with <details><summary>",
        ),
        ({"reading": READING + "\n\nSo 5,120."}, "prediction 4.1: 5,120 appears in open text below it"),
        ({"after": "It was 5,121."}, "prediction 4.1: 5,121 appears in open text below it"),
        ({"after": "So $5\\,120$."}, "prediction 4.1: 5\\,120 appears in open text below it"),
        ({"reading": READING + "\n\nSo 5,120.\n\n## 4.2 Next"}, "prediction 4.1: 5,120 appears in open text"),
        (
            {"reading": READING.replace("</details>", "")},
            "<details> and its </details> must be in the same cell",
        ),
    ],
)
def test_what_spoils_a_prediction_is_named(change, said):
    assert any(one.startswith(said) for one in spoiled(**change)), spoiled(**change)


def test_what_was_told_before_may_be_told_again_and_an_item_is_no_number():
    assert spoiled(before="**Predict** (compute). More than 5,120?", after="5,120 as before, by (4.1)") == []
