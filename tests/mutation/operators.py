"""General mutation operators: each yields the expressions that may replace one node.

An operator is a function of a node and the names around it; `OPERATORS` has them by the name the command
takes. None depends on the topic of an exercise.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Around:
    """The names of the function that contains a node, in groups of one kind whose members may be confused."""

    parameters: tuple[tuple[str, ...], ...]
    names: tuple[tuple[str, ...], ...]
    arrays: tuple[str, ...] = ()  # the arrays that start a kernel's addresses
    strided: tuple[str, ...] = ()  # the arrays whose strides are read


Operator = Callable[[ast.AST, Around], Iterator[ast.AST]]
OPERATORS: dict[str, Operator] = {}


def _operator(function: Operator) -> Operator:
    OPERATORS[function.__name__] = function
    return function


def changed(node: ast.AST, **fields: Any) -> Any:
    """A copy of the node with other fields; its children are shared."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _number(value: float) -> ast.expr:
    constant = ast.Constant(abs(value))
    return constant if value >= 0 else ast.UnaryOp(ast.USub(), constant)


def _moved(node: ast.expr, by: int) -> ast.expr:
    """Return the expression plus 1, or minus 1."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _number(node.value + by)
    return ast.BinOp(node, ast.Add() if by > 0 else ast.Sub(), ast.Constant(1))


def called(node: ast.AST) -> str:
    """The last name of a called function: "max" for np.max(x), x.max() and max(x); "" if not a call."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


# ------------------------------------------------------------------ signs
_BORDER: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}


@_operator
def comparisons(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Include or exclude equality in a comparison, and reverse it."""
    if isinstance(node, ast.Compare):
        for at, sign in enumerate(node.ops):
            for other in _BORDER.get(type(sign), ()):
                yield changed(node, ops=[*node.ops[:at], other(), *node.ops[at + 1 :]])


@_operator
def arithmetic(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Change an arithmetic operator, and remove a minus."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        for other in _ARITHMETIC.get(type(node.op), ()):
            yield changed(node, op=other())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


@_operator
def operands(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Keep only one operand of a sum, a product or an `and`."""
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.BoolOp):
        yield from node.values


