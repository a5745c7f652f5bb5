"""Tests in Chromium of the site, built without torch and triton: each page opens, and a dozen are examined.

`every_page.py` examines all pages; it is run by its name.
"""

import re

import pytest
import skips
from built_site import ROOT, pages_of, shared_site  # noqa: F401
from opened_pages import Tab, served
from page_accessibility import (
    broken_words,
    cut_commands,
    formulas,
    headings,
    pale_text,
    too_wide,
    what_is_wrong,
    without_a_name,
)

from tools.build.project import read_project

skips.unless_installed("sphinx", "myst_nb", "furo")

LOOKED_AT = (
    "index",
    "lessons/04_flash_forward",
    "lessons/05b_lower_bound_proof",
    "bounds",
    "schedules",
    "bench",
    "api",
    "api/iocourse.kernels",
    "api/iocourse.machine",
    "errata",
    "guide/install",
)


@pytest.fixture
def tab(chromium):
    """Return a function: address → an empty tab of the browser."""
    contexts = []

    def opened(address):
        contexts.append(chromium.new_context(viewport={"width": 1280, "height": 900}))
        return Tab(contexts[-1].new_page(), address)

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.timeout(900)
def test_every_page_opens_without_a_fault(site, tab):
    """Titles, ids, stylesheets, scripts, links, and the answer of each explorer to a key."""
    wrong = {}
    with served(site) as address:
        here = tab(address)
        for path in pages_of(site):
            name = path.relative_to(site).as_posix()
            wrong |= {name: found} if (found := here.faults(name)) else {}
        assert (wrong, here.dead_links(site)) == ({}, [])
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "explore").glob("*.md")]
    named = [name for text in sources for name in re.findall(r'class="explorer".*? aria-label="(.+?)"', text)]
    assert sorted(here.explorers) == sorted(named) == ["Tile tuner", "Traffic map"]


EXPLORER = """<section class="explorer" aria-label="A"><p role="status">1</p>
<div class="handle"></div><svg></svg><script>{}</script></section>"""
LIVELY = """
const [handle, text, svg] = ['.handle', '[role=status]', 'svg'].map(one => document.querySelector(one));
handle.addEventListener('keydown', event => { text.textContent += event.key; svg.innerHTML += '<g></g>'; });
"""
FAULTS = {
    "a second title": ("<h1>Two</h1>", ["2 titles"]),
    "a double id": ("<p id=a></p><p id=a></p>", ["two elements with the id a"]),
    "a double id, of which a script leaves one": (
        "<p id=b></p><p id=b></p><script>document.getElementById('b').remove()</script>",
        ["two elements with the id b"],
    ),
    "a stylesheet that is missing": (
        "<link rel=stylesheet href=none.css>",
        ["404: /none.css"],
    ),
    "a stylesheet that a script removes": (
        "<p id=c><link rel=stylesheet href=other.css></p>"
        "<script>document.getElementById('c').remove()</script>",
        ["stylesheet not loaded: other.css"],
    ),
    "an error in a script": ("<script>none()</script>", ["script error: none is not defined"]),
    "an error in the console": ("<script>console.error('no')</script>", ["console: no"]),
    "a script that is missing": ("<script src=none.js></script>", ["404: /none.js"]),
    "an explorer that is not drawn": (
        "<section class=explorer aria-label=A></section>",
        ["the explorer A does not answer to a key"],
    ),
    "an explorer without a listener": (EXPLORER.format(""), ["the explorer A does not answer to a key"]),
    "an explorer that answers": (EXPLORER.format(LIVELY), []),
    "a link to a file that is missing": ("<a href=none.html>x</a>", ["page.html: no such place: /none.html"]),
    "a link to a place that is missing": (
        "<a href='other.html#no'>x</a><a href='#no'>x</a>",
        ["page.html: no such place: /other.html#no", "page.html: no such place: /page.html#no"],
    ),
    "links that lead somewhere": (
        "<a href='other.html#b c'>x</a><a href='#top'>x</a><a href='.'>x</a><a href='data.txt'>x</a>"
        "<a href='https://example.org/none'>x</a><a href='mailto:a@example.org'>x</a>",
        [],
    ),
}


