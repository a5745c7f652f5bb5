"""Sphinx extension for the site: show solved lessons as pages, and make tables from the library's registries.

When a build starts, the solved notebooks are copied to docs/lessons, which git ignores. Each source is
changed when Sphinx reads it: links point to pages of the site, lessons get labels and alternative text, and
`<!-- made: NAME -->` is replaced by the text that the function `MADE[NAME]` returns. At the end of a build
each former file name of a lesson gets a page that leads to the present one.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError
from sphinx.util import logging

from iocourse.bounds import BOUNDS
from iocourse.console import DASH, table
from iocourse.course import explore
from iocourse.course.alt_text import alt_of, pictures
from iocourse.course.course_map import course_map
from iocourse.course.explore.draw.picture import Picture
from iocourse.course.schedule_lessons import SECTION_OF
from iocourse.data.records import NAMES, load_record, record_source
from iocourse.distributed.bounds import BOUNDS as ACROSS_RANKS
from iocourse.files import atomic_write
from iocourse.schedules import REGISTRY
from tools.build.absolute_links import TEXT_AND_LINK, named
from tools.build.project import Project, read_project

Json = dict[str, Any]
DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PROJECT = read_project(ROOT)
SECTION = re.compile(r"^## (\d+)\.(\d+) ", re.MULTILINE)
SUMMARY = re.compile(r"<summary>.*?</summary>")
MARK = re.compile(r"^<!-- made: (\w+) -->$", re.MULTILINE)
# Docstrings are Markdown: names in backquotes, examples, and characters that are markup in reStructuredText.
PLAIN = re.compile(r"``.+?``|`[^`]+`|^ *>>> .*$|[*|]", re.MULTILINE)
# Page for a former file name of a lesson; browsers follow it at once.
MOVED = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={page}">
<title>{title} has a new address</title>
</head>
<body>
<h1>{title} has a new address</h1>
<p>It is now at <a href="{page}">{page}</a>.</p>
</body>
</html>
"""
FRIENDS = {"Tiles": "iocourse.kernels", "bytes": "", "words": ""}  # name of a type -> the module that uses it
warn = logging.getLogger(__name__).warning


# ---- sources -----------------------------------------------------------------------------------------------


def copy_lessons(app: Sphinx, config: Config) -> None:
    """Update docs/lessons: exact copies of the solved notebooks and of the notation page.

    Raises:
        ConfigError: `iocourse_lite` is not a directory of JupyterLite pages.
    """
    lite = config.iocourse_lite
    if lite and not ((Path(lite) / "lab" / "index.html").is_file() and lite_stems(lite)):
        raise ConfigError(
            "iocourse_lite must be a directory written by docs/lite/build.py (lab/index.html, and notebooks "
            f"in files/), got {lite!r}"
        )
    wanted = {path.name: path for path in (ROOT / "solutions").glob("[0-9]*.ipynb")}
    for old in (DOCS / "lessons").glob("*.ipynb"):
        if old.name not in wanted:
            old.unlink()
    for name, path in (wanted | {"notation.md": ROOT / "lessons" / "notation.md"}).items():
        copy = DOCS / "lessons" / name
        if not copy.is_file() or copy.read_bytes() != path.read_bytes():
            atomic_write(copy, path.read_bytes())


def keep_figures_inside(app: Sphinx) -> None:
    """Write the figures of notebooks into the folder of the doctrees instead of next to the site's folder."""
    folder = str(Path(app.doctreedir) / "jupyter_execute")
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=folder)  # type: ignore[attr-defined]


