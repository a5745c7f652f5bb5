"""Which file of the repository is which page of the site, and what becomes of the links between them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from iocourse.course.project_paths import Project
from tools.build.links import TEXT_AND_LINK, named
from tools.site.checking import LITE

COLAB = "Open in Colab: "
PAGES = {"lessons/notation.md": "lessons/notation.md", "CHANGELOG.md": "changelog.md"}
UNSEEN = (
    "conf.py",
    "nbgrader_config.py",
    "mutants.json",
    "proofs.toml",
    "remarks",
)  # files of docs/, no pages


@dataclass(frozen=True)
class Layout:
    """A site that is being prepared.

    Attributes:
        root: of the checkout.
        project: the repository that links lead to where a file is no page.
        stems: of the lessons that are on this site.
        in_lite: stems of the lessons that run in the browser, on pages of JupyterLite beside this site's.
    """

    root: Path
    project: Project
    stems: Collection[str]
    in_lite: Collection[str] = ()

    def page_of(self, path: str) -> str | None:
        """The page on which the file at `path` of the repository stands, or None where it has none."""
        folder, _, name = path.partition("/")
        if folder in ("lessons", "solutions") and name.endswith(".ipynb"):
            return f"lessons/{name}" if name.removesuffix(".ipynb") in self.stems else None
        page = _page_of_text(path)
        return page if page and (self.root / path).is_file() else None

    def linked(self, text: str, path: str) -> str:
        """The text of the file at `path` with each relative link leading to a page of the site.

        A file that is not a page is linked in the repository once its address is claimed; until then its path
        is named. A link to a file that does not exist is left as it is, and Sphinx reports it.
        """
        here = _page_of_text(path) or str(self.page_of(path))

        def lead(found: re.Match[str]) -> str:
            said, target, anchor = found.groups()
            aim = _joined(path, target)
            if page := self.page_of(aim):
                return f"[{said}]({_between(here, page)}{anchor or ''})"
            if not (self.root / aim).exists():
                return found[0]
            if self.project.claimed:
                return f"[{said}]({self.project.page(aim)})"
            return named(said, aim)

        return TEXT_AND_LINK.sub(lead, text)

    def opens_in(self, stem: str) -> str:
        """The line below a lesson's title: links that open its notebooks; empty where there are none."""
        links = []
        if self.project.claimed:
            folders = {"exercises": "lessons", "solutions": "solutions"}
            found = (f"[{name}]({self.project.colab(f'{at}/{stem}.ipynb')})" for name, at in folders.items())
            links.append(COLAB + " · ".join(found))
        if stem in self.in_lite:
            links.append(_in_browser(stem))
        return " · ".join(links)


def _in_browser(stem: str) -> str:
    """A link in HTML, for Sphinx knows no pages of JupyterLite."""
    return f'<a href="../{LITE}/lab/index.html?path={stem}.ipynb">Open the exercises in this browser</a>'


def _page_of_text(path: str) -> str | None:
    """The page of a text in Markdown, should there be one."""
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    return PAGES.get(path)


def _joined(path: str, target: str) -> str:
    """The file of the repository that `target`, a link in the file at `path`, means."""
    return os.path.normpath(PurePosixPath(path).parent / target).replace(os.sep, "/")


def _between(start: str, end: str) -> str:
    """The relative link from one page to another."""
    return os.path.relpath(end, PurePosixPath(start).parent).replace(os.sep, "/")
