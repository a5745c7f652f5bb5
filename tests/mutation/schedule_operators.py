"""What goes wrong with words on their way: operators for schedules of a machine, and for ranks.

They complete the general operators, which take away and exchange, but never move a block once more.
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
    """The calls of this method in a statement, without those in the body of a `with` or a loop."""
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
    """Several statements that stand in place of one."""
    return ast.Module(list(statements), [])


def _loaded_for_nothing(call: ast.Call, array: ast.expr, index: list[ast.expr]) -> ast.stmt:
    """A block that is loaded and freed at once; `call` is one of the same machine."""
    assert isinstance(call.func, ast.Attribute)
    load = ast.Call(changed(call.func, attr="load"), [array, *index], [])
    return ast.Expr(ast.Call(ast.Attribute(load, "free"), [], []))


@_operator
def loads_once_more(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """A block that is loaded a second time."""
    if isinstance(node, ast.stmt):
        for call in calls_in_head(node, "load"):
            yield one_after_another(_loaded_for_nothing(call, call.args[0], call.args[1:]), node)


@_operator
def loads_in_the_loop_inside(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """A block that is loaded again for each block that passes by."""
    if isinstance(node, ast.With):
        for call in calls_in_head(node, "load"):
            again = _loaded_for_nothing(call, call.args[0], call.args[1:])
            for loop in [one for one in ast.walk(node) if isinstance(one, ast.For)]:
                loop.body.insert(0, again)
                yield node
                loop.body.pop(0)


@_operator
def stores_twice(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """A block that is stored a second time."""
    if isinstance(node, ast.stmt) and calls_in_head(node, "store"):
        yield one_after_another(node, node)


@_operator
def reads_back(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """A block that is loaded after it was stored."""
    if isinstance(node, ast.stmt):
        for call in calls_in_head(node, "store"):
            yield one_after_another(node, _loaded_for_nothing(call, call.args[1], call.args[2:]))


@_operator
def no_running_maximum(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """An online softmax that takes powers of the scores as they are, without a maximum."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and called(call) == "update":
        stats, scores = ast.unparse(call.func.value), ast.unparse(call.args[0])
        lines = f"np.exp({scores}, out={scores})\n{stats}.l[:] = {stats}.l + {scores}.sum(axis=1)"
        yield one_after_another(*ast.parse(lines).body)


@_operator
def last_arguments(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """A call of a method that leaves out what comes last, such as the output that is to be rescaled."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
        if ast.unparse(node.func.value) not in ("tl", "triton", "np", "torch"):
            yield changed(node, args=node.args[:-1])


@_operator
def words_sent_again(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """An array that ranks send each other, sent a second time."""
    if isinstance(node, ast.stmt):
        for call in (one for method in COLLECTIVES for one in calls_in_head(node, method)):
            for array in (one for one in call.keywords if one.arg != "by"):
                others = [one for one in call.keywords if one.arg == "by"]
                yield one_after_another(ast.Expr(changed(call, keywords=[*others, array])), node)


@_operator
def written_inputs(node: ast.AST, around: Around) -> Iterator[ast.AST]:
    """A function that writes into what it is given, when it needs it no more."""
    if isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return) and node.body[-1].value:
        if not any(calls_in_head(one, method) for one in ast.walk(node) for method in ("new", *COLLECTIVES)):
            for given in (one.arg for one in node.args.args):
                end = f"result = {ast.unparse(node.body[-1].value)}\n{given} += 1\nreturn result"
                yield changed(node, body=[*node.body[:-1], *ast.parse(end).body])
