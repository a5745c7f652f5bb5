"""What stands for a package that is not installed, and for all that would have been made with it."""

from __future__ import annotations

from typing import Any, NoReturn

from ...doctor.needs_triton import NeedsTriton, what_to_install

RESTART = "what was missing is installed now: restart the kernel, and run the notebook from the top"
USES = (
    "enter exit iter next len contains getitem setitem delitem bool int float complex index round format "
    "eq ne lt le gt ge neg pos abs invert array array_ufunc array_function instancecheck subclasscheck"
)
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod"


class StandIn:
    """Can be named, and so can its attributes; any other use raises NeedsTriton.

    So a cell that defines a kernel runs, with its `@triton.jit` and `tl.constexpr`, and none shows a result
    that nobody computed. A class derived from a stand-in is a stand-in.
    """

    def __init__(self, name: str = "", *_: Any) -> None:  # what follows: bases and body of a derived class
        self._name = name

    def __repr__(self) -> str:
        return what_to_do()

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("_"):  # the protocols of Python, NumPy and IPython must find nothing here
            raise AttributeError(name)
        return StandIn(name)

    def __call__(self, *args: Any, **options: Any) -> StandIn:
        if self._name != "jit":
            refuse()
        return StandIn("kernel") if args else self  # @triton.jit, or @triton.jit(...)


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Raise NeedsTriton with what to do."""
    raise NeedsTriton(what_to_do())


for _use in [*USES.split(), *OPERATORS.split(), *(f"r{name}" for name in OPERATORS.split())]:
    setattr(StandIn, f"__{_use}__", refuse)
StandIn.__hash__ = object.__hash__  # type: ignore[method-assign]


def what_to_do() -> str:
    """One line: what to install, or that it has been since the notebook looked for it."""
    return what_to_install() or RESTART


def lack_behind(error: BaseException | None) -> bool:
    """Whether an error came of what is not installed: it says so, or was raised while that was handled."""
    while error is not None and not isinstance(error, NeedsTriton):
        error = error.__cause__ or error.__context__
    return error is not None
