"""A solved lesson as a page: its links lead to pages, and its pictures say what they show."""

from __future__ import annotations

import json
import re
from typing import Any

from iocourse.course.described import alt_of, pictures
from iocourse.refusal import Refused
from tools.site.layout import COLAB, Layout

Json = dict[str, Any]
SUMMARY = re.compile(r"<summary>.*?</summary>")
FORMULA = re.compile(r"\$([^$]+)\$")
SECTION = re.compile(r"^## (\d+)\.(\d+) ", re.MULTILINE)
MINUTES = re.compile(r"\*\*Minutes\*\*: (\d+)")


def page_of_lesson(notebook: Json, stem: str, layout: Layout) -> Json:
    """The notebook as the site shows it; `notebook` itself is left as it is."""
    made: Json = json.loads(json.dumps(notebook))
    made["cells"][0] = _opening(made["cells"][0], stem, layout)
    for cell in made["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _prose("".join(cell["source"]), stem, layout)
        else:
            cell["metadata"] = _shown(cell, stem)
    return made


def _opening(cell: Json, stem: str, layout: Layout) -> Json:
    """The cell of the title, with the links that open the lesson's notebooks below the title."""
    title, *lines = "".join(cell["source"]).split("\n")
    kept = [line for line in lines if not line.startswith(COLAB)]
    opens = layout.opens_in(stem) if cell["cell_type"] == "markdown" else ""
    return cell | {"source": "\n".join([title, *(["", opens] if opens else []), *kept])}


def _prose(text: str, stem: str, layout: Layout) -> str:
    linked = layout.linked(text, f"solutions/{stem}.ipynb")
    return SECTION.sub(r"(section-\1-\2)=\n\g<0>", SUMMARY.sub(_with_formulas, linked))


def _with_formulas(summary: re.Match[str]) -> str:
    """A summary is HTML, in which Sphinx looks for no formulas."""
    return FORMULA.sub(r'<span class="math notranslate nohighlight">\\(\1\\)</span>', summary[0])


def _shown(cell: Json, stem: str) -> Json:
    """The cell's metadata, with what myst-nb must know of it: the words of its picture, the set-up folded.

    Raises Refused where a picture says nothing, or a cell shows two: myst-nb keeps one text a cell.
    """
    metadata: Json = cell["metadata"]
    if "setup" in metadata.get("tags", ()):
        metadata = metadata | {"tags": [*metadata["tags"], "hide-input"]}
    said = [alt_of(output) for output in pictures({"cells": [cell]})]
    if not said:
        return metadata
    if len(said) > 1 or not said[0]:
        where = f"solutions/{stem}.ipynb, cell {cell['id']}"
        raise Refused(f"{where} must show one picture with alternative text, has {said}")
    return metadata | {"mystnb": {"image": {"alt": said[0]}}}


def title_of(notebook: Json) -> str:
    """The first heading: 04 FlashAttention's forward pass."""
    return str("".join(notebook["cells"][0]["source"]).split("\n")[0].removeprefix("# "))


def minutes_of(notebook: Json) -> str:
    """The minutes a lesson takes, as it says itself."""
    return next((found[1] for text in _texts(notebook) if (found := MINUTES.search(text))), "")


def sections_of(notebook: Json) -> list[str]:
    """The numbers of a lesson's sections: 4.1, 4.2, …"""
    return [f"{lesson}.{number}" for text in _texts(notebook) for lesson, number in SECTION.findall(text)]


def _texts(notebook: Json) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
