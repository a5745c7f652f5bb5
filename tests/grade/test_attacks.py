"""Attacks by a submission lose the points of that exercise, with a reason, and affect no other submission."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from attacks import BODIES

from iocourse.course.exercise import find
from iocourse.course.grade import sandbox
from iocourse.course.grade.grading import grade, require_runnable
from iocourse.course.grade.lesson_cells import Lesson, LessonCell
from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submissions import Submission
from iocourse.errors import UsageError

LIMITS = Limits(seconds=2, memory=2 << 30)
HONEST = "def my_compulsory(Nq, Nk, d):\n    return 2 * (Nq + Nk) * d"
# Exercises of kind `function` with fast checks, one for each attack.
ATTACKED = (
    *("16A", "1A", "5A", "5B", "5C", "6C", "9A", "9B", "17A", "17C", "2C", "15C", "4D"),
    *("6A", "8D", "8A"),
)


def missing_sandbox() -> str:
    """Return the reason why the sandbox does not work on this machine; "" if it does."""
    try:
        sandbox.require_bubblewrap(LIMITS)
    except UsageError as refused:
        return str(refused)
    return ""


WHY_NOT = missing_sandbox()


def needs_sandbox(test):
    """Mark a test of the sandbox as `security`, and skip it if the sandbox does not work here."""
    return pytest.mark.security(pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)(test))


def body_of(exercise_id, body):
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"def {find(exercise_id).function}(*args, **kwargs):\n{lines}"


def handed_in(texts):
    """Return a submission with these cells (exercise id, source), and a lesson of exactly these exercises."""
    cells = [{"cell_type": "code", "id": one, "metadata": {}, "source": text} for one, text in texts]
    places = tuple(LessonCell(one, "", one) for one, _ in texts)
    return Submission("x", Path("x"), b"", {"cells": cells}), Lesson("made up", places)


@needs_sandbox
def test_every_attack_is_a_zero_with_a_reason_and_the_honest_exercise_beside_them_is_unharmed():
    tried = dict(zip(ATTACKED, BODIES, strict=True))
    texts = [(one, body_of(one, BODIES[name][0])) for one, name in tried.items()]
    marks = grade(*handed_in([*texts, ("0A", HONEST)]), 7, LIMITS, True)
    for mark in marks[:-1]:
        name = tried[mark.id]
        assert mark.points < mark.of and mark.why, (name, mark)
        assert BODIES[name][1] in mark.why, (name, mark.why)
    zero = {tried[mark.id]: mark.points for mark in marks[:-1]}
    assert not any(zero.values()), zero
    assert (marks[-1].points, marks[-1].why) == (find("0A").importance, "")


@needs_sandbox
def test_a_cell_that_does_not_end_is_not_run_again_and_what_follows_is_graded():
    marks = grade(*handed_in([("5A", "while True: pass"), ("0A", HONEST)]), 7, Limits(seconds=1), True)
    assert "took longer than 1 seconds" in marks[0].why and marks[0].points == 0
    assert marks[1].why == ""


@needs_sandbox
def test_neither_solutions_nor_other_submissions_can_be_read(tmp_path):
    (tmp_path / "anna.ipynb").write_text("hers")
    root = Path(sandbox.__file__).parents[2]
    look = f"import os; print([os.path.exists(p) for p in {[str(tmp_path), str(root / 'solutions')]}])"
    inside = subprocess.run(
        [*sandbox._bubblewrap(LIMITS), sys.executable, "-I", "-c", look], capture_output=True, text=True
    )
    assert inside.stdout == "[False, False]\n", inside


def test_a_result_that_a_later_call_writes_over_is_seen_where_it_lies():
    kept = """
import numpy as np
_kept = {}
def my_softmax(S):
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    into = _kept.setdefault(S.shape, np.empty(S.shape))
    into[...] = E / E.sum(axis=-1, keepdims=True)
    return into
"""
    (mark,) = grade(*handed_in([("1A", kept)]), 7, LIMITS, False)
    assert (
        mark.points == 0 and "a later call modifies the array that your function returned before" in mark.why
    ), mark


def test_without_a_sandbox_what_needs_none_still_ends_with_a_reason():
    names = ("os._exit", "patched judge", "forged output", "10 MB of output", "walking the stack")
    tried = dict(zip(ATTACKED[2:], names, strict=False))
    texts = [(one, body_of(one, BODIES[name][0])) for one, name in tried.items()]
    marks = grade(*handed_in([*texts, ("0A", HONEST)]), 7, LIMITS, False)
    assert [mark.points for mark in marks] == [0] * len(names) + [find("0A").importance]


def test_a_lesson_that_cannot_run_here_is_refused_before_anybody_gets_a_zero():
    lesson = Lesson("12_of_this", (LessonCell("setup", "import no_such_module"), LessonCell("0A", "", "0A")))
    with pytest.raises(
        UsageError, match=r"cannot grade 12_of_this here: .* named 'no_such_module'.*\. Run .*install"
    ):
        require_runnable(lesson, LIMITS, False)


def test_bubblewrap_that_is_missing_is_refused_in_a_line_that_names_the_remedy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        UsageError, match=r"^[^\n]*(apt-get install bubblewrap|needs Linux)[^\n]*--no-sandbox"
    ):
        sandbox.require_bubblewrap(LIMITS)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap needs Linux")
def test_bubblewrap_that_does_not_work_is_refused_with_what_it_said(monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(sandbox, "sandbox_environment", lambda home: {"PATH": str(tmp_path)})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"does not work here \(bwrap: No permissions\)"):
        sandbox.require_bubblewrap(LIMITS)
