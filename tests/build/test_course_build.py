"""Tests of the build: one source gives two notebooks, always the same bytes; a failing cell stops it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from iocourse.course import exercise
from iocourse.course.exercise import find
from iocourse.course.student_copies.notebook import to_text
from iocourse.errors import UsageError
from tools.build import course as whole_course
from tools.build import exercise_texts, lesson, percent_format
from tools.build import generated_sections as sections
from tools.build import notebook_execution as execution
from tools.build.__main__ import main
from tools.build.project import Project, read_project
from tools.build.rules import choices_file, glossary, lesson_lint, style_check

FIXTURE = Path(__file__).parents[1] / "notebooks" / "fixture_lesson.py"
LESSONS = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9]*.py"))
PROJECT = Project("owner/repo", "v1.2.3")
PYPROJECT = '[project]\nname = "iocourse"\nversion = "1.2.3"\n'
URLS = '[project.urls]\nRepository = "https://github.com/owner/repo"\n'
TITLE = "# %% [markdown]\n# # Title\n\n"


def checkout(folder):
    """Make a checkout with one lesson in a folder, and return the folder."""
    (folder / "pyproject.toml").write_text(PYPROJECT + URLS)
    (folder / "lessons").mkdir()
    (folder / "solutions").mkdir()
    (folder / "solutions" / "01_sum.py").write_text(FIXTURE.read_text())
    (folder / exercise_texts.DATA).parent.mkdir(parents=True)
    (folder / exercise_texts.DATA).write_text(exercise_texts.data_text(folder))
    return folder


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Make a checkout with one lesson and change to its folder."""
    monkeypatch.chdir(tmp_path)
    return checkout(tmp_path)


def build(tmp_path, text, project=PROJECT):
    path = tmp_path / "01_sum.py"
    path.write_text(text)
    return lesson.build(path, Path("01_sum.py"), project)


def cell(notebook, cell_id):
    return next(c for c in notebook["cells"] if c["id"] == cell_id)


def text(notebook):
    return "\n".join("".join(c["source"]) for c in notebook["cells"])


def differing_lines(a, b):
    return sum(x != y for x, y in zip(a.splitlines(), b.splitlines(), strict=True))


# --- the two sides ---------------------------------------------------------------------------------------


def test_the_solved_side_has_the_answer_and_no_marker(tmp_path):
    lesson = build(tmp_path, FIXTURE.read_text())
    assert "c = a + b" in text(lesson.solved)
    assert 'predict("2 + 3 =", 5)' in text(lesson.solved)
    assert "SOLUTION" not in text(lesson.solved) and "#>" not in text(lesson.solved)


def test_the_student_side_has_a_stub_and_no_answer(tmp_path):
    student = build(tmp_path, FIXTURE.read_text()).student
    stub = "    # YOUR CODE HERE - one line is enough\n    raise NotImplementedError"
    assert "".join(cell(student, "ex-0A")["source"]).endswith(stub)
    assert (
        "c = a + b" not in text(student)
        and ", 5)" not in text(student)
        and "add(20, 22)" not in text(student)
    )
    assert 'predict("2 + 3 =")' in text(student)
    assert all(not c.get("outputs") for c in student["cells"])


@pytest.mark.parametrize("mark", ["#>", "# >"])
def test_a_formatter_does_not_hand_out_replaced_lines(tmp_path, mark):
    """`ruff format` writes `# >` for `#>`."""
    lesson = build(tmp_path, f"{TITLE}# %%\nx = 42  {mark} x = ...\ny = 1  {mark}\n")
    assert "42" not in text(lesson.student) and "x = ..." in text(lesson.student)
    assert "y" not in text(lesson.student).splitlines()[-1]
    assert text(lesson.solved).endswith("x = 42\ny = 1")


def test_named_cells_keep_their_name(tmp_path):
    lesson = build(tmp_path, FIXTURE.read_text())
    for side in (lesson.solved, lesson.student):
        assert cell(side, "ex-0A")["metadata"]["name"] == "ex-0A"
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", c["id"]) for c in side["cells"])


