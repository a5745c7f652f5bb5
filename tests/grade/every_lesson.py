"""Every solved notebook gets full marks from the grader (2 minutes: `pytest tests/grade/every_lesson.py`)."""

import json
import shutil
from pathlib import Path

import pytest
from test_attacks import WHY_NOT

from iocourse.course.grade.grading import grade
from iocourse.course.grade.lesson_cells import read_lessons
from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submissions import find_submissions
from iocourse.course.project_paths import find_course
from tools.build.notebook_execution import cannot_run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lesson", read_lessons(find_course(ROOT)), ids=lambda lesson: lesson.stem)
def test_full_marks(lesson, tmp_path):
    solved = ROOT / "solutions" / f"{lesson.stem}.ipynb"
    if reason := cannot_run(json.dumps(json.loads(solved.read_text(encoding="utf-8")))):
        pytest.skip(reason)
    shutil.copy(solved, tmp_path)
    marks = grade(*find_submissions(tmp_path), lesson, 1, Limits(), not WHY_NOT)
    assert [mark.why for mark in marks] == [""] * len(lesson.exercises)
    assert sum(mark.points for mark in marks) == sum(one.importance for one in lesson.exercises)
