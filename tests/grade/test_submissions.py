"""Tests of `iocourse grade` on a folder: rejected input, stored grades, points and feedback."""

import csv
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from edited_notebooks import lesson

from iocourse.cli import main
from iocourse.course.grade import batch, grade_report
from iocourse.course.grade.grading import Mark, grade
from iocourse.course.grade.lesson_cells import read_lessons
from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submissions import (
    find_submissions,
    most_common_lesson,
    one_per_student,
    other_files,
)
from iocourse.course.project_paths import find_course
from iocourse.errors import UsageError

ROOT = Path(__file__).parents[2]
LESSONS = {lesson.stem: lesson for lesson in read_lessons(find_course(ROOT))}
STEM = "00_start_here"
EXERCISE = "ex-0A"


def notebook(stem=STEM):
    return lesson("solutions", stem)


def exercise_cell(of):
    return next(cell for cell in of["cells"] if cell["id"] == EXERCISE)


def written(of, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(of), encoding="utf-8")


# ------------------------------------------------------------------ rejected with one line, the remedy in it
def refused(capsys, *arguments):
    assert main(["grade", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err


def test_a_folder_without_notebooks(capsys, tmp_path):
    assert f"no notebook in {tmp_path}. Expected one notebook per student" in refused(capsys, tmp_path)


def test_as_many_submissions_of_another_lesson(capsys, tmp_path):
    written(notebook(), tmp_path / "anna.ipynb")
    written(notebook(stem="01_naive_attention"), tmp_path / "carla.ipynb")
    said = refused(capsys, tmp_path)
    assert (
        f"1 of the notebooks belong to {STEM} and 1 to 01_naive_attention. Use one folder per lesson" in said
    )


# ------------------------------------------------------------------ a faulty file does not affect the others
def test_strays_are_reported_beside_the_others_which_are_graded(capsys, tmp_path):
    top = tmp_path / "in"
    for name in ("anna", "bert"):
        written(notebook(), top / f"{name}.ipynb")
    written(notebook(stem="01_naive_attention"), top / "carla.ipynb")
    other = notebook()
    exercise_cell(other)["source"] = "def my_compulsory(Nq, Nk, d): return 0"
    written(notebook(), top / "dora" / "first.ipynb")
    written(other, top / "dora" / "second.ipynb")
    written(notebook(), top / "emil" / "00.ipynb")
    written(notebook(stem="01_naive_attention"), top / "emil" / "01.ipynb")
    written({"cells": [], "nbformat": 4}, top / "fritz.ipynb")
    (top / "greta").mkdir()
    (top / "greta" / "greta.zip").write_bytes(b"PK")
    (top / "hans.ipynb").write_text("")
    (top / "all.zip").write_bytes(b"PK")
    assert main(command(tmp_path)) == 0
    assert "not graded, because they are not notebooks: all.zip" in capsys.readouterr().err
    rows = points(tmp_path)
    assert {name: row["points"] for name, row in rows.items() if row["points"] != "0"} == {
        name: rows["anna"]["of"] for name in ("anna", "bert", "emil")
    }
    for name, said in {
        "carla": f"in/carla.ipynb belongs to 01_naive_attention, not to {STEM}; it was not graded: use",
        "dora": "second.ipynb; none was graded: the student must choose one",
        "fritz": f"has no exercise cell of {STEM}; it was not graded: request the correct file",
        "greta": "in the folder, only greta.zip; nothing was graded: request the notebook. Unpack the "
        "archive.",
        "hans": "the file is empty; it was not graded: request it again",
    }.items():
        assert said in rows[name]["reasons"] and said in rows[name]["notes"], name


def test_the_table_is_whole_after_each_grade(tmp_path, monkeypatch):
    for name in ("anna", "bert", "carla"):
        written(notebook(), tmp_path / "in" / f"{name}.ipynb")
    seen, write = [], batch._grade_and_keep

    def looking(*task):
        seen.append(sorted(points(tmp_path)))
        write(*task)

    def one_by_one(work, items, *rest):
        for item in items:
            work(item)
            yield item, ""

    monkeypatch.setattr(batch, "run_judges", one_by_one)
    monkeypatch.setattr(batch, "_grade_and_keep", looking)
    assert main(command(tmp_path)) == 0
    assert seen == [[], ["anna"], ["anna", "bert"]]


def test_no_submission_of_any_lesson(capsys, tmp_path):
    written(notebook() | {"cells": []}, tmp_path / "anna.ipynb")
    assert "Students must start from lessons/" in refused(capsys, tmp_path)


def test_feedback_among_the_submissions(capsys, tmp_path):
    written(notebook(), tmp_path / "anna.ipynb")
    assert "--feedback must be outside" in refused(capsys, tmp_path, "--feedback", tmp_path / "back")


# ------------------------------------------------------------------ notebooks that cannot be run
def without_the_cell(of):
    of["cells"].remove(exercise_cell(of))


def with_another_cell_and_no_check(of):
    of["cells"] = [cell for cell in of["cells"] if "check" not in cell["metadata"].get("tags", ())]
    of["cells"].append(exercise_cell(of) | {"source": "def my_compulsory(*_): return 0"})


def as_markdown(of):
    exercise_cell(of)["cell_type"] = "markdown"


def for_another_kernel(of):
    of["metadata"]["kernelspec"] = {"name": "ir", "display_name": "R", "language": "R"}


CHANGED = {
    "the cell of exercise 0A was deleted": without_the_cell,
    "have the name of exercise 0A, and no check cell follows them": with_another_cell_and_no_check,
    "the cell of exercise 0A is a Markdown cell; change it to Code": as_markdown,
    "its kernel is for 'R': choose Python 3": for_another_kernel,
}
FILES = {
    "the file is not a valid notebook": b'{"cells": [',
    "the file is not UTF-8 (byte 1)": b'"\xff"',
    "not a notebook of format 4": b'{"worksheets": []}',
}


@pytest.mark.parametrize("reason", [*CHANGED, *FILES])
def test_what_cannot_be_run_is_a_zero_with_a_reason(reason, tmp_path):
    if reason in FILES:
        (tmp_path / "anna.ipynb").write_bytes(FILES[reason])
    else:
        made = notebook()
        CHANGED[reason](made)
        written(made, tmp_path / "anna.ipynb")
    (mark,) = grade(*find_submissions(tmp_path), LESSONS[STEM], 1, Limits(), True)  # starts no process
    assert mark.points == 0 and reason in mark.why


def test_a_notebook_for_another_kernel_is_still_of_its_lesson(tmp_path):
    made = notebook()
    for_another_kernel(made)
    written(made, tmp_path / "anna.ipynb")
    assert most_common_lesson(find_submissions(tmp_path), list(LESSONS.values())).stem == STEM


# ------------------------------------------------------------------ a class, from the folder to the feedback
@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Folder of a class of three students after its first grading, without a sandbox."""
    top = tmp_path_factory.mktemp("class")
    written(notebook(), top / "in" / "solved.ipynb")
    half = notebook()
    exercise_cell(half)["source"] = "def my_compulsory(Nq, Nk, d):\n    return 2 * Nq * d + Nk * d"
    written(half, top / "in" / "half" / f"{STEM}.ipynb")
    (top / "in" / "broken.ipynb").write_text("{", encoding="utf-8")
    assert main([*command(top), "--feedback", str(top / "back")]) == 0
    return top


def command(top):
    return ["grade", str(top / "in"), "--no-sandbox", "--jobs", "2", "--csv", str(top / "points.csv")]


def points(top):
    with open(top / "points.csv", encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_the_table_of_points(graded):
    rows = points(graded)
    assert rows["solved"]["points"] == rows["solved"]["of"] == rows["solved"]["0A"]
    assert rows["solved"]["reasons"] == ""
    assert 0 < float(rows["half"]["points"]) < float(rows["half"]["of"])  # some properties hold
    assert rows["broken"]["points"] == "0" and "not a valid notebook" in rows["broken"]["reasons"]


def test_feedback_is_the_students_notebook_with_the_reports_below_its_exercises(graded):
    back = json.loads((graded / "back" / "half.ipynb").read_text(encoding="utf-8"))
    ids = [cell["id"] for cell in back["cells"]]
    assert ids[0] == "feedback" and ids[ids.index(EXERCISE) + 1] == "feedback-0A"
    text = "".join(back["cells"][ids.index("feedback-0A")]["source"])
    assert "  holds  " in text and "  FAILS  " in text and "seed=" in text
    for name in ("half", "broken"):
        import nbformat

        nbformat.validate(nbformat.read(graded / "back" / f"{name}.ipynb", as_version=4))


def test_a_second_call_grades_only_what_is_new(graded, monkeypatch, capsys):
    before = points(graded)
    asked = []
    monkeypatch.setattr(batch, "_grade_and_keep", lambda *rest: asked.append(rest))
    assert main(command(graded)) == 0
    assert asked == [] and points(graded) == before
    submission = next(one for one in find_submissions(graded / "in") if one.name == "solved")
    task = batch.Task(LESSONS[STEM], Limits(), False, batch._seed(graded / "in"))
    assert batch._kept(graded / "in", submission, task)
    changed = type(submission)(submission.name, submission.path, submission.data + b" ")
    assert batch._kept(graded / "in", changed, task) is None


def test_kept_grades_that_the_grader_did_not_write_are_made_anew(graded, tmp_path):
    shutil.copytree(graded / "in", tmp_path / "in")
    (submission,) = (one for one in find_submissions(tmp_path / "in") if one.name == "half")
    task = batch.Task(LESSONS[STEM], Limits(), False, batch._seed(graded / "in"))
    place = batch._place(tmp_path / "in", submission)
    assert batch._kept(tmp_path / "in", submission, task)
    honest = json.loads(place.read_text(encoding="utf-8"))
    better = [mark | {"points": 4} for mark in honest["marks"]]
    for planted in ({**honest, "marks": better}, {"marks": better}, {**honest, "marks": None}, []):
        written(planted, place)
        assert batch._kept(tmp_path / "in", submission, task) is None
    written(honest, place)
    other = batch.Task(LESSONS[STEM], Limits(), False, task.seed, "another source")
    assert batch._kept(tmp_path / "in", submission, other) is None


def test_the_seed_is_the_folders_and_cannot_be_known_without_the_key(graded, tmp_path, monkeypatch):
    assert batch._seed(graded / "in") == batch._seed(graded / "in") != batch._seed(tmp_path)
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "home"))
    seeds = {batch._seed(graded / "in")}
    (tmp_path / "home" / "grading-key").unlink()
    assert len(seeds | {batch._seed(graded / "in")}) == 2
    for damaged in ("no key", "", "00"):
        (tmp_path / "home" / "grading-key").write_text(damaged)
        with pytest.raises(UsageError, match=r"is damaged\. Delete it; the next run creates a new key"):
            batch._seed(tmp_path)


@pytest.mark.parametrize("links", [True, False])
def test_two_first_runs_at_once_agree_on_a_whole_key(links, tmp_path, monkeypatch):
    """The second run starts and finishes just before the first writes its key."""
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    draw, second = secrets.token_hex, []

    def meanwhile(size):
        monkeypatch.setattr(secrets, "token_hex", draw)
        second.append(batch.sign(b"a grade"))
        return draw(size)

    def no_links(*_):
        raise OSError("no links here")

    monkeypatch.setattr(secrets, "token_hex", meanwhile)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    assert [batch.sign(b"a grade")] == second
    assert [path.name for path in tmp_path.iterdir()] == ["grading-key"]
    assert len(bytes.fromhex((tmp_path / "grading-key").read_text())) == batch.KEY_BYTES
    if sys.platform != "win32":
        assert (tmp_path / "grading-key").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_place_for_grades_that_leads_elsewhere_is_refused(capsys, tmp_path):
    written(notebook(), tmp_path / "in" / "anna.ipynb")
    (tmp_path / "in" / batch.KEPT).symlink_to(tmp_path)
    assert "is a symbolic link, but grades are stored there" in refused(
        capsys, tmp_path / "in", "--no-sandbox"
    )
    (tmp_path / "in" / batch.KEPT).unlink()
    (tmp_path / "in" / batch.KEPT).write_text("")
    assert "cannot store grades in" in refused(capsys, tmp_path / "in", "--no-sandbox")


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C works differently there")
def test_ctrl_c_keeps_what_is_graded(graded, tmp_path):
    shutil.copytree(graded / "in", tmp_path / "in", ignore=shutil.ignore_patterns(batch.KEPT))
    endless = notebook()
    exercise_cell(endless)["source"] = "while True: pass"
    written(endless, tmp_path / "in" / "zoe.ipynb")
    ours = [sys.executable, "-m", "iocourse", *command(tmp_path)]
    running = subprocess.Popen(ours, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 240
    while len(list((tmp_path / "in" / batch.KEPT).glob("*.json"))) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    table, said = running.communicate()
    assert running.returncode == 130
    assert "3 of 4 graded and saved; run the same command again to continue" in said
    assert "solved" in table and set(points(tmp_path)) == {"solved", "half", "broken"}


# ------------------------------------------------------------------ irregular folders
def named(folder):
    return [one.name for one in find_submissions(folder)]


def test_an_export_one_folder_deeper_is_refused_with_that_folder(capsys, tmp_path):
    for name in ("anna", "bert"):
        written(notebook(), tmp_path / "export" / name / "00.ipynb")
    assert f"all notebooks are in {tmp_path / 'export'}. Grade that folder" in refused(capsys, tmp_path)


def test_of_several_notebooks_of_one_name_the_one_of_the_lesson_counts(tmp_path):
    """Identical files count as one notebook, and a notebook without exercises does not count."""
    for name in ("anna", "Anna"):
        written(notebook(), tmp_path / name / "00.ipynb")
        written({"cells": []}, tmp_path / name / "scratch.ipynb")
    (anna,) = one_per_student(find_submissions(tmp_path), LESSONS[STEM], list(LESSONS.values()))
    assert anna.fault == "" and anna.path.name == "00.ipynb"
    written(notebook() | {"nbformat": 5}, tmp_path / "anna" / "again.ipynb")
    (anna,) = one_per_student(find_submissions(tmp_path), LESSONS[STEM], list(LESSONS.values()))
    assert "2 notebooks have this name" in anna.fault and "again.ipynb" in anna.fault


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and odd names")
def test_what_is_no_notebook_of_the_students_own_is_a_zero_with_a_reason(tmp_path):
    written(notebook(), tmp_path / "in" / "anna.ipynb")
    (tmp_path / "in" / "emil").mkdir()
    (tmp_path / "in" / "eve.ipynb").symlink_to(tmp_path / "in" / "anna.ipynb")
    (tmp_path / "in" / "fritz").symlink_to(ROOT / "solutions")
    os.mkfifo(tmp_path / "in" / "greta.ipynb")
    deep = {"cells": [], "metadata": {"x": json.loads("[" * 60 + "]" * 60)}}
    written(deep, tmp_path / "in" / "hans.IPYNB")
    with open(tmp_path / "in" / "ida.ipynb", "wb") as file:
        file.truncate(200 << 20)
    faults = {one.name: one.fault for one in find_submissions(tmp_path / "in")}
    assert faults.pop("anna") == "" and list(faults) == ["emil", "eve", "fritz", "greta", "hans", "ida"]
    said = (
        "no notebook (.ipynb)",
        "is a link",
        "is a link",
        "is not a file",
        "more than 50 levels",
        "200 MB",
    )
    assert all(part in fault for part, fault in zip(said, faults.values(), strict=True)), faults


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names there are text")
def test_names_can_be_shown_and_written_whatever_they_are(tmp_path):
    for name in (b"eve\nzoe", b"M\xfcller", b"x" * 240, b"\xe2\x80\xa8"):
        (tmp_path / os.fsdecode(name + b".ipynb")).write_text("{")
    names = named(tmp_path)
    assert "eve?zoe" in names and "Müller" in names and "?" in names
    assert all(name.isprintable() and len(name.encode()) <= 121 for name in names)


def test_a_notebook_with_a_mark_of_its_byte_order_is_read(tmp_path):
    (tmp_path / "anna.ipynb").write_text(json.dumps(notebook()), encoding="utf-8-sig")
    assert find_submissions(tmp_path)[0].fault == ""


def test_files_that_are_no_notebooks_are_told(tmp_path):
    written(notebook(), tmp_path / "anna.ipynb")
    for name in ("dora.zip", "carla.ipynb.txt", ".hidden"):
        (tmp_path / name).touch()
    assert other_files(tmp_path) == ["carla.ipynb.txt", "dora.zip"]


# ------------------------------------------------------------------ output files
def test_targets_are_tried_before_anything_is_graded(capsys, tmp_path):
    written(notebook(), tmp_path / "in" / "anna.ipynb")
    written(notebook(), tmp_path / "taken" / "anna.ipynb")
    for option, target, said in (
        ("--csv", tmp_path, "must be a file name for a table"),
        ("--csv", tmp_path / "in" / "anna.ipynb", "must be a file name for a table"),
        ("--feedback", tmp_path / "in" / "anna.ipynb", "must be outside"),
        ("--feedback", tmp_path / "taken" / "anna.ipynb", "is a file"),
        ("--feedback", tmp_path / "taken", "is not a feedback file and would be overwritten"),
    ):
        assert said in refused(capsys, tmp_path / "in", option, target)
    assert not (tmp_path / "in" / batch.KEPT).exists()


def test_feedback_opens_whatever_the_students_notebook_holds(tmp_path):
    import nbformat

    made = notebook()
    made["metadata"] = 7
    made["cells"][0] = {"cell_type": "markdown", "outputs": [float("inf")], "id": [], "source": ["a", 1]}
    made["cells"] += [made["cells"][1], {"cell_type": "poem", "source": "x"}]
    made["cells"].append({"cell_type": "markdown", "id": "feedback-0A", "source": "**4 of 4 points**"})
    written(made, tmp_path / "anna.ipynb")
    mark = Mark("0A", 3, "values 3 of 4", 4, "the report", "why")
    back = grade_report._feedback(batch.Grade("anna", (mark,)), find_submissions(tmp_path)[0], LESSONS[STEM])
    nbformat.validate(nbformat.reads(json.dumps(back, allow_nan=False), as_version=4))
    assert (
        sum("points**" in "".join(cell["source"]) for cell in back["cells"]) == 2
    )  # only the grader's cells
