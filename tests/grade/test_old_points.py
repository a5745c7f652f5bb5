"""Tests that points of another rule are kept: a table under another name, and stored grades in a folder."""

import csv
import json
import sys
from pathlib import Path

import pytest
from edited_notebooks import lesson

from iocourse.cli import main
from iocourse.course.grade import batch, old_points
from iocourse.course.grade.grading import Mark
from iocourse.course.points import RULE_NAME
from iocourse.errors import UsageError

OLD = "student,lesson,points,of,0A,reasons,notes\nanna,00_start_here,1.33,4,1.33,,\n"
UNKNOWN = "student,lesson,points,of,0A,rule,reasons,notes\nanna,00_start_here,1,4,1,of-2031,,\n"
OURS = UNKNOWN.replace("of-2031", RULE_NAME)
EXCEL = "\ufeff" + OLD.replace(",", ";").replace("anna", "Müller")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with one submission, unsolved."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "anna.ipynb").write_text(json.dumps(lesson("lessons", "00_start_here")))
    return tmp_path


@pytest.fixture(autouse=True)
def without_processes(monkeypatch):
    """Give every submission 0 points in this process, because these tests are about files."""

    def in_this_process(work, items, *rest):
        for item in items:
            work(item)
            yield item, ""

    monkeypatch.setattr(batch, "require_runnable", lambda *_: None)
    monkeypatch.setattr(batch, "run_judges", in_this_process)
    monkeypatch.setattr(batch, "grade", lambda *_: [Mark("0A", 0.0, "values 0 of 4", 4, "0A", "why")])


def graded(folder, capsys, table=None, expected=0):
    """Grade the folder; return the lines on standard error without the progress bar."""
    table = table or folder / "points.csv"
    assert main(["grade", str(folder / "in"), "--no-sandbox", "--csv", str(table)]) == expected
    said = capsys.readouterr().err.splitlines()
    return [line for line in said if "submissions graded" not in line and line.strip()]


def rules(table):
    with open(table, encoding="utf-8", newline="") as file:
        return [row["rule"] for row in csv.DictReader(file)]


# ------------------------------------------------------------------ the table
def test_a_table_names_its_rule_and_is_written_again(folder, capsys):
    assert graded(folder, capsys) == [] and rules(folder / "points.csv") == [RULE_NAME]
    assert graded(folder, capsys) == []
    assert sorted(path.name for path in folder.iterdir()) == ["in", "points.csv"]


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        (OLD, "an older rule (no column rule)"),
        (OLD.replace("anna", "märta"), "an older rule (no column rule)"),
        (EXCEL, "an older rule (no column rule)"),
        (OLD.replace(",", "\t"), "an older rule (no column rule)"),
        (UNKNOWN, "another rule (of-2031)"),
        (OURS + UNKNOWN.splitlines()[1], "another rule (of-2031)"),
    ],
    ids=["old", "of another encoding", "saved by a spreadsheet", "with tabs", "unknown", "mixed"],
)
def test_a_table_of_another_rule_is_kept_with_one_line(before, rule, folder, capsys):
    table = folder / "points.csv"
    table.write_bytes(before.encode("cp1252" if "ä" in before else "utf-8"))
    assert graded(folder, capsys) == [
        f"{table} has points of {rule}: it is kept as points-old-rule.csv, and the new points are in {table}"
    ]
    kept = (folder / "points-old-rule.csv").read_bytes()
    assert before.encode("cp1252" if "ä" in before else "utf-8") == kept and rules(table) == [RULE_NAME]
    table.write_text(OLD)
    assert "points-old-rule-2.csv" in graded(folder, capsys)[0]
    assert (folder / "points-old-rule.csv").read_bytes() == kept


def test_a_kept_table_among_the_submissions_is_not_listed_as_left_out(folder, capsys):
    table = folder / "in" / "points.csv"
    table.write_text(OLD)
    (folder / "in" / "points-of-last-year.csv").write_text(OLD)
    left_out = "not graded, because they are not notebooks: points-of-last-year.csv"
    assert [line for line in graded(folder, capsys, table) if "not graded" in line] == [left_out]
    assert (folder / "in" / "points-old-rule.csv").exists()
    assert graded(folder, capsys, table) == [left_out]


