"""Notebooks of the course, each run once.

A solved notebook reproduces its saved outputs under nbval, with checks that raise. A student's notebook runs
from top to bottom unsolved, and none of its checks passes.
"""

import json
import random
from pathlib import Path

import other_processor
import pytest
from long_runs import many

from iocourse.course import progress
from iocourse.course.course_map import lesson_of
from tools.build import course
from tools.build.notebook_execution import cannot_run, execute, lesson_environment

ROOT = Path(__file__).parents[2]
SOLVED = sorted((ROOT / "solutions").glob("*.ipynb"))
STUDENT = sorted((ROOT / "lessons").glob("*.ipynb"))
QUICK = ("00_start_here", "03_online_softmax", "10_triton_basics")
# The code of an unsolved lesson differs from the solved notebook only in its exercises. So these are one
# lesson per kind of exercise: functions, schedules, choices, bounds, Triton kernels, torch, ranks.
KINDS = [f"{lesson_of(id)}_" for id in ("4A", "5A", "13A", "16A", "19A")]
NAMED = [path for path in STUDENT if path.stem.startswith((*QUICK, *KINDS))]
assert len(NAMED) == len(QUICK) + len(KINDS)
# And four of the others: the draw depends on the notebooks' text, so it differs whenever a lesson changes.
OTHERS = [path for path in STUDENT if path not in NAMED]
DRAWN = random.Random(b"".join(path.read_bytes() for path in STUDENT)).sample(OTHERS, 4)
UNSOLVED = many(sorted(NAMED + DRAWN), STUDENT)


@pytest.fixture(autouse=True)
def needs_triton(request):
    """Skip a notebook with kernels if triton cannot run them here."""
    path = getattr(request.node, "callspec", None) and request.getfixturevalue("notebook")
    if path and (reason := cannot_run(path.read_text(encoding="utf-8"))):
        pytest.skip(reason)


@pytest.mark.parametrize("notebook", SOLVED, ids=lambda path: path.stem)
def test_a_solved_notebook_shows_its_saved_outputs(notebook, nbval):
    result = nbval(notebook, strict_outputs=True)
    assert result.passed, result.text


@pytest.mark.skipif(
    not other_processor.CAN, reason="the variables that simulate another processor are for x86-64"
)
@pytest.mark.parametrize("notebook", SOLVED, ids=lambda path: path.stem)
def test_a_solved_notebook_shows_the_same_on_another_processor(notebook, nbval, tmp_path):
    """A printed rounding error would differ. In lessons with kernels the checks take half of the time, and
    print only verdicts and counts. They are left out there.
    """
    lesson = json.loads(notebook.read_text(encoding="utf-8"))
    if any("import triton" in "".join(cell["source"]) for cell in lesson["cells"]):
        lesson["cells"] = [c for c in lesson["cells"] if "check" not in c["metadata"].get("tags", [])]
    (tmp_path / notebook.name).write_text(json.dumps(lesson), encoding="utf-8")
    result = nbval(tmp_path / notebook.name, strict_outputs=True, processor=other_processor.OTHER)
    assert result.passed, result.text


def some_quick(notebooks):
    """The notebooks as parameters; those in QUICK carry the mark `quick`."""
    marks = {True: pytest.mark.quick, False: ()}
    return [pytest.param(path, id=path.stem, marks=marks[path.stem in QUICK]) for path in notebooks]


def recorded(env):
    """The entries that a run wrote to the progress file of its environment."""
    path = Path(env["IOCOURSE_HOME"]) / "progress.json"
    return progress.parse(path.read_text(), path.name) if path.exists() else {}


@pytest.mark.parametrize("notebook", some_quick(UNSOLVED))
def test_a_students_notebook_runs_unsolved_and_every_check_says_so(notebook, fork_kernels):
    fork_kernels(notebook.read_text(encoding="utf-8"))
    with lesson_environment(ROOT, strict=False) as env:
        done = execute(json.loads(notebook.read_text()), name=notebook.name, folder=notebook.parent, env=env)
        assert not recorded(env), "no exercise was tried and no hint was requested"
    checks = [cell for cell in done["cells"] if "check" in cell["metadata"].get("tags", [])]
    assert checks
    for cell in checks:
        assert "Not solved yet." in json.dumps(cell["outputs"]), cell


def test_notebooks_and_readme_are_what_their_sources_say():
    """`python -m tools.build --check` finds no stale file, and every lesson is complete and timed."""
    assert not course.check(ROOT), "\n".join(course.check(ROOT))
