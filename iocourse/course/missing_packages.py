"""A lesson where torch or triton is missing: cells that need neither run, the others print what to install.

A `Placeholder` takes the place of the package, and of everything that would have been made with it. A cell
that uses one ends with a line instead of a traceback, and the names it would have bound become placeholders.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NoReturn

from ..doctor.triton_missing import TritonMissing, what_to_install
from .run_context import is_graded, notebook
from .student_copies.notebook import bound_names

RESTART = "what was missing is installed now: restart the kernel, and run the notebook from the top"
USES = (
    "enter exit iter next len contains getitem setitem delitem bool int float complex index round format "
    "eq ne lt le gt ge neg pos abs invert array array_ufunc array_function instancecheck subclasscheck"
)
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod"


def missing_package(missing: TritonMissing) -> Placeholder:
    """A placeholder for a package that cannot be imported; prints the line that says what to install.

    From here on a cell that needs it ends with that line, not with a traceback. Only in a notebook that
    somebody reads: elsewhere, and where the notebook is judged (nbgrader, IOCOURSE_STRICT=1), `missing` is
    raised.
    """
    shell = notebook()
    if shell is None or is_graded():
        raise missing
    print(what_to_do())
    CellHooks.watched(shell)
    return Placeholder()


# ------------------------------------------------------------------ what takes the package's place
class Placeholder:
    """Can be named, and so can its attributes; any other use raises TritonMissing.

    So a cell that defines a kernel runs, with its `@triton.jit` and `tl.constexpr`, and none shows a result
    that nobody computed. A class derived from a placeholder is one too.
    """

    def __init__(self, name: str = "", *_: Any) -> None:  # what follows: bases and body of a derived class
        self._name = name

    def __repr__(self) -> str:
        return what_to_do()

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("_"):  # the protocols of Python, NumPy and IPython must find nothing here
            raise AttributeError(name)
        return Placeholder(name)

    def __call__(self, *args: Any, **options: Any) -> Placeholder:
        if self._name != "jit":
            raise_missing()
        return Placeholder("kernel") if args else self  # @triton.jit, or @triton.jit(...)


def raise_missing(*_: Any, **__: Any) -> NoReturn:
    """Raise TritonMissing with what to do."""
    raise TritonMissing(what_to_do())


for _use in [*USES.split(), *OPERATORS.split(), *(f"r{name}" for name in OPERATORS.split())]:
    setattr(Placeholder, f"__{_use}__", raise_missing)
Placeholder.__hash__ = object.__hash__  # type: ignore[method-assign]


def what_to_do() -> str:
    """One line: what to install, or that it has been since the notebook looked for it."""
    return what_to_install() or RESTART


def caused_by_missing_package(error: BaseException | None) -> bool:
    """Whether an error came of what is not installed: it says so, or was raised while that was handled."""
    while error is not None and not isinstance(error, TritonMissing):
        error = error.__cause__ or error.__context__
    return error is not None


# ------------------------------------------------------------------ cells of the notebook
class CellHooks:
    """The hooks of one notebook. Errors of any other cause are shown as ever."""

    _watched: Any = None  # the notebook that has them

    def __init__(self, shell: Any) -> None:
        self.shell = shell

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
        if caused_by_missing_package(error):
            print(what_to_do())
        else:
            self.shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    def settle(self, result: Any) -> None:
        """Such a cell counts as run, so that "Run all" goes on; names it did not bind are placeholders.

        Without that a later cell would find nothing under them, or what an earlier section left there.
        """
        error = result.error_in_exec
        if error is None or not caused_by_missing_package(error):
            return
        result.error_in_exec = None
        source = self.shell.transform_cell(result.info.raw_cell)
        for name in names_bound_from(source, self._line_of(error)):
            self.shell.user_ns[name] = Placeholder()

    def _line_of(self, error: BaseException) -> int:
        """The line of the cell that raised."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is self.shell.user_ns and trace.tb_frame.f_code.co_name == "<module>":
                return trace.tb_lineno
            trace = trace.tb_next
        return 0


def names_bound_from(source: str, line: int) -> Iterator[str]:
    """The names that a cell binds in the statement of this line, and in those after it."""
    for statement in ast.parse(source).body:
        if (statement.end_lineno or 0) >= line:
            yield from bound_names(statement)