def test_both_notebooks_are_valid_for_nbformat(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    lesson = build(tmp_path, FIXTURE.read_text())
    for side in (lesson.solved, lesson.student):
        nbformat.validate(nbformat.reads(to_text(side), as_version=4))


def test_the_text_is_what_nbformat_would_write(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    made = to_text(build(tmp_path, FIXTURE.read_text()).student)
    assert nbformat.writes(nbformat.reads(made, as_version=4)).rstrip("\n") == made.rstrip("\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A picture, and a value.", "# A picture and a value."),
        ("print(question, answer)", "print(question)"),
        ("Here it is a sum", "Here is a sum"),
        ('"""The sum', '"""Sum'),
    ],
)
def test_one_changed_line_is_one_changed_line_in_each_notebook(tmp_path, old, new):
    before, after = (build(tmp_path, t) for t in (FIXTURE.read_text(), FIXTURE.read_text().replace(old, new)))
    for side in ("solved", "student"):
        a, b = (to_text(getattr(lesson, side)) for lesson in (before, after))
        assert differing_lines(a, b) == 1


def test_a_new_cell_moves_no_id_beyond_the_next_named_cell(tmp_path):
    more = FIXTURE.read_text().replace(
        "# %% [markdown]\n# ## Exercise 0A", "# %%\n7\n\n# %% [markdown]\n# ## Exercise 0A"
    )
    before, after = (build(tmp_path, t).solved["cells"] for t in (FIXTURE.read_text(), more))
    assert len(after) == len(before) + 1
    at = [c["id"] for c in before].index("ex-0A")
    assert [c["id"] for c in before[at:]] == [c["id"] for c in after[at + 1 :]]


@pytest.mark.parametrize("path", [FIXTURE, *LESSONS], ids=lambda path: path.stem)
def test_the_parser_agrees_with_jupytext(path):
    jupytext = pytest.importorskip("jupytext")
    theirs = jupytext.reads(path.read_text(), "py:percent").cells
    ours = percent_format.all_cells(path.read_text(), path)
    assert [(c.kind, "\n".join(c.lines), list(c.tags), c.name) for c in ours] == [
        (c.cell_type, c.source, c.metadata.get("tags", []), c.metadata.get("name", "")) for c in theirs
    ]


# --- facts of exercises ----------------------------------------------------------------------------------

TABLE = """| Exercise | Title | Difficulty | Importance | Minutes |
| --- | --- | --- | --- | --- |
| 0A | The words attention must move | 1 of 5 | 4 of 5 | 5 |"""
BOX = "**Exercise 0A** The words attention must move · difficulty 1 of 5 · importance 4 of 5 · 5 minutes."

TAKES = "7: 2 to read and predict, 5 for exercise 0A"
WITHOUT = "2, all to read and predict. Optional and not counted: exercise 0A, 5 minutes"


def test_table_box_and_minutes_are_written_from_the_exercise_on_both_sides(tmp_path):
    told = FIXTURE.read_text().replace("Here it is", "<!-- minutes --> or <!-- minutes without 0A -->: it is")
    lesson = build(tmp_path, told)
    for side in (lesson.solved, lesson.student):
        assert TABLE in text(side) and f"{BOX} {TAKES} or {WITHOUT}: it is a sum of two." in text(side)
        assert "<!--" not in text(side)


def test_an_exercise_with_other_facts_makes_another_lesson(tmp_path, monkeypatch):
    harder = replace(find("0A"), difficulty=5, title="Words")
    monkeypatch.setattr(exercise, "_exercises", {"0A": harder})
    said = text(build(tmp_path, FIXTURE.read_text()).student)
    assert "| 0A | Words | 5 of 5 | 4 of 5 | 5 |" in said and "Words · difficulty 5 of 5" in said


