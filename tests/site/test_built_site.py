"""Tests of the built site: it has all lessons, bounds, schedules, records and names of the library."""

import importlib
import inspect
import json
import os
import re
import shutil
import zlib

import pytest
import skips
from built_site import (
    FORMER,
    ROOT,
    Page,
    asked_elsewhere,
    build,
    extension,
    page_at,
    pages_of,
    plain,
    problems_of,
    shared_site,  # noqa: F401
)

from iocourse import schedules
from iocourse.bounds import BOUNDS
from iocourse.course.course_map import lesson_named
from iocourse.course.explore.models.lowrank_record import baselines
from iocourse.course.schedule_lessons import SECTION_OF
from iocourse.data.records import NAMES, NONE_YET, load_record, record_source
from iocourse.distributed.bounds import BOUNDS as ACROSS_RANKS
from iocourse.schedules import REGISTRY
from tools.build.project import read_project

skips.unless_installed("sphinx", "myst_nb", "furo")
pytestmark = pytest.mark.timeout(900)  # whoever needs the site first builds it

MODULES = (
    "ledger", "machine", "exact", "masks", "costs", "bounds", "schedules", "pebbling", "sweeps", "kernels",
    "traffic", "lowrank", "distributed", "course", "course.explore",
)  # fmt: skip
NOTEBOOKS = sorted(ROOT.glob("solutions/[0-9]*.ipynb"))


def test_every_link_leads_somewhere_and_every_picture_has_words(site):
    assert len(pages_of(site)) > 65 and problems_of(site) == []


def test_nothing_is_fetched_from_elsewhere(site):
    elsewhere, asked = asked_elsewhere(site)
    assert asked > 500 and elsewhere == []
    mathjax = site / "_static" / "mathjax"
    assert (mathjax / "tex-chtml.js").stat().st_size > 10**5 and not list(mathjax.glob("*svg*"))


def test_no_page_links_to_an_address_that_is_not_claimed(site):
    project = read_project(ROOT)
    links = [link for path in pages_of(site) for link in Page(path.read_text(encoding="utf-8")).links]
    assert len(links) > 5000
    assert any(f"/{project.slug}" in link for link in links) == project.claimed


def test_every_lesson_is_there_with_its_sections_and_outputs(site):
    assert len(NOTEBOOKS) >= 31
    stems = [path.stem for path in NOTEBOOKS]
    found = {path.stem for path in (site / "lessons").glob("[0-9]*.html")}
    assert sorted(found - FORMER.keys()) == stems and found >= FORMER.keys()
    contents = page_at(site, "index")
    for path in NOTEBOOKS:
        page = page_at(site, f"lessons/{path.stem}")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        sections = re.findall(r"^## (\d+)\.(\d+) ", "\n".join(texts), re.MULTILINE)
        assert len(sections) > 2 and {f"section-{a}-{b}" for a, b in sections} <= page.places, path.stem
        title = texts[0].split("\n")[0].removeprefix("# ")
        assert title in page.text and f"lessons/{path.stem}.html" in contents.links
        alts = [
            output["metadata"]["image/png"]["alt"]
            for cell in cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
        ]  # fmt: skip
        assert {plain(alt) for alt in alts} <= {plain(alt) for alt in page.alts.values()}, path.stem


def test_a_former_address_of_a_lesson_leads_to_its_page(site):
    assert len(FORMER) >= 12
    for old, new in FORMER.items():
        page = page_at(site, f"lessons/{old}")
        html = (site / "lessons" / f"{old}.html").read_text(encoding="utf-8")
        assert page.links == [f"{new}.html"] and (site / "lessons" / f"{new}.html").is_file()
        assert f'<meta http-equiv="refresh" content="0; url={new}.html">' in html
        assert f"{lesson_named(old).title} has a new address" in page.text


def test_the_landing_page_has_readmes_row_for_each_lesson(site):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(.+?)\]\(lessons/(\w+)\.ipynb\).*? \| (\d+) \| ", readme, re.MULTILINE)
    assert len(rows) == len(NOTEBOOKS)
    html = (site / "index.html").read_text(encoding="utf-8")
    table = re.findall(r'<tr.*?href="lessons/(\w+)\.html".*?>([^<>]+)</.*?<p>(\d+)</p>', html, re.DOTALL)
    found = {(stem, plain(title), minutes) for stem, title, minutes in table}
    assert {(stem, plain(title).replace("&", "&amp;"), minutes) for title, stem, minutes in rows} == found
    assert "[solution]" not in html


def test_what_the_landing_pages_map_calls_best_no_schedule_of_the_course_beats(site):
    N, d, M = 8192, 64, 58368
    best, alt = schedules.best(N, d, M), page_at(site, "index").alts["map.png"]
    assert f"M = {M:,}: {best.schedule.title} (" in alt
    assert f"has the least traffic, {best.cost.total:,} words." in alt
    assert "1.19 times the lower bound" in alt and "]" not in alt


