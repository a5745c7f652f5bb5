"""Triton's interpreter without work that it does anew for every call: the same values, in half the time.

Before every call of a kernel, and of every function that a kernel calls, the interpreter searches all names
of `triton.language` for those it replaces; for every operation it builds a table of NumPy's types; and each
sum and product of 32-bit integers is repeated in 64 bits, for an assertion that only a debug build has. Here
the names found are remembered, the table is built once, and the repetition is left out. Versions of Triton
that lack what is replaced here (3.6 to 3.9 have it) are left as they are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_REPLACED = ("_patch_lang", "_LangPatchScope", "_get_np_dtype", "interpreter_builder")


def repeat_nothing() -> None:
    """Change the interpreter of this process, once."""
    there = all(hasattr(interpreter, name) for name in _REPLACED)
    if not there or hasattr(interpreter._patch_lang, "instead_of"):
        return
    interpreter._patch_lang = _remembered(interpreter._patch_lang)
    interpreter._get_np_dtype = _looked_up(interpreter._get_np_dtype)
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)


def _remembered(patch: Callable[..., Any]) -> Callable[..., Any]:
    """`_patch_lang`, which replaces what it replaced the last time it began from the same state."""
    known: dict[tuple[bool, ...], list[tuple[Any, str, Any]]] = {}

    def patch_lang(fn: Callable[..., Any]) -> Any:
        seen = fn.__globals__.values()
        state = *(any(value is lang for value in seen) for lang in (tl, tl.core)), tl.core.is_builtin(tl.load)
        if state not in known:
            scope = patch(fn)
            known[state] = [(owner, name, getattr(owner, name)) for owner, name, _ in scope._changes]
            return scope
        scope = interpreter._LangPatchScope()
        for owner, name, value in known[state]:
            scope.set_attr(owner, name, value)
        return scope

    patch_lang.instead_of = patch  # type: ignore[attr-defined]
    return patch_lang


def _looked_up(dtype_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`_get_np_dtype`, asked once for each type of a scalar or of a block's scalars."""
    known: dict[str, Any] = {}

    def get_np_dtype(tt_dtype: Any) -> Any:
        name = tt_dtype.scalar.name
        if name not in known:
            known[name] = dtype_of(tt_dtype)
        return known[name]

    get_np_dtype.instead_of = dtype_of  # type: ignore[attr-defined]
    return get_np_dtype
