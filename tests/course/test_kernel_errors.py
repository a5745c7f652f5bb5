"""Tests that an error in a student's kernel names the line, the tile shapes and the most frequent cause."""

import linecache

import numpy as np
import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels  # noqa: F401, I001  # before triton
import torch
import triton
import triton.language as tl

from iocourse.course import runtime_errors
from iocourse.course.exercise import Case
from iocourse.errors import error_text
from iocourse.course.trials.kernel_launch import launch

CELL = """
@triton.jit
def inner(x):
    return x + UNKNOWN


@triton.jit
def kernel(X, Y, n, d: tl.constexpr, BM: tl.constexpr):
    i, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, d)
    x = tl.load(X + i[:, None] * d + c, mask=i[:, None] < n, other=0.0)
    m = tl.max(x, 1)
    {line}
    tl.store(Y + i[:, None] * d + c, y, mask=i[:, None] < n)


def launched(X):
    Y = torch.empty_like(X)
    kernel[(2,)](X, Y, 40, d=16, BM=32)
    return Y
"""
LINE = 1 + CELL[: CELL.index("{line}")].count("\n")
CASE = Case("", {"X": np.ones((40, 16), np.float32)})


def error_of(line):
    """Return the error text for a cell whose kernel has this line."""
    text, name = CELL.replace("{line}", line), f"<a cell of test_kernel_errors {line}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl}
    exec(compile(text, name, "exec"), space)
    return error_text(launch(space["launched"], CASE).error)


TILES, NUMPY = "where x is (32, 16)", "NumPy does not run inside a kernel"
AXIS = "these shapes cannot be broadcast: is [:, None] or [None, :] missing?"


@pytest.mark.parametrize(
    ("line", "shapes", "why"),
    [
        ("y = np.exp(x)", TILES, NUMPY),
        ("y = np.where(x > 0, x, 0.0)", TILES, NUMPY),  # raised one line later, at the store of y
        ("y = np.zeros((32, 16))", "", NUMPY),
        ("y = np.sum(x, axis=1)", TILES, NUMPY),
        ("y = torch.exp(x)", TILES, "torch does not run inside a kernel"),
        ("y = x @ tl.trans(x)", TILES, "multiply tiles with tl.dot, not with @"),
        ("y = X[i, c]", "where i is (32,) and c is (16,)", "a pointer cannot be indexed"),
        ("y = X[0]", "", "a pointer cannot be indexed"),
        ("y = x[0]", TILES, "elements of a tile cannot be selected"),
        ("x[0] = 1.0", TILES, "a tile cannot be modified in place"),
        ("y = x - m", "where x is (32, 16) and m is (32,)", AXIS),
        ("y = tl.load(X + i * d + c)", "where i is (32,) and c is (16,)", AXIS),
        ("y = tl.arange(0, n)", "", "the size of a tile must be known before the launch"),
        ("y = tl.arange(0, 24)", "", "the sides of a tile must be powers of two"),
        ("y = tl.dot(x, x)", TILES, "tl.dot multiplies an (a, b) tile by a (b, c) tile"),
        ("y = tl.load(X + i[:, None] * d + c)", "c is (16,)", "are outside every array"),
        ("y = nowhere", "", "NameError: name 'nowhere' is not defined"),
    ],
)
def test_an_error_in_a_kernel_is_told_by_line_shapes_and_cause(line, shapes, why):
    found = error_of(line)
    assert found.startswith(f"KernelError: line {LINE} of your cell, `{line}`")
    assert shapes in found and why in found
    assert len(found) < 400 and "\n" not in found


def test_the_innermost_line_is_named_where_one_kernel_function_calls_another():
    assert error_of("y = inner(x)").startswith(
        "KernelError: line 4 of your cell, `return x + UNKNOWN`, where x"
    )


def test_what_is_raised_outside_a_kernel_stays_as_it_is():
    def launcher(X):
        raise ValueError("of the launcher")

    assert error_text(launch(launcher, CASE).error) == "ValueError: of the launcher"


def test_words_of_a_kernel_outside_one_are_recognised():
    error = launch(lambda X: tl.arange(0, 16), CASE).error
    assert runtime_errors.likely_cause(error) == runtime_errors.TL_OUTSIDE