# ------------------------------------------------------------------ numbers
@_operator
def constants(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Add 1 to a number, subtract 1, and negate a truth value."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, (int, float)):
            yield from (_number(node.value + 1), _number(node.value - 1))


@_operator
def starts(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Replace minus infinity by finite numbers, the hardest to reject first, and likewise infinity."""
    text = ast.unparse(node) if isinstance(node, (ast.UnaryOp, ast.Attribute, ast.Call)) else ""
    if text.replace('"', "'") in ("-np.inf", "-float('inf')", "float('-inf')"):
        yield from map(_number, (-1e4, -100.0, 0.0))
    elif text.replace('"', "'") in ("np.inf", "float('inf')"):
        yield _number(1e4)


@_operator
def ranges(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Move the bounds of a range, of blocks and of a slice by one, up and down."""
    if called(node) in ("range", "blocks", "arange"):
        assert isinstance(node, ast.Call)
        for at, one in enumerate(node.args):
            for by in (1, -1):
                yield changed(node, args=[*node.args[:at], _moved(one, by), *node.args[at + 1 :]])
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper"):
            bound = getattr(node, name)
            if bound is not None:
                yield from (changed(node, **{name: _moved(bound, by)}) for by in (1, -1))


# ------------------------------------------------------------------ calls
_OTHER = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}


@_operator
def maxima(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Replace a maximum or minimum by one operand, by 0, or by the other of the two functions."""
    name = called(node)
    if name not in _OTHER or not isinstance(node, ast.Call):
        return
    function = node.func
    if isinstance(function, ast.Attribute):
        yield changed(node, func=changed(function, attr=_OTHER[name]))
    else:
        yield changed(node, func=changed(function, id=_OTHER[name]))
    of_two = name in ("maximum", "minimum") or (isinstance(function, ast.Name) and len(node.args) > 1)
    yield from node.args if of_two else [ast.Constant(0.0)]
    if of_two and name in ("max", "maximum"):
        yield from (changed(node, args=[ast.Constant(0.0), *node.args[1:]]),)


@_operator
def keywords(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Remove one keyword argument of a call: a mask, an axis, the value for masked lanes."""
    if isinstance(node, ast.Call):
        for at in range(len(node.keywords)):
            yield changed(node, keywords=[*node.keywords[:at], *node.keywords[at + 1 :]])


@_operator
def wrappers(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Replace a call by its only argument, and a transpose by the matrix."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        yield node.args[0]
    elif isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value


# ------------------------------------------------------------------ control flow
@_operator
def conditions(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Fix the result of a condition, exchange `and` and `or`, and remove `not`."""
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, (ast.If, ast.While)):
        answers = (False,) if isinstance(node, ast.While) else (True, False)
        yield from (changed(node, test=ast.Constant(answer)) for answer in answers)
    elif isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.comprehension):
        for at in range(len(node.ifs)):
            yield changed(node, ifs=[*node.ifs[:at], *node.ifs[at + 1 :]])


@_operator
def statements(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Remove a statement."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.If, ast.For, ast.Continue)) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    ):
        yield ast.Pass()


@_operator
def loops(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Reverse a loop, and exchange two nested loops."""
    if isinstance(node, ast.For):
        once = ast.Call(ast.Name("list"), [node.iter], [])
        yield changed(node, iter=ast.Call(ast.Name("reversed"), [once], []))
        inner = node.body[0]
        if len(node.body) == 1 and isinstance(inner, ast.For):
            within = changed(node, body=inner.body)
            yield changed(inner, body=[within])


# ------------------------------------------------------------------ names
def _mistaken(node: ast.AST, kinds: tuple[tuple[str, ...], ...]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        kind: tuple[str, ...] = next((kind for kind in kinds if node.id in kind), ())
        yield from (ast.Name(other, ast.Load()) for other in kind if other != node.id)


@_operator
def parameters(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Use another parameter of the same kind: array for array, tile size for tile size."""
    yield from _mistaken(node, around.parameters)


@_operator
def names(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Use the neighbouring name that is assigned in the same way: by a loop, by `with` or by `=`."""
    for other in _mistaken(node, around.names):
        kind = next(kind for kind in around.names if node.id in kind)  # type: ignore[attr-defined]
        if abs(kind.index(other.id) - kind.index(node.id)) == 1:  # type: ignore[attr-defined]
            yield other


def around(function: ast.FunctionDef) -> Around:
    """Collect the names of a function by kind, without the machine of a schedule."""
    arguments = function.args
    machine = {
        node.func.value.id
        for node in ast.walk(function)
        if called(node) in ("new", "load", "blocks")
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id not in ("tl", "np")
    }
    positional = tuple(a.arg for a in arguments.args if a.arg not in machine and a.annotation is None)
    constants = tuple(a.arg for a in arguments.args if a.annotation is not None)
    keyword = tuple(a.arg for a in arguments.kwonlyargs)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    bases = [base_of(one.args[0]) for one in calls if ast.unparse(one.func) in ("tl.load", "tl.store")]
    strided = [one.func for one in calls if called(one) == "stride" and isinstance(one.func, ast.Attribute)]
    return Around(
        (positional, constants, keyword),
        tuple(_given_values(function, {*positional, *keyword})),
        tuple(dict.fromkeys(filter(None, bases))),
        tuple(dict.fromkeys(one.value.id for one in strided if isinstance(one.value, ast.Name))),
    )


def base_of(address: ast.expr) -> str:
    """The array at the start of an address: "Q" for Q + i[:, None] * d + c."""
    while isinstance(address, ast.BinOp):
        address = address.left
    return address.id if isinstance(address, ast.Name) else ""


def _given_values(function: ast.FunctionDef, known: set[str]) -> Iterator[tuple[str, ...]]:
    """Yield the names that the function assigns: in loops, by `with` and by `=`, each once and in order."""
    kinds: dict[str, list[ast.AST]] = {"for": [], "with": [], "=": []}
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.comprehension)):
            kinds["for"].append(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            kinds["with"].append(node.optional_vars)
        elif isinstance(node, ast.Assign):
            kinds["="] += node.targets
    seen = set(known)
    for targets in kinds.values():
        found = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        kind = tuple(name for name in dict.fromkeys(found) if name not in seen)
        seen |= set(kind)
        yield kind
