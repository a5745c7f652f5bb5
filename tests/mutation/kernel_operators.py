"""Mutation operators for Triton sources: kernels and the functions that launch them.

They complete the general operators, which do not change lanes, addresses, programs or rescaling. Mistakes of
different size are ordered from the hardest to reject.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from tests.mutation.operators import Around, Operator, base_of, called, changed
from tests.mutation.schedule_operators import one_after_another

OPERATORS: dict[str, Operator] = {}
FIRST_PROGRAM = "(tl.program_id(0) + tl.program_id(1) == 0)"
WRONG_ALIKE = (  # they change every value, so most properties reject them
    "half_precision",
    "rounded_tiles",
    "zeros_for_results",
    "first_answer_for_ever",
    "torch_prepares_an_input",
)


def _operator(function: Operator) -> Operator:
    OPERATORS[function.__name__] = function
    return function


def _written(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _without(call: ast.Call, *keywords: str) -> ast.Call:
    return ast.Call(call.func, call.args, [one for one in call.keywords if one.arg not in keywords])


def _has(call: ast.Call, keyword: str) -> bool:
    return any(one.arg == keyword for one in call.keywords)


def _binary(node: ast.AST, sign: type[ast.operator]) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, sign)


def _is(node: ast.AST, *functions: str) -> bool:
    """True if the node calls one of these functions, such as tl.load."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in functions


