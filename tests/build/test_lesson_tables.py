"""Tests of the map's products: tables, plan and last paragraphs agree with the map and with each other."""

import json
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from iocourse.course.course_map import MAP, course_map, lesson_of, read_map
from iocourse.errors import UsageError
from tools.build import course, lesson_tables
from tools.build.generated_sections import marked
from tools.build.lesson import read_lessons
from tools.build.percent_format import Cell, parse
from tools.build.project import Project, read_project

ROOT = Path(__file__).parents[2]
LESSONS = course_map()
MAIN_PATH = [one for one in LESSONS.values() if one.main_path]
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "solutions").glob("[0-9]*.py")}
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]
}
NOBODYS = Project("owner/course", "v1.0.0")
CLAIMED = Project("owner/course", "v1.0.0", claimed=True)


def cells(said):
    return [Cell("markdown", ("# 05 A title", "", said), (), "", 1)]


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("**Prerequisites**: Python with a little NumPy, and the matrix product. No GPU.", []),
        ("**Prerequisites**: [lesson 05](05_how.ipynb), and lesson 02 for the matrix product.", ["02", "05"]),
        ("**Prerequisites**: lessons 04, 06 and 07 (2.4) and 05 (bounds).", ["04", "05", "06", "07"]),
        (
            "**Prerequisites**: Theorem A (lesson 05), section 5.9 ([05b](05b_lower_bound_proof.ipynb)).",
            ["05", "05b"],
        ),
        ("**Prerequisites**: lesson 02 (formulas (2.4) and (12.16)). Signs and terms of lesson 09.", ["02"]),
    ],
)
def test_prerequisites_are_the_lessons_that_the_line_names(said, numbers):
    assert lesson_tables.prerequisites(said) == numbers


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import numpy as np", "NumPy"),
        ("try:\n    import torch\nexcept ImportError: pass", "NumPy, torch in part"),
        ("import torch, triton\n", "Triton"),
        ("from iocourse import kernels, masks\n", "Triton"),
        ("text = 'import torch'", "NumPy"),
    ],
)
def test_what_a_lesson_needs_is_read_off_its_code(code, what):
    assert lesson_tables.needs(code) == what


# ---- README --------------------------------------------------------------------------------------------


def table(page, name):
    """Return the cells of each row of a generated table, by lesson number, in order."""
    rows = (line for line in (marked(PAGES[page], name) or "").splitlines() if line.startswith("| ["))
    found = [[part.strip() for part in row.split("|")[1:-1]] for row in rows]
    return {re.match(r"\[(\w+) ", row[0])[1]: row for row in found}


def test_readmes_tables_have_a_row_a_lesson_with_the_minutes_that_stand_at_its_head():
    spine, electives = table("README.md", "spine"), table("README.md", "electives")
    assert [*spine] == [one.number for one in MAIN_PATH]
    assert [*electives] == [one.number for one in LESSONS.values() if not one.main_path]
    for number, (links, minutes, builds_on, needed, *_) in (spine | electives).items():
        lesson = LESSONS[number]
        path = ROOT / "lessons" / f"{lesson.file}.ipynb"
        notebook = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in notebook if cell["cell_type"] == "markdown")
        assert text.splitlines()[0] == f"# {lesson.title}"
        assert links == f"[{lesson.title}](lessons/{path.name}) · [solution](solutions/{path.name})"
        assert re.search(rf"\*\*Minutes\*\*: {minutes}\b", text)
        assert builds_on == ", ".join(lesson.builds_on)
        assert needed in ("NumPy", "Triton", "NumPy, torch in part")
    built = course.rows(ROOT, read_lessons(ROOT, read_project(ROOT), only=["04"]))
    assert [(row.lesson.number, str(row.minutes)) for row in built] == [
        (number, (spine | electives)[number][1]) for number in ("04", "04b")
    ]


def test_readme_counts_the_lessons_of_the_main_path():
    assert f"The main path: {len(MAIN_PATH)} lessons" in PAGES["README.md"]


