"""Which code a recorded row is of: a fingerprint of all that the compiler is given, found without compiling.

A row is of the code as it stands where its fingerprint is that of the launch made today. Every statement,
constant and class that the kernel reaches counts, and so does what the launch compiles in: types, tiles,
warps, stages, alignment. Comments, docstrings and where a function stands do not, nor does Triton's version,
which a record says once.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from functools import cache
from hashlib import sha256
from typing import Any

PLACE = ("module", "file")  # of a job: where its kernel stands
NOT_OURS = ("builtins", "triton", "typing")  # packages that come with Python and with Triton
DIGITS = 16  # of a fingerprint


def fingerprint(kernel: Any, job: dict[str, Any]) -> str:
    """16 hexadecimal digits of a kernel's code and of its launch, which `gpu.compilation.job` wrote down.

    Raises TypeError where the code names something global that is no kernel, class or tl.constexpr.
    """
    launch = {name: value for name, value in job.items() if name not in PLACE}
    return sha256(json.dumps([launch, code_of(kernel)], sort_keys=True).encode()).hexdigest()[:DIGITS]


@cache
def code_of(kernel: Any) -> list[tuple[str, str]]:
    """Name and code of a kernel, and of all functions, classes and constants it reaches. Raises as above."""
    found: dict[int, tuple[str, str]] = {}
    _gather(kernel.fn.__name__, kernel, found)
    return sorted(found.values())


def _gather(name: str, value: Any, found: dict[int, tuple[str, str]]) -> None:
    """Add what `value` is, and all that its code names."""
    if id(value) in found:
        return
    if type(value).__name__ == "constexpr":
        found[id(value)] = name, repr(value.value)
    elif not _comes_with_triton(value):
        tree = _parsed(name, value)
        found[id(value)] = name, ast.unparse(tree)
        known = vars(inspect.getmodule(getattr(value, "fn", value)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in known:
                _gather(node.id, known[node.id], found)


def _comes_with_triton(value: Any) -> bool:
    home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "")
    return str(home).split(".")[0] in NOT_OURS and not inspect.isfunction(getattr(value, "fn", None))


def _parsed(name: str, value: Any) -> ast.Module:
    """The code of a kernel's function or of a class, without docstrings."""
    defined = getattr(value, "fn", value)
    if value is defined and not inspect.isclass(value):
        raise TypeError(
            f"{name} is a {type(value).__name__}; allowed in a kernel: kernels, classes, constexpr"
        )
    tree = ast.parse(textwrap.dedent(inspect.getsource(defined)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return tree
