"""nbgrader itself grades every edited notebook (minutes: `pytest tests/grade/every_edited_notebook.py`)."""

import csv

import edited_notebooks
import pytest

pytestmark = pytest.mark.timeout(2400)
EDITS = edited_notebooks.discovered()


def test_nbgrader_gives_the_declared_points_and_line(tmp_path):
    submitted = {name: edited_notebooks.made(edit) for name, edit in EDITS.items()}
    said = edited_notebooks.graded_by_nbgrader(tmp_path, submitted)
    with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
        points = {row["student_id"]: round(float(row["score"]), 2) for row in csv.DictReader(file)}
    assert points == {name: edit.POINTS for name, edit in EDITS.items()}
    for name, edit in EDITS.items():
        assert f"{name}: {edit.LINE}" in said
