"""A port that is asked for: JupyterLab would take another without a word, or end in a traceback."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from iocourse.refusal import Refused

HIGHEST = 65_535
EVERYWHERE = ("", "*")


def require_port(options: Sequence[str]) -> None:
    """Raise Refused where the options for JupyterLab name a port that it cannot listen on.

    Without such an option JupyterLab looks for a free one.
    """
    asked = _option("port", options)
    if asked is None:
        return
    if not re.fullmatch(r"\d{1,5}", asked) or int(asked) > HIGHEST:
        raise Refused(
            f"--port must be an integer from 0 to {HIGHEST:,}, where 0 is any that is free; got {asked!r}"
        )
    ip = _option("ip", options) or "localhost"
    try:
        _listen("" if ip in EVERYWHERE else ip, int(asked))
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise Refused(
            f"cannot listen on port {asked} of {ip}: {why}. Leave out --port to get one that is free, "
            "or name another, such as --port=8890"
        ) from None


def _option(name: str, options: Sequence[str]) -> str | None:
    """The last value of an option, which JupyterLab takes as `--name=…`, `--name …`, `--ServerApp.name=…`."""
    given = re.compile(rf"--(?:(?:ServerApp|LabApp)\.)?{name}(?:=(.*))?")
    found = None
    for at, option in enumerate(options):
        if match := given.fullmatch(option):
            following = options[at + 1 : at + 2]
            found = match[1] if match[1] is not None else "".join(following)
    return found


def _listen(ip: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    socket.create_server((ip, port), family=family).close()
