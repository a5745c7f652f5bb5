"""Test that a notebook which was saved with version 0.2.0 runs with this version.

Its lesson has another file name now. The cells are those of `lessons/10_first_kernels.ipynb` of that version,
with an answer.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import skips

from iocourse.course.course_map import lesson_named

skips.unless_installed("IPython")

ROOT = Path(__file__).parents[2]
NAME = "10_first_kernels"
CELLS = (
    """\
# @title Find iocourse, or install its wheel from here or Drive (docs/guide/install.md)
import glob as _glob, importlib.util as _util
_whls = [w for f in ("", "drive/*/", "drive/*/iocourse/") for w in _glob.glob(f + "iocourse-*.whl")]
if not getattr(_util.find_spec("iocourse"), "origin", None):  # a folder of this name has no origin
    assert _whls, "no iocourse here: choose another kernel, or put its wheel next to this notebook"
    assert _util.find_spec("pip"), "no pip here: run `%run -m ensurepip` and restart the kernel"
    %pip install -q "{max(_whls)}[course]"
""",
    """\
import numpy as np

from iocourse import bounds, costs, exact
from iocourse.course import attempt, check, explore, hint, measured, predict
""",
    'predict("10.1", programs=8, lanes_off=24)',
    """\
def my_tile(p, q, rows, columns, s0, s1, BM, BN):
    i, j = (p * BM + np.arange(BM))[:, None], (q * BN + np.arange(BN))[None, :]
    return i * s0 + j * s1, (i < rows) & (j < columns)
""",
    """\
from iocourse.course import check

check("10A", my_tile)
""",
)
SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
for cell in json.load(sys.stdin):
    print("=== cell")
    shell.run_cell(cell)
"""


def test_its_first_cell_installs_nothing_and_its_check_passes(tmp_path):
    assert lesson_named(NAME).file != NAME
    env = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path), "IOCOURSE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SESSION], input=json.dumps(CELLS), env=env, cwd=tmp_path,
        capture_output=True, text=True, timeout=280, check=True,
    )  # fmt: skip
    first, imports, _, answer, checked = done.stdout.split("=== cell\n")[1:]
    assert first.strip() == imports.strip() == answer.strip() == ""
    assert checked.strip().endswith("Solved.")
    recorded = json.loads((tmp_path / "progress.json").read_text(encoding="utf-8"))["exercises"]
    assert recorded["10A"]["status"] == "solved" and recorded["p10.1"]["prediction"]["programs"] == 8
