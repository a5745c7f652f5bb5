"""What a student meets in a real kernel: a cell that failed, an interrupt, odd names and folders beside it."""

import os
import sys
import time
from pathlib import Path

import pytest

client = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ROOT = Path(__file__).parents[2]
LONGEST = 60  # seconds of a cell
SETUP = "from iocourse.course import check, hint, measured, predict, progress"
STUB = "def my_compulsory(Nq, Nk, d):\n    raise NotImplementedError"
SOLVED = "def my_compulsory(Nq, Nk, d):\n    return 2 * (Nq + Nk) * d"
OLD = "The last run of the cell that defines my_compulsory failed ({}), so its old version is checked.\n"


class Kernel:
    """A kernel that runs in a folder, as JupyterLab starts it for a notebook there."""

    def __init__(self, folder, **environment):
        env = os.environ | {"PYTHONPATH": str(ROOT), "IOCOURSE_HOME": str(folder / "home")} | environment
        self.manager = client.KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[0] = sys.executable
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LONGEST)

    def run(self, code, meanwhile=lambda said: None):
        """What stands below a cell that has run: its output as it is printed, and what an error shows.

        `meanwhile` is called with each piece of output as it comes.
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
    """A function: a folder, and what the environment is -> a kernel there."""
    started = []

    def start(folder, **environment):
        started.append(Kernel(folder, **environment))
        return started[-1]

    yield start
    for kernel in started:
        kernel.stop()


@pytest.fixture
def kernel(kernel_in, tmp_path):
    """A kernel in which the set-up cell has run."""
    one = kernel_in(tmp_path)
    assert one.run(SETUP) == ""
    return one


def test_the_check_says_that_it_has_the_old_version_of_a_cell_that_failed(kernel):
    def checked():
        return kernel.run('check("0A", my_compulsory)')

    kernel.run(STUB)
    assert "The last run" not in checked()
    assert "IndentationError" in kernel.run(f"  {SOLVED}\n x")
    assert checked().startswith(OLD.format("IndentationError")) and "not written yet" in checked()
    kernel.run(SOLVED.replace(":", "", 1))
    assert checked().startswith(OLD.format("SyntaxError"))
    kernel.run(SOLVED.replace("d)", "d=nobody)"))
    assert checked().startswith(OLD.format("NameError"))
    kernel.run(f"{SOLVED}\nmy_compulsory(1)")  # the new version is there, and what comes after it fails
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
