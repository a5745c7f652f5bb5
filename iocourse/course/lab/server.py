"""JupyterLab's server as `iocourse lab` starts it: two of its classes replaced, and a slow import left out.

`python -m iocourse.course.lab.server` takes JupyterLab's options; the classes are named in them.
"""

from __future__ import annotations

import sys
from typing import Any

if __name__ == "__main__":
    # Among what JupyterLab brings is a checker of international web addresses, which takes half the time of
    # its start to load. jsonschema asks for it and does without where it is not there; nothing of Jupyter's
    # has such addresses to check.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURE = "image/png"


class PromptConnection(ZMQChannelsWebsocketConnection):
    """The server's end of the connection between a page and a kernel: messages are sent at once.

    A change of an explorer makes a kernel send two messages, that it is busy and what is to be shown. TCP
    holds the second back until the page has confirmed the first, and the page delays that by 40 ms, to have
    something to send with it (Nagle's algorithm and delayed acknowledgement). Jupyter's server does not
    prevent this.
    """

    def connect(self) -> Any:
        """Connect to the kernel, now that a page has connected to us."""
        self.websocket_handler.set_nodelay(True)
        return super().connect()


class StillPictures(AsyncLargeFileManager):
    """Jupyter's own files, where a notebook is saved with pictures of its explorers instead of widgets.

    A widget lives in its kernel. A front end that finds a reference to one shows nothing else of an output:
    once the kernel has ended, "Error displaying widget: model not found" in place of the picture that is
    saved next to the reference. Saving the state of the widgets does not help, since the next save without a
    run drops it. The page stays live; only the file changes.
    """

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


if __name__ == "__main__":
    from jupyterlab.labapp import main

    sys.exit(main())
