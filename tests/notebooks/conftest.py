"""Fixtures that run one notebook, by nbval or not, in a forked process with its imports done."""

import os
import re
import tempfile
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import forked_processes
import other_processor
import pytest

from iocourse.doctor.thread_settings import environment
from tools.build.notebook_execution import lesson_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CELL_TIMEOUT = 60  # seconds
# Modules that a kernel and a run of nbval import before the first cell, or most lessons in it.
IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "pytest", "nbformat", "jupyter_client",
    "matplotlib.pyplot", "matplotlib.backends.backend_agg", "numpy.random", "numpy.polynomial", "anywidget",
)  # fmt: skip
IMPORTS_TORCH = re.compile(r"\bimport (torch|triton)\b")
# torch imports its compiler, which takes a second, at the first call of an operator of the kernels.
TENSORS = ("torch", "torch._dynamo", *filter(find_spec, ["triton"]))
INLINE = "module://matplotlib_inline.backend_inline"  # the backend that a kernel sets for matplotlib


class Nbval:
    """Result of a run of nbval: whether it passed, and its output."""

    def __init__(self, code, text):
        self.passed = code == 0
        self.text = text

    def __repr__(self):
        return f"passed: {self.passed}\n{self.text}"


@pytest.fixture(scope="session")
def importers():
    """A function: processor (None for this one), module names -> the address of a server that forks processes
    with these imports done.
    """

    def server(processor, *modules):
        env = {"MPLBACKEND": INLINE} | os.environ | environment(threads=1) | {"PYTHONHASHSEED": "0"}
        env |= other_processor.PROCESSORS.get(processor, {})
        env.pop("PYTHONPATH", None)  # each process gets its own
        return running.enter_context(forked_processes.imported(modules, env))

    with ExitStack() as running:
        yield cache(server)


@pytest.fixture
def fork_kernels(importers, monkeypatch):
    """A function: text of a notebook, or "" -> start the kernels of this test with its imports done.

    It returns the address of the fork server, or None if kernels start without imports.
    """

    def begin(text, processor=None):
        if not forked_processes.CAN:
            return None
        address = importers(processor, *IMPORTED, *(TENSORS if IMPORTS_TORCH.search(text) else ()))
        forked_processes.kernels_from(address, monkeypatch)
        return address

    return begin


def nbval(
    notebook,
    address,
    *,
    strict_outputs,
    strict_checks=None,
    cell_timeout=CELL_TIMEOUT,
    hidden=None,
    processor=None,
):
    """Run a notebook by nbval as on a command line, but with a faster start and a time limit.

    The run stops after three failing cells, because one error fails every cell that needs its result.

    Args:
        notebook: path of the notebook.
        address: address of the fork server; None for a normal start.
        strict_outputs: compare every output with the saved one.
        strict_checks: whether a failing check raises (IOCOURSE_STRICT). None leaves IOCOURSE_STRICT and
            IOCOURSE_SEED unset.
        cell_timeout: seconds per cell.
        hidden: a folder with a `sitecustomize.py` that hides packages.
        processor: the processor of `other_processor.PROCESSORS` to simulate. The fork server has loaded NumPy
            and torch with its variables; the environment has them for Numba and for processes of a lesson.
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
        env |= other_processor.PROCESSORS.get(processor, {})
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
        return nbval(notebook, fork_kernels(imported, how.get("processor")), **how)

    return run
