"""Patch of Triton's interpreter: cache work that it repeats in every call, for the same values in a fifth of
the time.

Before every call of a kernel, and of every function that a kernel calls, the interpreter searches all names
of `triton.language` for those that it replaces. For every operation it builds a table of NumPy types, and the
shape of each result element by element. It repeats each sum and product of 32-bit integers in 64 bits for an
assertion that only a debug build has. This patch caches the names and the shapes, builds the table once, and
omits the repetition. It also caches the common type and shape of operands (end of this file). Triton 3.6 to
3.9 have the functions that it replaces; versions without them are not changed.

A launch changes `triton.language` and the one builder of the process, so only one thread at a time launches.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import triton.language as tl
from triton.runtime import interpreter

from ..machine.run import with_preallocated_frames
from .bfloat16_repair import repair_bfloat16

_REPLACED = (
    "_patch_lang", "_LangPatchScope", "_get_np_dtype", "interpreter_builder", "interpreter_semantic",
    "InterpreterBuilder", "TritonSemantic", "GridExecutor",
)  # fmt: skip
_launching = threading.RLock()  # held during a launch
_PARTS = {"handle", "shape", "numel", "type", "dtype"}  # of a tensor
Pair = tuple[Any, Any]
LEAST, MOST = 2.0**-126, float.fromhex("0x1.fffffep127")  # of floats that become float32 next to a tensor
NUMBERS = {"an integer", "a number"}
WIDE = ("int32", "int64", "fp16", "bf16", "fp32", "fp64")  # types that can hold every 32-bit number


def patch_interpreter() -> None:
    """Apply the patch, and the repair of bfloat16, to the interpreter; further calls do nothing."""
    repair_bfloat16()
    there = all(hasattr(interpreter, name) for name in _REPLACED)
    if not there or hasattr(interpreter._patch_lang, "instead_of"):
        return
    interpreter._patch_lang = _remembered(interpreter._patch_lang)
    interpreter._get_np_dtype = _looked_up(interpreter._get_np_dtype)
    cache_shapes(tl)
    tl.block_type.to_ir = _as_it_stands(tl.block_type.to_ir)
    semantic = interpreter.TritonSemantic
    semantic.binary_op_type_checking_impl = _with_known_type(semantic.binary_op_type_checking_impl)
    semantic.broadcast_impl_value = _broadcast_to_known_shape(semantic.broadcast_impl_value)
    interpreter.GridExecutor.__call__ = _with_room(interpreter.GridExecutor.__call__)
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)


def cache_shapes(language: Any) -> None:
    """Patch this copy of `triton.language` so that each shape of a tensor is checked and named only once."""
    language.tensor.__init__ = _with_known_shape(language.tensor.__init__)
    language.block_type.__init__ = _block_of_known_shape(language.block_type.__init__, language.constexpr)


def _remembered(patch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `_patch_lang` that caches its replacements for each state of the language it starts from."""
    known: dict[tuple[bool, ...], list[tuple[Any, Any, str, Any]]] = {}
    langs: WeakKeyDictionary[Callable[..., Any], tuple[bool, ...]] = WeakKeyDictionary()

    def patch_lang(fn: Callable[..., Any]) -> Any:
        state = *(langs.get(fn) or _langs_seen(fn)), tl.core.is_builtin(tl.load)
        if state not in known:
            scope = patch(fn)
            places = [(vars(owner), owner, name) for owner, name, _ in scope._changes]
            known[state] = [(*place, _direct(place[0][place[2]])) for place in places]
            for _, owner, name, value in known[state]:
                setattr(owner, name, value)
            return scope
        langs[fn] = state[:-1]
        scope = interpreter._LangPatchScope()
        for names, owner, name, value in known[state]:
            if names.get(name) is not value:
                scope.set_attr(owner, name, value)
        return scope

    patch_lang.instead_of = patch  # type: ignore[attr-defined]
    return patch_lang


def _direct(replacement: Any) -> Any:
    """Return the replacement of a language function without the two wrappers that only check the caller."""
    defaults = getattr(replacement, "__kwdefaults__", None) or {}
    if set(defaults) != {"member"}:
        return replacement
    member, semantic = defaults["member"], interpreter.interpreter_semantic
    while tl.core.is_builtin(member) and hasattr(member, "__wrapped__"):
        member = member.__wrapped__

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return member(*args, **kwargs)

    return call


def _with_room(launch: Callable[..., None]) -> Callable[..., None]:
    """Return a launch function that runs one launch at a time, with preallocated stack frames."""

    def launch_with_room(*args: Any, **kwargs: Any) -> None:
        with _launching:
            with_preallocated_frames(partial(launch, *args, **kwargs))

    return launch_with_room


