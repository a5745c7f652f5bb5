"""What a kernel says goes to the page at once.

A change of an explorer makes a kernel say two things, that it is busy and what is to be seen. TCP holds the
second back until the page has confirmed the first, which it puts off by 40 ms, to have something to send with
it (Nagle's algorithm and delayed acknowledgement). Jupyter's server leaves that as it is; here it is off.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):
    """The server's end of the connection between a page and a kernel, without that delay."""

    def connect(self) -> Any:
        """Connect to the kernel, now that a page has connected to us."""
        self.websocket_handler.set_nodelay(True)
        return super().connect()
