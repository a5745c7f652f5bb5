"""Runs of nbval detect errors: a small lesson passes when correct and fails when broken."""

import json
from pathlib import Path

import other_processor
import pytest

from iocourse.course.student_copies.notebook import to_text
from tools.build import course
from tools.build.lesson import build
from tools.build.project import Project

SOURCE = Path(__file__).parent / "fixture_lesson.py"
# The largest entry of what should be 0: how the numbers are added makes all of it.
ERROR = "import numpy as np\nA = np.random.default_rng(0).standard_normal((99, 99))\n"
ERROR += "error = abs(A @ A - np.array([row @ A for row in A])).max()\nprint({})"


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """The small lesson as a solved notebook with saved outputs, and as a student's notebook."""
    return built(tmp_path_factory.mktemp("course"), SOURCE)


def built(root, source):
    """Build both notebooks of a lesson in a folder, and return the folder."""
    (root / "solutions").mkdir()
    lesson = build(source, source, Project("owner/repo", "v1"))
    solved = course.run_solved(lesson, root)
    for name, notebook in (("solved", solved), ("student", lesson.student)):
        (root / f"{name}.ipynb").write_text(to_text(notebook))
    return root


def broken(notebooks, *changes):
    """The solved notebook with parts of its text replaced."""
    text = (notebooks / "solved.ipynb").read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = notebooks / "broken.ipynb"
    path.write_text(text)
    return path


def test_the_whole_lesson_passes_strictly(notebooks, nbval):
    result = nbval(notebooks / "solved.ipynb", strict_outputs=True, strict_checks=True)
    assert result.passed and "6 passed" in result.text, result


def test_the_unsolved_lesson_passes_only_where_checks_do_not_raise(notebooks, nbval):
    student = notebooks / "student.ipynb"
    assert nbval(student, strict_outputs=False, strict_checks=False).passed
    result = nbval(student, strict_outputs=False, strict_checks=True)
    assert not result.passed and "AssertionError: 0A" in result.text


def test_a_broken_notebook_fails_and_its_cells_are_printed(notebooks, nbval):
    path = broken(
        notebooks,
        ("2 + 3 = 5\\n", "2 + 3 = 6\\n"),
        ("    c = a + b", "    c = a - b"),
        ("add(20, 22)", "while True: pass"),
    )
    result = nbval(path, strict_outputs=True, strict_checks=True, cell_timeout=8)
    assert not result.passed and "3 failed" in result.text
    for said in ("mismatch 'stdout'", "2 + 3 = 6", "AssertionError: 0A", "Timeout of 8 seconds exceeded"):
        assert said in result.text


@pytest.mark.skipif(
    not other_processor.CAN, reason="the variables that simulate another processor are for x86-64"
)
@pytest.mark.parametrize(("said", "same"), [("f'{error:.2e}'", False), ("error < 1e-12", True)])
def test_a_printed_rounding_error_differs_on_another_processor_and_a_bound_does_not(
    said, same, tmp_path, nbval, fork_kernels
):
    fork_kernels("")
    source = tmp_path / SOURCE.name
    source.write_text(SOURCE.read_text().replace("add(20, 22)", ERROR.format(said)))
    notebook = built(tmp_path, source) / "solved.ipynb"
    assert nbval(notebook, strict_outputs=True).passed
    result = nbval(notebook, strict_outputs=True, processor=other_processor.OTHER)
    assert result.passed == same, result


def test_html_that_takes_the_place_of_text_is_not_compared_and_the_text_is(notebooks, nbval):
    shown = "display_then_replace({'text/plain': repr(s)}, str(id(s)))"
    show = "from iocourse.console import display_then_replace\\nclass T:\\n"
    show += f"    _ipython_display_ = lambda s: {shown}\\n    __repr__ = lambda s: '42'\\nT()"
    path = broken(notebooks, ("add(20, 22)", show))
    result = nbval(path, strict_outputs=True, strict_checks=True)
    assert result.passed, result
    path.write_text(path.read_text().replace("lambda s: '42'", "lambda s: '43'"))
    assert not nbval(path, strict_outputs=True, strict_checks=True).passed


def test_the_saved_notebook_is_as_the_kernel_left_it(notebooks):
    cells = json.loads((notebooks / "solved.ipynb").read_text())["cells"]
    assert [c["execution_count"] for c in cells if c["cell_type"] == "code"] == [1, 2, 3, 4, 5, 6]
