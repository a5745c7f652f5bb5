"""Tests of the check that numbers and claims of pages, remarks, docstrings and hints are bound or listed."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tools.build.rules import number_pages
from tools.build.rules.number_check import CheckedText
from tools.build.rules.number_pages import docstring_passages, hint_passages, page_passages, toml_passages

ROOT = Path(__file__).parents[2]


def messages(passages):
    return [(line, message.split(" ")[0]) for line, message in CheckedText(passages, ()).problems]


# ---- passages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "unbound"),
    [
        ("It takes 3 ms.\n<!-- 3 as input -->", []),
        ("It takes 3 ms.\n\n<!-- 3 as input -->", []),
        ("It takes 3 ms.\n\nMore.\n<!-- 3 as input -->", [(1, "3"), (4, "3")]),
        ("- 3 ms\n  more\n  <!-- 3 as input -->\n- 4 ms", [(4, "4")]),
        ("- 3 ms\n  <!-- 3 as input -->\n- also 3 ms", [(3, "3")]),
        ("1. first\n2. in 5 ms\n   <!-- 5 as input -->", []),
        ("| a | b |\n| --- | --- |\n| 1.25 | 64 |\n\n<!-- 1.25 as input -->", []),
        ("| a | b |\n| --- | --- |\n| 1.25 | 64 |", [(3, "1.25")]),
        ("```\n3 ms\n```\n`4 ms`", []),
        ("<!-- results -->\n3 ms\n<!-- /results -->\n\n4 ms", [(5, "4")]),
    ],
)
def test_a_paragraph_a_list_item_or_a_table_has_the_lines_in_it_and_below_it(page, unbound):
    assert messages(page_passages(page)) == unbound


def test_a_declaration_in_toml_is_a_comment_of_its_table():
    lines = [
        '["1A"]',
        'text = "It takes 3 ms."',
        "# <!-- 3 as input -->",
        "",
        '["1B"]',
        'text = "In 4 ms."',
    ]
    assert messages(toml_passages(lines)) == [(6, "4")]


def test_declarations_of_a_docstring_are_comments_below_it():
    source = '''"""In 1 ms."""
# <!-- 1 as definition -->


class A:
    """In 5 ms."""

    # <!-- 5 as input -->

    def f(self):
        """In 6 ms,
        or in 7 ms.
        """
        # <!-- 6 as input -->
        return 8  # in 9 ms
'''
    assert messages(docstring_passages(source)) == [(12, "7")]


def test_hints_of_an_exercise_are_searched():
    source = '# %% [raw] name="about-1A"\n# hints = ["In 3 ms."]\n# # <!-- 3 as input -->\n'
    assert messages(hint_passages(source, Path("00.py"))) == []
    assert (2, "3") in messages(hint_passages(source.replace("3 as", "4 as"), Path("00.py")))


# ---- a checkout --------------------------------------------------------------------------------------------


def checkout(tmp_path, **texts):
    """Return what the check reports of a checkout with these pages."""
    for name, text in texts.items():
        path = tmp_path / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return number_pages.problems(tmp_path, ())


def test_the_check_names_file_line_number_and_sentence(tmp_path):
    (said,) = checkout(tmp_path, docs__a="One.\n\nTwo.\nIt takes 5 ms,\nor so. More.")
    assert said.startswith("docs/a.md:4: 5 is not bound: write below it <!-- 5 = expression -->")
    assert said.endswith('"It takes 5 ms, or so."')


def test_the_table_of_counts_has_a_row_for_each_file_and_a_sum():
    rows = number_pages.table({"a.md": Counter(bound=2), "b.md": Counter(bound=1, unbound=4)}).splitlines()
    assert [row.split() for row in rows[1:]] == [
        ["a.md", *"2000000"],
        ["b.md", *"1000004"],
        ["all", *"3000004"],
    ]


# ---- the pages of the project ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "docs/guide/kernels.md", "lessons/notation.md"])
def test_another_number_in_a_page_is_found(name):
    """Raise one digit of a number with a unit, in the text alone, and require a message on it."""
    pytest.importorskip("triton")
    passages = page_passages((ROOT / name).read_text(encoding="utf-8"))
    assert CheckedText(passages, ()).problems == []
    draw = random.Random(7)
    lines = [
        (n, at, found.group())
        for n, passage in enumerate(passages)
        for at, line in enumerate(passage.lines)
        if not line.strip().startswith("<!--")
        for found in [number_pages.re.search(r"\d+\.\d+(?= (?:×|times|µs|\(\d\)))|\d+(?= KB)", line)]
        if found
    ]
    for n, at, number in draw.sample(lines, min(6, len(lines))):
        changed = number[:-1] + str((int(number[-1]) + 1) % 10)
        line = passages[n].lines[at].replace(number, changed, 1)
        other = [*passages[n].lines[:at], line, *passages[n].lines[at + 1 :]]
        edited = [*passages[:n], number_pages.Passage(other, passages[n].line), *passages[n + 1 :]]
        said = [message for _, message in CheckedText(edited, ()).problems]
        assert any(changed in message or number in message for message in said), (number, changed, said)
    assert lines
