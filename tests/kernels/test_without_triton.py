"""Errors without triton, with a wrong import order, or on the wrong device, each in a separate process.

Most of these tests also run without torch and triton.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iocourse.doctor import install_command

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
needs_both = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def python(code, **environment):
    """Standard output, or the last line of the error, of this code in a new process."""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=clean | {"CUDA_VISIBLE_DEVICES": ""} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_importing_the_course_loads_neither():
    """NumPy alone is enough for lessons 0 to 9, for counting's face and for looking up chips."""
    code = """
import sys, iocourse, iocourse.course, iocourse.course.explore, iocourse.traffic, iocourse.costs.kernels
import iocourse.cli, iocourse.gpu, tools.bench
print([name for name in ("torch", "triton") if name in sys.modules])
"""
    assert python(code) == "[]"


@pytest.mark.parametrize("absent", ["triton", "torch"])
def test_kernels_without_one_of_them(absent):
    said = python(f"import sys; sys.modules['{absent}'] = None; import iocourse.kernels")
    assert said.startswith("iocourse.doctor.triton_missing.TritonMissing: ")
    assert f"{absent} is not installed here" in said
    assert f"here: {install_command.command(absent)}. The same" in said
    assert "iocourse.schedules.flash2, split_backward and fused_backward" in said


def test_kernels_without_both():
    said = python("import sys; sys.modules['torch'] = sys.modules['triton'] = None; import iocourse.kernels")
    assert f"torch and triton are not installed here: {install_command.command('triton')}. The same" in said


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_where_triton_is_not_published(platform):
    said = python(
        "import sys; from iocourse.doctor.triton_missing import explanation;"
        f"sys.modules['triton'] = None; sys.platform = '{platform}'; print(explanation())"
    )
    assert "triton is published for Linux only (Colab runs Linux)" in said
    assert "pip install" not in said
    assert "iocourse.schedules.flash2" in said


def test_the_numpy_version_that_the_message_names_is_there():
    code = """
import sys
sys.modules['torch'] = sys.modules['triton'] = None
from iocourse.schedules import flash2, fused_backward, split_backward
print(all(map(callable, (flash2, fused_backward, split_backward))))
"""
    assert python(code) == "True"


def test_counting_without_triton():
    said = python(
        "import sys; sys.modules['triton'] = None; from iocourse import traffic\nwith traffic.count(): 0"
    )
    assert said.startswith("iocourse.doctor.triton_missing.TritonMissing: triton is not installed here")


@needs_both
def test_triton_imported_first():
    said = python("import triton, triton.language, iocourse.kernels")
    assert said.startswith(
        "iocourse.kernels.host.backend.WrongOrder: triton was imported before iocourse.kernels"
    )
    assert "import iocourse.kernels first, or set TRITON_INTERPRET=1" in said


@needs_both
def test_triton_imported_first_and_told_to_interpret():
    code = "import triton, triton.language, iocourse.kernels; print(iocourse.kernels.INTERPRETED)"
    assert python(code, TRITON_INTERPRET="1") == "True"


@needs_both
def test_torch_imported_first():
    assert python("import torch, iocourse.kernels; print(iocourse.kernels.INTERPRETED)") == "True"


@needs_both
def test_a_variable_set_to_nothing_is_not_set():
    """As an empty line of a shell script leaves it."""
    assert (
        python("import iocourse.kernels; print(iocourse.kernels.INTERPRETED)", TRITON_INTERPRET="") == "True"
    )


@needs_both
def test_kernels_first_then_triton():
    assert python("import iocourse.kernels, triton; print(iocourse.kernels.INTERPRETED)") == "True"


@needs_both
@pytest.mark.parametrize("off", ["0", "false"])
def test_told_to_compile_and_given_cpu_tensors(off):
    code = """
import torch
from iocourse.kernels import attention
attention(*[torch.zeros(1, 1, 4, 8)] * 3)
"""
    said = python(code, TRITON_INTERPRET=off)
    assert said.startswith(
        "ValueError: q must be a cuda tensor, because kernels are compiled for CUDA here, got a tensor on cpu"
    )


@needs_both
def test_counting_where_kernels_are_compiled():
    code = "from iocourse import traffic\nwith traffic.count(): 0"
    said = python(code, TRITON_INTERPRET="0")
    assert said.startswith("iocourse.traffic.CannotCount: kernels are compiled in this process")
    assert "TRITON_INTERPRET=1" in said


@needs_both
def test_a_kernel_that_was_defined_for_the_compiler_is_not_counted_as_nothing():
    """A kernel defined before TRITON_INTERPRET was set would launch past the ledger: it is refused."""
    code = """
import os, sys, tempfile, importlib.util
import triton, torch
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "early.py")
    open(path, "w").write("import triton\\n@triton.jit\\ndef nothing(x):\\n    pass\\n")
    spec = importlib.util.spec_from_file_location("early", path)
    early = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(early)
    os.environ["TRITON_INTERPRET"] = "1"
    from iocourse import traffic
    with traffic.count():
        early.nothing[(1,)](torch.zeros(1))
"""
    assert python(code).startswith("iocourse.traffic.CannotCount: kernels are compiled in this process")
