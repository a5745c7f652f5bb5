"""Build the site once per test run, and check its pages without a browser.

The checks find broken links within the site and figures without alternative text.
"""

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import skips

from iocourse.course.course_map import course_map

ROOT = Path(__file__).parents[1]
FORMER = {name: lesson.file for lesson in course_map().values() for name in lesson.former}
LITE = "lite"  # the folder of a site that is JupyterLite's own, not checked here
FILE_NAME = re.compile(r"[\w./-]*\.(png|svg|jpe?g|gif|webp)")
LONGEST = 840  # seconds that a build may take
WITHOUT_TRITON = """
import importlib.machinery as machinery

find = machinery.PathFinder.find_spec
hidden = ("torch", "triton")
seen = lambda cls, name, *rest: None if name.split(".")[0] in hidden else find(name, *rest)
machinery.PathFinder.find_spec = classmethod(seen)
"""


# ---------------------------------------------------------------------- building
def build(folder, *options, checkout=ROOT, env=None):
    """Build the site of a checkout, with warnings as errors, and return the printed problems."""
    # In a new home Matplotlib first lists the fonts and reports it, which is not a problem of the site.
    subprocess.run(
        [sys.executable, "-c", "import matplotlib.font_manager"], capture_output=True, env=env, check=False
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-j", "auto", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, "docs", str(folder), *options],
        capture_output=True, text=True, cwd=checkout, env=env, timeout=LONGEST, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 and not done.stderr else done.stdout + done.stderr or "it failed"


def dummy_lite(folder):
    """Create the parts of the output of docs/lite/build.py for lesson 04 that the site needs."""
    for name in ("lab/index.html", "files/04_flash_forward.ipynb"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("<title>JupyterLite</title>")
    return folder


@pytest.fixture(scope="session", name="site")
def shared_site(tmp_path_factory):
    """The folder of the site, built where torch and triton cannot be found, with lesson 04 in JupyterLite.

    The first worker that needs it builds it, and the others wait.
    """
    skips.unless_installed("sphinx", "myst_nb", "furo")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder, said = shared / "site", shared / "site.log"
    try:
        (shared / "hook").mkdir()
    except FileExistsError:
        end = time.monotonic() + LONGEST
        while not said.is_file() and time.monotonic() < end:
            time.sleep(0.2)
    else:
        (shared / "hook" / "sitecustomize.py").write_text(WITHOUT_TRITON)
        env = os.environ | {"PYTHONPATH": str(shared / "hook")}
        problems = build(folder, "-D", f"iocourse_lite={dummy_lite(shared / 'made-lite')}", env=env)
        (shared / "site.new").write_text(problems, encoding="utf-8")
        (shared / "site.new").replace(said)
    assert said.read_text(encoding="utf-8") == ""
    return folder


def extension():
    """The module docs/site_extension.py."""
    spec = importlib.util.spec_from_file_location("site_extension", ROOT / "docs" / "site_extension.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------- pages
class Page(HTMLParser):
    """Contents of a page: its links, anchors, text and figures, and the figures without a description."""

    def __init__(self, html):
        super().__init__()
        self.links, self.mute, self.alts, self._words = [], [], {}, []
        self.places = {"", "top"}  # browsers know these two everywhere
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        told = {name: value or "" for name, value in attrs}
        self.places |= {told[name] for name in ("id", "name") if name in told}
        self.links += [told[name] for name in ("href", "src") if name in told]
        if tag == "img":
            self.alts[told.get("src", "").rpartition("/")[2]] = told.get("alt", "")
            if not _speaks(told.get("alt", "")):
                self.mute.append(told.get("src", "")[:80])

    def handle_data(self, data):
        self._words.append(data)

    @property
    def text(self):
        """All words of the page, with one blank between them."""
        return plain("".join(self._words))


def plain(text):
    """The text with one blank between words."""
    return " ".join(text.split())


def page_at(site, name):
    """The page with this name, such as `lessons/04_flash_forward`."""
    return Page((site / f"{name}.html").read_text(encoding="utf-8"))


def _speaks(alt: str) -> bool:
    """Return True if the text is more than a file name."""
    return bool(alt.strip()) and not FILE_NAME.fullmatch(alt.strip())


def pages_of(site: Path) -> list[Path]:
    """The pages of a site, in order of their names, without those of JupyterLite and of former names."""
    pages = (p for p in site.rglob("*.html") if p.relative_to(site).parts[0] != LITE)
    return sorted(page for page in pages if page.stem not in FORMER)


def problems_of(site: Path) -> list[str]:
    """A line for each broken link within the site, places on pages included, and for each mute picture."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in pages_of(site)}
    return [line for path, page in pages.items() for line in _problems(site, path, page, pages)]


def _problems(site: Path, path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    name = path.relative_to(site).as_posix()
    for link in dict.fromkeys(page.links):
        if not _leads_somewhere(path, link, pages):
            yield f"{name}: no such place: {link}"
    for source in page.mute:
        yield f"{name}: a picture without alternative text: {source}"


def _leads_somewhere(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    aim = aim / "index.html" if aim.is_dir() else aim
    if aim in pages:
        return unquote(parts.fragment) in pages[aim].places
    return aim.is_file()


def asked_elsewhere(site):
    """Return the resources that the pages load from another server, and the number of all resources."""
    texts = [path.read_text(encoding="utf-8") for path in pages_of(site)]
    asked = [tag for text in texts for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", text)]
    return [tag for tag in asked if re.search(r"(?:src|href)=\"(?:https?:)?//", tag)], len(asked)