def test_a_fault_of_a_page_is_seen_when_it_opens(tmp_path, tab):
    """One tab opens all pages, so a fault that is reported late would appear under another page."""
    page = "<!doctype html><meta charset=utf-8><title>x</title><link rel=stylesheet href=site.css><h1>T</h1>"
    (tmp_path / "data.txt").write_text("x")
    for name in ("site.css", "other.css"):
        (tmp_path / name).write_text("p { color: #000 }")
    for name in ("index.html", "other.html"):
        (tmp_path / name).write_text(f"{page}<p id='b c'>")
    found = {}
    with served(tmp_path) as address:
        for name, (body, _) in FAULTS.items():
            (tmp_path / "page.html").write_text(page + body, encoding="utf-8")
            here = tab(address)
            said = [
                fault for path in ("page.html", "other.html", "index.html") for fault in here.faults(path)
            ]
            found[name] = said + here.dead_links(tmp_path)
        (tmp_path / "page.html").write_text("<!doctype html><title>x</title><h1>T</h1>")
        found["no stylesheet at all"] = tab(address).faults("page.html")
    expected = {name: faults for name, (_, faults) in FAULTS.items()}
    assert found == expected | {"no stylesheet at all": ["no stylesheet"]}


@pytest.mark.timeout(900)
def test_the_site_as_a_reader_meets_it(site, chromium):
    page = chromium.new_page()
    wrong = {}
    for name in LOOKED_AT:
        page.goto((site / f"{name}.html").as_uri())
        wrong |= {name: found} if (found := what_is_wrong(page)) else {}
    assert wrong == {}
    the_words_of_pictures_are_spoken(page, site)
    the_keyboard_is_seen(page, site)
    a_lesson_leads_to_jupyterlite(page, site)
    search_finds(page, site)
    page.close()


def the_words_of_pictures_are_spoken(page, site):
    """In the accessibility tree each figure of a lesson has its alternative text."""
    page.goto((site / "lessons" / "05b_lower_bound_proof.html").as_uri())
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    said = [n["name"]["value"] for n in nodes if n["role"]["value"] == "image" and not n["ignored"]]
    assert any(text.startswith("A staircase over 9 events: the number n of partial sums") for text in said)