def test_links_to_colab_are_a_column_of_the_tables_once_the_address_is_claimed():
    row = lesson_tables.Row(LESSONS["05"], 9, "NumPy")
    plain, claimed = (lesson_tables.readme_tables([row], one)["spine"] for one in (NOBODYS, CLAIMED))
    file = "lessons/05_lower_bounds.ipynb"
    assert claimed.splitlines()[2] == f"{plain.splitlines()[2][:-2]} | [Colab]({CLAIMED.colab(file)}) |"
    assert "http" not in plain and len({line.count("|") for line in claimed.splitlines()}) == 1


# ---- no contradiction ----------------------------------------------------------------------------------


def test_sources_and_map_agree():
    texts = {stem: parse(text, Path(stem)) for stem, text in SOURCES.items()}
    built = {one.stem: one.cells for one in read_lessons(ROOT, read_project(ROOT))}
    assert list(lesson_tables.problems(LESSONS, built)) == []
    faults = [*lesson_tables.problems(LESSONS, texts)]  # as written, before markers are replaced
    assert len(faults) == len(LESSONS) and all("<!-- next -->" in fault for fault in faults)


def test_the_guide_has_the_lessons_and_the_parts_of_the_map_in_its_order():
    guide = marked(PAGES["docs/guide/lessons.md"], "lessons")
    titles = re.findall(r"^\| \[(.+?)\]\(", guide, re.MULTILINE)
    assert titles == [one.title for one in LESSONS.values()]
    assert re.findall(r"^## (.*)$", guide, re.MULTILINE) == [*dict.fromkeys(x.part for x in LESSONS.values())]
    for number, (_, main, you_will) in table("docs/guide/lessons.md", "lessons").items():
        assert (main == "yes") == LESSONS[number].main_path and you_will == LESSONS[number].you_will


def last_paragraph(stem):
    path = ROOT / "lessons" / f"{stem}.ipynb"
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = "".join("".join(cell["source"]) + "\n" for cell in found).splitlines()
    (line,) = (line for line in lines if line.startswith("**What comes next.**"))
    return line


def test_what_comes_next_leads_along_the_main_path_and_to_every_elective():
    for one, other in pairwise(MAIN_PATH):
        assert f"The main path continues with [{other.title}]({other.file}.ipynb)" in last_paragraph(one.file)
    reached, order = set(), [*LESSONS]
    for number, lesson in LESSONS.items():
        linked = {
            file.partition("_")[0] for file in re.findall(r"\]\((\w+)\.ipynb\)", last_paragraph(lesson.file))
        }
        assert linked <= LESSONS.keys()
        reached |= {other for other in linked if order.index(other) > order.index(number)}
    assert reached == LESSONS.keys() - {"00"}


def test_exactly_one_lesson_is_the_last_of_the_course():
    last = [n for n, one in LESSONS.items() if "This was the last lesson" in last_paragraph(one.file)]
    assert last == [[*LESSONS][-1]]
    devices = [n for n, one in LESSONS.items() if one.part == "Many devices"]
    assert max(map([*LESSONS].index, devices)) < [*LESSONS].index(last[0])


# Words with which a text places a lesson in the course; the map does this, and the build writes it.
PLACES = re.compile(
    r"\bencores?\b|no later lesson|later lessons do not|does not need part|ended with lesson"
    r"|the course (?:ends|ended) (?:here|with)|last lesson of the (?!course, \[17b\])",
    re.IGNORECASE,
)


def test_no_text_places_a_lesson_by_hand():
    texts = PAGES | {f"solutions/{stem}.py": text for stem, text in SOURCES.items()}
    del texts["docs/exercises.md"]
    assert [(name, m[0]) for name, text in texts.items() for m in PLACES.finditer(text)] == []


