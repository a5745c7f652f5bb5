"""Run lessons without torch or triton: cells that need them print what to install instead of a traceback.

A `Placeholder` replaces the package and all objects created with it. A cell that uses one ends with one line,
and the names that it would have bound become placeholders.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NoReturn

from ..doctor.triton_missing import TritonMissing, what_to_install
from .run_context import ipython_shell, is_graded
from .student_copies.notebook import bound_names

RESTART = "the missing package is installed now: restart the kernel and run the notebook from the top"
USES = (
    "enter exit iter next len contains getitem setitem delitem bool int float complex index round format "
    "eq ne lt le gt ge neg pos abs invert array array_ufunc array_function instancecheck subclasscheck"
)
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod"


def missing_package(missing: TritonMissing) -> Placeholder:
    """Print what to install, and return a placeholder for a package that cannot be imported.

    From then on, cells of this notebook that need the package end with the same line.

    Raises:
        TritonMissing: `missing`, if this is not a notebook or its outcome is graded (nbgrader,
            IOCOURSE_STRICT=1).
    """
    shell = ipython_shell()
    if shell is None or is_graded():
        raise missing
    print(what_to_do())
    CellHooks.watched(shell)
    return Placeholder()


# ------------------------------------------------------------------ placeholder of the package
class Placeholder:
    """Placeholder of a package or an object; its attributes are placeholders, other uses raise TritonMissing.

    A cell that only defines a kernel therefore runs, with its `@triton.jit` and `tl.constexpr`, and no cell
    shows a result that was not computed. A class derived from a placeholder is also a placeholder.
    """

    def __init__(self, name: str = "", *_: Any) -> None:  # *_: bases and body of a derived class
        self._name = name

    def __repr__(self) -> str:
        return what_to_do()

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("_"):  # protocol methods of Python, NumPy and IPython must not be found here
            raise AttributeError(name)
        return Placeholder(name)

    def __call__(self, *args: Any, **options: Any) -> Placeholder:
        if self._name != "jit":
            raise_missing()
        return Placeholder("kernel") if args else self  # @triton.jit, or @triton.jit(...)


def raise_missing(*_: Any, **__: Any) -> NoReturn:
    """Raise TritonMissing with the line that names the remedy."""
    raise TritonMissing(what_to_do())


for _use in [*USES.split(), *OPERATORS.split(), *(f"r{name}" for name in OPERATORS.split())]:
    setattr(Placeholder, f"__{_use}__", raise_missing)
Placeholder.__hash__ = object.__hash__  # type: ignore[method-assign]


def what_to_do() -> str:
    """Return one line: what to install, or to restart the kernel if it has been installed in the meantime."""
    return what_to_install() or RESTART


def caused_by_missing_package(error: BaseException | None) -> bool:
    """Return True if the error, its cause or its context is a TritonMissing."""
    while error is not None and not isinstance(error, TritonMissing):
        error = error.__cause__ or error.__context__
    return error is not None


# ------------------------------------------------------------------ cells of the notebook
class CellHooks:
    """IPython hooks of one notebook for cells that need a missing package; other errors look as usual."""

    _watched: Any = None  # the shell that has the hooks

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    @classmethod
    def watched(cls, shell: Any) -> None:
        """Register the hooks in this notebook, unless it has them already."""
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
        """Show an error: one line if a package is missing, otherwise IPython's traceback."""
        if caused_by_missing_package(error):
            print(what_to_do())
        else:
            self.shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    def settle(self, result: Any) -> None:
        """Mark a cell that needs a missing package as run, so that "Run all" continues.

        The names that it did not bind become placeholders. Otherwise a later cell would find them undefined
        or with values of an earlier section.
        """
        error = result.error_in_exec
        if error is None or not caused_by_missing_package(error):
            return
        result.error_in_exec = None
        source = self.shell.transform_cell(result.info.raw_cell)
        for name in names_bound_from(source, self._line_of(error)):
            self.shell.user_ns[name] = Placeholder()

    def _line_of(self, error: BaseException) -> int:
        """Return the line of the cell in which the error was raised; 0 if it is unknown."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is self.shell.user_ns and trace.tb_frame.f_code.co_name == "<module>":
                return trace.tb_lineno
            trace = trace.tb_next
        return 0


def names_bound_from(source: str, line: int) -> Iterator[str]:
    """Yield the names that a cell binds in the statement at this line and in later statements."""
    for statement in ast.parse(source).body:
        if (statement.end_lineno or 0) >= line:
            yield from bound_names(statement)