def test_a_new_exercise_needs_its_entry_and_its_cell_alone(tmp_path, monkeypatch):
    second = replace(find("0A"), id="0B", title="Once more", function="again", minutes=7)
    monkeypatch.setattr(exercise, "_exercises", {"0A": find("0A"), "0B": second})
    cells = """
# %% [markdown]
# <!-- exercise 0B --> Now again; it takes <!-- minutes -->.

# %% tags=["exercise"] name="ex-0B"
def again(a, b):
    ### BEGIN SOLUTION
    return b + a
    ### END SOLUTION
"""
    said = text(build(tmp_path, FIXTURE.read_text() + cells).student)
    assert f"{TABLE}\n| 0B | Once more | 1 of 5 | 4 of 5 | 7 |" in said
    assert "**Exercise 0B** Once more · difficulty 1 of 5 · importance 4 of 5 · 7 minutes. Now again" in said
    assert "it takes 14: 2 to read and predict, 12 for exercises 0A and 0B." in said


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("# <!-- exercises -->", "#", "59: the text before ex-0A has no <!-- exercises -->"),
        ("<!-- exercise 0A -->", "", "59: the text before ex-0A has no <!-- exercise 0A -->"),
        ("Here it is", "<!-- exercise 4B -->", "56: <!-- exercise 4B --> is not a marker of this lesson"),
        (
            "Here it is",
            "<!-- minuts -->",
            "56: <!-- minuts --> is not a marker of this lesson; expected exercises, minutes, ",
        ),
        ("Here it is", "<!-- algorithm flash9 -->", "56: <!-- algorithm flash9 --> is not a marker of this"),
        ('name="ex-0A"', 'name="ex-0Z"', '59: exercise 0Z needs a cell # %% [raw] name="about-0Z"'),
        (
            "Here it is",
            "| Exercise | Title |",
            "56: '| Exercise |' is typed by hand; write <!-- exercises -->",
        ),
        ("Here it is", "**Exercise 0A** It is", "56: '**Exercise 0A**' is typed by hand; write <!-- exerc"),
        (
            "Here it is",
            "Difficulty 1 of 5, it is",
            "56: 'Difficulty 1' is typed by hand; write <!-- exercises",
        ),
    ],
)
@pytest.mark.parametrize("option", [[], ["--check"]])
def test_facts_of_exercises_are_refused_wherever_else_they_stand(course, capsys, old, new, complaint, option):
    write(course, old, new)
    assert main(option) == 1
    assert f"solutions/01_sum.py:{complaint}" in capsys.readouterr().err
    assert not list(course.rglob("*.ipynb"))


# --- setup cell and links --------------------------------------------------------------------------------


def test_what_is_written_has_the_first_cell_before_all_other_code_and_what_is_run_has_not(course):
    main([])
    for folder in ("solutions", "lessons"):
        cells = json.loads((course / folder / "01_sum.ipynb").read_text())["cells"]
        assert [c["id"] for c in cells if c["cell_type"] == "code"][:2] == ["install", "setup"]
    first = next(c for c in solved(course)["cells"] if c["id"] == "install")
    assert "find_spec(" in "".join(first["source"]) and first["execution_count"] is None
    assert [c["execution_count"] for c in solved(course)["cells"] if c["id"] == "setup"] == [1]


def test_a_new_version_runs_no_lesson_again(course, monkeypatch):
    claimed = "[tool.iocourse]\nclaimed = true\n"  # otherwise no notebook has the version
    (course / "pyproject.toml").write_text(PYPROJECT + URLS + claimed)
    main([])
    before = solved(course)
    monkeypatch.setattr(whole_course, "run_solved", None)
    (course / "pyproject.toml").write_text(PYPROJECT.replace("1.2.3", "1.3.0") + URLS + claimed)
    assert main([]) == 0
    assert "iocourse[course]~=1.3.0" in text(solved(course)) and "1.2.3" not in text(solved(course))
    assert cell(solved(course), "check-0A") == cell(before, "check-0A")


def test_the_title_links_to_both_notebooks_in_colab_once_the_address_is_claimed(tmp_path):
    source = FIXTURE.read_text()
    title, claimed = (
        "".join(build(tmp_path, source, project).student["cells"][0]["source"])
        for project in (PROJECT, replace(PROJECT, claimed=True))
    )
    for folder in ("lessons", "solutions"):
        assert (
            f"https://colab.research.google.com/github/owner/repo/blob/colab/v1.2.3/{folder}/01_sum.ipynb"
            in claimed
        )
    assert "http" not in title and "Colab" not in title


@pytest.mark.parametrize(
    "urls", ["", URLS.replace("github.com", "example.org"), URLS.replace("owner/repo", "OWNER/REPO")]
)
@pytest.mark.parametrize("option", [[], ["--check"]])
def test_without_a_repository_release_names_the_line_to_add(course, capsys, urls, option):
    (course / "pyproject.toml").write_text(PYPROJECT + urls)
    assert main(option) == 2
    said = capsys.readouterr().err
    assert 'Repository = "https://github.com/OWNER/REPO"' in said and "[project.urls]" in said
    assert said.count("\n") == 1 and not list(course.rglob("*.ipynb"))


@pytest.mark.parametrize("claimed", ["1", '"no"'])
def test_whether_the_address_is_claimed_is_true_or_false(course, claimed):
    (course / "pyproject.toml").write_text(PYPROJECT + URLS + f"[tool.iocourse]\nclaimed = {claimed}\n")
    with pytest.raises(UsageError, match=r"claimed in .* must be true or false, got"):
        read_project(course)