def test_what_a_letter_means_is_written_once_and_is_true():
    pages = {name for name, text in PAGES.items() if lesson_tables.LETTERS in text}
    assert pages == {"docs/index.md", "docs/teaching.md", "docs/guide/lessons.md"}
    lettered = {number for number in LESSONS if not number.isdigit()}
    assert all(number[:2] in LESSONS and not LESSONS[number].main_path for number in lettered)
    assert any(lettered & {*one.builds_on} for one in LESSONS.values())  # "some electives build on one"


# ---- plans ---------------------------------------------------------------------------------------------


def test_exercises_in_the_tables_of_plans_belong_to_the_lessons_of_their_row():
    text = PAGES["docs/teaching.md"].split("## Plans")[1].split("## What a class")[0]
    rows = [row for row in text.splitlines() if row.startswith("|") and re.search(r"\b\d{1,2}[A-Z]\b", row)]
    assert len(rows) > 10
    for row in rows:
        ids = re.findall(r"\b\d{1,2}[A-Z]\b", row)
        named = {number[:2] for number in re.findall(r"\b\d\d[a-z]?\b(?=[,:]|\b)", row)}
        named |= {f"{int(n):02d}" for n in re.findall(r"\b(\d{1,2})\.\d", row)}
        assert {lesson_of(id)[:2] for id in ids} <= named, row


def test_the_plan_of_four_weeks_names_only_lessons_whose_prerequisites_it_has(tmp_path):
    text = (ROOT / MAP).read_text(encoding="utf-8")
    (tmp_path / MAP).parent.mkdir(parents=True)
    for old, new, why in (
        ('lessons = ["05"]', 'lessons = ["07"]', "has lesson 07 before 05 and 05b"),
        ('lessons = ["05"]', 'lessons = ["5"]', "has the unknown lesson '5'"),
        (
            'exercises = ["5A", "5B"]\n\n[[plan',
            'exercises = ["6A"]\n\n[[plan',
            "has exercise 6A, which is not in",
        ),
        ('["10", "11"]', '["11", "10"]', "has lesson 11 before 10"),
    ):
        assert old in text
        (tmp_path / MAP).write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(UsageError, match=why):
            lesson_tables.plan_table(tmp_path, LESSONS)


def test_weeks_of_the_main_path_are_computed():
    said = lesson_tables.main_path_in_weeks(LESSONS)
    assert "12 lessons" in said and said.endswith("takes 6 weeks.") and said in PAGES["docs/teaching.md"]


# ---- the map as data -----------------------------------------------------------------------------------


def test_every_key_of_the_map_is_read():
    parts = tomllib.loads((ROOT / MAP).read_text(encoding="utf-8"))
    rows = [row for part in parts["part"] for row in part["lesson"]]
    assert len(rows) == len(LESSONS) == len(SOURCES)
    assert {*parts} == {"part", "plan"} and {key for part in parts["part"] for key in part} == {
        "title",
        "lesson",
    }
    keys = {key for session in parts["plan"]["session"] for key in session}
    assert keys == {"week", "lessons", "topic", "exercises", "at_home", "branches"}


CHANGED = """
[[part]]
title = "All"

[[part.lesson]]
file = "12_first"
title = "12 First"
exercises = ["12A"]
you_will = "do a"

[[part.lesson]]
file = "13b_next"
title = "13b Next"
exercises = ["12B", "13D"]
you_will = "do b"

[[part.lesson]]
file = "13c_new"
title = "13c New"
you_will = "do c"

[[part.lesson]]
file = "20_last"
title = "20 Last"
former = ["17b_last"]
exercises = ["17C"]
you_will = "do d"
"""


def test_a_new_lesson_a_moved_exercise_and_a_new_number_are_rows_of_the_map():
    """20 was 17b, 12B was in 12, and 13c is new."""
    lessons = read_map(CHANGED)
    assert [*lessons] == ["12", "13b", "13c", "20"] and lessons["20"].stem_of_ids == "17b_last"
    assert lessons["13b"].exercises == ("12B", "13D")
    assert "[13c New](13c_new.ipynb)" in lesson_tables.what_comes_next("13b", lessons)
    assert lesson_tables.what_comes_next("20", lessons) == "This was the last lesson of the course."
