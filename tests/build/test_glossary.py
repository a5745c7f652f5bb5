"""Tests of the glossary check: a row must be confirmed by the lesson that it names."""

import shutil
from pathlib import Path

import pytest

from tools.build.rules import glossary

ROOT = Path(__file__).parents[2]
PAGE = """# Notation

## Glossary

| Term | In the literature | Lesson | Meaning |
| --- | --- | --- | --- |
| tile | block (Lam 1991) | 02 | an array in fast memory |
| `cu_seqlens` | | 14b | cumulative lengths |

## Papers

| not | a | row | here |
"""
TWO = "A *tile* is in fast memory. Two tiles, three tiles. **In the literature's words**: a block."
LATER = "The array `cu_seqlens` holds lengths."


def checkout(folder, page=PAGE, two=TWO, later=LATER, more=""):
    """A checkout of the page and of two or three lessons, each of one text."""
    for part in ("lessons", "solutions"):
        (folder / part).mkdir()
    (folder / glossary.PAGE).write_text(page)
    texts = {"02_memory": two, "14b_varlen": later, **({"04_flash": more} if more else {})}
    for name, text in texts.items():
        (folder / "solutions" / f"{name}.py").write_text(f"# %% [markdown]\n# {text}\n")
    return folder


def test_a_term_that_is_defined_once_and_used_is_accepted(tmp_path):
    assert glossary.problems(checkout(tmp_path)) == []
    assert [row.terms for row in glossary.rows_of(PAGE)] == [("tile",), ("cu_seqlens",)]


def test_a_definition_may_be_in_bold(tmp_path):
    assert glossary.problems(checkout(tmp_path, two=TWO.replace("*tile*", "**tile**"))) == []


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ({"page": PAGE.replace("| 02 |", "| 03 |")}, ":7: lesson '03' does not exist"),
        ({"two": TWO.replace("*tile*", "tile")}, "where lesson 02 defines it; found in no lesson"),
        (
            {"more": f"A *tile* again. {TWO.split('tiles. ')[1]}"},
            "where lesson 02 defines it; found in 02, 04",
        ),
        ({"two": TWO.replace(", three tiles", "")}, ":7: 'tile' is used 2 times in lessons 00 to 09b"),
        ({"two": TWO.replace("a block", "a panel")}, ":7: lesson 02 names none of block"),
        ({"two": TWO.replace("**In", "**By")}, "02_*.py: the lesson has no line 'In the literature's words'"),
        ({"later": "Lengths."}, ":8: 'cu_seqlens' does not occur in lesson 14b"),
        ({"later": "<!-- cu_seqlens -->"}, ":8: 'cu_seqlens' does not occur in lesson 14b"),
        ({"page": PAGE.replace("| tile", "* tile").replace("| `cu", "* `cu")}, "the glossary has no rows"),
    ],
)
def test_each_fault_is_named_with_its_line_and_lesson(tmp_path, texts, fault):
    (found,) = glossary.problems(checkout(tmp_path, **texts))
    assert fault in found


def test_the_glossary_of_the_course_holds_a_renamed_lesson_does_not(tmp_path):
    assert glossary.problems(ROOT) == []
    for part in ("lessons/notation.md", "solutions"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (tmp_path / "lessons").mkdir(exist_ok=True)
        copy(ROOT / part, tmp_path / part)
    (lesson,) = (tmp_path / "solutions").glob("00_*.py")
    lesson.unlink()
    assert any("lesson '00' does not exist" in one for one in glossary.problems(tmp_path))