def test_without_a_version_release_says_so(course):
    (course / "pyproject.toml").write_text('[project]\nname = "iocourse"\n' + URLS)
    with pytest.raises(UsageError, match="version = "):
        read_project(course)


# --- sources that are refused ----------------------------------------------------------------------------

BAD = {
    "must be the title": "# %%\nx = 1\n",
    "unknown tag 'solution_only'; expected one of setup": f'{TITLE}# %% tags=["solution_only"]\nx = 1\n',
    "unknown option 'tag'; expected tags or name": f'{TITLE}# %% tag=["setup"]\nx = 1\n',
    "must have the form # %%": f"{TITLE}# %%timeit\nx = 1\n",
    "must alternate": f"{TITLE}# %%\ndef f():\n    ### END SOLUTION\n    pass\n",
    "mark its answer, or students get it": f'{TITLE}# %% tags=["exercise"] name="ex-1"\nx = 1\n',
    "needs a name": f'{TITLE}# %% tags=["exercise"]\nx = 1  #> x = 2\n',
    "the student's side is not valid Python": f"{TITLE}# %%\nx = f(\n    1\n)  # > x = 2\n",
    "the solved side is not valid Python": f"{TITLE}# %%\n%pip list\n",
    "two cells have the id": f'{TITLE}# %% name="a.b"\n1\n# %% name="a-b"\n2\n',
}


@pytest.mark.parametrize("message", BAD)
def test_a_faulty_source_is_refused_with_its_line(tmp_path, message):
    with pytest.raises(percent_format.SourceError, match=r"^01_sum\.py:\d+: ") as caught:
        build(tmp_path, BAD[message])
    assert message in str(caught.value)


FORM = 'a cell marker must have the form # %% [markdown] tags=["…"] name="…", or [raw], got'
IN_A_CELL = {  # the line and beginning of the message -> the source
    "5: text before the first cell": "# ---\n# jupyter: 3\n# ---\n\nx = 1\n" + TITLE,
    "5: a markdown line must start with '# ', got 'x = 1'": f"{TITLE}# %% [markdown]\nx = 1\n",
    "6: a cell marker must be at the start of its line": f"{TITLE}# %%\nx = 1\n  # %%\n",
    "7: ### BEGIN SOLUTION and ### END SOLUTION must alternate": (
        f"{TITLE}# %%\ndef f():\n    ### BEGIN SOLUTION\n    ### BEGIN SOLUTION\n"
    ),
    "6: ### BEGIN SOLUTION without ### END SOLUTION": (
        f"{TITLE}# %%\ndef f():\n    ### BEGIN SOLUTION\n    pass\n"
    ),
    "5: a solution outside a function would stop the student's Run all": (
        f"{TITLE}# %%\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n"
    ),
    "8: the solved side is not valid Python: invalid syntax": (
        f"{TITLE}# %%\ndef f():\n    ### BEGIN SOLUTION\n    return 1\n    x = = 2\n    ### END SOLUTION\n"
    ),
    "10: the student's side is not valid Python: unexpected indent": (  # below a blank line
        f"{TITLE}# %%\n\ndef f():\n    ### BEGIN SOLUTION\n    if f:\n    ### END SOLUTION\n        pass\n"
    ),
    "6: the cell tagged setup must be the first code cell": f'{TITLE}# %%\n1\n# %% tags=["setup"]\n2\n',
    f"4: {FORM} '# %% tags=[setup]'": f"{TITLE}# %% tags=[setup]\n",
    f"4: {FORM} \"# %% tags=['setup']\"": f"{TITLE}# %% tags=['setup']\n",
    f"4: {FORM} '# %% tags=\"setup\"'": f'{TITLE}# %% tags="setup"\n',
    f"4: {FORM} '# %% tags=[\"given\"] [markdown]'": f'{TITLE}# %% tags=["given"] [markdown]\n# x\n',
    f"4: {FORM} '# %% My title'": f"{TITLE}# %% My title\n",
    "1: the first cell must be the title": "",
}


@pytest.mark.parametrize("message", IN_A_CELL)
def test_a_fault_inside_a_cell_has_its_own_line(tmp_path, message):
    with pytest.raises(percent_format.SourceError) as caught:
        build(tmp_path, IN_A_CELL[message])
    assert str(caught.value).startswith(f"01_sum.py:{message}")


# --- running and saving ----------------------------------------------------------------------------------


def write(course, old, new):
    path = course / "solutions" / "01_sum.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def solved(course):
    return json.loads((course / "solutions" / "01_sum.ipynb").read_text())


