"""Convert saved figures of a notebook to HTML images with alternative text.

A saved figure is a PNG with its alternative text in the metadata of the output. JupyterLab, nbconvert and
myst-nb read only width and height from there, but they show HTML unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeVar

from iocourse.course.explore.draw.text import image

Json = dict[str, Any]
Notebook = TypeVar("Notebook", bound=Json)
PNG, HTML = "image/png", "text/html"


def add_alt_text(notebook: Notebook) -> Notebook:
    """Return a copy of a notebook in which every figure with alternative text is an `<img>` with `alt`.

    The PNG is moved into the HTML, so it is stored once. Figures without alternative text and outputs with
    their own HTML are unchanged.

    Args:
        notebook: nbformat 4 JSON; it is not modified.
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
    """Yield the outputs of a notebook that contain a PNG."""
    for cell in notebook["cells"]:
        yield from (output for output in cell.get("outputs", ()) if PNG in output.get("data", ()))


def alt_of(output: Json) -> str:
    """Return the alternative text of a saved figure; "" if it has none."""
    return str(output.get("metadata", {}).get(PNG, {}).get("alt", "")).strip()
