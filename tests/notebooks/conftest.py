"""Running one notebook, by nbval or not, in a process of its own that begins with its imports done."""

import os
import re
import tempfile
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import forked_processes
import pytest

from iocourse.doctor.thread_settings import environment
from tools.build.notebook_execution import lesson_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CELL_TIMEOUT = 60  # seconds
# What a kernel and a run of nbval import before the first cell, and most lessons in it.
IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "pytest", "nbformat", "jupyter_client",
    "matplotlib.pyplot", "matplotlib.backends.backend_agg", "numpy.random", "numpy.polynomial", "anywidget",
)  # fmt: skip
IMPORTS_TORCH = re.compile(r"\bimport (torch|triton)\b")
# torch loads its compiler, a second's work, when an operator of the kernels is called for the first time.
TENSORS = ("torch", "torch._dynamo", *filter(find_spec, ["triton"]))
INLINE = "module://matplotlib_inline.backend_inline"  # what a kernel asks of matplotlib


class Nbval:
    """What a run of nbval said."""

    def __init__(self, code, text):
        self.passed = code == 0
        self.text = text

    def __repr__(self):
        return f"passed: {self.passed}\n{self.text}"


@pytest.fixture(scope="session")
def importers():
    """A function: names of modules -> the address at which processes that have imported them are forked."""
    env = {"MPLBACKEND": INLINE} | os.environ | environment(threads=1) | {"PYTHONHASHSEED": "0"}
    env.pop("PYTHONPATH", None)  # each process is told its own
    with ExitStack() as running:
        yield cache(lambda *modules: running.enter_context(forked_processes.imported(modules, env)))


@pytest.fixture
def fork_kernels(importers, monkeypatch):
    """A function: text of a notebook, or "" -> from now on this test's kernels begin with what it imports.

    It returns the address for other processes, or None where kernels begin cold.
    """

    def begin(text):
        if not forked_processes.CAN:
            return None
        address = importers(*IMPORTED, *(TENSORS if IMPORTS_TORCH.search(text) else ()))
        forked_processes.kernels_from(address, monkeypatch)
        return address

    return begin


def nbval(notebook, address, *, strict_outputs, strict_checks=None, cell_timeout=CELL_TIMEOUT, hidden=None):
    """Run a notebook by nbval as somebody types it, but for what makes it begin sooner and end in time.

    `strict_outputs` compares every output with the saved one. `strict_checks` says whether a failing check
    raises, by IOCOURSE_STRICT; where it is None the notebook says so itself, inputs are drawn anew, and
    nothing of the environment is ours. `hidden`: a folder with a `sitecustomize.py`, for packages that are to
    be missing. Stops after three failing cells: one error brings down every cell that needs its result.
    """
    command = [
        "pytest",
        "-p",
        "nbval_forked_kernels",
        "-p",
        "no:cacheprovider",
        "--color=no",
        "-q",
        "--maxfail=3",
    ]
    command += ["--no-header", "--nbval" if strict_outputs else "--nbval-lax", "--nbval-current-env"]
    command += [f"--nbval-cell-timeout={cell_timeout}", str(notebook)]
    with lesson_environment(ROOT, strict=bool(strict_checks)) as env, tempfile.TemporaryFile("w+") as output:
        if strict_checks is None:
            del env["IOCOURSE_STRICT"], env["IOCOURSE_SEED"]
        env["PYTHONPATH"] += os.pathsep + str(HERE)
        if hidden:
            env["PYTHONPATH"] = str(hidden) + os.pathsep + env["PYTHONPATH"]
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = (
            "1"  # the other plugins take longer to load than a lesson to run
        )
        code = forked_processes.run(command, address, env, output)
        output.seek(0)
        return Nbval(code, re.sub(r"\x1b\[[0-9;]*m", "", output.read()))


@pytest.fixture(name="nbval")
def nbval_fixture(fork_kernels):
    pytest.importorskip("nbval")

    def run(notebook, **how):
        imported = "" if how.get("hidden") else notebook.read_text(encoding="utf-8")
        return nbval(notebook, fork_kernels(imported), **how)

    return run
