"""Mutation operators for memory traffic: schedules of a machine, and communication between ranks.

They complete the general operators, which remove and exchange code but never move a block again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.mutation.operators import Around, Operator, called, changed

OPERATORS: dict[str, Operator] = {}
COLLECTIVES = ("shift", "all_gather", "all_to_all", "reduce_scatter")


def _operator(function: Operator) -> Operator:
    OPERATORS[function.__name__] = function
    return function


def calls_in_head(statement: ast.AST, method: str) -> list[ast.Call]:
    """Calls of this method in a statement, without those in the body of a `with` or a loop."""
    heads: list[ast.AST] = [statement] if not hasattr(statement, "body") else []
    if isinstance(statement, ast.With):
        heads = [item.context_expr for item in statement.items]
    return [
        node
        for head in heads
        for node in ast.walk(head)
        if isinstance(node, ast.Call) and called(node) == method
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in ("tl", "np")
    ]


def one_after_another(*statements: ast.stmt) -> ast.Module:
    """Wrap several statements so that they can replace one."""
    return ast.Module(list(statements), [])


def _loaded_for_nothing(call: ast.Call, array: ast.expr, index: list[ast.expr]) -> ast.stmt:
    """Build a statement that loads one block and frees it immediately; `call` is on the same machine."""
    assert isinstance(call.func, ast.Attribute)
    load = ast.Call(changed(call.func, attr="load"), [array, *index], [])
    return ast.Expr(ast.Call(ast.Attribute(load, "free"), [], []))


@_operator
def loads_once_more(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Load a block a second time."""
    if isinstance(node, ast.stmt):
        for call in calls_in_head(node, "load"):
            yield one_after_another(_loaded_for_nothing(call, call.args[0], call.args[1:]), node)


@_operator
def loads_in_the_loop_inside(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Load a block again in each iteration of an inner loop."""
    if isinstance(node, ast.With):
        for call in calls_in_head(node, "load"):
            again = _loaded_for_nothing(call, call.args[0], call.args[1:])
            for loop in [one for one in ast.walk(node) if isinstance(one, ast.For)]:
                loop.body.insert(0, again)
                yield node
                loop.body.pop(0)


@_operator
def zeros_for_loads(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Use a block of zeros instead of loading a block."""
    for call in calls_in_head(node, "load") if isinstance(node, ast.Call) else []:
        if call is node and isinstance(call.func, ast.Attribute):
            array, *index = call.args
            columns = ast.parse(f"{ast.unparse(array)}.shape[1]", mode="eval").body
            for size in ([*index, columns][: max(2, len(index))], index):
                yield ast.Call(changed(call.func, attr="zeros"), size, [])


@_operator
def stores_twice(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Store a block a second time."""
    if isinstance(node, ast.stmt) and calls_in_head(node, "store"):
        yield one_after_another(node, node)


@_operator
def reads_back(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Load a block after it was stored."""
    if isinstance(node, ast.stmt):
        for call in calls_in_head(node, "store"):
            yield one_after_another(node, _loaded_for_nothing(call, call.args[1], call.args[2:]))


@_operator
def values_by_block_size(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Multiply the stored values by a block size, which is correct only for size 1."""
    if isinstance(node, ast.stmt):
        for call in calls_in_head(node, "store"):
            block = call.args[0]
            for size in around.parameters[2] if isinstance(block, ast.Name) else ():
                times = ast.parse(f"{ast.unparse(block)} *= {size}").body
                yield one_after_another(*times, node)


@_operator
def no_running_maximum(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Compute the exponentials of an online softmax without subtracting a maximum."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and called(call) == "update":
        stats, scores = ast.unparse(call.func.value), ast.unparse(call.args[0])
        lines = f"np.exp({scores}, out={scores})\n{stats}.l[:] = {stats}.l + {scores}.sum(axis=1)"
        yield one_after_another(*ast.parse(lines).body)


@_operator
def last_arguments(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Remove the last argument of a method call, such as the output that is to be rescaled."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
        of_a_library = ast.unparse(node.func.value) in ("tl", "triton", "np", "torch")
        yield from () if of_a_library else (changed(node, args=node.args[:-1]),)


@_operator
def words_sent_again(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Send an array between ranks a second time."""
    if isinstance(node, ast.stmt):
        for call in (one for method in COLLECTIVES for one in calls_in_head(node, method)):
            for array in (one for one in call.keywords if one.arg != "by"):
                others = [one for one in call.keywords if one.arg == "by"]
                yield one_after_another(ast.Expr(changed(call, keywords=[*others, array])), node)


@_operator
def another_array_travels(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Send words under the name of an array that need not be sent, or under a new name."""
    if isinstance(node, ast.stmt):
        for call in (one for method in COLLECTIVES for one in calls_in_head(node, method)):
            sent = [one for one in call.keywords if one.arg != "by"]
            others = [one for one in call.keywords if one.arg == "by"]
            new = [name for name in around.parameters[0][1:] if name not in {one.arg for one in sent}]
            for name in (*new, "copy") if sent else ():
                again = changed(call, keywords=[*others, ast.keyword(name, sent[0].value)])
                yield one_after_another(ast.Expr(again), node)


@_operator
def copies_are_kept(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Keep a copy of every block that a shift returns."""
    if isinstance(node, ast.Assign) and calls_in_head(node, "shift"):
        came = ast.unparse(node.targets[0])
        copies = f"np.array({came})" if isinstance(node.targets[0], ast.Name) else f"*map(np.array, {came})"
        yield one_after_another(node, *ast.parse(f"me.kept = [*getattr(me, 'kept', ()), {copies}]").body)


@_operator
def written_inputs(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Write into an input after its last use."""
    if not (isinstance(node, ast.FunctionDef) and isinstance(end := node.body[-1], ast.Return) and end.value):
        return
    if any(calls_in_head(one, method) for one in ast.walk(node) for method in ("new", *COLLECTIVES)):
        return
    for given in (one.arg for one in node.args.args):
        for wrote in (f"{given} += 1", f"np.add({given}[-1], 1, out={given}[-1])"):
            lines = f"result = {ast.unparse(end.value)}\n{wrote}\nreturn result"
            yield changed(node, body=[*node.body[:-1], *ast.parse(lines).body])


@_operator
def further_passes(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Add a second loop over the same iterable that does nothing."""
    if isinstance(node, ast.For):
        again = ast.parse(f"for _ in {ast.unparse(node.iter)}:\n    pass").body
        yield one_after_another(node, *again)


@_operator
def forms_of_results(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """Return a part of the result, its parts in another order, a fraction, or None."""
    if isinstance(node, ast.Return) and node.value is not None:
        text = ast.unparse(node.value)
        others = [f"({text}) + 0.5", f"[{text}]", "None"]
        if isinstance(node.value, ast.Tuple):
            parts = [ast.unparse(part) for part in node.value.elts]
            others = [", ".join(reversed(parts)), *parts, f"{parts[0]} + 0.5, {', '.join(parts[1:])}", "None"]
            if any(isinstance(part, ast.Starred) for part in node.value.elts):
                others = ["None"]
        elif isinstance(node.value, (ast.Call, ast.Name)):
            others += [f"({text})[0]", f"({text})[::-1]"]
        for other in others:
            yield ast.Return(ast.parse(other, mode="eval").body)