def test_a_bound_has_a_row_and_all_there_is_to_say_of_it(site):
    html = (site / "bounds.html").read_text(encoding="utf-8")
    table, *parts = html.split("<h3>")
    text, every = Page(table).text, BOUNDS | ACROSS_RANKS
    assert len(parts) == len(every) > 45
    for (id, bound), part in zip(every.items(), parts, strict=True):
        assert f"{id} {bound.title} {', '.join(bound.passes)} {bound.status}" in text
        said = Page(part).text
        assert said.startswith(f"{id}: {bound.title}") and plain(bound.formula) in said
        for told in (bound.holds_for, bound.not_about, bound.regime, bound.source):
            assert plain(told).replace("`", "") in said, id
        assert f"Status. {bound.status}" in said and len(said.split("Proof. ")[1]) > 30, id


def test_a_schedule_has_a_row_and_its_closed_form(site):
    html = (site / "schedules.html").read_text(encoding="utf-8")
    table, *parts = html.split("<h3>")
    page = Page(table)
    assert len(parts) == len(REGISTRY) > 25
    for (name, one), part in zip(REGISTRY.items(), parts, strict=True):
        section = SECTION_OF[name]
        assert plain(f"{name} {one.label} {section} {one.pass_}") in page.text
        assert any(link.endswith(f"#section-{section.replace('.', '-')}") for link in page.links)
        said = Page(part).text
        assert said.startswith(one.title)
        for told in (one.__doc__, one.cost_form.__doc__, one.regime, one.source):
            assert plain(told).replace("`", "") in said, name
        assert f"Tiles. {', '.join(one.tile_names)}" in said or not one.tile_names
    assert (
        "2Nd + 2Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 2 + Bc) + Bc·d." in Page(html).text
    )  # of F3


def test_measured_is_what_is_recorded_and_nothing_else(site):
    html, made = (site / "bench.html").read_text(encoding="utf-8"), extension()
    page, drawn = Page(html), 0
    for name in NAMES:
        record = load_record(name)
        assert (f"record-{name}" in page.places) == (record is not None)
        assert f"{name} {record_source(record)}" in page.text
        if record is None:
            assert record_source(record) == NONE_YET
            continue
        figures = list(made.figures(record))
        for at, figure in enumerate(figures):
            assert page.alts[f"{name}-{at}.png"] == plain(figure.alt)
            assert plain(figure.numbers) in page.text
        drawn += len(figures)
        if not figures:
            assert plain(made.numbers(record)) in page.text
    assert drawn > 15 and len(page.alts) == drawn  # and none of another record
    notes = [baselines(load_record("lowrank")[section]) for section in ("forward", "gradient")]
    assert all(note in page.text and sum(note in alt for alt in page.alts.values()) for note in notes)
    decode = load_record("decode")["rows"][0]
    assert f"{decode['ms']:.4g}" in page.text and f"{load_record('roofs')['copy_tb_s']:.4g}" in page.text


def documented(site):
    """Return the Python names in the inventory of the site, the link targets of other projects."""
    head, _, packed = (site / "objects.inv").read_bytes().partition(b"zlib.\n")
    lines = zlib.decompress(packed).decode().splitlines()
    assert head.startswith(b"# Sphinx inventory") and len(lines) > 500
    return {line.split(" ")[0] for line in lines if " py:" in line}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_of_a_module_is_on_its_page(site, module):
    if module in ("kernels", "traffic"):
        pytest.importorskip("triton")  # to know which names there are; the site is built without it
    room = importlib.import_module(f"iocourse.{module}")
    page, names = page_at(site, f"api/iocourse.{module}"), documented(site)
    assert f"iocourse.{module}" in names and f"api/iocourse.{module}.html" in page_at(site, "api").links
    for name in room.__all__:
        one, others = getattr(room, name), page.text.partition("Also in this module:")[2]
        if f"iocourse.{module}.{name}" not in names:
            assert re.search(rf"\b{name}\b", others), name
            assert not inspect.isclass(one) and not inspect.isroutine(one), name


def test_signatures_survive_where_triton_is_missing(site):
    text = page_at(site, "api/iocourse.kernels").text
    assert "iocourse.kernels.attention_varlen(" in text and "cu_q" in text


def test_git_sees_nothing_of_a_build_and_the_site_lies_in_its_folder_alone(site):
    made = ["docs/lessons/04_flash_forward.ipynb", "docs/api/iocourse.bounds.rst"]
    assert all((ROOT / name).is_file() for name in made)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert all(f"/{name.rpartition('/')[0]}/" in ignored for name in made)
    assert not (site.parent / "jupyter_execute").exists() and (site / ".nojekyll").is_file()
    assert (site / "lite" / "lab" / "index.html").is_file()


def test_a_link_to_nowhere_in_a_source_fails_the_build_and_is_named(tmp_path):
    """Run in a checkout with one page and without lessons, with the modules of this one."""
    for name in ("conf.py", "site_extension.py"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    for name in ("_static", "explore/static", "_templates"):
        shutil.copytree(ROOT / "docs" / name, tmp_path / "docs" / name)
    for name in ("pyproject.toml", "lessons/notation.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "index.md").write_text("# Title\n\nSee [there](nowhere.md).\n")
    said = build(tmp_path / "site", checkout=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert "index.md:3: " in said and "nowhere.md" in said
