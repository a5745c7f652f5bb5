"""What Sphinx is given: lessons with links to pages, pictures with words, pages made from the library."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from iocourse import schedules
from iocourse.bounds import STATUSES
from iocourse.course.checkout import find_checkout, read_project
from iocourse.data.recorded import NAMES, recorded
from iocourse.explore.widgets.explorer import EXPLORERS
from iocourse.refusal import Refused
from iocourse.schedules import REGISTRY
from tools.site.layout import Layout
from tools.site.lessons import minutes_of, page_of_lesson, sections_of, title_of
from tools.site.pages import bounds as bounds_pages
from tools.site.pages.api import ROOMS, api_pages
from tools.site.pages.bench import bench_page
from tools.site.pages.bounds import EVERY
from tools.site.pages.lessons import in_the_browser, lessons_table
from tools.site.pages.schedules import schedules_page
from tools.site.sources import the_map, write_sources

ROOT = find_checkout()
PROJECT = replace(read_project(ROOT), claimed=True)
NOBODYS = replace(PROJECT, claimed=False)
NOTEBOOKS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("solutions/[0-9]*.ipynb"))
}
SECTIONS = {
    section: f"[section {section}](#there)"
    for notebook in NOTEBOOKS.values()
    for section in sections_of(notebook)
}
ALL = Layout(ROOT, PROJECT, tuple(NOTEBOOKS))
TWO = Layout(ROOT, PROJECT, ("04_flash_forward", "05b_the_proof"))


@pytest.mark.parametrize(
    ("layout", "path", "text", "led"),
    [
        (ALL, "solutions/04_flash_forward.ipynb", "[b](05b_the_proof.ipynb)", "[b](05b_the_proof.ipynb)"),
        (ALL, "solutions/09_the_map.ipynb", "[n](../lessons/notation.md#sizes)", "[n](notation.md#sizes)"),
        (ALL, "lessons/notation.md", "[0](00_start_here.ipynb)", "[0](00_start_here.ipynb)"),
        (ALL, "docs/teaching.md", "[e](exercises.md)", "[e](exercises.md)"),
        (ALL, "docs/teaching.md", "[9](../lessons/09_the_map.ipynb)", "[9](lessons/09_the_map.ipynb)"),
        (ALL, "docs/guide/x.md", "[e](../exercises.md)", "[e](../exercises.md)"),
        (ALL, "docs/teaching.md", "[a](https://arxiv.org/abs/1)", "[a](https://arxiv.org/abs/1)"),
        (ALL, "docs/teaching.md", "[here](#plans)", "[here](#plans)"),
        (ALL, "docs/teaching.md", "[no](nowhere.md)", "[no](nowhere.md)"),
        (ALL, "docs/teaching.md", "[m](../LICENSE)", f"[m]({PROJECT.page('LICENSE')})"),
        (
            TWO, "solutions/04_flash_forward.ipynb", "[s](06_backward.ipynb)",
            f"[s]({PROJECT.page('solutions/06_backward.ipynb')})",
        ),
    ],
)  # fmt: skip
def test_a_link_leads_to_a_page_or_to_the_repository(layout, path, text, led):
    assert layout.linked(text, path) == led


@pytest.mark.parametrize(
    ("stems", "path", "text", "led"),
    [
        (NOTEBOOKS, "docs/teaching.md", "[m](../LICENSE)", "m (`LICENSE` in the repository)"),
        (NOTEBOOKS, "docs/teaching.md", "[`LICENSE`](../LICENSE), x", "`LICENSE`, x"),
        (NOTEBOOKS, "docs/teaching.md", "[e](exercises.md)", "[e](exercises.md)"),
        (NOTEBOOKS, "docs/teaching.md", "[no](nowhere.md)", "[no](nowhere.md)"),
        (
            ["04_flash_forward"], "solutions/04_flash_forward.ipynb", "[s](06_backward.ipynb) and $x[1](y)$",
            "s (`solutions/06_backward.ipynb` in the repository) and $x[1](y)$",
        ),
    ],
)  # fmt: skip
def test_nothing_leads_to_the_repository_while_its_address_is_not_claimed(stems, path, text, led):
    assert Layout(ROOT, NOBODYS, tuple(stems)).linked(text, path) == led


def test_a_lesson_keeps_its_cells_and_has_words_for_each_picture():
    for stem, notebook in NOTEBOOKS.items():
        before = json.dumps(notebook)
        made = page_of_lesson(notebook, stem, ALL)
        assert json.dumps(notebook) == before
        assert len(made["cells"]) == len(notebook["cells"])
        drawn = [c for c in made["cells"] for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
        assert all(len(cell["metadata"]["mystnb"]["image"]["alt"]) > 40 for cell in drawn)
        text = "\n".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown")
        assert text.count("Open in Colab: ") == 1 and f"lessons/{stem}.ipynb) · [solutions]" in text
        assert text.split("\n")[2].startswith("Open in Colab: ")
        opening = "".join(
            page_of_lesson(notebook, stem, Layout(ROOT, NOBODYS, (stem,)))["cells"][0]["source"]
        )
        assert "Colab" not in opening.split("\n\n")[1] and PROJECT.slug not in opening
        assert text.count("(section-") == len(sections_of(notebook)) > 2


def test_a_lesson_that_runs_in_the_browser_leads_there():
    layout = Layout(ROOT, PROJECT, tuple(NOTEBOOKS), ("04_flash_forward",))
    assert "../lite/lab/index.html?path=04_flash_forward.ipynb" in layout.opens_in("04_flash_forward")
    assert "lite" not in layout.opens_in("05_how_little") + ALL.opens_in("04_flash_forward")
    unclaimed = replace(layout, project=NOBODYS)
    assert unclaimed.opens_in("04_flash_forward").startswith("<a href=") and not unclaimed.opens_in("05_x")
    said = in_the_browser(["00_start_here", "09b_off_the_map"])
    assert (
        said.startswith("Lessons 00 to 09b also ") and "lite/lab/index.html?path=00_start_here.ipynb" in said
    )
    assert in_the_browser([]) == ""


def test_a_picture_without_words_is_no_page():
    picture = {
        "data": {"image/png": "", "text/plain": "words"},
        "metadata": {},
        "output_type": "display_data",
    }
    cell = {"cell_type": "code", "id": "x", "metadata": {}, "source": "", "outputs": [picture]}
    with pytest.raises(
        Refused, match=r"00_start_here\.ipynb, cell x must show one picture with alternative text"
    ):
        page_of_lesson({"cells": [cell]}, "00_start_here", ALL)


def test_a_formula_in_a_summary_is_one_on_the_page_too():
    cell = {"cell_type": "markdown", "source": "<details><summary>At $d^2$</summary>\n\n$x$"}
    (made,) = page_of_lesson({"cells": [cell]}, "00_start_here", ALL)["cells"]
    assert made["source"].startswith(
        r'<details><summary>At <span class="math notranslate nohighlight">\(d^2\)</span>'
    )
    assert made["source"].endswith("$x$")


def test_the_table_of_lessons_has_a_row_for_each():
    rows = lessons_table(NOTEBOOKS).splitlines()[2:]
    assert len(rows) == len(NOTEBOOKS)
    for row, (stem, notebook) in zip(rows, NOTEBOOKS.items(), strict=True):
        assert f"(lessons/{stem}.ipynb)" in row and title_of(notebook).split(" ", 1)[1] in row
        assert int(minutes_of(notebook)) >= 10 and f" {minutes_of(notebook)} " in row


def test_the_page_of_bounds_has_all_there_is_to_say_of_each():
    page = bounds_pages.bounds_page(ROOT, SECTIONS)
    split = re.split(r"^\((bound-.*)\)=\n", page, flags=re.MULTILINE)[1:]
    parts = dict(zip(split[::2], split[1::2], strict=True))
    assert len(parts) == len(EVERY)
    for id, bound in EVERY.items():
        part = parts[bounds_pages.anchor(id)]
        assert part.startswith(f"### {id}: {bound.title}\n\n$$ {bound.formula} $$")
        for said in (
            bound.holds_for,
            bound.not_about,
            bound.regime,
            bound.source,
            f"**Status.** {bound.status}",
        ):
            assert said in part
        assert len(part.split("**Proof.** ")[1]) > 30
    assert set(bounds_pages.MEANING) == set(STATUSES)


def test_what_this_course_proves_stands_in_a_lesson_or_is_said_in_full():
    proofs = bounds_pages.read_proofs(ROOT)
    for id, bound in EVERY.items():
        if bound.status == "proved here" and "at" not in proofs[id]:
            least = 60 if id.startswith("compulsory") else 400
            assert id.startswith(("compulsory", "network")) and len(proofs[id]["text"]) > least


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace("[A]\n", "[A_new]\n"), "disagree about A:"),
        (lambda t: t + '\n[Z]\ntext = "new"\n', "disagree about Z:"),
        (lambda t: t.replace('at = "5.9"', 'at = "5.99"', 1), "A is proved at '5.99', which is no section"),
    ],
)
def test_a_proof_of_nothing_and_a_bound_without_proof_are_refused(tmp_path, change, said):
    (tmp_path / "docs").mkdir()
    text = (ROOT / bounds_pages.PROOFS).read_text(encoding="utf-8")
    (tmp_path / bounds_pages.PROOFS).write_text(change(text), encoding="utf-8")
    with pytest.raises(Refused, match=said):
        bounds_pages.bounds_page(tmp_path, SECTIONS)


def test_the_page_of_schedules_has_each_with_its_closed_form():
    page = schedules_page(SECTIONS)
    for name, schedule in REGISTRY.items():
        assert f"### {schedule.title}\n" in page and f"[{name}](#schedule-{name.replace('_', '-')})" in page
    assert page.count("**Closed form.** ") == len(REGISTRY)
    row = next(line for line in page.splitlines() if line.startswith("| [flash2]"))
    assert row.endswith("| F2 | [4.1](#there) | forward |")  # short: one line on a phone too
    assert "2Nd + 2Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 2 + Bc) + Bc·d." in page  # of F3
    assert not re.findall(r"\*\*Closed form\.\*\* \n", page)


def test_every_room_has_a_page_with_its_public_names():
    pages = api_pages()
    assert set(pages) == {"api/index.rst", *(f"api/{room}.rst" for room in ROOMS)}
    assert all(f"   {room}\n" in pages["api/index.rst"] for room in ROOMS)
    assert ".. autofunction:: iocourse.bounds.lower_bound\n" in pages["api/bounds.rst"]
    assert "``theorem_A``" in pages[
        "api/bounds.rst"
    ] and "autofunction:: iocourse.bounds.theorem_A\n" not in "".join(pages.values())
    assert ".. autoexception:: iocourse.machine.FastMemoryFull\n   :members:\n" in pages["api/machine.rst"]
    assert ".. autofunction:: iocourse.explore.memory_map\n" in pages["api/explore.rst"]


def test_measured_is_what_is_recorded_and_nothing_else():
    text, pictures = bench_page()
    for name in NAMES:
        record = recorded(name)
        assert (f"## {name}\n" in text) == (record is not None)
        if record is None:
            assert name in text.split("## Not measured yet")[1]
    assert len(pictures) > 5
    for file, picture in pictures.items():
        assert f"pictures/{file}" in text and " ".join(picture.alt.split()) in text


def test_what_the_landing_pages_map_calls_best_no_schedule_of_the_course_beats():
    N, d, M = 8192, 64, 58368
    best, alt = schedules.best(N, d, M), the_map().alt
    assert f"M = {M:,}: {best.schedule.title} (" in alt
    assert f"moves the fewest words, {best.cost.total:,}." in alt
    assert "1.19 × the lower bound" in alt and "]" not in alt


def test_pages_that_are_not_there_yet_leave_no_empty_place(tmp_path):
    write_sources(ROOT, tmp_path, ["04_"])
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for folder in ("explore", "guide"):
        assert (f"\n{folder}/*\n" in index) == any((ROOT / "docs" / folder).glob("*.md"))
    assert "\nlessons/[0-9]*\n" in index
    assert {path.name for path in tmp_path.glob("*.py")} == {"conf.py"}
    assert (tmp_path / "_static" / "mathjax" / "tex-chtml.js").stat().st_size > 10**5
    assert not (tmp_path / "remarks").exists()


def test_no_source_of_the_site_leads_to_an_address_that_is_not_claimed(tmp_path):
    write_sources(ROOT, tmp_path)
    texts = [path for path in tmp_path.rglob("*") if path.suffix in (".md", ".rst", ".ipynb", ".html", ".py")]
    address = re.compile(rf"(?:github\.com|github|gh)/{re.escape(PROJECT.slug)}\b")
    leading = [path.name for path in texts if address.search(path.read_text(encoding="utf-8"))]
    assert len(texts) > 60 and bool(leading) == read_project(ROOT).claimed, leading


def test_without_the_sources_of_the_site_it_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"no docs/conf\.py in .*: the site is built in a checkout"):
        write_sources(tmp_path, tmp_path / "sources")


def test_only_names_lessons_that_are_there(tmp_path):
    with pytest.raises(Refused, match=r"--only 99: no solved lesson begins so; there are: 00_start_here, "):
        write_sources(ROOT, tmp_path, ["99"])
    assert list(Path(tmp_path).iterdir()) == []


def test_the_guide_has_every_explorer_with_the_lesson_that_shows_it():
    guide = (ROOT / "docs" / "guide" / "explorers.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)\(\)` \| (\w+) \|", guide, re.MULTILINE))
    sources = {
        path.name.partition("_")[0]: path.read_text(encoding="utf-8") for path in ROOT.glob("solutions/*.py")
    }
    assert set(rows) == set(EXPLORERS)
    assert [name for name, lesson in rows.items() if f"{name}(" not in sources[lesson]] == []
