"""The fingerprint of a recorded row: what the compiled code depends on changes it, and nothing else does."""

import importlib.util
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from tools.bench.resources.code_fingerprint import DIGITS, code_of, fingerprint
from tools.bench.resources.compiling import code_as_it_stands, shipped

KERNEL = '''
from typing import NamedTuple

import triton
import triton.language as tl

HALF = tl.constexpr(0.5)
UNUSED = tl.constexpr(3)


class Pair(NamedTuple):
    """Two numbers."""

    first: int
    second: int


@triton.jit
def inner(x):
    """Half of x."""
    return x * HALF


@triton.jit
def middle(x):
    return inner(x) + Pair(1, 2).first


@triton.jit(do_not_specialize=["n"])
def kernel(source, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(source + at, middle(tl.load(source + at, mask=at < n)))
'''
JOB = {"module": "there", "name": "kernel", "arch": 90, "constants": [[[2], 16]], "options": {"num_warps": 4}}


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """A function: the fingerprint of the kernel of this text, launched by this job."""

    def of(text=KERNEL, job=JOB):
        name = f"made_up_{len(list(tmp_path.iterdir()))}"
        file = tmp_path / f"{name}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return fingerprint(module.kernel, job)

    return of


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("x * HALF", "x / HALF"),
        ("constexpr(0.5)", "constexpr(0.25)"),
        ("inner(x) +", "inner(x) -"),
        ("    first: int\n    second: int", "    second: int\n    first: int"),
        ("at < n", "at <= n"),
        ('(do_not_specialize=["n"])', ""),
    ],
)
def test_all_that_a_kernel_reaches_counts(marked, was, now):
    assert was in KERNEL
    assert marked(KERNEL.replace(was, now)) != marked()


@pytest.mark.parametrize(
    "change", [{"arch": 80}, {"constants": [[[2], 32]]}, {"options": {"num_warps": 8}}], ids=str
)
def test_what_a_launch_compiles_in_counts(marked, change):
    assert marked(job=JOB | change) != marked()


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("@triton.jit\ndef inner", "# A comment.\n\n\n@triton.jit\ndef inner"),
        ('    """Half of x."""\n', ""),
        ("Two numbers", "A pair"),
        ("constexpr(3)", "constexpr(4)"),
    ],
)
def test_what_is_only_read_or_not_reached_does_not_count(marked, was, now):
    assert was in KERNEL
    assert marked(KERNEL.replace(was, now)) == marked() != ""


def test_where_a_kernel_stands_does_not_count(marked):
    assert marked(job=JOB | {"module": "elsewhere", "file": "there.py"}) == marked()
    assert len(marked()) == DIGITS


@pytest.mark.parametrize(
    ("value", "kind"), [("0.5", "float"), ("lambda x: x", "function"), ("sys", "module")]
)
def test_what_the_compiler_would_not_take_is_refused(marked, value, kind):
    text = KERNEL.replace("tl.constexpr(0.5)", value).replace(
        "import triton\n", "import sys\n\nimport triton\n"
    )
    with pytest.raises(
        TypeError,
        match=f"^HALF is used in a kernel, so it must be a kernel, class or constexpr, got a {kind}$",
    ):
        marked(text)


def test_a_shipped_kernel_reaches_what_it_is_built_of():
    from iocourse.kernels.forward import forward_kernel

    names = {name for name, _ in code_of(forward_kernel)}
    assert {"forward_kernel", "average_keys", "load_rows", "row_pointers", "LOG2_E", "Lengths"} <= names
    assert not names & {"tl", "triton", "specialised"}


def test_a_tile_of_the_table_counts():
    one = next(shipped(90, 64, 2, "forward"))
    assert code_as_it_stands(one) != code_as_it_stands(one._replace(warps=2 * one.warps))
    assert code_as_it_stands(one) == code_as_it_stands(one._replace())
