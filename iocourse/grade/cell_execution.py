"""Execute a notebook's cell without IPython: %magic and !shell do nothing, top-level `await` works."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from types import CodeType
from typing import Any

_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_WHOLE = re.compile(r"\A\s*%%.*$", re.MULTILINE)  # a magic over the cell, such as %%time: the rest is Python


class _Shell:
    """Stands for IPython's: whatever it is asked for is nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def notebook_names() -> dict[str, Any]:
    """What a notebook has by itself, and a module has not."""
    shell = _Shell()
    own = {"display": lambda *_, **__: None, "get_ipython": lambda: shell, "In": [], "Out": {}}
    return {"__name__": "__main__"} | own


def execute(source: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell as a file called `name`. Raises what it raises."""
    code = _compiled(source, name)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def _compiled(source: str, name: str) -> CodeType:
    try:
        return _as_python(source, name)
    except SyntaxError:
        return _as_python(_without_magic(source), name)


def _as_python(source: str, name: str) -> CodeType:
    code: CodeType = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def _without_magic(source: str) -> str:
    """The cell with calls in place of magics, by IPython's own rules where it is installed; as many lines."""
    text = _WHOLE.sub("", source)
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return _MAGIC.sub(r"\1pass", text)
    return str(TransformerManager().transform_cell(text))
