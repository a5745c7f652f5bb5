"""The whole site, every page of it in Chromium: `pytest -n 2 tests/browser/whole_site.py`, some minutes.

The suite builds two lessons (`test_site.py`). `IOCOURSE_SITE` names a folder with a site that stands already.
"""

import os
import re
import time
from pathlib import Path

import pytest
from site_looks import what_is_wrong

from iocourse.course.project_paths import find_checkout, read_project
from tools.site.building import build_site
from tools.site.checking import Page, pages_of, problems_of

ROOT = find_checkout()
WITHOUT_A_TITLE = {"search.html"}  # Sphinx writes it when somebody has searched


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A folder with the whole site."""
    if "IOCOURSE_SITE" in os.environ:
        return Path(os.environ["IOCOURSE_SITE"])
    start = time.monotonic()
    made = build_site(ROOT, tmp_path_factory.mktemp("whole") / "site")
    print(f"{made.pages} pages in {time.monotonic() - start:.0f} s")
    return made.folder


def test_every_lesson_is_there_and_every_link_leads_somewhere(site):
    stems = {path.stem for path in (ROOT / "solutions").glob("[0-9]*.ipynb")}
    assert len(stems) >= 29 and {path.stem for path in (site / "lessons").glob("[0-9]*.html")} == stems
    assert problems_of(site) == []


def test_nothing_is_fetched_from_elsewhere(site):
    pages = [path.read_text(encoding="utf-8") for path in pages_of(site)]
    asked = [tag for text in pages for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", text)]
    assert len(asked) > len(pages)
    assert [tag for tag in asked if re.search(r"(?:src|href)=\"(?:https?:)?//", tag)] == []


def test_no_page_links_to_an_address_that_is_not_claimed(site):
    project = read_project(ROOT)
    links = [link for path in pages_of(site) for link in Page(path.read_text(encoding="utf-8")).links]
    assert any(f"/{project.slug}" in link for link in links) == project.claimed


def test_every_page_is_right_in_a_browser(site, chromium):
    wrong = {}
    for path in pages_of(site):
        page = chromium.new_page()  # a fresh one: dozens of pages with formulas are too much for one
        page.goto(path.as_uri())
        found = what_is_wrong(page)
        page.close()
        found = [line for line in found if path.name not in WITHOUT_A_TITLE or line != "0 titles"]
        wrong |= {path.relative_to(site).as_posix(): found} if found else {}
    assert wrong == {}
