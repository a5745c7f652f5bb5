"""Functions of a notebook that are an old version, because the last run of their cell failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .missing_packages import Cells

# Also where the line is indented, since that may be the error.
_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
failed: dict[str, str] = {}  # the name of a function: the type of the error


def watch() -> None:
    """From now on, in a notebook or in IPython; elsewhere this does nothing."""
    shell = Cells.notebook()
    if shell is not None:
        hooks = _Hooks(shell)
        shell.events.register("pre_run_cell", hooks.begin)
        shell.events.register("post_run_cell", hooks.end)


class _Hooks:
    """Look at the functions that a cell defines, before it runs and after it has run."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.before: dict[str, Any] = {}

    def begin(self, info: Any) -> None:
        """Keep what stands under the names that the cell defines."""
        self.before = dict(self._now(info.raw_cell))

    def end(self, result: Any) -> None:
        """A cell that raised without defining a function again leaves its old version."""
        error = result.error_before_exec or result.error_in_exec
        for name, now in self._now(result.info.raw_cell):
            failed.pop(name, None)
            if error is not None and now is self.before.get(name):
                failed[name] = type(error).__name__

    def _now(self, text: str) -> Iterator[tuple[str, Any]]:
        return ((name, self.shell.user_ns.get(name)) for name in _DEFINITION.findall(text))


def old_version(function: str) -> str:
    """The sentence about a function of `failed`."""
    return (
        f"The last run of the cell that defines {function} failed ({failed[function]}), "
        "so its old version is checked."
    )
