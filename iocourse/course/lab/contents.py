"""A notebook is saved with the still pictures of its explorers, and without the references to their widgets.

A widget lives in its kernel. A front end that finds a reference to one shows nothing else of an output: once
the kernel has ended, "Error displaying widget: model not found" in place of the picture that is saved next
to the reference. Saving the state of the widgets does not help, since the next save without a run drops it.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURE = "image/png"


class StillPictures(AsyncLargeFileManager):
    """Jupyter's own files. What the page shows stays live; only what is written to the file changes."""

    def run_pre_save_hooks(self, model: dict[str, Any], path: str, **others: Any) -> None:
        """Also drop the references to widgets from the notebook that is to be saved."""
        super().run_pre_save_hooks(model=model, path=path, **others)  # type: ignore[no-untyped-call]
        if model.get("type") == "notebook":
            without_widgets(model.get("content") or {})


def without_widgets(notebook: dict[str, Any]) -> None:
    """Drop the reference to a widget from every output that also has a picture."""
    for cell in notebook.get("cells", ()):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if PICTURE in data:
                data.pop(WIDGET, None)
