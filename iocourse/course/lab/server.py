"""JupyterLab server of `iocourse lab`, with two replaced classes and without one slow import.

`python -m iocourse.course.lab.server` accepts JupyterLab's options, which also select the two classes.
"""

from __future__ import annotations

import sys
from typing import Any

if __name__ == "__main__":
    # JupyterLab installs a checker of international URLs (IRIs), whose import takes half of the start time.
    # jsonschema imports it optionally, and Jupyter has no such URLs to check.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURE = "image/png"


class PromptConnection(ZMQChannelsWebsocketConnection):
    """Server side of the connection between a page and a kernel, with TCP_NODELAY.

    When an explorer changes, the kernel sends two messages: its status, and the output. TCP delays the second
    until the first is acknowledged, and the page delays the acknowledgement (Nagle's algorithm and
    delayed acknowledgement). Jupyter's server does not prevent this.
    """

    def connect(self) -> Any:
        """Connect to the kernel after a page has connected, and disable Nagle's algorithm for the page."""
        self.websocket_handler.set_nodelay(True)
        return super().connect()


class StillPictures(AsyncLargeFileManager):
    """Jupyter's file manager, which saves explorers as figures, without references to widgets.

    A widget exists only in its kernel. A front end that finds a reference to one shows nothing else. When the
    kernel has ended, it shows "Error displaying widget: model not found" instead of the figure. Saving
    the state of the widgets does not help, because the next save without a run drops it. Only the file
    changes; the open page keeps its widgets.
    """

    def run_pre_save_hooks(self, model: dict[str, Any], path: str, **others: Any) -> None:
        """Run Jupyter's hooks, then remove the references to widgets from the notebook to be saved."""
        super().run_pre_save_hooks(model=model, path=path, **others)  # type: ignore[no-untyped-call]
        if model.get("type") == "notebook":
            drop_widgets(model.get("content") or {})


def drop_widgets(notebook: dict[str, Any]) -> None:
    """Remove the reference to a widget from every output that also contains a PNG; modifies `notebook`."""
    for cell in notebook.get("cells", ()):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if PICTURE in data:
                data.pop(WIDGET, None)


if __name__ == "__main__":
    from jupyterlab.labapp import main

    sys.exit(main())