def lite_stems(lite: str) -> list[str]:
    """Return the stems of the notebooks in a folder of JupyterLite pages; empty without a folder."""
    return sorted(path.stem for path in Path(lite, "files").glob("[0-9]*.ipynb")) if lite else []


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change one source before Sphinx parses it: links, labels, alternative texts and generated parts."""
    path = Path(app.env.doc2path(docname)).relative_to(DOCS).as_posix()
    if path.endswith(".ipynb"):
        in_lite = Path(path).stem in lite_stems(app.config.iocourse_lite)
        source[0] = json.dumps(lesson(json.loads(source[0]), path, in_lite))
    elif path.endswith(".md"):
        text = linked(source[0], path if path.startswith("lessons/") else f"docs/{path}", path)
        source[0] = MARK.sub(lambda found: MADE[found[1]](app), text)


def made_again(app: Sphinx, *_: Any) -> list[str]:
    """Return the pages with a generated part: every build reads them, as the library may have changed."""
    return [path.stem for path in DOCS.glob("*.md") if MARK.search(path.read_text(encoding="utf-8"))]


def page_of(path: str) -> str | None:
    """Return the source (relative to docs/) of the page that shows the file at `path`, or None."""
    folder, _, name = path.partition("/")
    page = f"lessons/{name}" if folder in ("lessons", "solutions") else name if folder == "docs" else ""
    page = "changelog.md" if path == "CHANGELOG.md" else page
    return page if page.endswith((".md", ".ipynb")) and (DOCS / page).is_file() else None


def linked(text: str, path: str, page: str, project: Project = PROJECT) -> str:
    """Return the text of the file at `path`, with relative links from `page` to pages of the site.

    A link to another file of the repository is replaced by its address if that is claimed, otherwise by the
    file name. A link to a file that does not exist is left unchanged, and Sphinx warns of it.
    """

    def lead(found: re.Match[str]) -> str:
        said, target, anchor = found.groups()
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if to := page_of(aim):
            return f"[{said}]({posixpath.relpath(to, posixpath.dirname(page))}{anchor or ''})"
        if not (ROOT / aim).exists():
            return found[0]
        return f"[{said}]({project.page(aim)})" if project.claimed else named(said, aim)

    return TEXT_AND_LINK.sub(lead, text)


# ---- lessons -----------------------------------------------------------------------------------------------


def lesson(notebook: Json, page: str, in_lite: bool = False) -> Json:
    """Return a solved notebook for the site, with links, labels, folded set-up and alternative text."""
    if in_lite:  # in HTML, because Sphinx cannot link to pages of JupyterLite
        aim = f"../lite/lab/index.html?path={posixpath.basename(page)}"
        title, *rest = "".join(notebook["cells"][0]["source"]).split("\n")
        opens = f'<a href="{aim}">Open the exercises in this browser</a>'
        notebook["cells"][0]["source"] = "\n".join([title, "", opens, *rest])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = linked("".join(cell["source"]), f"solutions/{posixpath.basename(page)}", page)
            text = SUMMARY.sub(_with_formulas, text)
            cell["source"] = SECTION.sub(r"(section-\1-\2)=\n\g<0>", text)
            continue
        if "setup" in cell["metadata"].get("tags", ()):
            cell["metadata"]["tags"].append("hide-input")
        if alts := [alt_of(output) for output in pictures({"cells": [cell]})]:
            if len(alts) > 1 or not alts[0]:  # MyST-NB keeps one alternative text per cell
                warn("%s, cell %s: expected one figure with alternative text, has %s", page, cell["id"], alts)
            cell["metadata"]["mystnb"] = {"image": {"alt": alts[0]}}
    return notebook


def _with_formulas(summary: re.Match[str]) -> str:
    """Return a summary with its formulas marked for MathJax; Sphinx finds no formulas in HTML."""
    return re.sub(r"\$([^$]+)\$", r'<span class="math notranslate nohighlight">\\(\1\\)</span>', summary[0])


# ---- made parts of pages -----------------------------------------------------------------------------------


def map_of_schedules(app: Sphinx) -> str:
    """Return the figure of the start page: words moved by schedules against fast memory, above the bounds."""
    drawn = ("naive", "flash1", "flash_optimal", "small_cache")
    drawn += ("scores_stored", "scores_stored_tiled", "resident_keys")
    return shown(app, "map", explore.traffic_map(8192, 64, M=58368, M_range=(128, 2**22), schedules=drawn))


def lessons_in_readme(app: Sphinx) -> str:
    """Return README's two tables of lessons, with each title linked to the page of the solved lesson."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    parts = [readme.split(f"<!-- {name} -->")[1].split("<!-- /")[0] for name in ("spine", "electives")]
    both = "The main path:\n{}\nElectives:\n{}".format(*parts)
    return linked(re.sub(r" · \[solution\]\([^)]+\)", "", both), "README.md", "index.md")


def contents(app: Sphinx) -> str:
    """Return the table of contents of the lessons, in the order of the map; file names have another one."""
    pages = "\n".join(f"lessons/{lesson.file}" for lesson in course_map().values())
    return f"```{{toctree}}\n:hidden:\n:caption: Lessons\n\n{pages}\n```"


def in_the_browser(app: Sphinx) -> str:
    """Return the sentence with the link to the pages of JupyterLite; "" if the site has none."""
    if not (stems := lite_stems(app.config.iocourse_lite)):
        return ""
    first, last = (stem.partition("_")[0] for stem in (stems[0], stems[-1]))
    page = f"lite/lab/index.html?path={stems[0]}.ipynb"
    return (
        f'Lessons {first} to {last} also <a href="{page}">run in this browser</a> without installation. '
        "Python is loaded from Pyodide's server, and your work is kept in the storage of this browser."
    )


