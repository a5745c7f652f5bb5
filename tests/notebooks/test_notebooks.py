"""Every notebook of the course by nbval.

A solved notebook shows what it says it shows, with checks that raise. A student's notebook runs from top to
bottom unsolved, and does not pass where checks raise.
"""

from pathlib import Path

import pytest

from iocourse.course.authoring import release
from iocourse.course.authoring.kernel_lessons import cannot_run

ROOT = Path(__file__).parents[2]
SOLVED = sorted((ROOT / "solutions").glob("*.ipynb"))
STUDENT = sorted((ROOT / "lessons").glob("*.ipynb"))


@pytest.fixture(autouse=True)
def needs_triton(request):
    """Skip a notebook that runs kernels where there is no triton."""
    path = getattr(request.node, "callspec", None) and request.getfixturevalue("notebook")
    if path and (reason := cannot_run(path.read_text(encoding="utf-8"))):
        pytest.skip(reason)


@pytest.mark.parametrize("notebook", SOLVED, ids=lambda path: path.stem)
def test_a_solved_notebook_shows_its_saved_outputs(notebook, nbval):
    result = nbval(notebook, strict_outputs=True, strict_checks=True)
    assert result.passed, result.text


@pytest.mark.parametrize("notebook", STUDENT, ids=lambda path: path.stem)
def test_a_students_notebook_runs_unsolved(notebook, nbval):
    result = nbval(notebook, strict_outputs=False, strict_checks=False)
    assert result.passed, result.text


@pytest.mark.parametrize("notebook", STUDENT, ids=lambda path: path.stem)
def test_a_students_notebook_does_not_pass_unsolved(notebook, nbval):
    result = nbval(notebook, strict_outputs=False, strict_checks=True)
    assert not result.passed and "Cell execution caused an exception" in result.text, result.text


def test_notebooks_and_readme_are_what_their_sources_say():
    """`iocourse release --check`: nothing is stale, every lesson is complete, all are timed."""
    assert not release.check(ROOT), "\n".join(release.check(ROOT))
