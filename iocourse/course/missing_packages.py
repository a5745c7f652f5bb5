"""Cells of a notebook: one that needs what is not installed ends with a line, and what it would have made is
missing as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from .lacking.stand_ins import StandIn, lack_behind, what_to_do


class Cells:
    """The hooks of one notebook. Errors of any other cause are shown as ever."""

    _watched: Any = None  # the notebook that has them

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    @staticmethod
    def notebook() -> Any:
        """IPython's shell where this runs in one, else None."""
        ipython = sys.modules.get("IPython")
        return ipython.get_ipython() if ipython else None

    @classmethod
    def watched(cls, shell: Any) -> None:
        """From now on cells of this notebook end in a line where they need what is missing."""
        if cls._watched is not shell:
            cells = cls(shell)
            shell.set_custom_exc((Exception,), cells.show)
            shell.events.register("post_run_cell", cells.settle)
            cls._watched = shell

    def show(
        self,
        _shell: Any,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType,
        tb_offset: int | None = None,
    ) -> None:
        """Show an error: the line, or what IPython shows."""
        if lack_behind(error):
            print(what_to_do())
        else:
            self.shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    def settle(self, result: Any) -> None:
        """Such a cell counts as run, so that "Run all" goes on; names it did not come to bind are stand-ins.

        Without that a later cell would find nothing under them, or what an earlier section left there.
        """
        error = result.error_in_exec
        if error is None or not lack_behind(error):
            return
        result.error_in_exec = None
        source = self.shell.transform_cell(result.info.raw_cell)
        for name in names_from(source, self._line_of(error)):
            self.shell.user_ns[name] = StandIn()

    def _line_of(self, error: BaseException) -> int:
        """The line of the cell that raised."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is self.shell.user_ns and trace.tb_frame.f_code.co_name == "<module>":
                return trace.tb_lineno
            trace = trace.tb_next
        return 0


def names_from(source: str, line: int) -> Iterator[str]:
    """The names that a cell binds in the statement of this line, and in those after it."""
    for statement in ast.parse(source).body:
        if (statement.end_lineno or 0) >= line:
            yield from _bound(statement)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return  # names of their own
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)
