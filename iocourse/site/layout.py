"""Which file of the repository is which page of the site, and what becomes of the links between them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..course.authoring.links import LINK
from ..course.checkout import Project
from .checking import LITE

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
        """The text of the file at `path` with each relative link leading to a page, else to the repository.

        A link that leads to no file is left as it is: Sphinx says which.
        """
        here = _page_of_text(path) or str(self.page_of(path))

        def lead(found: re.Match[str]) -> str:
            aim = _joined(path, found[1])
            if self.page_of(aim):
                return f"]({_between(here, str(self.page_of(aim)))}{found[2] or ''})"
            return f"]({self.project.page(aim)})" if (self.root / aim).exists() else found[0]

        return LINK.sub(lead, text)

    def in_colab(self, stem: str) -> str:
        """The line below a lesson's title: where its notebooks open."""
        exercises, solved = (
            self.project.colab(f"{folder}/{stem}.ipynb") for folder in ("lessons", "solutions")
        )
        opened = f"{COLAB}[exercises]({exercises}) · [solutions]({solved})"
        return f"{opened} · {_in_browser(stem)}" if stem in self.in_lite else opened


def _in_browser(stem: str) -> str:
    """A link in HTML, for Sphinx knows no pages of JupyterLite."""
    return f'<a href="../{LITE}/lab/index.html?path={stem}.ipynb">exercises in this browser</a>'


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
