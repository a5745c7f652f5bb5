"""Tests of cross-references: cited sections and formulas exist, and their numbers are unique."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tools.build.percent_format import is_declaration

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "solutions").glob("[0-9]*.py"))
PAGES = [*SOURCES, ROOT / "README.md", ROOT / "lessons" / "notation.md", ROOT / "docs" / "teaching.md"]
PAGES += sorted((ROOT / "docs" / "guide").glob("*.md"))
ONE = r"\d{1,2}\.[1-9]\d?"
NAMED = re.compile(rf"\b[Ss]ections? ({ONE}(?:(?:, and|,| and| to| or) {ONE})*)\b")
BRACKETS = re.compile(rf"\(({ONE})\)")


def text_of(path):
    """Return the Markdown of a source, or the content of a page, without expressions in comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    shown = (line for line in lines if not is_declaration(line.removeprefix("# ")))
    return "\n".join(line for line in shown if path.suffix != ".py" or line.startswith("#"))


def found(pattern):
    return Counter(chain.from_iterable(re.findall(pattern, text_of(path), re.MULTILINE) for path in SOURCES))


SECTIONS, FORMULAS = found(rf"^# ## ({ONE})\b"), found(rf"\\tag\{{({ONE})\}}")


def test_no_two_sections_and_no_two_formulas_share_a_number():
    assert len(SECTIONS) > 150 and set(SECTIONS.values()) == {1}
    assert len(FORMULAS) > 130 and set(FORMULAS.values()) == {1}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_sections_and_formulas_that_are_named_exist(path):
    text = text_of(path)
    sections = {one for group in NAMED.findall(text) for one in re.findall(ONE, group)}
    assert sections - set(SECTIONS) == set()
    assert set(BRACKETS.findall(text)) - set(FORMULAS) - set(SECTIONS) == set()
    assert re.findall(rf"\b[Ee]xercises? {ONE}", text) == []  # their numbers have letters
