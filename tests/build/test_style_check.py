"""The rule that counts phrases to avoid: what each pattern finds, and how a recorded count moves."""

import json
from pathlib import Path

import pytest

from iocourse.course.course_map import MAP
from tools.build.rules import style_check

ROOT = Path(__file__).parents[2]
FOUND = {  # by rule: a text with one hit, and the text that the advice leads to
    "riddle": ("What is printed", "Format text for the terminal."),
    "what-clause": (
        "It is full. What stays should fill fast memory.",
        "The resident array should fill fast memory.",
    ),
    "inversion": ("Neither does B occur in it.", "B does not appear in it."),
    "per": ("It keeps two words a row.", "It keeps two words per row."),
    "ratio": ("It shows how many percent it is.", "It shows the percentage."),
    "beside": (
        "Statistics beside the scores.",
        "Statistics in addition to the scores.",
    ),
    "metaphor-verb": (
        "The keys that travel are read.",
        "The streamed keys are read.",
    ),
    "number-noun": (
        "This proves the 14 of it.",
        "This proves the constant 14 in it.",
    ),
    "is-no": (
        "The file is no notebook.",
        "The file is not a notebook; there is no other.",
    ),
    "archaic": ("It is made anew by a person.", "It is made again by a person."),
    "told-said": ("The size that was asked for.", "The size that was requested."),
    "evening": ("It takes a second evening.", "It is part b of the lesson."),
    "colon-chain": (
        "It is faster: the order differs: queries are outside.",
        "It is faster, because queries are in the outer loop: see there.",
    ),
    "label": (
        "The traffic of F3 is lower.",
        "The traffic with buffer reuse is lower.",
    ),
    "iteration": ("In each round it loads K.", "Each iteration loads K."),
    "mask-tile": (
        "It skips the hidden tiles here.",
        "It skips the empty blocks here.",
    ),
    "sequence": ("The texts of one batch.", "The sequences of one batch."),
    "gpu-word": ("A tile hangs over the end.", "A tile is partly out of bounds."),
    "room": ("There is room for two tiles.", "There is capacity for two tiles."),
    "peer": ("The fastest contender is timed.", "The fastest baseline is timed."),
}


def hits(text: str, name: str = "docs/page.md") -> list[style_check.Hit]:
    """The hits in a file of this name with this content."""
    texts = style_check.texts_of(text, Path(name))
    return [hit for one in texts for hit in style_check.hits(one, name)]


@pytest.fixture
def checkout(tmp_path):
    """A checkout of one page and one module, whose counts are recorded."""
    page, module = tmp_path / "docs" / "page.md", tmp_path / "iocourse" / "a.py"
    for path, text in {
        page: "One word a row.\n\nTwo words a row.\n",
        module: '"""Where the words are counted."""\n',
        tmp_path / style_check.COUNTS: '{"docs/page.md": {"per": 2}, "iocourse/a.py": {"riddle": 1}}\n',
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_label_is_accepted_in_a_table_and_a_fault_in_a_lesson_names_its_cell(checkout):
    assert hits("| FA-2 order | F2 |\n| and | B3 |") == [] and len(hits("F2 | B3")) == 2
    lesson = checkout / "solutions" / "02_memory.py"
    lesson.parent.mkdir()
    lesson.write_text('# %%\nx = 1\n\n# %% [markdown] name="why"\n# Text.\n# It moves two words a row.\n')
    (fault,) = style_check.problems(checkout)
    assert fault.startswith('solutions/02_memory.py:6, cell 1 (why): "words a row" (rule per): write')


def test_every_rule_has_an_example():
    assert set(FOUND) == set(style_check.RULES)


@pytest.mark.parametrize("rule", FOUND)
def test_a_rule_finds_its_phrase_and_accepts_the_better_text(rule):
    wrong, right = (f'"""{text}"""\n' for text in FOUND[rule])
    assert [hit.rule for hit in hits(wrong, "iocourse/a.py")] == [rule]
    assert hits(right, "iocourse/a.py") == []


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("iocourse/a.py", '"""Rows.\n\nTwo words a row.\n"""\n', 3),
        ("iocourse/a.py", "x = 1\n# It keeps two words a row here.\n", 2),
        (
            "iocourse/a.py",
            'raise ValueError(\n    f"{x} needs two "\n    "words a row"\n)\n',
            3,
        ),
        ("iocourse/a.py", 'said = f"{x} takes {n} words a row"\n', 1),
        (
            "docs/page.md",
            "# Title\n\n```text\ntwo words a row\n```\n\nTwo words a row.\n",
            7,
        ),
        (
            "docs/remarks/01.toml",
            'title = "x"\n"K is read" = "Two words a row."\n',
            2,
        ),
        (
            "solutions/01_a.py",
            "# %% [markdown]\n# # 01\n#\n# Two words a row.\n",
            4,
        ),
        (
            "solutions/01_a.py",
            '# %% [raw] name="about-1A"\n# title = "Two words a row"\n',
            2,
        ),
        ("solutions/01_a.py", "# %%\nx = 1\n# There are two words a row.\n", 3),
    ],
)
def test_a_phrase_is_found_at_its_line_in_each_kind_of_file(name, text, line):
    assert [(hit.rule, hit.line) for hit in hits(text, name) if hit.rule == "per"] == [("per", line)]


