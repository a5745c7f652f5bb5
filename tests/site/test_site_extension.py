"""Tests of the Sphinx extension: links to pages, lessons with alternative texts, generated parts."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import skips
from built_site import ROOT, build, dummy_lite, extension

from iocourse.bounds import BOUNDS, STATUSES
from iocourse.course.explore.widgets.explorer import EXPLORERS
from tools.build.project import read_project

skips.unless_installed("sphinx", "myst_nb", "furo")

PROJECT = replace(read_project(ROOT), claimed=True)
NOBODYS = replace(PROJECT, claimed=False)
SECTION = re.compile(r"^## \d+\.\d+ ", re.MULTILINE)


@pytest.fixture(scope="module")
def made():
    """Return the extension, with the lessons copied to docs/lessons."""
    module = extension()
    module.copy_lessons(None, SimpleNamespace(iocourse_lite=""))
    return module


@pytest.fixture
def warnings(made, monkeypatch):
    """Return the list that collects the warnings of the extension as text."""
    said = []
    monkeypatch.setattr(made, "warn", lambda text, *told: said.append(text % told))
    return said


@pytest.mark.parametrize(
    ("path", "page", "text", "led"),
    [
        (
            "solutions/04_flash_forward.ipynb", "lessons/04_flash_forward.ipynb",
            "[b](05b_lower_bound_proof.ipynb)", "[b](05b_lower_bound_proof.ipynb)",
        ),
        (
            "solutions/09_memory_regimes.ipynb", "lessons/09_memory_regimes.ipynb",
            "[n](../lessons/notation.md#sizes)", "[n](notation.md#sizes)",
        ),
        (
            "lessons/notation.md", "lessons/notation.md",
            "[0](00_start_here.ipynb)", "[0](00_start_here.ipynb)",
        ),
        (
            "README.md", "index.md",
            "[9](lessons/09_memory_regimes.ipynb)", "[9](lessons/09_memory_regimes.ipynb)",
        ),
        ("docs/teaching.md", "teaching.md", "[e](exercises.md)", "[e](exercises.md)"),
        ("docs/teaching.md", "teaching.md", "[c](../CHANGELOG.md)", "[c](changelog.md)"),
        (
            "docs/teaching.md", "teaching.md",
            "[9](../lessons/09_memory_regimes.ipynb)", "[9](lessons/09_memory_regimes.ipynb)",
        ),
        (
            "docs/guide/tests.md", "guide/tests.md",
            "[9](../../solutions/09_memory_regimes.ipynb)", "[9](../lessons/09_memory_regimes.ipynb)",
        ),
        ("docs/guide/tests.md", "guide/tests.md", "[e](../exercises.md)", "[e](../exercises.md)"),
        ("docs/teaching.md", "teaching.md", "[a](https://arxiv.org/abs/1)", "[a](https://arxiv.org/abs/1)"),
        ("docs/teaching.md", "teaching.md", "[here](#plans)", "[here](#plans)"),
        ("docs/teaching.md", "teaching.md", "[no](nowhere.md)", "[no](nowhere.md)"),
        ("docs/teaching.md", "teaching.md", "[m](../LICENSE)", f"[m]({PROJECT.page('LICENSE')})"),
        (
            "docs/teaching.md", "teaching.md",
            "[s](../solutions/06_backward.py)", f"[s]({PROJECT.page('solutions/06_backward.py')})",
        ),
    ],
)  # fmt: skip
def test_a_link_leads_to_a_page_or_to_the_repository(made, path, page, text, led):
    assert made.linked(text, path, page, PROJECT) == led


@pytest.mark.parametrize(
    ("path", "text", "led"),
    [
        ("docs/teaching.md", "[m](../LICENSE)", "m (`LICENSE` in the repository)"),
        ("docs/teaching.md", "[`LICENSE`](../LICENSE), x", "`LICENSE`, x"),
        ("docs/teaching.md", "[e](exercises.md)", "[e](exercises.md)"),
        ("docs/teaching.md", "[no](nowhere.md)", "[no](nowhere.md)"),
        (
            "docs/teaching.md", "[s](../solutions/06_backward.py) and $x[1](y)$",
            "s (`solutions/06_backward.py` in the repository) and $x[1](y)$",
        ),
    ],
)  # fmt: skip
def test_nothing_leads_to_the_repository_while_its_address_is_not_claimed(made, path, text, led):
    assert made.linked(text, path, path.removeprefix("docs/"), NOBODYS) == led


def test_the_lessons_are_copied_as_they_are_and_what_is_current_is_left_alone(made, monkeypatch, tmp_path):
    monkeypatch.setattr(made, "DOCS", tmp_path)
    made.copy_lessons(None, SimpleNamespace(iocourse_lite=""))
    folder = tmp_path / "lessons"
    (folder / "99_gone.ipynb").write_text("{}")
    (folder / "05_lower_bounds.ipynb").write_text("{}")
    before = (folder / "04_flash_forward.ipynb").stat().st_mtime_ns
    made.copy_lessons(None, SimpleNamespace(iocourse_lite=""))
    names = {path.name for path in (ROOT / "solutions").glob("[0-9]*.ipynb")}
    assert {path.name for path in folder.iterdir()} == {*names, "notation.md"}
    assert (folder / "04_flash_forward.ipynb").stat().st_mtime_ns == before  # Sphinx need not read it again
    for name in names:
        assert (folder / name).read_bytes() == (ROOT / "solutions" / name).read_bytes()


def test_a_lesson_keeps_its_cells_and_has_words_for_each_picture(made, warnings):
    paths = sorted(ROOT.glob("solutions/[0-9]*.ipynb"))
    assert len(paths) > 28
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        page = made.lesson(json.loads(json.dumps(notebook)), f"lessons/{path.name}")
        assert len(page["cells"]) == len(notebook["cells"])
        drawn = [c for c in page["cells"] for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
        assert all(len(cell["metadata"]["mystnb"]["image"]["alt"]) > 40 for cell in drawn)
        folded = [cell["id"] for cell in page["cells"] if "hide-input" in cell["metadata"].get("tags", ())]
        assert folded == [c["id"] for c in notebook["cells"] if "setup" in c["metadata"].get("tags", ())]
        text, before = (
            "\n".join("".join(cell["source"]) for cell in one["cells"] if cell["cell_type"] == "markdown")
            for one in (page, notebook)
        )
        assert text.count("(section-") == len(SECTION.findall(before)) > 2
        assert ("Colab" in text.split("\n")[2]) == read_project(ROOT).claimed  # the build writes that line
    assert warnings == []


def test_a_lesson_that_runs_in_the_browser_leads_there(made):
    cells = [{"cell_type": "markdown", "source": ["# 04 A title\n", "\n", "Text."]}]
    opened = made.lesson({"cells": [dict(cells[0])]}, "lessons/04_flash_forward.ipynb", True)["cells"][0][
        "source"
    ]
    link = (
        '<a href="../lite/lab/index.html?path=04_flash_forward.ipynb">Open the exercises in this browser</a>'
    )
    assert opened == f"# 04 A title\n\n{link}\n\nText."
    assert (
        "lite" not in made.lesson({"cells": [dict(cells[0])]}, "lessons/05_how.ipynb")["cells"][0]["source"]
    )
    said = made.in_the_browser(SimpleNamespace(config=SimpleNamespace(iocourse_lite="")))
    assert said == ""


def test_the_landing_page_says_which_lessons_run_in_the_browser(made, tmp_path):
    lite = dummy_lite(tmp_path / "lite")
    (lite / "files" / "09b_beyond_the_model.ipynb").write_text("{}")
    said = made.in_the_browser(SimpleNamespace(config=SimpleNamespace(iocourse_lite=str(lite))))
    assert said.startswith("Lessons 04 to 09b also ") and "index.html?path=04_flash_forward.ipynb" in said


@pytest.mark.parametrize("lacking", ["lab/index.html", "files/04_flash_forward.ipynb", ""])
def test_what_are_no_pages_of_jupyterlite_is_refused(made, tmp_path, lacking):
    lite = dummy_lite(tmp_path / "lite") if lacking else tmp_path / "missing"
    if lacking:
        (lite / lacking).unlink()
    with pytest.raises(
        made.ConfigError,
        match=r"iocourse_lite must be .*docs/lite/build\.py \(lab/index\.html, .*\), got '.*",
    ):
        made.copy_lessons(None, SimpleNamespace(iocourse_lite=str(lite)))


def test_pages_of_jupyterlite_that_are_none_stop_the_build_at_its_start(tmp_path):
    said = build(tmp_path / "site", "-D", f"iocourse_lite={tmp_path / 'missing'}")
    assert "must be a directory written by docs/lite/build.py (lab/index.html, " in said
    assert not (tmp_path / "site" / "index.html").exists()


@pytest.mark.parametrize("alts", [[""], ["Two bars.", "Three bars."]])
def test_a_figure_without_words_and_a_second_figure_are_warned_of(made, warnings, alts):
    outputs = [
        {"data": {"image/png": ""}, "metadata": {"image/png": {"alt": alt}}, "output_type": "display_data"}
        for alt in alts
    ]
    cell = {"cell_type": "code", "id": "x", "metadata": {}, "source": "", "outputs": outputs}
    title = {"cell_type": "markdown", "source": "# 00", "metadata": {}}
    made.lesson({"cells": [title, cell]}, "lessons/00_start_here.ipynb")
    assert warnings == [
        f"lessons/00_start_here.ipynb, cell x: expected one figure with alternative text, has {alts}"
    ]


def test_a_formula_in_a_summary_is_one_on_the_page_too(made):
    cell = {"cell_type": "markdown", "source": "<details><summary>At $d^2$</summary>\n\n$x$"}
    (cell,) = made.lesson({"cells": [cell]}, "lessons/00_start_here.ipynb")["cells"]
    assert cell["source"].startswith(
        r'<details><summary>At <span class="math notranslate nohighlight">\(d^2\)</span>'
    )
    assert cell["source"].endswith("$x$")


@pytest.mark.parametrize("key", ["A", "Z"])
def test_a_proof_of_nothing_and_a_bound_without_proof_are_warned_of(made, warnings, monkeypatch, key):
    proofs = made.tomllib.loads((ROOT / "docs" / "proofs.toml").read_text(encoding="utf-8"))
    changed = {id: proof for id, proof in proofs.items() if id != key} | (
        {"Z": {"text": "x"}} if key == "Z" else {}
    )
    monkeypatch.setattr(made, "tomllib", SimpleNamespace(loads=lambda text: changed))
    page = made.bounds(None)
    assert (
        len(warnings) == 1 and f"{key} must be in docs/proofs.toml and in a registry of bounds" in warnings[0]
    )
    assert page.count("\n### ") > len(BOUNDS)


def test_what_this_course_proves_stands_in_a_lesson_or_is_said_in_full(made):
    proofs = made.tomllib.loads((ROOT / "docs" / "proofs.toml").read_text(encoding="utf-8"))
    for id, bound in (BOUNDS | made.ACROSS_RANKS).items():
        if bound.status == "proved here" and "at" not in proofs[id]:
            least = 60 if id.startswith("compulsory") else 400
            assert id.startswith(("compulsory", "network")) and len(proofs[id]["text"]) > least


def test_the_page_of_bounds_says_what_each_status_means():
    page = (ROOT / "docs" / "bounds.md").read_text(encoding="utf-8")
    meanings = re.findall(r"^\| ([a-z, ]+) \| .{20,} \|$", page, re.MULTILINE)
    assert meanings == list(STATUSES)


def test_every_mark_in_a_page_has_a_function_and_every_function_a_mark(made):
    pages = (ROOT / "docs").glob("*.md")
    marks = [mark for page in pages for mark in made.MARK.findall(page.read_text(encoding="utf-8"))]
    assert sorted(marks) == sorted(made.MADE)


def test_a_record_without_a_figure_is_shown_with_all_its_numbers(made):
    record = {
        "subject": "x", "device": {"name": "A", "sms": 2}, "ms": 0.123456, "bytes": 12345678.0,
        "rows": [{"N": 8, "ms": 1.5, "of": {"dram": None}}, {"N": 16, "more": True}],
    }  # fmt: skip
    assert made.numbers(record).splitlines() == [
        "subject               x", "device.name           A", "device.sms            2",
        "ms               0.1235", "bytes        12,345,678", "", "rows", "N    ms  of.dram  more",
        "8   1.5        –     –", "16    –        –  True",
    ]  # fmt: skip


def test_the_guide_has_every_explorer_with_the_lesson_that_shows_it():
    guide = (ROOT / "docs" / "guide" / "explorers.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)\(\)` \| (\w+) \|", guide, re.MULTILINE))
    sources = {
        path.name.partition("_")[0]: path.read_text(encoding="utf-8") for path in ROOT.glob("solutions/*.py")
    }
    assert set(rows) == set(EXPLORERS)
    assert [name for name, lesson in rows.items() if f"{name}(" not in sources[lesson]] == []
