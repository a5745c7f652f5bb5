"""Checks refuse the functions of flash_attention.py, wherever a copy lies and whatever it is called."""

import importlib
import importlib.util
import linecache
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iocourse.course.checking import OWN, check, judge
from iocourse.course.exercise import find
from iocourse.course.flash_attention_file import packaged_file
from iocourse.course.functions_of_file import _functions_of_file, _inside, _instructions, is_of_file
from tools.build.notebook_execution import cannot_run

ROOT = Path(__file__).parents[2]
FILE = ROOT / "lessons" / "flash_attention.py"
if reason := cannot_run("import triton"):
    pytest.skip(reason, allow_module_level=True)


def refused(exercise_id, answer):
    """Return the failed properties of the first case, with their complaints."""
    exercise = find(exercise_id)
    first = list(exercise.cases(np.random.default_rng(0)))[:1]
    verdicts = judge(replace(exercise, cases=lambda rng: first), answer, 0)
    return [(name, said) for name, said in verdicts if said is not None]


def refusal(function):
    return [
        (
            OWN,
            f"{function}, code of flash_attention.py, solves the exercise and cannot be called while a check "
            "runs; write your own solution",
        )
    ]


def loaded(path, name):
    """Execute a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def flash():
    """The file, imported by its name from the folder of the notebook."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FILE.parent)
        patch.setattr(sys, "dont_write_bytecode", True)
        yield importlib.import_module("flash_attention")
    del sys.modules["flash_attention"]


def as_heads(x):
    """View rows (N, d) or heads (H, N, d) as a batch (B, H, N, d)."""
    return x.view((1,) * (4 - x.dim()) + tuple(x.shape))


def launchers(flash):
    """Return an answer per exercise that calls the file."""
    return {
        "11A": lambda Q, K, V, BM, BN: flash.attention_with_lse(*map(as_heads, (Q, K, V))),
        "11B": lambda Q, K, V, causal, BM, BN: flash.attention_with_lse(
            *map(as_heads, (Q, K, V)), causal=causal
        ),
        "12B": lambda Q, K, V, O, dO, LSE, *tile: flash.backward(
            as_heads(dO), LSE[None], *map(as_heads, (Q, K, V, O)), LSE[None], False, 1.0
        ),
        "12E": lambda Q, K, V, causal=False: flash.attention(*map(as_heads, (Q, K, V)), causal=causal)[0],
    }


@pytest.mark.parametrize("exercise_id", ["11A", "11B", "12B", "12E"])
def test_an_answer_that_calls_the_file_is_refused_by_its_name(flash, exercise_id):
    kernel = "queries_kernel" if exercise_id == "12B" else "forward_kernel"
    assert refused(exercise_id, launchers(flash)[exercise_id]) == refusal(f"flash_attention.{kernel}")


def test_the_check_of_such_an_answer_ends_with_a_report(flash, capsys):
    check("12E", launchers(flash)["12E"], seed=0)
    said = capsys.readouterr().out
    assert f"FAILS  {OWN}: flash_attention.forward_kernel, code of flash_attention.py, solves the" in said


def renamed(folder):
    return loaded(shutil.copy(FILE, folder / "my_kernels.py"), "my_kernels")


def without_header(folder):
    """A copy without comments at the beginning, docstring and record, in a package."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("from .mine import attention\n", encoding="utf-8")
    _, code = FILE.read_text(encoding="utf-8").split("from __future__", 1)
    (folder / "pack" / "mine.py").write_text(f"# my kernels\nfrom __future__{code}", encoding="utf-8")
    return importlib.import_module("pack")


def without_docstrings(folder):
    text = FILE.read_text(encoding="utf-8")
    docstring = '    """BM rows of O and LSE: first the full blocks of keys, then the partial ones."""\n'
    assert docstring in text
    (folder / "short.py").write_text(text.replace(docstring, ""), encoding="utf-8")
    return loaded(folder / "short.py", "short")


@pytest.mark.parametrize("copied", [renamed, without_header, without_docstrings])
def test_a_copy_is_recognised_by_its_code(copied, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    answer = launchers(copied(tmp_path))["12E"]
    name = {renamed: "my_kernels", without_header: "pack.mine", without_docstrings: "short"}[copied]
    assert refused("12E", answer) == refusal(f"{name}.forward_kernel")
    for module in [name for name in sys.modules if name.split(".")[0] == "pack"]:
        del sys.modules[module]


def test_a_kernel_with_other_decorators_is_recognised(flash):
    import triton

    function = flash.forward_kernel.base_fn
    one, two = ([triton.Config({"BM": 16 * n, "BN": 16}) for n in range(1, many + 1)] for many in (1, 2))
    for kernel in (
        triton.jit(function),
        triton.jit(do_not_specialize=["Nq"])(function),
        triton.autotune(one, key=[])(triton.jit(function)),
        triton.autotune(two, key=[])(triton.jit(function)),
        triton.heuristics({"BM": lambda given: 16})(triton.jit(function)),
    ):

        def mine(Q, *rest, kernel=kernel):
            kernel[(1,)](Q)

        assert refused("11A", mine) == refusal("flash_attention.forward_kernel")


OWN_KERNEL = """
import flash_attention
import torch
import triton

@triton.jit
def mine(Q):
    flash_attention.head_of(Q, (1, 1), Q, Q)

def launch(Q, *rest):
    mine[(1,)](Q)
"""


def test_a_function_of_the_file_that_a_students_kernel_calls_is_refused(flash, tmp_path):
    """The kernel is in a module of the student, which is not refused for itself."""
    (tmp_path / "own_kernel.py").write_text(OWN_KERNEL, encoding="utf-8")
    own = loaded(tmp_path / "own_kernel.py", "own_kernel")
    assert not is_of_file(own.mine.fn)
    assert refused("11A", own.launch) == refusal("flash_attention.head_of")


def test_a_file_that_a_cell_runs_is_a_file_and_pasted_code_is_the_students(tmp_path):
    """`%run` executes a file in the module __main__, and a cell has no file. Where both have the same code,
    only the first is recognised.
    """
    text = "def head_of(X, strides, batch, head):\n    return X + batch.to(tl.int64) * strides[0]"
    text += " + head.to(tl.int64) * strides[1]\n"
    file = tmp_path / "run.py"
    file.write_text(text, encoding="utf-8")
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    for name, recognised in ((str(file), True), ("<cell>", False)):
        names = {"__name__": "__main__"}
        exec(compile(text, name, "exec"), names)
        assert is_of_file(names["head_of"]) == recognised


def test_constants_of_another_type_are_another_code():
    codes = [compile(f"def f(x):\n    return x * {number}", "f", "exec") for number in ("1", "1.0", "True")]
    assert len({_instructions(next(_inside(code))) for code in codes}) == 3


def test_no_answer_of_the_course_has_the_code_of_a_function_of_the_file():
    """The references run as modules in tests, and students may write the same."""
    assert packaged_file() == FILE and len(_functions_of_file()) > 10
    for path in sorted((ROOT / "solutions").glob("1*.py")):
        code = compile(path.read_text(encoding="utf-8"), path.name, "exec")
        same = [one.co_name for one in _inside(code) if _instructions(one) in _functions_of_file()]
        assert same == [], path.name