@pytest.mark.parametrize(
    "text",
    [
        "`two words a row` and ``two words a row``",
        "see [this](two words a row) and $$ two words a row $$",
        "Two words a row. <!-- style: ok (a quotation) -->",
    ],
)
def test_code_links_formulas_and_excused_lines_are_not_searched(text):
    assert hits(text) == []


def test_an_excuse_covers_its_line_and_behind_a_docstring_all_of_it():
    doc = '"""Two words a row.\n\nTwo words a row.\n"""'
    assert len(hits(doc, "iocourse/a.py")) == 2
    assert hits(doc + "  # style: ok (a quotation)", "iocourse/a.py") == []
    comments = "# two words a row here  style: ok (a quotation)\n# two words a row here\n"
    assert [hit.line for hit in hits(comments, "iocourse/a.py")] == [2]


def test_a_recorded_count_is_accepted_and_one_more_is_named(checkout):
    assert style_check.problems(checkout) == []
    page = checkout / "docs" / "page.md"
    page.write_text(page.read_text() + "\nThree words a row.\n")
    first, *others = style_check.problems(checkout)
    assert first.startswith('docs/page.md:1: "word a row" (rule per) (3 in this file, 2 recorded): ')
    assert first.endswith("write 'per': 'two statistics per row'")
    assert [one.split(": ")[0] for one in others] == ["docs/page.md:3", "docs/page.md:5"]


def test_a_new_file_starts_at_no_hits(checkout):
    (checkout / "iocourse" / "b.py").write_text('"""How words are counted."""\n')
    (found,) = style_check.problems(checkout)
    assert found.startswith('iocourse/b.py:1: "How" (rule riddle): begin a docstring with what it holds')


def test_the_build_writes_a_lower_count_and_never_a_higher_one(checkout):
    (checkout / "docs" / "page.md").write_text("One word per row.\n\nTwo words a row.\n")
    assert style_check.problems(checkout) == [
        "tools/build/rules/style_counts.json is stale: run python -m tools.build"
    ]
    (checkout / style_check.COUNTS).write_text(style_check.lower_counts(checkout))
    assert style_check.read_counts(checkout) == {"docs/page.md": {"per": 1}, "iocourse/a.py": {"riddle": 1}}
    assert style_check.problems(checkout) == []
    (checkout / "docs" / "page.md").write_text("Two words a row.\nTwo words a row.\n")
    assert json.loads(style_check.lower_counts(checkout))["docs/page.md"] == {"per": 1}


def test_a_renamed_lesson_keeps_its_counts(checkout):
    (checkout / "solutions").mkdir()
    lesson = checkout / "solutions" / "01_new.py"
    lesson.write_text("# %% [markdown]\n# # 01 New\n#\n# Two words a row.\n")
    (checkout / style_check.COUNTS).write_text('{"solutions/01_old.py": {"per": 1}}\n')
    assert any("01_new.py" in fault for fault in style_check.problems(checkout))
    (checkout / "iocourse" / "course").mkdir()
    (checkout / MAP).write_text(
        '[[part]]\ntitle = "All"\n[[part.lesson]]\nfile = "01_new"\ntitle = "01 New"\n'
        'you_will = "add"\nformer = ["01_old"]\n'
    )
    assert not any("01_new.py" in fault for fault in style_check.problems(checkout))
    assert "solutions/01_new.py" in style_check.lower_counts(checkout)


def test_an_excuse_without_a_reason_and_a_file_that_is_not_python_are_named(checkout):
    (checkout / "iocourse" / "a.py").write_text("# two words a row here  style: ok\n")
    (checkout / "tools" / "b.py").write_text("def f(:\n")
    assert style_check.problems(checkout)[:2] == [
        "iocourse/a.py:1: 'style: ok' needs its reason: style: ok (reason)",
        "tools/b.py:1: invalid syntax",
    ]


def test_the_checkout_of_the_course_is_searched_by_its_build():
    recorded = style_check.read_counts(ROOT)
    assert recorded is not None
    assert all((ROOT / path).exists() for path in recorded)
    assert {path.relative_to(ROOT).parts[0] for path in style_check.files(ROOT)} >= set(style_check.FOLDERS)
