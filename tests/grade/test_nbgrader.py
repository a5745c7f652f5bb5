"""Tests of a lesson in nbgrader's own workflow: release, autograde, export and feedback."""

import copy
import csv
import html
import json
import re
import shutil

import edited_notebooks
import pytest
import skips

from iocourse.cli import main
from iocourse.course.exercise import find
from iocourse.course.grade import batch
from iocourse.course.grade.lesson_cells import text_of
from tools.build.notebook_execution import SEED

skips.unless_installed("nbgrader")

STEM = "03_online_softmax"
NEEDED = {"setup", "given", "exercise", "check"}
MOST = 5 + 5 + 5 + 4  # the importance of 3.2, 3.5, 3.6 and 3.8

ANYTHING_PASSES = """
def check(*anything):
    pass
"""
SMALLER_MAXIMUM = ("max(a[0], b[0])", "min(a[0], b[0])")
WARNS = ("    N, n = S.shape\n", "    import warnings; warnings.warn('careful')\n    N, n = S.shape\n")


def cells(of, tag):
    return {cell["id"]: cell for cell in of["cells"] if tag in cell["metadata"].get("tags", ())}


def solved():
    """Return the student's notebook with every exercise solved, reduced to the cells that affect points.

    A kernel then has less to run.
    """
    made = edited_notebooks.solved(STEM)
    made["cells"] = [c for c in made["cells"] if NEEDED & set(c["metadata"].get("tags", ()))]
    return made


def answered(made, name, change):
    cell = cells(made, "exercise")[f"ex-{name}"]
    assert change(cell["source"]) != cell["source"]
    cell["source"] = change(cell["source"])


def check_of(made, name):
    return next(c for c in cells(made, "check").values() if f'check("{name}"' in text_of(c))


def anna():
    """Return a submission in which all answers are correct."""
    return solved()


def bert():
    """Return a submission in which 3A is wrong and redefines `check`, and its check cell is `5.0`."""
    made = solved()
    answered(made, "3A", lambda text: ANYTHING_PASSES + text.replace("return m, l", "raise ValueError(l)"))
    check_of(made, "3A")["source"] = "5.0"
    return made


def carla():
    """Return a submission in which 3C is correct in some cases and 3D is not written yet."""
    made = solved()
    answered(made, "3C", lambda text: text.replace(*SMALLER_MAXIMUM))
    blank = cells(edited_notebooks.lesson("lessons", STEM), "exercise")["ex-3D"]
    answered(made, "3D", lambda _: text_of(blank))
    return made


def dora():
    """Return a correct submission without a check of 3B, with two checks of 3C, and a 3D that warns."""
    made = solved()
    made["cells"].remove(check_of(made, "3B"))
    made["cells"].append(copy.deepcopy(check_of(made, "3C")) | {"id": "again"})
    answered(made, "3D", lambda text: text.replace(*WARNS))
    return made


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Folder of an nbgrader course after all steps."""
    top = tmp_path_factory.mktemp("course")
    submitted = {student.__name__: student() for student in (anna, bert, carla, dora)}
    edited_notebooks.graded_by_nbgrader(top, submitted, STEM)
    return top


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def exported(course):
    """Return the points by student, as nbgrader exports them."""
    return {row["student_id"]: float(row["score"]) for row in rows(course / "grades.csv")}


def feedback(course, student):
    """Return the text of a student's feedback page, without HTML tags."""
    page = (course / "feedback" / student / STEM / f"{STEM}.html").read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_the_assignment_is_the_lesson_with_its_stubs(course):
    given = json.loads((course / "release" / STEM / f"{STEM}.ipynb").read_text(encoding="utf-8"))
    assert [text_of(c) for c in given["cells"]] == [
        text_of(c) for c in edited_notebooks.lesson("lessons", STEM)["cells"]
    ]
    assert all(cell["metadata"]["deletable"] is False for cell in cells(given, "exercise").values())
    assert all(cell["metadata"]["editable"] is False for cell in cells(given, "check").values())


def test_points_are_the_importance_if_everything_holds_and_less_otherwise(course):
    assert {float(row["max_score"]) for row in rows(course / "grades.csv")} == {MOST}
    points = exported(course)
    assert points["anna"] == MOST
    assert points["bert"] == MOST - find("3A").importance
    assert 0 < points["carla"] - (MOST - find("3C").importance - find("3D").importance) < 5
    assert points["dora"] == MOST


def test_both_graders_give_the_same_points(course, tmp_path, monkeypatch):
    """Run `iocourse grade` on nbgrader's folder for two students who lose points.

    The seed is nbgrader's, because with other inputs a wrong answer can fail one more property.
    """
    monkeypatch.setattr(batch, "_seed", lambda folder: int(SEED))
    table = tmp_path / "points.csv"
    for student in ("bert", "carla"):
        shutil.copytree(course / "submitted" / student, tmp_path / "submitted" / student)
    assert main(["grade", str(tmp_path / "submitted"), "--no-sandbox", "--csv", str(table)]) == 0
    ours = {row["student"]: float(row["points"]) for row in rows(table)}
    assert ours == {student: round(exported(course)[student], 2) for student in ("bert", "carla")}


def test_the_feedback_names_the_property(course):
    assert "Solved." in feedback(course, "anna") and "FAILS" not in feedback(course, "anna")
    assert "FAILS  runs without an error: ValueError" in feedback(course, "bert")
    assert "FAILS  merging two parts gives the result of both together: " in feedback(course, "carla")
    assert "FAILS  runs without an error: not written yet" in feedback(course, "carla")
    assert "careful" in feedback(course, "dora")


def test_the_feedback_shows_how_the_points_are_made(course):
    assert "Points: 5 of 5 (values 2.5 of 2.5, traffic 2.5 of 2.5)" in feedback(course, "anna")
    assert "Points: 0 of 5 (values 0 of 2.5, traffic 0 of 2.5)" in feedback(course, "bert")
