"""What Sphinx builds the site from: copies of lessons and pages, and the pages that are made."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from iocourse.course.project_paths import read_project
from iocourse.explore import memory_map
from iocourse.explore.draw.picture import Picture
from iocourse.refusal import Refused
from tools.site.layout import PAGES, UNSEEN, Layout
from tools.site.lessons import Json, page_of_lesson, sections_of
from tools.site.pages.api import api_pages
from tools.site.pages.bench import bench_page, shown_as
from tools.site.pages.bounds import bounds_page
from tools.site.pages.lessons import in_the_browser, lessons_table
from tools.site.pages.schedules import schedules_page

MATHJAX = "sphinx-mathjax-offline"  # the package that brings it; it has no name that Python could import
MAPPED = (  # schedules of the landing page's map
    "naive",
    "flash1",
    "flash_optimal",
    "small_cache",
    "scores_stored",
    "scores_stored_tiled",
    "keys_kept",
)
EVERY = re.compile(r"^([a-z]+)/\*\n", re.MULTILINE)  # all pages of a folder, in a table of contents
# Of MathJax, what TeX on a page may ask for.
FORMULAS = ("tex-chtml.js", "output", "input/tex", "a11y", "sre")


def write_sources(
    root: Path, folder: Path, only: Sequence[str] = (), in_lite: Sequence[str] = ()
) -> list[str]:
    """Write to `folder` all that Sphinx needs, and return the stems of the lessons.

    Args:
        root: of the checkout.
        folder: an empty folder.
        only: beginnings of names of lessons, such as "04"; all, where it is empty.
        in_lite: stems of the lessons that the pages of JupyterLite have, if this site carries such pages.

    Raises:
        Refused: this is no checkout, there is no such lesson, no MathJax, or a page cannot be made.
    """
    if not (root / "docs" / "conf.py").is_file():
        raise Refused(f"no docs/conf.py in {root}: the site is built in a checkout of the repository")
    every = _solved(root)
    notebooks = _chosen(every, only)
    layout = Layout(root, read_project(root), tuple(notebooks), tuple(in_lite))
    _copy_docs(folder, layout)
    for stem, notebook in notebooks.items():
        made = page_of_lesson(notebook, stem, layout)
        _write(folder / "lessons" / f"{stem}.ipynb", json.dumps(made, ensure_ascii=False))
    _write(folder / "made" / "lessons.md", lessons_table(notebooks))
    _write(folder / "made" / "lite.md", in_the_browser(in_lite))
    _write_made(folder, root, _sections(every, layout))
    _copy_mathjax(folder / "_static" / "mathjax")
    return list(notebooks)


def _chosen(every: Mapping[str, Json], only: Sequence[str]) -> dict[str, Json]:
    """The notebooks whose names begin as `only` says."""
    notebooks = {stem: nb for stem, nb in every.items() if not only or stem.startswith(tuple(only))}
    if not notebooks:
        raise Refused(f"--only {', '.join(only)}: no solved lesson begins so; there are: {', '.join(every)}")
    return notebooks


def _write_made(folder: Path, root: Path, sections: Mapping[str, str]) -> None:
    """The pages that are made from the library, and their pictures."""
    text, pictures = bench_page()
    made = {"bounds.md": bounds_page(root, sections), "schedules.md": schedules_page(sections)}
    made |= {"bench.md": text, "made/map.md": shown_as("pictures/map.png", the_map()), **api_pages()}
    for path, page in made.items():
        _write(folder / path, page)
    _draw(folder, {**pictures, "map.png": the_map()})


@cache
def the_map() -> Picture:
    """The landing page's picture: words against fast memory, schedules above bounds."""
    picture: Picture = memory_map(8192, 64, M=58368, M_range=(128, 2**22), schedules=MAPPED)
    return picture


def _solved(root: Path) -> dict[str, Json]:
    """The solved notebooks by stem, in the order of the course."""
    found = sorted((root / "solutions").glob("[0-9]*.ipynb"))
    if not found:
        raise Refused(f"no solved lessons in {root / 'solutions'}: python -m tools.build makes them")
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in found}


def _copy_docs(folder: Path, layout: Layout) -> None:
    """The pages of docs/ and those from elsewhere, with their links; and all else that docs/ holds."""
    docs = layout.root / "docs"
    for path in sorted(docs.rglob("*")):
        name = path.relative_to(docs).as_posix()
        if path.is_dir() or name.split("/")[0] in UNSEEN[1:]:
            continue
        if path.suffix == ".md":
            text = EVERY.sub(partial(_some, docs), path.read_text(encoding="utf-8"))
            _write(folder / name, layout.linked(text, f"docs/{name}"))
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
    for source, page in PAGES.items():
        if layout.page_of(source):
            _write(folder / page, layout.linked((layout.root / source).read_text(encoding="utf-8"), source))


def _some(docs: Path, every: re.Match[str]) -> str:
    """The line "guide/*", or nothing where that folder has no pages: Sphinx would complain."""
    return every[0] if any((docs / every[1]).glob("*.md")) else ""


def _sections(every: Mapping[str, Json], layout: Layout) -> dict[str, str]:
    """Number of a section → the link to it; where its lesson is not a page, `Layout.linked` decides."""
    return {
        section: _link(section, stem, layout)
        for stem, notebook in every.items()
        for section in sections_of(notebook)
    }


def _link(section: str, stem: str, layout: Layout) -> str:
    text = f"lesson {stem.partition('_')[0]}, section {section}"
    if stem in layout.stems:
        return f"[{text}](#section-{section.replace('.', '-')})"
    return layout.linked(f"[{text}](../solutions/{stem}.ipynb)", "docs/bounds.md")


def _draw(folder: Path, pictures: Mapping[str, Picture]) -> None:
    for name, picture in pictures.items():
        (folder / "pictures").mkdir(exist_ok=True)
        (folder / "pictures" / name).write_bytes(picture.to_png())


def _copy_mathjax(target: Path) -> None:
    """What typesets formulas, so that a page asks nobody else for it."""
    found = importlib.util.find_spec(MATHJAX)
    places = found.submodule_search_locations if found else None
    if not places:
        raise Refused(f'MathJax is not installed here: python -m pip install "{MATHJAX}"')
    source = Path(places[0]) / "static" / "mathjax"
    target.mkdir(parents=True)
    for name in FORMULAS:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copyfile(source / name, target / name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
