"""Tests of the lessons that need triton, and of the message if it is not installed."""

import sys
from pathlib import Path

import pytest

from iocourse.course.student_copies.notebook import to_text
from iocourse.errors import UsageError
from tools.bench import notebooks
from tools.build import BuildFailed, course, lesson, notebook_execution
from tools.build.notebook_execution import cannot_run, runs_kernels
from tools.build.project import read_project

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "solutions").glob("[0-9]*.py"))


@pytest.fixture
def no_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_lessons_10_to_14c_but_14_run_kernels_and_the_others_run_everywhere(source, no_triton):
    """Lesson 14 reads recorded times. The source and both notebooks give the same result."""
    texts = [source.read_text(encoding="utf-8")]
    for folder in ("lessons", "solutions"):
        notebook = ROOT / folder / f"{source.stem}.ipynb"
        texts += [notebook.read_text(encoding="utf-8")] if notebook.exists() else []
    wanted = "10" <= source.name < "15" and not source.name.startswith("14_")
    assert {runs_kernels(text) for text in texts} == {wanted}
    assert all(cannot_run(text).startswith("needs triton: triton is not") == wanted for text in texts)


def test_where_triton_interprets_every_lesson_can_run(monkeypatch):
    monkeypatch.setattr(notebook_execution, "explanation", lambda: "")
    monkeypatch.setattr("tools.build.notebook_execution.installed", {"triton": "3.7.1", "numpy": "2.4.0"}.get)
    assert not cannot_run("import torch, triton\n")
    monkeypatch.setattr("tools.build.notebook_execution.installed", {"triton": "3.6.0", "numpy": "2.4.0"}.get)
    assert "NumPy before 2.4" in cannot_run("import torch, triton\n")
    assert not cannot_run("import numpy as np\n")


def a_lesson(folder, code):
    (folder / "solutions").mkdir()
    path = folder / "solutions" / "10_kernels.py"
    path.write_text(f"# %% [markdown]\n# # 10 Kernels\n\n# %%\n{code}\n", encoding="utf-8")
    return lesson.build(path, Path("solutions/10_kernels.py"), read_project(ROOT))


def test_a_release_without_triton_says_which_notebook_needs_it(tmp_path, no_triton):
    made = a_lesson(tmp_path, "from iocourse import kernels")
    with pytest.raises(BuildFailed, match=r"solutions/10_kernels\.ipynb needs triton: "):
        course.run_solved(made, tmp_path)


def test_timing_the_notebooks_without_triton_is_refused(tmp_path, no_triton, monkeypatch):
    made = a_lesson(tmp_path, "from iocourse import kernels")
    (tmp_path / "solutions" / "10_kernels.ipynb").write_text(to_text(made.solved), encoding="utf-8")
    monkeypatch.setattr(notebooks, "find_checkout", lambda: tmp_path)
    with pytest.raises(UsageError, match=r"10_kernels\.ipynb needs triton: "):
        notebooks.run(quick=True)
