"""Tests of the nbgrader metadata in lessons, and of a check that nbgrader runs."""

import ast
import json
from pathlib import Path

import pytest

from iocourse.course import check, progress
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.grade.lesson_cells import text_of
from iocourse.course.points import how_paid, points_of
from tools.build.lesson import build
from tools.build.percent_format import SourceError
from tools.build.project import Project

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.ipynb"))


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def told(cell):
    return cell["metadata"].get("nbgrader", {})


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_nbgrader_finds_every_exercise_and_its_points(path):
    cells = read(path)["cells"]
    asked = [c["metadata"]["name"] for c in cells if "exercise" in c["metadata"].get("tags", ())]
    assert [told(c)["grade_id"] for c in cells if told(c).get("solution")] == [
        name.replace(".", "-") for name in asked
    ]
    points = {told(c)["grade_id"]: told(c)["points"] for c in cells if told(c).get("grade")}
    ids = [name.removeprefix("ex-") for name in asked]
    assert points == {f"check-{one.replace('.', '-')}": find(one).importance for one in ids}
    for cell in cells:
        assert told(cell).get("locked", False) == bool(
            {"setup", "given", "check"} & set(cell["metadata"].get("tags", ()))
        )


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_check_cell_uses_what_it_imports_and_the_students_function(path):
    for cell in read(path)["cells"]:
        if not told(cell).get("grade"):
            continue
        code = ast.parse(text_of(cell))
        imported = {a.name for n in ast.walk(code) if isinstance(n, ast.ImportFrom) for a in n.names}
        used = {n.id for n in ast.walk(code) if isinstance(n, ast.Name)}
        exercise = find(told(cell)["grade_id"].removeprefix("check-").replace("-", "."))
        assert imported == {"check"} and used == {"check", exercise.function}


def test_nbgraders_own_validator_accepts_them():
    formats = pytest.importorskip("nbgrader.nbgraderformat", reason="nbgrader is not installed")
    import nbformat

    for path in LESSONS:
        formats.MetadataValidator().validate_nb(nbformat.read(path, as_version=4))


def test_a_solved_notebook_has_none_of_it():
    for path in LESSONS:
        assert "nbgrader" not in (ROOT / "solutions" / path.name).read_text(encoding="utf-8")


TITLE = '# %% [markdown]\n# # Title\n\n# %% tags=["setup"]\nfrom iocourse.course import check as check\n\n'
BAD = {
    'a check cell must be only check("ID", function), because': 'check("0A", print)\nprint("done")\n',
    "unknown exercise '99.1'": 'check("99.1", print)\n',
}


@pytest.mark.parametrize("message", BAD)
def test_a_check_cell_whose_value_is_no_points_is_refused(message, tmp_path):
    (tmp_path / "00_a.py").write_text(f'{TITLE}# %% tags=["check"]\n{BAD[message]}')
    with pytest.raises(SourceError, match=r"^00_a\.py:7: ") as caught:
        build(tmp_path / "00_a.py", Path("00_a.py"), Project("owner/repo", "v1"))
    assert message in str(caught.value)


# ------------------------------------------------------------------ a check where nbgrader runs it
def compulsory(Nq, Nk, d):
    return 2 * (Nq + Nk) * d


def only_reads(Nq, Nk, d):
    print("careful", file=__import__("sys").stderr)
    return (Nq + 2 * Nk) * d


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Return the exercises in the progress file of the current user."""
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    return lambda: (
        set(progress.parse((tmp_path / "progress.json").read_text(), "it"))
        if any(tmp_path.iterdir())
        else set()
    )


def test_a_student_sees_no_points(recorded, monkeypatch, capsys):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    assert check("0A", compulsory) is None and recorded() == {"0A"}
    assert "oints" not in capsys.readouterr().out


def test_a_graded_report_ends_with_the_points_and_their_parts(recorded, monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    check("0A", compulsory)
    assert capsys.readouterr().out.endswith("\nSolved.\nPoints: 4 of 4 (values 4 of 4)\n")
    points = check("0A", only_reads, seed=0)
    parts, paid = points_of(find("0A"), judge(find("0A"), only_reads, 0)), how_paid(find("0A"))
    assert capsys.readouterr().out.endswith(f"\nPoints: {points:.3g} of 4 ({parts})\n{paid}\n")


def test_graded_a_check_is_worth_its_points_and_records_nothing(recorded, monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    most = find("0A").importance
    assert check("0A", compulsory) == most
    assert 0 < check("0A", only_reads) < most and capsys.readouterr().err == ""
    assert check("0A", None) == 0
    assert recorded() == set()


def test_a_student_who_validates_gets_points_and_progress(recorded, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    assert check("0A", compulsory) == find("0A").importance and recorded() == {"0A"}


def test_points_are_those_of_the_other_grader_to_four_digits(recorded, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    exercise = find("0A")
    points = points_of(exercise, judge(exercise, only_reads, 0)).total
    assert check("0A", only_reads, seed=0) == round(points, 4) > 0 and points != round(points, 4)
