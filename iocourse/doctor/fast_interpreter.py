"""Patch of Triton's interpreter that leaves out work done anew for every call: the same values, in a fifth of
the time.

Before every call of a kernel, and of every function that a kernel calls, the interpreter searches all names
of `triton.language` for those it replaces; for every operation it builds a table of NumPy's types, and the
shape of each result number by number; and each sum and product of 32-bit integers is repeated in 64 bits, for
an assertion that only a debug build has. Here the names found are remembered, and so is what each shape is
made of, the table is built once, and the repetition is left out. Operands are prepared at a glance where that
has been done before (at the end of this file). Versions of Triton that lack what is replaced here (3.6 to 3.9
have it) are left as they are.

A launch changes `triton.language` and the one builder of the process, so threads take turns to launch.
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

_REPLACED = (
    "_patch_lang", "_LangPatchScope", "_get_np_dtype", "interpreter_builder", "interpreter_semantic",
    "InterpreterBuilder", "TritonSemantic", "GridExecutor",
)  # fmt: skip
_launching = threading.RLock()  # held during a launch
_PARTS = {"handle", "shape", "numel", "type", "dtype"}  # of a tensor
Pair = tuple[Any, Any]
LEAST, MOST = 2.0**-126, float.fromhex("0x1.fffffep127")  # of floats that are float32 beside a tensor
NUMBERS = {"a whole number", "a number"}
WIDE = ("int32", "int64", "fp16", "bf16", "fp32", "fp64")  # types that take every number of 32 bits


def patch_interpreter() -> None:
    """Change the interpreter of this process, once."""
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
    """Change what this copy of `triton.language` makes, once: each shape is checked and named but once."""
    language.tensor.__init__ = _with_known_shape(language.tensor.__init__)
    language.block_type.__init__ = _block_of_known_shape(language.block_type.__init__, language.constexpr)


def _remembered(patch: Callable[..., Any]) -> Callable[..., Any]:
    """`_patch_lang`, which replaces what it replaced the last time it began from the same state."""
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
    """What replaces a function of the language, without two functions between that only look who calls."""
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
    """One launch at a time, whose programs are deep loops of calls, with room for their frames."""

    def launch_with_room(*args: Any, **kwargs: Any) -> None:
        with _launching:
            with_preallocated_frames(partial(launch, *args, **kwargs))

    return launch_with_room


def _as_it_stands(to_ir: Callable[..., Any]) -> Callable[..., Any]:
    """`block_type.to_ir`, of which the interpreter gets an equal type."""

    def as_it_stands(self: Any, builder: Any) -> Any:
        return self if isinstance(builder, interpreter.InterpreterBuilder) else to_ir(self, builder)

    return as_it_stands


def _langs_seen(fn: Callable[..., Any]) -> tuple[bool, ...]:
    """Whether a kernel sees `triton.language`, and whether its core."""
    seen = fn.__globals__.values()
    return tuple(any(value is lang for value in seen) for lang in (tl, tl.core))


def _with_known_shape(make: Callable[..., None]) -> Callable[..., None]:
    """`tensor.__init__`, which takes its shape from the first tensor that had it."""
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
    """`block_type.__init__`, which checks and names a shape once for each type of elements."""
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
    """`_get_np_dtype`, asked once for each type of a scalar or of a block's scalars."""
    known: dict[str, Any] = {}

    def get_np_dtype(tt_dtype: Any) -> Any:
        name = tt_dtype.scalar.name
        if name not in known:
            known[name] = dtype_of(tt_dtype)
        return known[name]

    get_np_dtype.instead_of = dtype_of  # type: ignore[attr-defined]
    return get_np_dtype


# ---- operands
# Before every operation the interpreter asks which type two operands have in common, converts both to it,
# and compares their shapes number by number, each in a wrapper. The answers depend on the two types and on
# the two shapes alone, so they are remembered; quotients, pointers, numbers of more than 32 bits and whatever
# is to be refused go Triton's own way.


def _with_known_type(check: Callable[..., Pair]) -> Callable[..., Pair]:
    """`binary_op_type_checking_impl`, which finds the type of each two kinds of operands once."""
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
    """What decides over an operand's type; "" where more does than its type."""
    if type(operand) is tl.tensor:
        scalar = operand.type.scalar
        return scalar.name if type(scalar) is tl.dtype else ""
    if type(operand) is int and -(2**31) <= operand < 2**31:
        return "a whole number"
    there = type(operand) is float and (LEAST <= abs(operand) <= MOST or operand in (0.0, inf, -inf))
    return "a number" if there else ""


def _as(self: Any, operand: Any, kind: Any) -> Any:
    """A tensor or a number as a tensor of this type."""
    if type(operand) is not tl.tensor:
        return self.scalar_constant(operand, dtype=kind)
    return operand if operand.type.scalar.name == kind.name else self.cast(operand, kind)


def _broadcast_to_known_shape(broadcast: Callable[..., Pair]) -> Callable[..., Pair]:
    """`broadcast_impl_value`, which finds the shape of each two shapes with as many axes once."""
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
    """A tensor of this shape, which has 1 wherever it has another size."""
    if operand.type.shape.values == shape:
        return operand
    kind = tl.block_type(operand.type.scalar, shape)
    return self.tensor(self.builder.create_broadcast(operand.handle, shape), kind)