def files(course):
    return {p: p.read_bytes() for p in sorted(course.rglob("*")) if p.is_file()}


def test_release_runs_once_and_repeats_byte_for_byte(course, capsys, monkeypatch):
    assert main([]) == 0
    before = files(course)
    assert cell(solved(course), "check-0A")["outputs"][0]["text"] == ["0A: every property holds\n"]
    ramp = next(c for c in solved(course)["cells"] if any("grey" in line for line in c["source"]))["outputs"]
    assert set(ramp[0]["data"]) == {"image/png", "text/plain"}

    ran = []
    monkeypatch.setattr(whole_course, "run_solved", lambda lesson, root: ran.append(lesson.stem))
    assert main([]) == 0 and not ran and files(course) == before
    write(course, "# A picture, and", "# One picture, and")  # prose only: nothing runs, outputs are kept
    assert main([]) == 0 and not ran
    monkeypatch.undo()
    monkeypatch.chdir(course)
    write(course, "# One picture, and", "# A picture, and")
    runs, run = [], whole_course.run_solved
    monkeypatch.setattr(whole_course, "run_solved", lambda *a: runs.append(a) or run(*a))
    assert main(["--execute"]) == 0 and len(runs) == 1
    assert files(course) == before
    assert "up to date" in capsys.readouterr().out


def test_what_is_tagged_shown_is_seen_in_the_students_notebook_before_anything_runs(course):
    write(course, '# %% tags=["solution-only"]\n', '# %% tags=["shown"]\n40 + 2\n\n# %%\n')
    main([])
    path = course / "lessons" / "01_sum.ipynb"
    (seen,) = [c for c in json.loads(path.read_text())["cells"] if c.get("outputs")]
    assert seen["source"] == ["40 + 2"] and seen["execution_count"] == 6
    assert seen["outputs"] == cell(solved(course), seen["id"])["outputs"]
    assert not [said for said in whole_course.check(course) if "stale" in said and "01_sum" in said]
    path.write_text(path.read_text().replace('"42"', '"43"'))
    assert f"lessons/{path.name} is stale: run python -m tools.build" in whole_course.check(course)


def test_changed_code_is_run_again(course):
    main([])
    write(course, "add(20, 22)", "add(20, 23)")
    main([])
    assert solved(course)["cells"][-2]["outputs"][0]["data"]["text/plain"] == ["43"]


def test_a_failing_cell_stops_release_and_leaves_every_file_alone(course, capsys):
    main([])
    write(course, "c = a + b", "c = a - b")
    (course / "solutions" / "01_more.py").write_text(FIXTURE.read_text())
    before = files(course)
    assert main([]) == 1
    said = capsys.readouterr().err
    assert 'solutions/01_sum.ipynb: cell 8 (id check-0A): check("0A"' in said
    assert "AssertionError: 0A" in said and "\x1b" not in said
    assert files(course) == before


def test_a_cell_that_never_ends_is_named(course, capsys, monkeypatch):
    """Only this cell has little time: on a machine under load, another cell might need more than that."""
    client = execution._client

    def hurried(*given):
        made = client(*given)
        made.timeout_func = lambda cell: 1 if "while True" in cell["source"] else execution.CELL_TIMEOUT
        return made

    monkeypatch.setattr(execution, "_client", hurried)
    write(course, "add(20, 22)", "while True: pass")
    assert main([]) == 1
    said = capsys.readouterr().err
    assert "while True: pass" in said and "timed out" in said


def test_a_setup_cell_that_shows_something_is_refused(course, capsys):
    """Such output would be the log of an installation."""
    write(course, "import os", "import os; print(1)")
    assert main([]) == 1
    assert "(id setup)" in (said := capsys.readouterr().err) and "must find iocourse installed" in said


OUTPUTS = {
    "from IPython.display import HTML, Javascript as J; J('1')": "shows JavaScript (application/javascript)",
    "HTML('<script>1</script>')": "shows JavaScript (text/html)",
    "HTML('<b>1</b>')": "shows only text/html, text/plain",
    "object()": "shows a memory address (at 0x",
    "import sys; print('careful', file=sys.stderr)": "writes to standard error: careful",
    "Image(chunk(b'', os.urandom(62_000)), format='png')": (
        "shows a PNG of 62008 bytes, expected at most 61440"
    ),
    "Image(chunk(b'acTL', os.urandom(300_000)), format='png')": (
        "shows a PNG of 300012 bytes, expected at most 300000"
    ),
}


