"""Notebooks that import torch, triton or numba, run as if none of them were installed.

No cell raises. Cells that need only NumPy run; the others print one line with the packages to install.
"""

import json
import os
import re
from pathlib import Path

import pytest
from long_runs import many

from tools.build.notebook_execution import execute, lesson_environment, normalise

ROOT = Path(__file__).parents[2]
# Hides the packages from the import system, in this process and in those that it starts.
HIDING = """
import sys
from importlib.machinery import PathFinder


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in ("torch", "triton", "numba")
        return None if hidden else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""
ASKS = re.compile(r"\bimport (torch|triton|numba)\b")
LACKS = re.compile(r"^.*\b(?:torch|triton)\b.* (?:is|are) not installed here.*$", re.MULTILINE)
INSTALL = re.compile(
    r"not installed here(: %pip install .*\[(triton|torch)\]|, and triton is published for Linux)"
)


def code_of(notebook):
    return [
        "".join(c["source"]) for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"
    ]


ASKING = [
    path
    for folder in ("lessons", "solutions")
    for path in sorted((ROOT / folder).glob("*.ipynb"))
    if ASKS.search("\n".join(code_of(path)))
]
# Unsolved lessons import the same as solved ones, so two are enough: one with kernels, and one with training.
UNSOLVED = ("10_triton_basics", "17_error_growth_and_training")
NOTEBOOKS = many([one for one in ASKING if one.parent.name != "lessons" or one.stem in UNSOLVED], ASKING)


def text_of(cell):
    """The text that a cell printed."""
    streams = [one["text"] for one in normalise(cell["outputs"]) if one["output_type"] == "stream"]
    return "".join("".join(text) for text in streams)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_cell_raises_where_neither_is_installed(notebook, tmp_path, fork_kernels):
    fork_kernels("")  # without imports of the packages that are hidden below
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    with lesson_environment(ROOT, strict=False) as env:
        env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
        run = execute(json.loads(notebook.read_text()), name=notebook.name, folder=notebook.parent, env=env)
    cells = [cell for cell in run["cells"] if cell["cell_type"] == "code"]
    said = [LACKS.findall(text_of(cell)) for cell in cells]
    assert any(said) and max(map(len, said)) == 1, "at least one such line, and at most one per cell"
    assert all(INSTALL.search(line) for lines in said for line in lines if "needed: an NVIDIA" not in line)
    checks = [text_of(cell) for cell in cells if "check" in cell["metadata"].get("tags", [])]
    tried = "Not solved yet." if notebook.parent.name == "lessons" else "Solved."
    assert all((tried in text) != ("  not tried: " in text) for text in checks), checks
    kernels = any("@triton.jit" in source for source in code_of(notebook))
    assert any("  not tried: " in text for text in checks) == kernels


def test_the_notebooks_that_ask_are_those_of_kernels_and_of_training():
    assert {path.name[:2] for path in ASKING} == {"10", "11", "12", "13", "14", "16", "17"}
