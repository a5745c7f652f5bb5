"""Tests in a real kernel: a failed cell, an interrupt, unusual files and folders."""

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

client = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ROOT = Path(__file__).parents[2]
LONGEST = 60  # time limit of a cell in seconds
SETUP = "from iocourse.course import check, hint, measured, predict, progress"
STUB = "def my_compulsory(Nq, Nk, d):\n    raise NotImplementedError"
SOLVED = "def my_compulsory(Nq, Nk, d):\n    return 2 * (Nq + Nk) * d"
FAILED = "The last run of the cell that defines my_compulsory failed "
NOT_RUN = FAILED + "({}) before its first line, so the version of an earlier run is checked.\n"


class Kernel:
    """Kernel started in a folder, as JupyterLab starts it for a notebook there."""

    def __init__(self, folder, **environment):
        env = os.environ | {"PYTHONPATH": str(ROOT), "IOCOURSE_HOME": str(folder / "home")} | environment
        self.manager = client.KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[0] = sys.executable
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LONGEST)

    def run(self, code, meanwhile=lambda said: None):
        """Run a cell and return the text below it: its output, and the traceback of an error.

        `meanwhile` is called with each piece of output on arrival.
        """
        asked, said = self.client.execute(code), ""
        while True:
            message = self.client.get_iopub_msg(timeout=LONGEST)
            content = message["content"]
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return said
            if message["msg_type"] in ("stream", "error"):
                said += content.get("text") or "\n".join(content["traceback"])
                meanwhile(said)

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel_in():
    """Function (folder, environment variables) that starts a kernel in that folder."""
    started = []

    def start(folder, **environment):
        started.append(Kernel(folder, **environment))
        return started[-1]

    yield start
    for kernel in started:
        kernel.stop()


@pytest.fixture
def kernel(kernel_in, tmp_path):
    """Kernel in which the set-up cell has run."""
    one = kernel_in(tmp_path)
    assert one.run(SETUP) == ""
    return one


def test_the_check_says_that_it_has_the_old_version_of_a_cell_that_failed(kernel):
    def checked():
        return kernel.run('check("0A", my_compulsory)')

    kernel.run(STUB)
    assert "The last run" not in checked()
    assert "IndentationError" in kernel.run(f"  {SOLVED}\n x")
    assert checked().startswith(NOT_RUN.format("IndentationError")) and "not written yet" in checked()
    kernel.run(SOLVED.replace(":", "", 1))
    assert checked().startswith(NOT_RUN.format("SyntaxError"))
    kernel.run(SOLVED.replace("d)", "d=nobody)"))
    assert checked().startswith(f"{FAILED}(NameError), so its old version is checked.\n")
    kernel.run(f"def helper():\n    pass\n{SOLVED.replace('d)', 'd=nobody)')}")
    with_new = f"{FAILED}(NameError), so its old version is checked, with the new helper.\n"
    assert checked().startswith(with_new)
    assert "The last run" not in kernel.run('import math; check("0A", math.prod)')
    kernel.run(f"{SOLVED}\nmy_compulsory(1)")  # the new version is defined, and a later statement fails
    assert checked().endswith("Solved.\n") and "The last run" not in checked()
    kernel.run("def my_other(:\n    pass")
    assert "The last run" not in checked()


def test_an_interrupted_check_ends_in_its_lines_without_a_traceback(kernel):
    kernel.run(
        "import time\ndef my_compulsory(Nq, Nk, d):\n    print('begun', flush=True)\n    time.sleep(50)"
    )

    def interrupt(said):
        if "begun" in said:
            time.sleep(0.2)
            kernel.manager.interrupt_kernel()

    said = kernel.run('check("0A", my_compulsory, seed=7)', interrupt).partition("begun\n")[2].splitlines()
    assert said[0] == "0A The words attention must move"
    assert said[1].startswith("  interrupted in case ")
    assert said[2].strip() == "line 4: time.sleep(50)"
    assert said[3:] == ["Counted as tried. Same inputs again: seed=7"]


RANKS = """
import mine
import numpy as np
from iocourse import distributed

def my_rows(me, Q):
    return mine.twice(me.shift(Q=Q))

print(distributed.run(my_rows, 2, on="processes", Q=np.ones((4, 2))).O.sum())
"""
COMPILED = """
import torch, triton, triton.language as tl
from iocourse import gpu

@triton.jit
def ones_kernel(target, BLOCK: tl.constexpr):
    tl.store(target + tl.arange(0, BLOCK), 1.0)

print(gpu.resources(ones_kernel, 80, torch.zeros(32), BLOCK=32).arch)
"""


@pytest.fixture
def odd_folder(tmp_path):
    """Folder with spaces and umlauts in its name that contains a random.py and a student's helper module."""
    folder = tmp_path / "Übung zwei, für später"
    folder.mkdir()
    (folder / "random.py").write_text("x = 3\n")
    (folder / "mine.py").write_text("def twice(x):\n    return 2 * x\n")
    return folder


def test_a_random_py_and_an_odd_path_disturb_no_cell(kernel_in, odd_folder):
    kernel = kernel_in(odd_folder)
    lesson = json.loads((ROOT / "lessons" / "00_start_here.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in lesson["cells"] if cell["cell_type"] == "code"]
    said = [kernel.run(cell) for cell in cells]
    assert len(said) > 15 and [one for one in said if "Traceback" in one or "Warning" in one] == []
    assert (odd_folder / "home" / "progress.json").exists() is False  # nothing was recorded yet
    kernel.run('predict("0.1", percent=3)')
    assert (odd_folder / "home" / "progress.json").exists()


@pytest.mark.skipif(find_spec("cloudpickle") is None or find_spec("torch") is None, reason="needs torch")
def test_ranks_in_processes_of_their_own_import_a_helper_and_no_random_py(kernel_in, odd_folder):
    assert kernel_in(odd_folder).run(RANKS) == "16.0\n"


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_a_kernel_of_the_notebook_is_compiled_beside_a_random_py(kernel_in, odd_folder):
    assert kernel_in(odd_folder, TRITON_INTERPRET="1").run(COMPILED) == "80\n"


def test_an_old_progress_file_is_named_in_a_line_and_kept(kernel_in, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "progress.json").write_text('{"format": 0, "exercises": {}}')
    kernel = kernel_in(tmp_path)
    kernel.run(SETUP)
    kernel.run(SOLVED)
    said = [line for line in kernel.run('check("0A", my_compulsory)').splitlines() if "progress" in line]
    assert len(said) == 1 and "progress was reset, because the file is invalid; it is kept at " in said[0]
    assert "has format 0, but this version of iocourse reads format 1)" in said[0]
    assert kernel.run('print(progress.load()["0A"]["status"])') == "solved\n"


def test_a_home_that_cannot_be_written_costs_one_line_and_no_lesson(kernel_in, tmp_path):
    (tmp_path / "file").touch()
    kernel = kernel_in(tmp_path, IOCOURSE_HOME=str(tmp_path / "file" / "home"))
    kernel.run(SETUP)
    kernel.run(SOLVED)
    said = kernel.run('predict("0.1", percent=3)\nhint("0A")\ncheck("0A", my_compulsory)')
    told = [line for line in said.splitlines() if "could not be written" in line]
    assert len(told) == 1 and "Warning" in told[0] and "set IOCOURSE_HOME to a writable folder" in told[0]
    assert said.count("Warning") == 1 and "Solved." in said and "warn" not in said
    assert kernel.run('check("0A", my_compulsory)').endswith("Solved.\n")  # said once
    assert kernel.run("print(progress.load())") == "{}\n"