def bounds(app: Sphinx) -> str:
    """Return the table of bounds, and below it the entries of the registries and docs/proofs.toml on each."""
    every, proofs = BOUNDS | ACROSS_RANKS, tomllib.loads((DOCS / "proofs.toml").read_text(encoding="utf-8"))
    for id in sorted(every.keys() ^ proofs.keys()):
        warn("%s must be in docs/proofs.toml and in a registry of bounds, but is missing in one of them", id)
    rows, parts = ["| bound | title | pass | status |", "| --- | --- | --- | --- |"], []
    for id, bound in every.items():
        place = "bound-" + id.replace("''", "-second").replace("'", "-prime").replace("_", "-").lower()
        rows.append(f"| [{id}](#{place}) | {bound.title} | {', '.join(bound.passes)} | {bound.status} |")
        proof = proofs.get(id, {"text": ""})
        at = f"Section {section_link(proof['at'])}. " if "at" in proof else ""
        facts = {"Holds for": bound.holds_for, "Not about": bound.not_about, "Regime": bound.regime}
        facts |= {"Status": bound.status, "Source": bound.source, "Proof": at + proof["text"]}
        told = "\n\n".join(f"**{name}.** {text}" for name, text in facts.items() if text)
        parts.append(f"({place})=\n### {id}: {bound.title}\n\n$$ {bound.formula} $$\n\n{told}")
    return "\n\n".join(["\n".join(rows), "## Each bound", *parts])


def schedules(app: Sphinx) -> str:
    """Return the table of schedules, and below it each schedule with its closed form."""
    rows, parts = ["| schedule | label | section | pass |", "| --- | --- | --- | --- |"], []
    for name, one in REGISTRY.items():
        place = f"schedule-{name.replace('_', '-')}"
        section = section_link(SECTION_OF[name]) if name in SECTION_OF else ""
        rows.append(f"| [{name}](#{place}) | {one.label} | {section} | {one.pass_} |")
        facts = {"Tiles": ", ".join(one.tile_names), "Must be passed": ", ".join(one.needs)}
        facts |= {"Regime": one.regime, "Values": one.approximates.name if one.approximates else ""}
        facts |= {"Source": one.source, "Closed form": plain(one.cost_form.__doc__)}
        told = "\n\n".join(f"**{name}.** {text}" for name, text in facts.items() if text)
        parts.append(f"({place})=\n### {one.title}\n\n{plain(one.__doc__)}\n\n{told}")
    return "\n\n".join(["\n".join(rows), "## Each schedule", *parts])


def section_link(number: str) -> str:
    """Return the link to a section of a lesson, such as "5.9"."""
    return f"[{number}](#section-{number.replace('.', '-')})"


