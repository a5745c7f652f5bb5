"""Tests that every figure of the solved notebooks has alternative text in HTML pages."""

import json
import sys
import tomllib
from copy import deepcopy
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from iocourse.course.alt_text import add_alt_text, alt_of, pictures

ROOT = Path(__file__).parents[2]
SOLVED = sorted((ROOT / "solutions").glob("*.ipynb"))
PNG = "aGVs\nbG8=\n"


class Images(HTMLParser):
    """HTML parser that collects the attributes of every image of a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.found.append(dict(attributes))


def a_notebook(*outputs):
    return {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": list(outputs)}]}


def shown(data, **of_png):
    return {"output_type": "display_data", "data": data, "metadata": {"image/png": of_png}}


def test_a_picture_becomes_an_image_with_its_words():
    before = a_notebook(shown({"image/png": PNG, "text/plain": "p"}, alt='a < "b"', width=7, height=5))
    kept = deepcopy(before)
    output = add_alt_text(before)["cells"][1]["outputs"][0]
    assert before == kept and set(output["data"]) == {"text/html", "text/plain"}
    (image,) = Images(output["data"]["text/html"]).found
    assert (image["alt"], image["width"], image["height"]) == ('a < "b"', "7", "5")
    assert image["src"] == "data:image/png;base64,aGVsbG8="


@pytest.mark.parametrize(
    "output",
    [
        shown({"image/png": PNG}),
        shown({"image/png": PNG}, alt=" "),
        shown({"image/png": PNG, "text/html": "<svg></svg>"}, alt="words"),
        shown({"text/plain": "42"}),
        {"output_type": "stream", "name": "stdout", "text": "42"},
    ],
)
def test_other_outputs_stay_as_they_are(output):
    assert add_alt_text(a_notebook(output)) == a_notebook(output)


@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_every_picture_of_a_solved_notebook_has_a_sentence(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    words = [alt_of(output) for output in pictures(notebook)]
    assert words and all(alt.endswith(".") and len(alt.split()) >= 8 for alt in words)
    page = "".join(
        "".join(output["data"].get("text/html", ""))
        for cell in add_alt_text(notebook)["cells"]
        for output in cell.get("outputs", ())
        if "data" in output
    )
    assert [image["alt"] for image in Images(page).found] == words
    assert not list(pictures(add_alt_text(notebook)))


# ---------------------------------------------------------------------- nbconvert
@pytest.fixture(scope="module")
def exporters():
    """nbconvert's HTML exporter, and the exporter that pyproject.toml registers for the course."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)  # a URL checker that is slow to import
        nbconvert = pytest.importorskip("nbconvert")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        module, _, name = project["entry-points"]["nbconvert.exporters"]["described"].partition(":")
        yield nbconvert.HTMLExporter, getattr(import_module(module), name)


@pytest.mark.parametrize("stem", ["00_start_here", "08b_sparse_bounds"])
def test_pages_of_nbconvert_carry_the_words_of_every_picture(exporters, stem):
    (path,) = (path for path in SOLVED if path.stem == stem)
    words = [alt_of(output) for output in pictures(json.loads(path.read_text(encoding="utf-8")))]
    _, ours = exporters
    page, _ = ours().from_filename(str(path))
    assert [image["alt"] for image in Images(page).found] == words
    exporter = exporters[0](template_name="classic")  # nbconvert's older page reads them from the metadata
    page, _ = exporter.from_filename(str(path))
    assert [image["alt"] for image in Images(page).found] == words