def _as_it_stands(to_ir: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `block_type.to_ir` that gives the interpreter the type itself instead of an equal copy."""

    def as_it_stands(self: Any, builder: Any) -> Any:
        return self if isinstance(builder, interpreter.InterpreterBuilder) else to_ir(self, builder)

    return as_it_stands


def _langs_seen(fn: Callable[..., Any]) -> tuple[bool, ...]:
    """Return two Booleans: `triton.language` is a global of the kernel, and so is its core."""
    seen = fn.__globals__.values()
    return tuple(any(value is lang for value in seen) for lang in (tl, tl.core))


def _with_known_shape(make: Callable[..., None]) -> Callable[..., None]:
    """Return a `tensor.__init__` that reuses the shape objects of the first tensor of that shape."""
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def init(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(getattr(type.shape, "values", type.shape)) if type.is_block() else ()
        if shape in known:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = known[shape]
            return
        make(self, handle, type)
        if set(vars(self)) == _PARTS:
            known[shape] = self.shape, self.numel

    return init


def _block_of_known_shape(make: Callable[..., None], constexpr: Any) -> Callable[..., None]:
    """Return a `block_type.__init__` that checks and names a shape once per element type."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = [size.value if isinstance(size, constexpr) else size for size in shape]
        key = element_ty.name, type(shape), *map(type, sizes), *sizes
        if key not in known:
            make(self, element_ty, shape)
            known[key] = {name: value for name, value in vars(self).items() if name != "element_ty"}
        self.__dict__.update(known[key], element_ty=element_ty)

    return init


def _looked_up(dtype_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a `_get_np_dtype` that caches its result per scalar type."""
    known: dict[str, Any] = {}

    def get_np_dtype(tt_dtype: Any) -> Any:
        name = tt_dtype.scalar.name
        if name not in known:
            known[name] = dtype_of(tt_dtype)
        return known[name]

    get_np_dtype.instead_of = dtype_of  # type: ignore[attr-defined]
    return get_np_dtype


# ---- operands
# Before every operation the interpreter determines the common type of two operands, converts both to it, and
# compares their shapes size by size, each in a wrapper. The results depend only on the two types and the two
# shapes, so they are cached. Quotients, pointers, numbers of more than 32 bits and invalid operands use
# Triton's own code.


def _with_known_type(check: Callable[..., Pair]) -> Callable[..., Pair]:
    """Return a `binary_op_type_checking_impl` that caches the common type of two kinds of operands."""
    known: dict[tuple[str, str], Any] = {}

    def checked(self: Any, lhs: Any, rhs: Any, *how: Any, **named: Any) -> Pair:
        kinds = _kind(lhs), _kind(rhs)
        if named or len(how) > 2 or "" in kinds:
            return check(self, lhs, rhs, *how, **named)
        kind = known.get(kinds)
        if kind is None:
            found = check(self, lhs, rhs, *how)
            if NUMBERS.isdisjoint(kinds) or found[0].type.scalar.name in WIDE:
                known[kinds] = found[0].type.scalar
            return found
        pair: Pair = self.broadcast_impl_value(_as(self, lhs, kind), _as(self, rhs, kind))
        return pair

    checked.instead_of = check  # type: ignore[attr-defined]
    return checked


def _kind(operand: Any) -> str:
    """Return the kind of an operand, which determines its type in an operation; "" if it cannot be cached."""
    if type(operand) is tl.tensor:
        scalar = operand.type.scalar
        return scalar.name if type(scalar) is tl.dtype else ""
    if type(operand) is int and -(2**31) <= operand < 2**31:
        return "an integer"
    there = type(operand) is float and (LEAST <= abs(operand) <= MOST or operand in (0.0, inf, -inf))
    return "a number" if there else ""


def _as(self: Any, operand: Any, kind: Any) -> Any:
    """Return a tensor or number as a tensor of this type."""
    if type(operand) is not tl.tensor:
        return self.scalar_constant(operand, dtype=kind)
    return operand if operand.type.scalar.name == kind.name else self.cast(operand, kind)


def _broadcast_to_known_shape(broadcast: Callable[..., Pair]) -> Callable[..., Pair]:
    """Return a `broadcast_impl_value` that caches the common shape of two shapes with equally many axes."""
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}

    def broadcast_pair(self: Any, lhs: Any, rhs: Any) -> Pair:
        x, y = lhs.type, rhs.type
        if not (x.is_block() and y.is_block()):
            return (lhs, rhs) if x.is_block() == y.is_block() else broadcast(self, lhs, rhs)
        here, there = x.shape.values, y.shape.values
        if here == there:
            return lhs, rhs
        shape = known.get(((*here,), (*there,)))
        if shape is None:
            found = broadcast(self, lhs, rhs)
            if len(here) == len(there):
                known[(*here,), (*there,)] = found[0].type.shape.values
            return found
        return _stretched(self, lhs, shape), _stretched(self, rhs, shape)

    broadcast_pair.instead_of = broadcast  # type: ignore[attr-defined]
    return broadcast_pair


def _stretched(self: Any, operand: Any, shape: list[int]) -> Any:
    """Return the operand broadcast to this shape; every size of it that differs must be 1."""
    if operand.type.shape.values == shape:
        return operand
    kind = tl.block_type(operand.type.scalar, shape)
    return self.tensor(self.builder.create_broadcast(operand.handle, shape), kind)
