"""How a kernel starts: really, or written down so that a compiler can report on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..guard import refuse_in_exam
from . import mode


class Launch(NamedTuple):
    """One kernel launch, written down instead of made."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


_written: list[Launch] | None = None  # a list while launches are written down


@contextmanager
def written_down(arch: int) -> Iterator[list[Launch]]:
    """Within this block launches are as on architecture `arch`, and are written down instead of made."""
    global _written
    with mode.pretending(arch):
        launches: list[Launch] = []
        _written = launches
        try:
            yield launches
        finally:
            _written = None


def start(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Start `programs` programs of a kernel on one axis, which is the one that may be longer than 65,535."""
    refuse_in_exam(f"{kernel.fn.__module__}.{kernel.fn.__name__}")
    if _written is not None:
        _written.append(Launch(kernel, arguments, constants))
    elif programs:
        kernel[(programs,)](*arguments, **constants)
