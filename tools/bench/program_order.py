"""The forward kernel with its programs in another order, for one launch.

The library's programs of one head follow each other, so that programs which run at the same time read the
same keys. Here the head changes fastest, so that they read the keys of every head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from iocourse.kernels import forward, jit_helpers
from iocourse.kernels.host import launches
from tools.bench.problems import HEADS_FASTEST, TILES_FASTEST

import triton  # isort: skip  # after the kernels, which choose between interpreter and compiler
import triton.language as tl  # isort: skip


@triton.jit
def heads_first_place(program, shape, LAST_FIRST: tl.constexpr):
    """Return what `jit_helpers.program_place` returns, with consecutive programs in different heads."""
    batch_heads = tl.num_programs(0) // shape.tiles
    tile, batch_head = program // batch_heads, program % batch_heads
    if LAST_FIRST:
        tile = shape.tiles - 1 - tile
    return tile, batch_head, batch_head // shape.heads, batch_head % shape.heads


def with_names(kernel: Any, **names: Any) -> Any:
    """Return the same Triton function, in which these names of its module have other values."""
    written = kernel.fn
    made = FunctionType(written.__code__, {**written.__globals__, **names}, written.__name__)
    made.__module__, made.__qualname__ = written.__module__, written.__qualname__
    made.__annotations__ = written.__annotations__
    # `do_not_specialize` of the original; the interpreter keeps it as an argument only.
    kept = {"do_not_specialize": getattr(kernel, "do_not_specialize", None)}
    return triton.jit(made, **kept)


_place = with_names(jit_helpers.place_of_queries, program_place=heads_first_place)
_kernel = with_names(forward.forward_kernel, place_of_queries=_place)


@contextmanager
def order_of(name: str) -> Iterator[None]:
    """Launch the forward kernel with its programs in this order within the block. Raises ValueError for
    another name.
    """
    if name not in (TILES_FASTEST, HEADS_FASTEST):
        raise ValueError(f"name must be {TILES_FASTEST!r} or {HEADS_FASTEST!r}, got {name!r}")
    swapped: Any = launches  # mypy takes the names that a module imports for private
    before = swapped.forward_kernel
    swapped.forward_kernel = _kernel if name == HEADS_FASTEST else before
    try:
        yield
    finally:
        swapped.forward_kernel = before


def in_order(name: str, attend: Callable[..., Any]) -> Callable[..., Any]:
    """Return `attend` with the programs of its forward pass in this order."""

    def attended(*arguments: Any, **options: Any) -> Any:
        with order_of(name):
            return attend(*arguments, **options)

    return attended
