"""nbconvert exporter for HTML pages with alternative text: `jupyter nbconvert --to described NOTEBOOK`."""

from __future__ import annotations

from typing import Any

from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode

from iocourse.course.alt_text import add_alt_text


class DescribedHTML(HTMLExporter):
    """nbconvert's HTML exporter, with every saved figure converted to an image with alternative text."""

    export_from_notebook = "HTML with described pictures"  # entry in JupyterLab's menu

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **named: Any) -> Any:
        """Return the HTML page of a notebook and nbconvert's resources."""
        return super().from_notebook_node(add_alt_text(nb), resources, **named)