def test_outputs_that_cannot_be_saved_are_refused_with_their_cell(course, capsys):
    """Run all outputs in one notebook; each fault is reported."""
    write(course, '# %% tags=["solution-only"]\nadd(20, 22)', "# %%\n" + "\n\n# %%\n".join(OUTPUTS))
    assert main([]) == 1
    said = capsys.readouterr().err
    for code, message in OUTPUTS.items():
        assert f"): {code}\n  {message}" in said
    assert not list(course.rglob("*.ipynb"))


def test_widgets_leave_their_picture_and_their_text(course):
    pytest.importorskip("ipywidgets")
    write(course, "add(20, 22)", "import ipywidgets\nipywidgets.interactive_output(print, {}); "
          "print('a'); print('b')\nipywidgets.IntSlider(3)")  # fmt: skip
    main([])
    shown = solved(course)["cells"][-2]["outputs"]
    assert shown[0]["output_type"] == "stream" and shown[0]["text"][-2:] == ["a\n", "b\n"]
    assert set(shown[-1]["data"]) == {"text/plain"}
    assert "widgets" not in solved(course)["metadata"]


def test_output_widgets_are_not_emulated(tmp_path):
    """Emulating them makes nbclient wait for ever in some runs, at random."""
    pytest.importorskip("nbclient")
    assert execution._client(build(tmp_path, FIXTURE.read_text()).solved, tmp_path).comm_open_handlers == {}


def test_streams_are_merged_and_carriage_returns_applied():
    pieces = [{"output_type": "stream", "name": name, "text": text}
              for name, text in (("stdout", "a"), ("stderr", "x\n"), ("stdout", "10 %\r20 %\n"))]  # fmt: skip
    assert [(o["name"], o["text"]) for o in execution.normalise(pieces)] == [
        ("stdout", ["20 %\n"]), ("stderr", ["x\n"])]  # fmt: skip


def test_an_expected_exception_is_kept_without_its_paths():
    error = {
        "output_type": "error",
        "ename": "FastMemoryFull",
        "evalue": "M is too small",
        "traceback": ["/home/me"],
    }
    assert execution.normalise([error])[0]["traceback"] == ["FastMemoryFull: M is too small"]


# --- release --check -------------------------------------------------------------------------------------

MAP_OF_ONE = """
[[part]]
title = "Sums"

[[part.lesson]]
file = "01_sum"
title = "Adding two numbers"
main_path = true
exercises = ["0A"]
you_will = "add"
"""

