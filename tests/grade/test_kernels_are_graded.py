"""Kernels in the grader: functions of a trial stay in the process of the submission and are called there."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iocourse.course.checking import OWN
from iocourse.course.exercise import find
from iocourse.course.flash_attention_file import packaged_file
from iocourse.course.grade import sandbox
from iocourse.course.grade.grading import grade
from iocourse.course.grade.lesson_cells import read_lessons
from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submission_process import ProcessClient
from iocourse.course.grade.submissions import find_submissions
from iocourse.course.project_paths import find_course
from iocourse.errors import UsageError
from tools.build.notebook_execution import cannot_run

ROOT = Path(__file__).parents[2]
SOURCE = next((ROOT / "solutions").glob("11_*.py")).read_text(encoding="utf-8")
if reason := cannot_run(SOURCE):
    pytest.skip(reason, allow_module_level=True)


def why_marks_are_missing(number, tmp_path, *edits):
    """Grade the solved notebook of a lesson with these edits; return the reasons, without a sandbox."""
    lesson = next(one for one in read_lessons(find_course(ROOT)) if one.stem.startswith(f"{number}_"))
    copy = Path(shutil.copy(ROOT / "solutions" / f"{lesson.stem}.ipynb", tmp_path))
    text = copy.read_text(encoding="utf-8")
    for old, new in edits:
        quoted = json.dumps(old)[1:-1]
        assert quoted in text
        text = text.replace(quoted, json.dumps(new)[1:-1])
    copy.write_text(text, encoding="utf-8")
    marks = grade(*find_submissions(tmp_path), lesson, 1, Limits(), False)
    ids = [one.id for one in lesson.exercises]
    return dict(zip(ids, (mark.why for mark in marks), strict=True))


def test_kernels_run_in_reverse_order_in_the_grader(tmp_path, monkeypatch):
    """The reference has full marks; each of the three kernels has run again, by a call in its process."""
    called, ask = [], ProcessClient.ask

    def recorded(session, *message):
        called.append(message[2] if message[0] == "call" else "")
        return ask(session, *message)

    monkeypatch.setattr(ProcessClient, "ask", recorded)
    assert not any(why_marks_are_missing("10", tmp_path).values())
    assert called.count("reversed") == 3


def test_the_grader_compiles_kernels_of_a_submission(tmp_path):
    """A slow kernel with right values loses its points for instructions, and only these."""
    slow = (
        (
            "p = tl.exp2(s * scale - m_new[:, None])    #",
            "p = tl.exp((s * scale - m_new[:, None]) * 0.6931471805599453)  #",
        ),
    )
    found = why_marks_are_missing("11", tmp_path, *slow)
    assert found["11A"] == found["11B"] == "" and "the inner loop needs few instructions" in found["11F"]


# ------------------------------------------------------------------ flash_attention.py in a submission
IMPORTED = "import flash_attention as kernels"
COPIED = """
from iocourse.course.flash_attention_file import copy_flash_attention
copy_flash_attention()
import importlib.util
spec = importlib.util.spec_from_file_location("mine", "flash_attention.py")
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
"""
CARRIED = f"""
from pathlib import Path
Path("mine.py").write_text({packaged_file().read_text(encoding="utf-8")!r}, encoding="utf-8")
import sys
sys.path.insert(0, "")
import mine as kernels
"""
ANSWER = """
import os
os.environ["TRITON_INTERPRET"] = "1"
{}

def {}(Q, K, V, causal, BM, BN):
    O, LSE = kernels.attention_with_lse(Q[None, None], K[None, None], V[None, None], causal=causal)
    return O[0, 0], LSE[0, 0]
"""


def why_no_sandbox():
    """Return why the sandbox does not work here, or ""."""
    try:
        sandbox.require_bubblewrap(Limits())
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("cell", "sandboxed"),
    [(IMPORTED, True), (COPIED, False), (CARRIED, False)],
    ids=["imported in the sandbox", "copied", "carried"],
)
def test_a_submission_that_calls_flash_attention_py_is_refused(cell, sandboxed):
    if sandboxed and (reason := why_no_sandbox()):
        pytest.skip(reason)
    exercise = find("11B")
    case = next(iter(exercise.cases(np.random.default_rng(0))))
    session = ProcessClient(Limits(), sandboxed)
    try:
        assert session.ask("run cell", "<ex-11B>", ANSWER.format(cell, exercise.function)) is None
        assert session.ask("refusal", "11B") == []
        what, verdicts, _ = session.ask("run case", "11B", replace(case, expected=None, budget=None))
    finally:
        session.close()
    ((property, said),) = verdicts
    module = "flash_attention" if cell == IMPORTED else "mine"
    assert (what, property) == ("stopped", OWN)
    assert said.startswith(f"{module}.forward_kernel, code of flash_attention.py, solves the exercise")


def test_an_operator_of_torch_is_judged_in_the_process_of_the_submission(tmp_path):
    """The reference has full marks; an operator without a fake loses only those of its trials."""
    assert not any(why_marks_are_missing("12", tmp_path).values())
    found = why_marks_are_missing("12", tmp_path, ("@backward_operator.register_fake\n", ""))
    assert "mine::attention_backward has no fake" in found.pop("12E") and not any(found.values())
