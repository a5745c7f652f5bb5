"""Test of all pages of the site in Chromium: `pytest -n 2 tests/browser/every_page.py`, some minutes.

The suite opens every page, but examines only a dozen (`test_site.py`). `IOCOURSE_SITE` names a folder with a
built site.
"""

import os
import time
from pathlib import Path

import pytest
from built_site import ROOT, Page, asked_elsewhere, build, pages_of, problems_of
from page_accessibility import what_is_wrong

from tools.build.project import read_project


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return a folder with the complete site."""
    if "IOCOURSE_SITE" in os.environ:
        return Path(os.environ["IOCOURSE_SITE"])
    start, folder = time.monotonic(), tmp_path_factory.mktemp("whole") / "site"
    assert build(folder) == ""
    print(f"{len(pages_of(folder))} pages in {time.monotonic() - start:.0f} s")
    return folder


def test_every_lesson_is_there_and_every_link_leads_somewhere(site):
    stems = {path.stem for path in (ROOT / "solutions").glob("[0-9]*.ipynb")}
    assert len(stems) >= 29 and {path.stem for path in (site / "lessons").glob("[0-9]*.html")} == stems
    assert problems_of(site) == []


def test_nothing_is_fetched_from_elsewhere(site):
    elsewhere, asked = asked_elsewhere(site)
    assert asked > len(pages_of(site)) and elsewhere == []


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
        wrong |= {path.relative_to(site).as_posix(): found} if found else {}
    assert wrong == {}
