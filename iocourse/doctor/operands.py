"""Operands as Triton's interpreter needs them, found at a glance where that has been found before.

Before every operation the interpreter asks which type two operands have in common, converts both to it, and
compares their shapes number by number, each in a wrapper. The answers hang on the two types and on the two
shapes alone, so they are remembered; quotients, pointers, numbers of more than 32 bits and whatever is to be
refused go Triton's own way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import triton.language as tl

Pair = tuple[Any, Any]
LEAST, MOST = 2.0**-126, float.fromhex("0x1.fffffep127")  # of floats that are float32 beside a tensor
NUMBERS = {"a whole number", "a number"}
WIDE = ("int32", "int64", "fp16", "bf16", "fp32", "fp64")  # types that take every number of 32 bits


def take_at_once(semantic: Any) -> None:
    """Change how this class prepares operands, once."""
    semantic.binary_op_type_checking_impl = _of_known_type(semantic.binary_op_type_checking_impl)
    semantic.broadcast_impl_value = _of_known_shape(semantic.broadcast_impl_value)


def _of_known_type(check: Callable[..., Pair]) -> Callable[..., Pair]:
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


def _of_known_shape(broadcast: Callable[..., Pair]) -> Callable[..., Pair]:
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
