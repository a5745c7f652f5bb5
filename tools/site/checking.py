"""What a built page must not have: a link that leads nowhere on the site, or a picture without words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LITE = "lite"  # the folder of a site that is JupyterLite's own, not checked here
FILE_NAME = re.compile(r"[\w./-]*\.(png|svg|jpe?g|gif|webp)")


class Page(HTMLParser):
    """What a page links to, the places it has, and its pictures that say nothing."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = {"", "top"}  # browsers know these two everywhere
        self.mute: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by HTMLParser for every start tag."""
        told = {name: value or "" for name, value in attrs}
        self.places |= {told[name] for name in ("id", "name") if name in told}
        self.links += [told[name] for name in ("href", "src") if name in told]
        if tag == "img" and not _speaks(told.get("alt", "")):
            self.mute.append(told.get("src", "")[:80])


def _speaks(alt: str) -> bool:
    """Whether the text says more than the name of a file."""
    return bool(alt.strip()) and not FILE_NAME.fullmatch(alt.strip())


def pages_of(site: Path) -> list[Path]:
    """The pages of a site, in order of their names; those of JupyterLite are left out."""
    return sorted(p for p in site.rglob("*.html") if p.relative_to(site).parts[0] != LITE)


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