RECORD = {
    "date": "2026-01-01",
    "commit": "0" * 40,
    "cores": 2,
    "repeats": 3,
    "versions": {"Python": "3.11.2"},
    "notebooks": {"01_sum": {"seconds": [1.0], "median_s": 1.04}},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Make a checkout with one lesson and recorded run times, and build it; this runs the lesson."""
    root = checkout(tmp_path_factory.mktemp("built"))
    for path in (sections.TIMES, sections.RUN_TIMES):
        (root / path).parent.mkdir(parents=True)
    (root / sections.TIMES).write_text(json.dumps(RECORD))
    (root / "lessons" / "notation.md").write_text("# Notation\n")
    (root / "iocourse" / "course" / "lessons.toml").write_text(MAP_OF_ONE)
    lesson = root / "solutions" / "01_sum.py"
    more = "# **What comes next.** <!-- next -->\n#\n# ## References"
    lesson.write_text(lesson.read_text().replace("# ## References", more))
    (root / "README.md").write_text(
        "# x\n<!-- spine -->\n<!-- /spine -->\n<!-- electives -->\n<!-- /electives -->\nend\n"
    )
    (root / sections.RUN_TIMES).write_text("# y\n<!-- run-times -->\n<!-- /run-times -->\nend\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main([]) == 0
    return root


@pytest.fixture
def released(built, tmp_path, monkeypatch):
    """Copy the checkout that was built, and change to its folder."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(capsys):
    code = main(["--check"])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_check_is_content_with_what_release_wrote(released, capsys):
    code, said = checked(capsys)
    assert code == 0, said
    times, readme = ((released / page).read_text() for page in (sections.RUN_TIMES, "README.md"))
    assert "| 01_sum | 1.0 |" in times and times.endswith("<!-- /run-times -->\nend\n")
    row = "| [Adding two numbers](lessons/01_sum.ipynb) · [solution](solutions/01_sum.ipynb) | 7 |  | NumPy |"
    assert f"{row}\n<!-- /spine -->" in readme and readme.endswith("<!-- /electives -->\nend\n")


def test_the_build_of_one_lesson_keeps_the_rows_of_all_and_writes_its_own(released):
    second = "# %% [markdown]\n# # Adding two numbers\n#\n# **What comes next.** <!-- next -->\n"
    (released / "solutions" / "02_sum.py").write_text(second)
    write(released, "# # Adding two numbers", "# # Adding numbers")
    rows = MAP_OF_ONE.replace("Adding two numbers", "Adding numbers")
    rows += MAP_OF_ONE.replace("01_sum", "02_sum").replace('"0A"', "")
    (released / "iocourse" / "course" / "lessons.toml").write_text(rows)
    assert main(["--only", "01"]) == 0
    rows = [line for line in (released / "README.md").read_text().splitlines() if line.startswith("| [")]
    assert [re.findall(r"\[(Adding.*?)\]", row) for row in rows] == [
        ["Adding numbers"],
        ["Adding two numbers"],
    ]


RULES = [
    (whole_course, "recorded_problems"),
    (sections, "problems"),
    (whole_course, "guide_problems"),
    (style_check, "problems"),
    (glossary, "problems"),
    (choices_file, "problems"),
]


def test_check_applies_each_rule_of_the_complete_course(released, monkeypatch):
    """Stubs of the rules, because the rules themselves read the complete course for many seconds."""
    for number, (module, name) in enumerate(RULES):
        monkeypatch.setattr(module, name, lambda *given, number=number: iter([f"problem {number}"]))
    assert whole_course.check(released) == [f"problem {number}" for number in range(len(RULES))]


def test_check_names_a_stale_notebook_and_changes_nothing(released, capsys):
    write(released, "# A picture, and", "# One picture, and")
    before = files(released)
    code, said = checked(capsys)
    assert code == 1 and "solutions/01_sum.ipynb is stale" in said and "lessons/01_sum.ipynb is stale" in said
    assert files(released) == before


def test_check_finds_each_kind_of_staleness(released, capsys):
    lesson = released / "lessons" / "01_sum.ipynb"
    kept = lesson.read_text()
    lesson.write_text(kept.replace("YOUR CODE", "MY CODE"))
    assert "lessons/01_sum.ipynb is stale" in checked(capsys)[1]
    lesson.write_text(kept)
    (released / "lessons" / "07_old.ipynb").write_text("{}")
    assert "lessons/07_old.ipynb has no source" in checked(capsys)[1]
    (released / "lessons" / "07_old.ipynb").unlink()
    for page, name, old in (
        (sections.RUN_TIMES, "run-times", "1.0"),
        (Path("README.md"), "spine", "| 7 |"),
    ):
        kept = (released / page).read_text()
        (released / page).write_text(kept.replace(old, "0.5"))
        assert f"{page}: the part below <!-- {name} --> is stale" in checked(capsys)[1]
        (released / page).write_text("no markers")
        assert f"{page} has no lines <!-- {name} --> and <!-- /{name} -->" in checked(capsys)[1]
        (released / page).write_text(kept)
    (released / sections.TIMES).unlink()
    assert "does not exist; run: python -m tools.bench notebooks" in checked(capsys)[1]


@pytest.mark.parametrize("missing", ["cores", "versions", "date", "commit"])
def test_a_record_without_its_origin_stops_the_build_and_is_named(released, capsys, missing):
    (released / sections.TIMES).write_text(json.dumps({k: v for k, v in RECORD.items() if k != missing}))
    before = files(released)
    for option in ([], ["--check"]):
        assert main(option) == 1
        said = "".join(capsys.readouterr())
        named = "device" if missing == "cores" else missing
        assert f"iocourse/data/bench/notebooks.json has no {named}: record it again" in said
    assert files(released) == before


def test_a_fault_of_the_choices_stops_the_build_and_is_named(released, capsys):
    pytest.importorskip("triton")
    row = {"choose": {"forward pass": "slices"}, "why": ""}
    (released / choices_file.FILE).write_text(json.dumps({"about": "", "rows": [row]}))
    before = files(released)
    for option in ([], ["--check"]):
        assert main(option) == 1
        said = "".join(capsys.readouterr())
        assert "a row of choices.json is not valid" in said and json.dumps(row) in said
    assert files(released) == before


def test_check_follows_relative_links(released, capsys):
    more = "# See [that](../nowhere.md), [it](https://example.org/x), [here](#end) and [x](notation.md#y)."
    write(released, "# A picture, and", f"{more}\n# A picture, and")
    main([])
    said = checked(capsys)[1]
    assert said.count("does not exist") == 2
    assert "lessons/01_sum.ipynb links to ../nowhere.md" in said
    assert "solutions/01_sum.ipynb links to ../nowhere.md" in said


def test_a_former_name_is_read_as_the_present_one(released, capsys):
    """A link is answered with the present name, and recorded run times count for the renamed notebook."""
    write(released, "# A picture, and", "# See [that](01_old.ipynb).\n# A picture, and")
    renamed = MAP_OF_ONE.replace("main_path", 'former = ["01_old"]\nids_of = "01_sum"\nmain_path')
    (released / "iocourse" / "course" / "lessons.toml").write_text(renamed)
    times = {"01_old": RECORD["notebooks"]["01_sum"]}
    (released / sections.TIMES).write_text(json.dumps(RECORD | {"notebooks": times}))
    main([])
    told = checked(capsys)[1]
    assert "links to 01_old.ipynb, which does not exist: write 01_sum.ipynb" in told
    assert "the times of other notebooks" not in told


def test_an_entry_of_the_map_without_its_source_stops_the_build_and_the_check(released, capsys):
    (released / "iocourse" / "course" / "lessons.toml").write_text(MAP_OF_ONE.replace("01_sum", "01_other"))
    assert main([]) != 0
    told = "lessons.toml:6: no solutions/01_other.py: write it, or delete the entry"
    assert told in capsys.readouterr().err and told in checked(capsys)[1]


def test_check_wants_every_notebook_timed(released, capsys):
    (released / sections.TIMES).write_text(json.dumps(RECORD | {"notebooks": {}}))
    assert "has the times of other notebooks than those of solutions/" in checked(capsys)[1]


@pytest.mark.parametrize("arguments", [["now"], ["--colab", "x", "--only", "01"], ["--chek"]])
def test_a_bad_argument_is_named_in_one_line(course, capsys, arguments):
    try:
        code = main(arguments)
    except SystemExit as leave:  # argparse
        code = leave.code
    said = capsys.readouterr()
    assert code == 2 and arguments[0] in said.err and said.err.count("\n") == 1 and said.out == ""
    assert said.err.startswith("python -m tools.build: ") and not list(course.rglob("*.ipynb"))


def test_release_of_one_lesson_and_of_none(course, capsys):
    assert main(["--only", "07"]) == 2
    assert "the sources are: 01_sum" in capsys.readouterr().err


# --- the linter ------------------------------------------------------------------------------------------


def linted(text):
    return "\n".join(lesson_lint.problems(percent_format.parse(text, FIXTURE), Path("01_sum.py")))


def test_the_fixture_lesson_has_all_parts():
    assert linted(FIXTURE.read_text()) == ""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("**What you will learn**", "**Contents**", 'no "what you will learn"'),
        ("**Prerequisites**", "**Before**", 'no "prerequisites"'),
        ("## Misconceptions", "## Errors", 'no "misconceptions"'),
        ("## Take-away", "## End", 'no "take-away"'),
        ("## References", "## Literature", 'no "references"'),
        ("[notation](notation.md)", "notation", "no link to the notation page"),
        ('predict("2 + 3 =", 5)  # > predict("2 + 3 =")', "pass", "no predict"),
        ("5 minutes", "a while", "no minutes before the first section"),
        ('tags=["exercise"] ', "", "no exercise"),
        ("## Take-away", "## Take-away!", "exclamation mark in the heading"),
        ("c = a + b", f"c = a + b  # {'because ' * 12}", "characters, expected at most 96: c = a + b"),
        ("## Take-away", "## Take-away \N{ROCKET}", "emoji in the heading"),
    ],
)
def test_the_linter_names_what_is_missing(old, new, complaint):
    text = FIXTURE.read_text()
    assert old in text
    assert re.search(
        rf"^01_sum\.py:\d+: .*{re.escape(complaint)}", linted(text.replace(old, new)), re.MULTILINE
    )


def test_minutes_may_stand_on_either_side():
    assert linted(FIXTURE.read_text().replace("**Time**: 5 minutes", "**Minutes**: 5")) == ""


def test_mathematical_signs_are_no_emoji():
    assert "emoji" not in linted(
        FIXTURE.read_text().replace("## Take-away", "## Take-away: N²d × ∂L/∂X → √M")
    )


def test_check_reports_what_the_linter_finds(released, capsys):
    write(released, "# ## Misconceptions", "# ## Errors")
    main([])
    code, said = checked(capsys)
    assert code == 1 and 'solutions/01_sum.py:1: no "misconceptions"' in said
