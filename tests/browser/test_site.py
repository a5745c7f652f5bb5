"""A site of two lessons, built where torch and triton cannot be found, as a reader meets it in Chromium.

`whole_site.py` does the same with all pages; it is run by its name.
"""

import os
import subprocess
import sys
from pathlib import Path

import needs
import pytest
from site_looks import formulas, headings, pale_text, too_wide, what_is_wrong, without_a_name

from iocourse.site.checking import problems_of

needs.installed("sphinx", "myst_nb", "furo")

ROOT = Path(__file__).parents[2]
HIDDEN = """
import importlib.machinery as machinery

find = machinery.PathFinder.find_spec
hidden = ("torch", "triton")
seen = lambda cls, name, *rest: None if name.split(".")[0] in hidden else find(name, *rest)
machinery.PathFinder.find_spec = classmethod(seen)
"""
LOOKED_AT = (
    "index",
    "lessons/05b_the_proof",
    "bounds",
    "schedules",
    "bench",
    "api/kernels",
    "api/machine",
    "errata",
)


def built(folder):
    """A site of lessons 04 and 05b, made by the command with neither torch nor triton; what was printed."""
    hook = folder.parent / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HIDDEN)
    command = [sys.executable, "-m", "iocourse", "site", str(folder), "--only", "04_", "--only", "05b"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(hook), str(ROOT)])}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_a_site_of_two_lessons_as_a_reader_meets_it(tmp_path, chromium):
    site = tmp_path / "site"
    assert built(site).startswith("2 lessons, ")
    assert problems_of(site) == []
    assert {path.stem for path in (site / "lessons").glob("*.html")} == {
        "04_flash_forward", "05b_the_proof", "notation",
    }  # fmt: skip
    kernels = (site / "api" / "kernels.html").read_text(encoding="utf-8")
    assert (
        "iocourse.kernels.attention_varlen" in kernels and "cu_q" in kernels
    )  # signatures survive the stand-ins
    page = chromium.new_page()
    wrong = {}
    for name in LOOKED_AT:
        page.goto((site / f"{name}.html").as_uri())
        wrong |= {name: found} if (found := what_is_wrong(page)) else {}
    assert wrong == {}
    the_words_of_pictures_are_spoken(page, site)
    search_finds(page, site)
    page.close()


def the_words_of_pictures_are_spoken(page, site):
    """In the accessibility tree each picture of a lesson has the sentences that its figure was drawn with."""
    page.goto((site / "lessons" / "05b_the_proof.html").as_uri())
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    said = [n["name"]["value"] for n in nodes if n["role"]["value"] == "image" and not n["ignored"]]
    assert any(text.startswith("A staircase over 9 events: the number n of partial sums") for text in said)


def search_finds(page, site):
    """A word of a lesson leads to it."""
    page.goto((site / "search.html").as_uri() + "?q=staircase")
    page.locator("#search-results a", has_text="proof of Theorem A").first.wait_for(timeout=30_000)


@pytest.mark.parametrize(
    ("html", "asked", "found"),
    [
        ("<p style='color:#888'>pale</p>", pale_text, "pale"),
        ("<div style='background:#000'><p style='color:#333'>dark</p></div>", pale_text, "dark"),
        ("<button></button>", without_a_name, "button"),
        ("<a href='#x'><svg></svg></a>", without_a_name, "link"),
        ("<img src='data:,' width=9 height=9>", without_a_name, "image"),
        ("<input type=range>", without_a_name, "slider"),
    ],
)
def test_what_the_looks_are_for_is_seen(chromium, html, asked, found):
    page = chromium.new_page()
    page.set_content(f"<main><h1>Title</h1>{'<p>words</p>' * 9}{html}</main>")
    said = asked(page)
    page.close()
    assert len(said) == 1 and found in said[0], said


def test_formulas_in_error_and_tex_as_it_was_written_are_seen(chromium):
    page = chromium.new_page()
    page.set_content(
        "<script>MathJax = {startup: {promise: Promise.resolve()}}</script><article><p>costs $Nd$ words</p>"
        "<span class=math><mjx-container><mjx-merror>Misplaced &</mjx-merror></mjx-container></span>"
        "<span class=math>N</span><p><code>$HOME</code></p></article>"
    )
    told = formulas(page)
    page.close()
    assert told == {"asked": 2, "shown": 1, "wrong": ["Misplaced &"], "raw": ["costs $Nd$ words"]}


def test_a_page_that_is_too_wide_for_a_phone_is_seen(chromium):
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.set_content("<div style='width: 500px'>wide</div>")
    wide = too_wide(page)
    page.close()
    assert wide >= 500 - 390


def test_all_looks_at_once_say_only_what_is_wrong(chromium):
    page = chromium.new_page()
    page.set_content(f"<main><h1>Title</h1><h3>Too deep</h3>{'<p>words</p>' * 9}</main>")
    assert headings(page) == [1, 3]
    wrong = what_is_wrong(page)
    page.close()
    assert wrong == ["headings jump: (1, 3)"]
