"""Running one notebook by nbval in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iocourse.course.authoring.execution import lesson_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CELL_TIMEOUT = 60  # seconds


class Nbval:
    """What a run of nbval said."""

    def __init__(self, code, text):
        self.passed = code == 0
        self.text = text

    def __repr__(self):
        return f"passed: {self.passed}\n{self.text}"


def nbval(notebook, *, strict_outputs, strict_checks, cell_timeout=CELL_TIMEOUT):
    """Run a notebook in the kernel of this Python.

    `strict_outputs` compares every output with the saved one, `strict_checks` lets a failing check raise.
    Stops after three failing cells: one error brings down every cell that needs its result.
    """
    command = [sys.executable, "-m", "pytest", "-c", str(HERE / "nbval.ini"), "-p", "nbval_rules"]
    command += ["-p", "no:cacheprovider", "--color=no", "-q", "--maxfail=3", "--no-header"]
    command += ["--nbval" if strict_outputs else "--nbval-lax", "--nbval-current-env"]
    command += [f"--nbval-cell-timeout={cell_timeout}", str(notebook)]
    with lesson_environment(ROOT, strict=strict_checks) as env:
        env["PYTHONPATH"] += os.pathsep + str(HERE)
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = (
            "1"  # the other plugins take longer to load than a lesson to run
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    return Nbval(done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr))


@pytest.fixture(name="nbval")
def nbval_fixture():
    pytest.importorskip("nbval")
    return nbval
