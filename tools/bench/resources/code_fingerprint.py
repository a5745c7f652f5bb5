"""Fingerprint of a kernel's code and launch, computed without compiling, to detect outdated recorded rows.

A recorded row is up to date if its fingerprint equals that of the current launch. Every statement, constant
and class that the kernel reaches counts, and the compile-time arguments of the launch: types, tiles, warps,
stages, alignment. Comments, docstrings and the position of a function do not count, and Triton's version
does not either, because a record stores it once.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import Any

PLACE = ("module", "file")  # entries of a job that locate its kernel
NOT_OURS = ("builtins", "triton", "typing")  # packages that come with Python and with Triton
DIGITS = 16  # of a fingerprint


def fingerprint(kernel: Any, job: dict[str, Any]) -> str:
    """Return 16 hexadecimal digits for a kernel's code and its launch, a job of `gpu.compilation.job`.

    Raises TypeError if the code uses a global that is not a kernel, class or tl.constexpr.
    """
    launch = {name: value for name, value in job.items() if name not in PLACE}
    return sha256(json.dumps([launch, code_of(kernel)], sort_keys=True).encode()).hexdigest()[:DIGITS]


@cache
def code_of(kernel: Any) -> list[tuple[str, str]]:
    """Return names and code of a kernel and of all functions, classes and constants that it reaches.

    Raises TypeError as `fingerprint`.
    """
    found: dict[int, tuple[str, str]] = {}
    _gather(kernel.fn.__name__, kernel, found)
    return sorted(found.values())


def _gather(name: str, value: Any, found: dict[int, tuple[str, str]]) -> None:
    """Add the code of `value`, and of everything that it uses, to `found`."""
    if id(value) in found:
        return
    if type(value).__name__ == "constexpr":
        found[id(value)] = name, repr(value.value)
    elif not _comes_with_triton(value):
        tree = _parsed(name, value)
        found[id(value)] = name, ast.unparse(tree)
        known = vars(inspect.getmodule(getattr(value, "fn", value)))
        decorators = {id(node) for node in _of_decorators(tree)}  # a tuner does not change the code
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in known and id(node) not in decorators:
                _gather(node.id, known[node.id], found)


def _of_decorators(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of the decorators of functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for decorator in function.decorator_list:
                yield from ast.walk(decorator)


def _comes_with_triton(value: Any) -> bool:
    home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "")
    return str(home).split(".")[0] in NOT_OURS and not inspect.isfunction(getattr(value, "fn", None))


def _parsed(name: str, value: Any) -> ast.Module:
    """Parse the source of a kernel's function or of a class, and remove docstrings."""
    defined = getattr(value, "fn", value)
    if value is defined and not inspect.isclass(value):
        raise TypeError(
            f"{name} is used in a kernel, so it must be a kernel, class or constexpr, got a "
            f"{type(value).__name__}"
        )
    tree = ast.parse(textwrap.dedent(inspect.getsource(defined)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return tree