def the_keyboard_is_seen(page, site):
    """The focused element has a frame: the first tab stops of a page, including its search field."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    frames = {}
    for _ in range(8):
        page.keyboard.press("Tab")
        tag, frame = page.evaluate(
            "[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
        )
        frames.setdefault(tag, set()).add(frame)
    assert {"A", "INPUT"} <= set(frames) and "none" not in set.union(*frames.values()), frames


def a_lesson_leads_to_jupyterlite(page, site):
    """The landing page and lessons in JupyterLite link to it; other lessons do not."""
    for name, link in (
        ("index", "run in this browser"),
        ("lessons/04_flash_forward", "exercises in this browser"),
    ):
        page.goto((site / f"{name}.html").as_uri())
        page.get_by_role("link", name=link).click()
        page.wait_for_url("**/lite/lab/index.html?path=04_flash_forward.ipynb")
        assert page.title() == "JupyterLite"
    page.goto((site / "lessons" / "05b_lower_bound_proof.html").as_uri())
    published = read_project(ROOT).claimed  # until then there is nothing in Colab to open
    assert page.get_by_role("link", name="exercises", exact=True).count() == published
    assert page.get_by_role("link", name="in this browser").count() == 0


def search_finds(page, site):
    """Searching for a word of a lesson finds the lesson."""
    page.goto((site / "search.html").as_uri() + "?q=whitney")
    page.locator("#search-results a", has_text="Proof of the lower bound").first.wait_for(timeout=120_000)


@pytest.mark.parametrize(
    ("html", "asked", "found"),
    [
        ("<p style='color:#888'>pale</p>", pale_text, "pale"),
        ("<div style='background:#000'><p style='color:#333'>dark</p></div>", pale_text, "dark"),
        ("<button></button>", without_a_name, "button"),
        ("<a href='#x'><svg></svg></a>", without_a_name, "link"),
        ("<img src='data:,' width=9 height=9>", without_a_name, "image"),
        ("<input type=range>", without_a_name, "slider"),
        (
            f"<article style='width:150px;overflow-wrap:anywhere'><h2>well-known {'word' * 9}</h2></article>",
            broken_words,
            "word",
        ),
        (
            f"<div class=highlight-bash><pre style='overflow:auto'>{'word' * 99}</pre></div>",
            cut_commands,
            "word",
        ),
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


PICTURE = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='900' height='300'></svg>"
STATIC = ROOT / "docs" / "_static"


@pytest.fixture
def with_a_command(tmp_path, chromium):
    """Return a page with a command and the script of the site that copies it."""
    command = "python3 -m venv .venv &amp;&amp; .venv/bin/pip install -q -c constraints.txt -e '.[lab]'"
    (tmp_path / "page.html").write_text(
        f'<meta charset="utf-8"><link rel="stylesheet" href="{(STATIC / "site.css").as_uri()}">'
        f'<script src="{(STATIC / "copy.js").as_uri()}"></script><article><div class="highlight-bash">'
        f'<div class="highlight"><pre style="overflow-x:auto">{command}\n</pre></div></div></article>'
    )
    page = chromium.new_page(viewport={"width": 360, "height": 800})
    page.goto((tmp_path / "page.html").as_uri())
    yield page
    page.close()


@pytest.mark.parametrize("allowed", [True, False], ids=["clipboard", "by selection"])
def test_a_command_is_shown_whole_and_copied_as_one_line(with_a_command, allowed):
    page = with_a_command
    assert page.locator("pre").bounding_box()["height"] > 25 and cut_commands(page) == []
    page.evaluate(
        """allowed => {
            const write = async text => { if (!allowed) throw Error('no'); window.kept = text; };
            Object.defineProperty(navigator, 'clipboard', {value: {writeText: write}});
            document.execCommand = () => { window.kept = String(document.activeElement.value); return true; };
        }""",
        allowed,
    )
    page.get_by_role("button", name="copy").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="copied").wait_for(timeout=120_000)
    assert (
        page.evaluate("kept")
        == "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[lab]'"
    )
    page.get_by_role("button", name="copy", exact=True).wait_for(timeout=120_000)
    assert page.locator("textarea").count() == 0


@pytest.fixture
def with_a_picture(tmp_path, chromium):
    """Return a page with a figure 900 pixels wide and the script of the site that enlarges it."""
    (tmp_path / "page.html").write_text(
        f'<meta charset="utf-8"><link rel="stylesheet" href="{(STATIC / "site.css").as_uri()}">'
        f'<script src="{(STATIC / "enlarge.js").as_uri()}"></script>'
        f'<article><p><img alt="A map." src="{PICTURE}" style="width: 900px"></p></article>'
    )
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.goto((tmp_path / "page.html").as_uri())
    yield page
    page.close()


def test_on_a_phone_a_picture_is_whole_and_can_be_enlarged_by_keyboard(with_a_picture):
    page, picture = with_a_picture, with_a_picture.get_by_role("img", name="A map.")
    assert picture.bounding_box()["width"] <= 390 and too_wide(page) == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert picture.bounding_box()["width"] == 900 and too_wide(page) == 0
    button = page.get_by_role("button", name="show the whole picture", pressed=True)
    assert button.bounding_box()["height"] >= 44
    page.keyboard.press("Shift+Tab")  # to the picture, which arrow keys move
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0", timeout=120_000)
    button.click()
    assert picture.bounding_box()["width"] <= 390
    assert page.get_by_role("button", name="enlarge the picture", pressed=False).count() == 1


def test_a_tap_on_a_picture_enlarges_it_where_it_was_tapped(with_a_picture):
    page, picture = with_a_picture, with_a_picture.get_by_role("img", name="A map.")
    narrow = picture.bounding_box()
    picture.click(position={"x": 0.9 * narrow["width"], "y": 20})
    assert picture.bounding_box()["width"] == 900
    assert page.evaluate("document.querySelector('.enlargeable').scrollLeft") > 400
    picture.click(position={"x": 800, "y": 20})
    assert picture.bounding_box() == narrow


def test_where_a_picture_has_room_there_is_no_button(with_a_picture):
    page = with_a_picture
    page.get_by_role("button", name="enlarge the picture").click()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button").wait_for(state="hidden", timeout=120_000)
    page.set_viewport_size({"width": 390, "height": 800})
    page.get_by_role("button", name="enlarge the picture", pressed=False).wait_for(timeout=120_000)


def test_all_looks_at_once_say_only_what_is_wrong(chromium):
    page = chromium.new_page()
    page.set_content(f"<main><h1>Title</h1><h3>Too deep</h3>{'<p>words</p>' * 9}</main>")
    assert headings(page) == [1, 3]
    wrong = what_is_wrong(page)
    page.close()
    assert wrong == ["headings jump: (1, 3)"]