@pytest.mark.parametrize("empty", ["", "\n", OURS.splitlines()[0]])
def test_a_table_without_points_is_replaced(empty, folder, capsys):
    (folder / "points.csv").write_text(empty)
    assert graded(folder, capsys) == [] and not (folder / "points-old-rule.csv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_of_a_link_the_table_it_points_to_is_kept(folder, capsys):
    (folder / "term").mkdir()
    (folder / "term" / "all.csv").write_text(OLD)
    (folder / "points.csv").symlink_to(folder / "term" / "all.csv")
    assert "kept as all-old-rule.csv" in graded(folder, capsys)[0]
    assert (folder / "points.csv").is_symlink() and rules(folder / "term" / "all.csv") == [RULE_NAME]
    assert (folder / "term" / "all-old-rule.csv").read_text() == OLD


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_link_without_a_file_is_not_replaced(tmp_path):
    (tmp_path / "points.csv").write_text(OLD)
    (tmp_path / "points-old-rule.csv").symlink_to(tmp_path / "missing.csv")
    assert "kept as points-old-rule-2.csv" in old_points.keep_table(tmp_path / "points.csv")
    assert (tmp_path / "points-old-rule.csv").is_symlink()


def test_a_read_only_table_of_the_old_rule_is_kept_as_it_is(folder, capsys):
    table = folder / "points.csv"
    table.write_text(OLD)
    table.chmod(0o444)
    assert "points-old-rule.csv" in graded(folder, capsys)[0]
    assert (folder / "points-old-rule.csv").stat().st_mode & 0o777 == 0o444
    assert table.stat().st_mode & 0o200 and rules(table) == [RULE_NAME]


# ------------------------------------------------------------------ bad input: one line, nothing is graded
@pytest.mark.parametrize(
    "content",
    [
        "name,mark\nanna,1\n",
        "student,mark\nanna,1\n",
        "name,points\nanna,1\n",
        "Dear class,\nthe points follow.\n",
        '"student\0',
    ],
)
def test_a_file_that_is_not_a_table_of_points_is_not_overwritten(content, folder, capsys):
    table = folder / "points.csv"
    table.write_text(content)
    (line,) = graded(folder, capsys, expected=2)
    assert f"--csv must be a new file or a table of iocourse grade, but {table} has other content" in line
    assert line.endswith("Choose another file")
    assert table.read_text() == content and not (folder / "in" / batch.KEPT).exists()


def test_a_text_that_no_table_can_contain_is_not_overwritten(folder, capsys):
    table = folder / "points.csv"
    table.write_text('"' + "x" * (csv.field_size_limit() + 1))
    (line,) = graded(folder, capsys, expected=2)
    assert "has other content" in line


def test_a_rule_of_many_letters_is_shortened_and_its_control_characters_are_not_printed(folder, capsys):
    (folder / "points.csv").write_text(UNKNOWN.replace("of-2031", "\x1b[31m" + "x" * 100))
    (line,) = graded(folder, capsys)
    assert "\x1b" not in line and 40 < line.count("x") <= 60


def test_several_rules_are_named_in_order_and_rows_without_a_rule_are_not(tmp_path):
    rows = "".join(f"anna,1,{rule}\n" for rule in ("of-4", "", "of-3", "of-2", "of-1", RULE_NAME))
    (tmp_path / "points.csv").write_text(f"student,points,rule\n{rows}")
    assert "another rule (of-1, of-2, of-3, of-4): it is kept" in old_points.keep_table(
        tmp_path / "points.csv"
    )


def test_what_is_not_a_file_has_no_points(tmp_path):
    assert old_points.keep_table(tmp_path) == old_points.keep_table(tmp_path / "missing.csv") == ""


def test_a_folder_is_not_a_table(folder, capsys):
    (line,) = graded(folder, capsys, folder / "in", expected=2)
    assert line.endswith(f"--csv must be a file name for a table, such as points.csv, got {folder / 'in'}")


def test_a_table_that_cannot_be_read_is_not_overwritten(folder, capsys, monkeypatch):
    """The tests may run as root, who can read every file."""
    (folder / "points.csv").write_text(OLD)
    read = Path.read_text

    def refused(path, *rest, **more):
        if path.name == "points.csv":
            raise PermissionError(13, "Permission denied")
        return read(path, *rest, **more)

    monkeypatch.setattr(Path, "read_text", refused)
    (line,) = graded(folder, capsys, expected=2)
    assert f"--csv {folder / 'points.csv'} exists and cannot be read (Permission denied)" in line
    assert line.endswith("Choose another file")
    monkeypatch.undo()
    assert (folder / "points.csv").read_text() == OLD


def test_a_table_that_cannot_be_renamed_is_not_overwritten(tmp_path, monkeypatch):
    (tmp_path / "points.csv").write_text(OLD)

    def refused(path, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(
        UsageError, match=r"cannot be renamed to .*Permission denied\. Move it to another folder"
    ):
        old_points.keep_table(tmp_path / "points.csv")
    assert (tmp_path / "points.csv").read_text() == OLD


# ------------------------------------------------------------------ stored grades
def test_stored_grades_of_an_older_rule_are_kept_and_graded_again(folder, capsys):
    place = folder / "in" / batch.KEPT
    place.mkdir()
    old = {"signature": "0", "marks": [{"id": "0A", "points": 1.33, "of": 4}]}
    (place / "anna.json").write_text(json.dumps(old))
    (place / "damaged.json").write_text("{")
    (line,) = graded(folder, capsys)
    assert line == (
        f"1 stored grade follows an older rule of points: kept in {place / 'old-rule'}, and graded again by "
        "the present rule"
    )
    assert json.loads((place / "old-rule" / "anna.json").read_text()) == old
    new = json.loads((place / "anna.json").read_text())
    assert new["rule"] == RULE_NAME and new["marks"][0]["points"] == 0
    assert graded(folder, capsys) == []
    (place / "anna.json").write_text(json.dumps(old | {"rule": "of-2031"}))
    assert len(graded(folder, capsys)) == 1 and (place / "old-rule" / "anna-2.json").exists()


def test_a_file_that_the_grader_did_not_write_is_not_a_stored_grade(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "other.json").write_text('{"points": 1}')
    assert old_points.keep_grades(tmp_path) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep.json", "other.json"]


def test_several_stored_grades_are_counted(tmp_path):
    for name in ("anna", "ben"):
        (tmp_path / f"{name}.json").write_text('{"marks": []}')
    assert old_points.keep_grades(tmp_path).startswith("2 stored grades follow an older rule of points: ")
    kept = ["old-rule", "old-rule/anna.json", "old-rule/ben.json"]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == kept
    assert old_points.keep_grades(tmp_path) == ""


def test_a_grade_of_the_same_rule_that_is_no_longer_valid_is_replaced(folder, capsys):
    graded(folder, capsys)
    place = folder / "in" / batch.KEPT / "anna.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"signature": "of another version"}))
    assert graded(folder, capsys) == [] and not (place.parent / "old-rule").exists()