def plain(docstring: str | None) -> str:
    """Return a docstring as one line of Markdown, with special characters outside names escaped."""
    parts = " ".join((docstring or "").split()).split("`")
    parts[::2] = [re.sub(r"[*_|]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def records(app: Sphinx) -> str:
    """Return the table of records with their sources, and below it the figures or the numbers of each."""
    rows, parts = ["| record | measured with |", "| --- | --- |"], []
    for name in NAMES:
        record = load_record(name)
        link = f"[{name}](#record-{name})" if record else name
        rows.append(f"| {link} | {record_source(record)} |")
        if record:
            drawn = [shown(app, f"{name}-{at}", figure) for at, figure in enumerate(figures(record))]
            parts += [f"(record-{name})=\n## {name}", *(drawn or [folded("The numbers", numbers(record))])]
    return "\n\n".join(["\n".join(rows), *parts])


def figures(record: Json) -> Iterator[Picture]:
    """Yield the figures that `iocourse.course.explore` draws of a record."""
    if record["subject"] == "attention":
        for pass_, dtype, d in dict.fromkeys((row["pass"], row["dtype"], row["d"]) for row in record["rows"]):
            yield explore.benchmark_bars(record, pass_=pass_, dtype=dtype, d=d)
    elif record["subject"] == "depth":
        yield from (explore.depth_errors(record), explore.training_curves(record))
        yield explore.depth_errors(record, what="trained")
    elif record["subject"] == "lowrank":
        yield from (
            explore.lowrank_vs_published(record),
            explore.lowrank_vs_published(record, section="gradient"),
        )
        yield from (explore.lowrank_scaling(record), explore.lowrank_baselines(record))
    elif record["subject"] == "resources":
        yield explore.kernel_resources(record["forward_by_tile"], d=128, chips=[75, 80, 90])


def numbers(record: Json) -> str:
    """Return a record as text: its single values, then one table for each of its lists."""
    parts = [table([[name, _cell(value)] for name, value in _flat(record)])]
    for key, rows in record.items():
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            flat = [dict(_flat(row)) for row in rows]
            names = list(dict.fromkeys(name for row in flat for name in row))
            cells = [[_cell(row.get(name)) for name in names] for row in flat]
            parts.append(f"{key}\n{table([names, *cells])}")
    return "\n\n".join(parts)


def _flat(record: Json, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and value of all entries outside lists, with names such as `device.name`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif not isinstance(value, list):
            yield f"{before}{name}", value


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return DASH if value is None else str(value)


def shown(app: Sphinx, name: str, picture: Picture) -> str:
    """Write a figure as PNG, and return its image tag with alternative text and its folded numbers."""
    atomic_write(Path(app.outdir) / "_images" / f"{name}.png", picture.to_png())
    alt = escape(" ".join(picture.alt.split()))
    image = f'<img src="_images/{name}.png" alt="{alt}" width="{round(picture.width)}">'
    return f"{image}\n\n{folded('The numbers', picture.numbers)}"


def folded(summary: str, text: str) -> str:
    """Return text in a `<details>` element, which a reader opens with a click."""
    return f"<details><summary>{summary}</summary>\n\n```text\n{text}\n```\n\n</details>"


MADE = {
    "bounds": bounds,
    "browser": in_the_browser,
    "contents": contents,
    "lessons": lessons_in_readme,
    "map": map_of_schedules,
    "records": records,
    "schedules": schedules,
}


# ---- corrections of Sphinx's output ------------------------------------------------------------------------


def numbered_as_written(app: Sphinx, doctree: nodes.document) -> None:
    r"""Show display formulas as written; Sphinx would put those with \\ into an environment without \tag."""
    for block in doctree.findall(nodes.math_block):
        if not block.get("no-wrap", block.get("nowrap")):
            formula = block.astext()
            block.children = [nodes.Text(rf"\[{formula}\]")]
            block["no-wrap"] = block["nowrap"] = True


def without_false_friends(app: Sphinx, doctree: nodes.document) -> None:
    """Remove wrong links of types, because Sphinx links a type to any object whose name ends in it."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        room = FRIENDS.get(link.get("reftarget", ""))
        if room is not None and link.get("py:module") != room:
            link.replace_self(link.children)


def as_plain_words(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Escape bars and stars outside names in docstrings, which are markup in reStructuredText.

    The text of a property starts after an empty comment; napoleon reads words before a colon as a type.
    """
    text = "\n".join(lines)
    lines[:] = PLAIN.sub(lambda mark: mark[0] if mark[0][0] in "`>" else f"\\{mark[0]}", text).split("\n")
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]


def without_field_numbers(
    app: Sphinx, what: str, name: str, found: Any, skip: bool, options: Any
) -> bool | None:
    """Skip the fields of named tuples, which are in the signature; Python's docstrings for them are empty."""
    return True if str(getattr(found, "__doc__", "")).startswith("Alias for field number") else None


def add_lite(app: Sphinx, problem: Exception | None) -> None:
    """Copy the JupyterLite pages to lite/ of the site."""
    if app.config.iocourse_lite and problem is None:
        shutil.copytree(app.config.iocourse_lite, Path(app.outdir) / "lite", dirs_exist_ok=True)


def add_former_pages(app: Sphinx, problem: Exception | None) -> None:
    """Write a page for each former file name of a lesson, so that old links lead to the present page."""
    if problem is None:
        for one in course_map().values():
            text = MOVED.format(title=escape(one.title), page=f"{one.file}.html")
            for name in one.former:
                atomic_write(Path(app.outdir) / "lessons" / f"{name}.html", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the configuration values and event handlers of this extension with Sphinx."""
    app.add_config_value("iocourse_lite", "", "env", str, "folder made by docs/lite/build.py")
    app.add_config_value("iocourse_project", repr(PROJECT), "env")  # a new address: every page is read again
    app.connect("config-inited", copy_lessons)
    app.connect("builder-inited", keep_figures_inside, priority=900)  # after MyST-NB
    app.connect("env-get-outdated", made_again)
    app.connect("source-read", prepare)
    app.connect("autodoc-skip-member", without_field_numbers)
    app.connect("autodoc-process-docstring", as_plain_words, priority=400)  # before napoleon
    app.connect("doctree-read", numbered_as_written)
    app.connect("doctree-read", without_false_friends)
    app.connect("build-finished", add_lite)
    app.connect("build-finished", add_former_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
