"""Pages of nbconvert whose pictures carry their words: `jupyter nbconvert --to described NOTEBOOK`."""

from __future__ import annotations

from typing import Any

from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode

from iocourse.course.alt_text import with_alt_text


class DescribedHTML(HTMLExporter):
    """nbconvert's own page, after every saved picture has become an image with its alternative text."""

    export_from_notebook = "HTML with described pictures"  # in JupyterLab's menu

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **named: Any) -> Any:
        """The page of a notebook, and what nbconvert collected on the way."""
        return super().from_notebook_node(with_alt_text(nb), resources, **named)
