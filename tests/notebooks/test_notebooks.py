"""Every notebook of the course, run once.

A solved notebook shows by nbval what it says it shows, with checks that raise. A student's notebook runs from
top to bottom unsolved, and not one of its checks takes it for solved.
"""

import json
import random
from pathlib import Path

import pytest
from long_runs import many

from iocourse.course import progress
from tools.build import course
from tools.build.notebook_execution import cannot_run, execute, lesson_environment

ROOT = Path(__file__).parents[2]
SOLVED = sorted((ROOT / "solutions").glob("*.ipynb"))
STUDENT = sorted((ROOT / "lessons").glob("*.ipynb"))
QUICK = ("00_start_here", "03_online_softmax", "10_first_kernels")
# Unsolved, a lesson's code is the solved notebook's but for its exercises: one lesson of each kind, with
# functions, schedules, choices, bounds, Triton's kernels, torch or ranks to write.
KINDS = ("04_flash", "05_how", "13_small", "16_low", "19_balance")
NAMED = [path for path in STUDENT if path.stem.startswith((*QUICK, *KINDS))]
# And four of the others: the draw depends on the notebooks' text, so it differs whenever a lesson changes.
OTHERS = [path for path in STUDENT if path not in NAMED]
DRAWN = random.Random(b"".join(path.read_bytes() for path in STUDENT)).sample(OTHERS, 4)
UNSOLVED = many(sorted(NAMED + DRAWN), STUDENT)


@pytest.fixture(autouse=True)
def needs_triton(request):
    """Skip a notebook that runs kernels where there is no triton."""
    path = getattr(request.node, "callspec", None) and request.getfixturevalue("notebook")
    if path and (reason := cannot_run(path.read_text(encoding="utf-8"))):
        pytest.skip(reason)


@pytest.mark.parametrize("notebook", SOLVED, ids=lambda path: path.stem)
def test_a_solved_notebook_shows_its_saved_outputs(notebook, nbval):
    result = nbval(notebook, strict_outputs=True)
    assert result.passed, result.text


def some_quick(notebooks):
    """Each notebook as a parameter, those of `QUICK` with its mark."""
    marks = {True: pytest.mark.quick, False: ()}
    return [pytest.param(path, id=path.stem, marks=marks[path.stem in QUICK]) for path in notebooks]


def recorded(env):
    """What a run left in the progress file of its environment."""
    path = Path(env["IOCOURSE_HOME"]) / "progress.json"
    return progress.parse(path.read_text(), path.name) if path.exists() else {}


@pytest.mark.parametrize("notebook", some_quick(UNSOLVED))
def test_a_students_notebook_runs_unsolved_and_every_check_says_so(notebook, fork_kernels):
    fork_kernels(notebook.read_text(encoding="utf-8"))
    with lesson_environment(ROOT, strict=False) as env:
        done = execute(json.loads(notebook.read_text()), name=notebook.name, folder=notebook.parent, env=env)
        assert not recorded(env), "nothing was tried yet, and no hint asked for"
    checks = [cell for cell in done["cells"] if "check" in cell["metadata"].get("tags", [])]
    assert checks
    for cell in checks:
        assert "Not solved yet." in json.dumps(cell["outputs"]), cell


def test_notebooks_and_readme_are_what_their_sources_say():
    """`python -m tools.build --check`: nothing is stale, every lesson is complete, all are timed."""
    assert not course.check(ROOT), "\n".join(course.check(ROOT))
