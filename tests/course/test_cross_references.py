"""Tests of cross-references: cited sections, formulas and lessons exist, and numbers are unique."""

from pathlib import Path

import pytest

from iocourse.course.course_map import course_map
from tools.build.percent_format import parse
from tools.build.rules.cross_references import (
    missing_targets,
    page_problems,
    problems,
    repeated_labels,
    targets,
)

ROOT = Path(__file__).parents[2]
LESSONS = {
    path.relative_to(ROOT): parse(path.read_text(encoding="utf-8"), path)
    for path in sorted((ROOT / "solutions").glob("[0-9]*.py"))
}
KNOWN = targets(LESSONS.values(), course_map())


def test_no_two_sections_and_no_two_formulas_share_a_number():
    assert len(KNOWN.sections) > 150 and len(KNOWN.formulas) > 130
    assert list(repeated_labels(LESSONS.items())) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_names_what_exists(path):
    assert list(problems(LESSONS[path], path, KNOWN)) == []


def test_the_pages_name_what_exists(tmp_path):
    assert list(page_problems(ROOT, KNOWN)) == []
    (tmp_path / "README.md").write_text("See lesson 47.\n")
    assert [one.split(": ")[0] for one in page_problems(tmp_path, KNOWN)] == ["README.md:1"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("See sections 4.1 and 8.77.", "section 8.77 does not exist"),
        ("See section 1.10.", "section 1.10 does not exist"),  # a formula has this number
        ("By (8.99) it is less.", "(8.99) is not a formula or a section"),
        ("See lessons 04, 08b and 47.", "lesson 47 is not in the map"),
        ("Solve exercise 4.2.", "exercise 4.2 is not the id"),
        ("See section 4.1, (4.3), lesson 04b and exercise 4B.", ""),
        ("<!-- 3 = bounds.all(8.99) -->", ""),
    ],
)
def test_a_reference_without_a_target_is_named(line, fault):
    found = list(missing_targets(["Text.", line], KNOWN))
    assert [number for number, _ in found] == ([2] if fault else [])
    assert not fault or fault in found[0][1]


def test_a_number_that_two_formulas_have_is_named_with_both_lines():
    cells = parse(
        "# %% [markdown]\n# # 01 A\n#\n# $$ x \\tag{1.1} $$\n#\n# $$ y \\tag{1.1} $$\n", Path("a.py")
    )
    (fault,) = repeated_labels([(Path("a.py"), cells)])
    assert fault.startswith("a.py:6: the formula in a.py:4 is 1.1 too")