# ------------------------------------------------------------------ lanes
@_operator
def masks(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Remove a mask, so that out-of-bounds lanes are loaded, stored and added."""
    if isinstance(node, ast.Call) and _has(node, "mask"):
        yield _without(node, "mask", "other")


@_operator
def masked_lanes(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Leave masked lanes undefined, or set them to 1."""
    if isinstance(node, ast.Call) and _has(node, "other"):
        kept = _without(node, "other")
        yield kept
        yield changed(kept, keywords=[*kept.keywords, ast.keyword("other", ast.Constant(1.0))])


@_operator
def hidden_scores(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Remove a selection by `where`, and use a finite number instead of minus infinity."""
    if isinstance(node, ast.Call) and _is(node, "tl.where"):
        yield from node.args[1:]
    elif isinstance(node, (ast.Call, ast.UnaryOp)) and ast.unparse(node) in ("float('-inf')", "-np.inf"):
        yield from map(_written, ("-1e9", "-1e6", "-100.0", "0.0"))


@_operator
def borders(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Include one lane or key more, or one less."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Lt, ast.LtE)):
        yield changed(node, ops=[ast.LtE() if isinstance(node.ops[0], ast.Lt) else ast.Lt()])


# ------------------------------------------------------------------ addresses
@_operator
def strides(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Use the stride of another axis, of another array, of a contiguous array, or 16 words."""
    if isinstance(node, ast.BinOp) and _binary(node, ast.Mult) and _is_column(node.left):
        for other in sorted({"d", "16"} - {ast.unparse(node.right)}):
            yield changed(node, right=_written(other))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if "stride" in ast.unparse(node.value):
            yield from (
                changed(node, slice=ast.Constant(axis)) for axis in range(3) if axis != node.slice.value
            )
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) == "stride":
        own = ast.unparse(node.func.value)
        others = (ast.Name(other) for other in around.strided if other != own)
        yield from (changed(node, func=changed(node.func, value=other)) for other in others)
        yield _written(f"torch.empty({own}.shape).stride({', '.join(map(ast.unparse, node.args))})")


def _is_column(node: ast.expr) -> bool:
    return ast.unparse(node).endswith("[:, None]")


@_operator
def loaded_arrays(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Load from another array."""
    if isinstance(node, ast.Call) and _is(node, "tl.load"):
        own = base_of(node.args[0])
        for other in around.arrays:
            if own and other != own:
                address = copy.deepcopy(node.args[0])
                first = next(x for x in ast.walk(address) if isinstance(x, ast.Name) and x.id == own)
                first.id = other
                yield changed(node, args=[address, *node.args[1:]])


@_operator
def address_terms(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Remove one product from a sum: one axis from an address."""
    if isinstance(node, ast.BinOp) and _binary(node, ast.Add):
        for term, rest in ((node.left, node.right), (node.right, node.left)):
            if _binary(term, ast.Mult):
                yield rest


# ------------------------------------------------------------------ programs and loops
@_operator
def programs(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Use one program, another axis of the grid, one program more or less, or one per row."""
    if not isinstance(node, ast.Call):
        return
    if called(node) == "program_id" and isinstance(node.args[0], ast.Constant):
        yield from (ast.Constant(0), changed(node, args=[ast.Constant(1 - int(str(node.args[0].value)))]))
    elif _is(node, "triton.cdiv"):
        rows, size = node.args
        yield from (ast.BinOp(node, ast.Add(), ast.Constant(1)), ast.BinOp(rows, ast.FloorDiv(), size), rows)


@_operator
def block_loops(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Skip the last block or the first or last key, add an empty block, visit all blocks, or only one."""
    if isinstance(node, ast.Call) and _is(node, "range") and len(node.args) == 3:
        low, high, step = map(ast.unparse, node.args)
        for borders in (
            f"{low}, ({high}) - 1, {step}",
            f"{low}, ({high}) // {step} * {step}, {step}",
            f"{low} + {step}, {high}, {step}",
            f"{low}, {high} + {step}, {step}",
            f"0, {high}, {step}",
            f"{low}, N, {step}",
            f"{low}, {low} + 1, {step}",
        ):
            yield _written(f"range({borders})")


@_operator
def whole_blocks(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Replace (x // B) * B, a bound rounded to complete blocks, by x or by 0."""
    if isinstance(node, ast.BinOp) and _binary(node, ast.Mult):
        count, size = node.left, ast.unparse(node.right)
        if isinstance(count, ast.BinOp) and _binary(count, ast.FloorDiv) and ast.unparse(count.right) == size:
            yield from (count.left, ast.Constant(0))


# ------------------------------------------------------------------ the online softmax
@_operator
def rescaling(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Skip the rescaling of a sum or an output, or apply it twice."""
    if isinstance(node, ast.BinOp) and _binary(node, ast.Mult) and "old" in ast.unparse(node.right):
        yield from (node.left, ast.BinOp(node, ast.Mult(), node.right))


@_operator
def running_maxima(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Replace a running maximum by a maximum with 0, by one of its operands, or by 0."""
    if isinstance(node, ast.Call) and _is(node, "tl.maximum"):
        yield changed(node, args=[node.args[1], ast.Constant(0.0)])
        yield from node.args
        yield ast.BinOp(node, ast.Mult(), ast.Constant(0.0))


@_operator
def logarithms(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Exchange powers of e and powers of 2."""
    other = {"exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log"}.get(called(node))
    if other and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield changed(node, func=changed(node.func, attr=other))


@_operator
def scales(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Omit the scale, apply it twice, or use that of another head dimension."""
    if isinstance(node, ast.BinOp) and _binary(node, ast.Mult) and ast.unparse(node.right) == "scale":
        yield from (node.left, ast.BinOp(node, ast.Mult(), node.right))
    elif isinstance(node, ast.BinOp) and ast.unparse(node) == "d ** (-0.5)":
        yield changed(node, left=ast.Constant(16))


# ------------------------------------------------------------------ products and precision
@_operator
def products(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Allow a GPU to round the factors of a product, or start its sum again at 0."""
    if isinstance(node, ast.Call) and _is(node, "tl.dot"):
        yield _without(node, "input_precision")
        yield changed(node, args=node.args[:2])


@_operator
def half_precision(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Compute a product with 16-bit factors."""
    if isinstance(node, ast.Call) and _is(node, "tl.dot"):
        halves = [ast.Call(ast.Attribute(one, "to"), [_written("tl.float16")], []) for one in node.args[:2]]
        yield changed(node, args=[*halves, *node.args[2:]])


@_operator
def rounded_tiles(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Round a tile to 16 bits and back."""
    if _is(node, "tl.load"):
        yield _written(f"{ast.unparse(node)}.to(tl.float16).to(tl.float32)")


# ------------------------------------------------------------------ unnecessary traffic
def _moves(statement: ast.AST, *functions: str) -> bool:
    """True if this simple statement calls one of these functions, such as tl.load."""
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)) and any(
        _is(node, *functions) for node in ast.walk(statement)
    )


@_operator
def repeated_loads(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Load a tile a second time."""
    if isinstance(node, ast.stmt) and _moves(node, "tl.load"):
        yield one_after_another(node, node)


@_operator
def loads_in_a_loop(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Load a tile again in each iteration of a later loop."""
    body: list[ast.stmt] = getattr(node, "body", []) if isinstance(node, ast.stmt) else []
    for at, statement in enumerate(body):
        if _moves(statement, "tl.load"):
            for loop in (one for one in body[at:] if isinstance(one, ast.For)):
                loop.body.insert(0, statement)
                yield node
                loop.body.pop(0)


@_operator
def repeated_stores(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Store or add a tile a second time."""
    if isinstance(node, ast.stmt) and _moves(node, "tl.store", "tl.atomic_add"):
        yield one_after_another(node, node)


@_operator
def first_program_first(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Make programs depend on a write of the first one; memory is NaN until then."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and _is(call, "tl.store") and (base := base_of(call.args[0])):
        there = f"{FIRST_PROGRAM} | (written == written), {ast.unparse(call.args[1])}, 0.0"
        kept = changed(call, args=[call.args[0], _written(f"tl.where({there})"), *call.args[2:]])
        yield one_after_another(*ast.parse(f"written = tl.load({base})").body, ast.Expr(kept))


# ------------------------------------------------------------------ the function that launches
def _launches(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Subscript) for one in ast.walk(node)
    )


@_operator
def own_memory(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Return a result in the caller's memory."""
    if isinstance(node, ast.Call) and called(node) == "empty_like":
        yield node.args[0]


@_operator
def torch_prepares_an_input(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Compute with torch before any kernel runs."""
    if isinstance(node, ast.FunctionDef) and _launches(node):
        first = node.args.args[0].arg
        yield changed(node, body=[*ast.parse(f"{first} = {first} * 1.0").body, *node.body])


@_operator
def zeros_for_results(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Set the results to 0 after all kernels have run."""
    if isinstance(node, ast.FunctionDef) and _launches(node) and isinstance(end := node.body[-1], ast.Return):
        assert end.value is not None
        zeroed = ast.parse(f"""
made = {ast.unparse(end.value)}
for one in made if isinstance(made, tuple) else (made,):
    one.zero_()
return made
""").body
        yield changed(node, body=[*node.body[:-1], *zeroed])


@_operator
def first_answer_for_ever(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Cache the first result per input shape and return it for all later inputs of the shape."""
    if isinstance(node, ast.FunctionDef) and _launches(node):
        kept = ast.parse(f"""
known = {{}}
def {node.name}(*given, **options):
    shapes = str([getattr(one, "shape", one) for one in (*given, *options.values())])
    if shapes not in known:
        known[shapes] = first(*given, **options)
    return known[shapes]
""").body
        yield one_after_another(changed(node, name="first"), *kept)
