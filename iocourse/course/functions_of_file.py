"""Recognise the functions of `flash_attention.py` by their code, wherever a copy lies and whatever its name.

The packaged file is compiled, not executed. Two functions have the same code if their instructions are equal,
with the names and constants that they use. So comments, docstrings, decorators, annotations and the name of
the function make no difference.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from .flash_attention_file import packaged_file

MOST_KEPT = 1000  # functions; an interpreted kernel calls its functions once per tile


@functools.lru_cache(MOST_KEPT)
def is_of_file(function: FunctionType) -> bool:
    """Return True if a function of a module has the same code as one of `flash_attention.py`.

    Functions of notebook cells are not compared: pasted code looks like the student's own.
    """
    in_a_cell = function.__module__ == "__main__" and not Path(function.__code__.co_filename).is_file()
    return not in_a_cell and _instructions(function.__code__) in _functions_of_file()


@functools.cache
def _functions_of_file() -> frozenset[Hashable]:
    path = packaged_file()
    if path is None:
        return frozenset()
    code = compile(path.read_text(encoding="utf-8"), path.name, "exec", dont_inherit=True)
    return frozenset(map(_instructions, _inside(code)))


def _inside(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions inside this code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def _instructions(code: CodeType) -> Hashable:
    return tuple((step.opname, _operand(step.argval)) for step in dis.get_instructions(code))


def _operand(value: Any) -> Hashable:
    """Return a value that is equal for equal operands: 1, 1.0 and True are different ones."""
    return _instructions(value) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
