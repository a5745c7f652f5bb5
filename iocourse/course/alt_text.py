"""Saved pictures as a page wants them: HTML images that carry their alternative text.

A saved output is a PNG, and its words stand in its metadata. JupyterLab, the pages of nbconvert and myst-nb
take width and height from there and leave the words where they are; HTML they show as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeVar

from iocourse.explore.draw.text import image

Json = dict[str, Any]
Notebook = TypeVar("Notebook", bound=Json)
PNG, HTML = "image/png", "text/html"


def with_alt_text(notebook: Notebook) -> Notebook:
    """A copy of nbformat 4 JSON in which every picture that has words is an `<img>` with them.

    The PNG moves into the HTML, so nothing is stored twice. A picture without words stays as it is, and so
    does an output that has HTML of its own.
    """
    copy = deepcopy(notebook)
    for output in pictures(copy):
        if alt_of(output) and HTML not in output["data"]:
            shown = output["metadata"].pop(PNG)
            png = "".join("".join(output["data"].pop(PNG)).split())
            size = {side: shown.get(side) for side in ("width", "height")}
            output["data"][HTML] = image(PNG, png, shown["alt"], **size)
    return copy


def pictures(notebook: Json) -> Iterator[Json]:
    """The outputs of a notebook that hold a PNG."""
    for cell in notebook["cells"]:
        yield from (output for output in cell.get("outputs", ()) if PNG in output.get("data", ()))


def alt_of(output: Json) -> str:
    """The words of a saved picture; empty where it has none."""
    return str(output.get("metadata", {}).get(PNG, {}).get("alt", "")).strip()
