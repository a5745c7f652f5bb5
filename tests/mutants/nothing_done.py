"""Answers that do nothing: zeros stored after the right loads, an input copied by a kernel, zeros of torch.

They are made of the reference of any exercise, so none of them depends on the exercise.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from harness import solved

from tests.mutation.references import build

Answer = Callable[..., Any]
STORES = ("store", "atomic_add")


class _Zeros(ast.NodeTransformer):
    """Replace every value that a kernel stores by zeros of its shape."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in STORES:
            value = ast.unparse(node.args[1])
            node.args[1] = ast.parse(f"tl.where(({value}) == ({value}), 0.0, 0.0)", mode="eval").body
        return node


def zeros_stored(exercise_id: str) -> Answer:
    """Return the reference whose kernels store zeros: the same words, and no result."""
    tree = _Zeros().visit(ast.parse(solved(exercise_id)))
    return build(exercise_id, ast.unparse(ast.fix_missing_locations(tree)))


@triton.jit
def copy_kernel(X, Y, B, H, rows, columns, s_b, s_h, s_row, s_column, n, BLOCK: tl.constexpr):
    """Copy X (B, H, rows, columns), of any strides, to the n words of Y, again where Y is longer."""
    to = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = to % (B * H * rows * columns)
    row = at // columns
    place = row // (H * rows) * s_b + row // rows % H * s_h + row % rows * s_row + at % columns * s_column
    tl.store(Y + to, tl.load(X + place, mask=to < n, other=0.0), mask=to < n)


Shapes = Sequence[tuple[int, ...]]  # of the results


def input_copied(shapes: Shapes, X: Any, *rest: Any) -> Any:
    """Copy the first input to every result, by a kernel; a result of its size gets its shape."""
    results = tuple(torch.empty(X.shape if prod(shape) == X.numel() else shape) for shape in shapes)
    sizes, strides = ((*[1] * 4, *found)[-4:] for found in (X.shape, X.stride()))
    for Y in results:
        programs = triton.cdiv(Y.numel(), 1024)
        copy_kernel[(programs,)](X, Y, *sizes, *strides, Y.numel(), BLOCK=1024)
    return results if len(results) > 1 else results[0]


def zeros_of_torch(shapes: Shapes, *given: Any) -> Any:
    """Return zeros without a kernel."""
    results = tuple(torch.zeros(shape) for shape in shapes)
    return results if len(results) > 1 else results[0]
