"""Tests that checks reject kernels that only the interpreter runs, and accept kernels that compile."""

import linecache
import math

import numpy as np
import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels  # noqa: F401, I001  # before triton
import torch
import triton
import triton.language as tl

from iocourse.course.exercise import Case
from iocourse.errors import error_text
from iocourse.course.trials import compile_check
from iocourse.course.trials.kernel_launch import launch

CELL = """
@triton.jit
def twice(x):
    return 2.0 * x


@triton.jit
def kernel(X, Y, n, D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, APPLY: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0)
    {lines}
    tl.store(Y + i, y, mask=i < n)


def launched(X):
    Y = torch.empty_like(X)
    kernel[(3,)](X, Y, len(X), D=64, BLOCK=16, KIND=tl.float32, APPLY=twice)
    return Y
"""
LINE = 1 + CELL[: CELL.index("{lines}")].count("\n")
CASE = Case("", {"X": np.ones(40, np.float32)})


def plain(x):
    return 2.0 * x


def cell(lines):
    """Return the namespace of a cell whose kernel has these lines."""
    text = CELL.replace("{lines}", lines.replace("\n", "\n    "))
    name = f"<a cell of test_compile_check {lines}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"__name__": "__main__", "np": np, "math": math, "torch": torch, "triton": triton, "tl": tl}
    space |= {"plain": plain, "LOG2E": 1.44, "FIXED": tl.constexpr(1.44), "HALF": tl.float16}
    exec(compile(text, name, "exec"), space)
    return space


def error_of(lines):
    """Return the error of such a cell, or None."""
    return launch(cell(lines)["launched"], CASE).error


COMPILES = (
    "y = x * D**-0.5",
    "y = x * math.sqrt(D)",
    "y = x * math.log2(math.e)",
    "z: tl.constexpr = math.sqrt(D)\ny = x * math.exp(-z)",
    "y = tl.where(x > 0, x, float('-inf'))",
    "y = tl.where(x > 0, x, -np.inf)",
    "y = x * max(D, 3) + min(n, D)",
    "y = max(x, 0.0)",
    "y = x * FIXED",
    "y = twice(x)",
    "y = APPLY(x).to(KIND) + tl.zeros((BLOCK,), HALF)",
    "y = x * tl.cdiv(n, BLOCK)",
    "y = x * triton.next_power_of_2(D)",
    "y = x + tl.max(x, 0) + x.sum()",
    "y = x\nfor t in range(0, n, BLOCK):\n    y += 1.0",
    "y = x\nfor t in tl.static_range(3):\n    y += 1.0",
    "y = x\nt = 0\nwhile t < n:\n    y += 1.0\n    t += 1",
    "y = x\nif n > 3 and D > 3:\n    y = -x",
    "m, l = -float('inf'), 0.0\nfor t in range(n):\n    m = tl.max(x, 0)\n    l += m\ny = x + l",
    "tl.static_assert(D > 1)\ny = x",
    "y = x if n > 3 else -x",
)
OUTSIDE = "a kernel can use only two kinds of globals: functions under @triton.jit"
PYTHON = "a kernel may call only these functions of Python: range, min, max, len, float, int and print"
KEEPS = "a name must keep its type and shape in a loop"
REFUSED = (
    ("y = x + np.maximum(tl.max(x, 0), tl.sum(x, 0))", "NumPy does not run inside a kernel"),
    ("y = np.exp(x)", "NumPy does not run inside a kernel"),
    ("y = np.maximum(x, x)", "NumPy does not run inside a kernel"),
    ("y = np.dot(x, x)", "NumPy does not run inside a kernel"),
    ("y = x * math.sqrt(n)", "must be real number"),
    ("y = x * LOG2E", OUTSIDE),
    ("y = plain(x)", OUTSIDE),
    ("y = x * abs(D)", PYTHON),
    ("y = sum([x, x])", PYTHON),
    ("y = x * round(2.5)", PYTHON),
    ("y = x\nfor t in reversed(range(3)):\n    y += 1.0", PYTHON),
    (
        "y = x\nfor t in range(3):\n    if t > 1:\n        break\n    y += 1.0",
        "unsupported AST node type: Break",
    ),
    ("y = 0.0\nfor t in range(3):\n    y += x", KEEPS),
    ("y = x\nif 3 < n < 90:\n    y = -x", "chained comparisons are not supported"),
    ("z = tl.zeros((8, 8), tl.float16)\ny = x + tl.sum(tl.sum(tl.dot(z, z), 0), 0)", "K >= 16"),
    ("y = x * x.handle.data.max()", "cannot convert"),
    ("y = (lambda a: a)(x)", "unsupported AST node type: Lambda"),
)


@pytest.mark.parametrize("lines", COMPILES)
def test_what_triton_compiles_is_not_refused(lines):
    assert error_of(lines) is None


@pytest.mark.parametrize(("lines", "why"), REFUSED)
def test_what_only_the_interpreter_runs_is_refused_with_its_line_and_cause(lines, why):
    said = error_text(error_of(lines))
    assert said.startswith("KernelError: line ") and why in said
    number = int(said.removeprefix("KernelError: line ").split()[0])
    assert LINE <= number <= LINE + lines.count("\n")


@pytest.mark.parametrize(("name", "then"), [("FIXED", 1.44), ("twice", triton.jit(plain))])
def test_what_compiled_once_is_compiled_again_where_it_sees_something_else(name, then, monkeypatch):
    monkeypatch.setattr(compile_check, "_taken", set())
    space, tried = cell("y = twice(x) * FIXED"), []
    assert launch(space["launched"], CASE).error is None
    monkeypatch.setattr(compile_check, "_put_to_compiler", lambda *asked: tried.append(asked))
    assert launch(space["launched"], CASE).error is None and not tried
    space[name] = then
    assert launch(space["launched"], CASE).error is None and len(tried) == 1


# ---------------------------------------------------------------------- options of a launch
VALUES = "num_warps must be 1, 2, 4, 8, 16 or 32, got "
OPTIONS = (
    ("num_warps=3", f"{VALUES}3"),
    ("num_warps=0", f"{VALUES}0"),
    ("num_warps='4'", f"{VALUES}'4'"),
    ("num_warps=64", f"{VALUES}64"),
    ("num_stages=0", "num_stages must be 1 to 16, got 0"),
    ("num_stages=-1", "num_stages must be 1 to 16, got -1"),
    ("num_stages=True", "num_stages must be 1 to 16, got True"),
    ("num_warp=4", "num_warp is neither a parameter of the kernel nor an option: use num_warps, num_stages, "
                   "num_ctas, maxnreg, enable_fp_fusion"),
)  # fmt: skip


LAUNCHER = """
def with_options(X):
    Y = torch.empty_like(X)
    kernel[(3,)](X, Y, len(X), D=64, BLOCK=16, KIND=tl.float32, APPLY=twice, OPTIONS)
    return Y
"""


def launched_with(options):
    """Return the error of a launch with these options, or None."""
    space = cell("y = x")
    exec(LAUNCHER.replace("OPTIONS", options), space)
    return launch(space["with_options"], CASE).error


@pytest.mark.parametrize(("options", "why"), OPTIONS)
def test_a_wrong_option_of_a_launch_is_told_in_one_line(options, why):
    said = error_text(launched_with(options))
    assert said == f"KernelError: in the launch of kernel, {why}. Leave it out for the default"


def test_every_option_of_the_compiler_is_allowed():
    assert (
        launched_with("num_warps=8, num_stages=3, num_ctas=1, maxnreg=128, debug=True, launch_pdl=False")
        is None
    )
