"""Tests of `iocourse lab [--update]` on files: copying, updating, merging and keeping old files."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from iocourse.cli import main
from iocourse.course import progress
from iocourse.course.project_paths import find_course
from iocourse.course.student_copies import update
from iocourse.course.student_copies.copies import find_copies, lesson_of_copy
from iocourse.course.student_copies.notebook import as_copy
from iocourse.course.student_copies.opened_lesson import NOT_YET

ROOT = Path(__file__).parents[2]
FOUR = "04b_debugging_a_schedule"
FIVE = "05_lower_bounds"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A checkout with three lessons and the notation, and its copies in work/."""
    (tmp_path / "lessons").mkdir()
    for name in ("00_start_here.ipynb", f"{FOUR}.ipynb", f"{FIVE}.ipynb", "notation.md"):
        shutil.copy(ROOT / "lessons" / name, tmp_path / "lessons")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "--update"]) == 0
    return find_course()


@pytest.fixture
def opened(started, capsys):
    """Function that returns the output of `iocourse lab`, with a JupyterLab that ends at once."""

    def run():
        capsys.readouterr()
        assert main(["lab"]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def updated(capsys):
    """Function that returns the lines that `iocourse lab --update …` prints."""

    def run(*arguments, code=0):
        capsys.readouterr()
        assert main(["lab", "--update", *arguments]) == code
        said = capsys.readouterr()
        return (said.err if code else said.out).splitlines()

    return run


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def write(path, notebook):
    path.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")


def cell_of(notebook, name):
    return next(cell for cell in notebook["cells"] if cell["id"] == name)


def edit(path, name, text):
    """Write into a cell and save the notebook, as a student does."""
    notebook = read(path)
    cell_of(notebook, name)["source"] = [text]
    write(path, notebook)


def release(course, *names):
    """Change the first paragraph of these lessons and pages, as a new release does."""
    for name in names:
        path = course.lessons / name
        if path.suffix == ".md":
            path.write_text(path.read_text(encoding="utf-8") + "\nA word more.\n", encoding="utf-8")
        else:
            notebook = read(path)
            notebook["cells"][0]["source"].append("\n\nA word more.")
            write(path, notebook)


def newest(course, path, stem):
    """Return True if a copy has the lesson's current first paragraph."""
    return read(path)["cells"][0]["source"] == read(course.lessons / f"{stem}.ipynb")["cells"][0]["source"]


def files(course):
    return sorted(path.name for path in course.work.iterdir())


def test_untouched_copies_are_renewed_and_others_left(course, updated):
    four, five = course.work / f"{FOUR}.ipynb", course.work / f"{FIVE}.ipynb"
    before = five.read_bytes()
    release(course, f"{FOUR}.ipynb", "notation.md")
    notebook = read(four)
    notebook["cells"][1] |= {"outputs": [], "execution_count": 7}
    notebook["metadata"]["language_info"]["version"] = "3.12"
    write(four, notebook)  # opened and run without changes of the source
    lines = updated()
    assert [line.split()[0] for line in lines[:-1]] == [four.name, "notation.md"] and "Reload" in lines[-1]
    assert newest(course, four, FOUR) and five.read_bytes() == before
    assert (course.work / "notation.md").read_text(encoding="utf-8").count("A word more.") == 1
    assert files(course) == sorted(path.name for path in course.lessons.iterdir())
    assert updated() == [f"nothing to do: all texts in {course.work} are current"]


def test_an_edited_copy_gets_the_new_text_around_its_answers_and_the_old_file_stays(course, updated):
    path = course.work / f"{FOUR}.ipynb"
    exercise = next(c["id"] for c in read(path)["cells"] if "exercise" in c["metadata"].get("tags", ()))
    edit(path, exercise, "my answer")
    before = path.read_bytes()
    release(course, path.name)
    (line, _) = updated("04b")
    (old,) = course.work.glob("kept-*")
    assert re.fullmatch(rf"kept-\d{{8}}-\d{{6}}-{FOUR}\.ipynb", old.name) and old.read_bytes() == before
    assert line == (
        f"{path.name} has the new text with your cells: {exercise.removeprefix('ex-')}; "
        f"your old file is {old.name}"
    )
    assert newest(course, path, FOUR) and cell_of(read(path), exercise)["source"] == ["my answer"]


def test_a_second_update_in_the_same_second_keeps_both_old_files(course, updated, monkeypatch):
    monkeypatch.setattr(update, "datetime", type("Noon", (), {"now": staticmethod(lambda: NOON)}))
    path = course.work / f"{FOUR}.ipynb"
    for text in ("one", "two"):
        edit(path, "setup", text)
        release(course, path.name)
        updated("04b")
    assert [p.name for p in sorted(course.work.glob("kept-*"))] == [
        f"kept-20261123-120000-{FOUR}-2.ipynb",
        f"kept-20261123-120000-{FOUR}.ipynb",
    ]


class _Noon:
    def strftime(self, form):
        return "20261123-120000"


NOON = _Noon()


def test_lab_says_what_is_newer_and_overwrites_nothing(course, opened):
    edit(course.work / f"{FOUR}.ipynb", "setup", "import mine")
    before = {path.name: path.read_bytes() for path in course.work.iterdir()}
    assert "newer text" not in opened()
    release(course, f"{FOUR}.ipynb", f"{FIVE}.ipynb", "notation.md")
    said = opened()
    assert "newer text for 04b, 05, notation: run iocourse lab --update to get it" in said
    assert {path.name: path.read_bytes() for path in course.work.iterdir()} == before


def test_only_the_lesson_that_is_named_is_updated(course, updated):
    release(course, f"{FOUR}.ipynb", f"{FIVE}.ipynb")
    for name in ("5", "05", "05_lower_bounds", "05_LOWER_bounds.ipynb"):
        updated(name)
        assert newest(course, course.work / f"{FIVE}.ipynb", FIVE)
        assert not newest(course, course.work / f"{FOUR}.ipynb", FOUR)
        release(course, f"{FIVE}.ipynb")


def test_an_unknown_lesson_is_one_sentence_with_all_there_are(course, updated):
    before = {path.name: path.read_bytes() for path in course.work.iterdir()}
    for name in ("18", "05b", "x.ipynb", "kept", "../lessons"):
        (line,) = updated(name, code=2)
        assert line.endswith(f"--update: unknown lesson {name!r}. Available lessons: 00, 04b, 05, notation")
    (line,) = updated("04b", "05", code=2)
    assert "accepts at most one LESSON, got also 05" in line
    assert {path.name: path.read_bytes() for path in course.work.iterdir()} == before


def test_a_new_lesson_is_copied(course, updated, opened):
    shutil.copy(ROOT / "lessons" / "01_naive_attention.ipynb", course.lessons)
    assert updated("01")[0] == "copied: 01_naive_attention.ipynb"
    (course.work / "01_naive_attention.ipynb").unlink()
    assert "01_naive_attention.ipynb" in opened()
    assert (course.work / "01_naive_attention.ipynb").exists()


@pytest.mark.parametrize("recorded", [True, False], ids=["with a record", "without"])
def test_a_renamed_copy_is_found_by_what_is_in_it(course, updated, opened, recorded):
    path, renamed = course.work / f"{FOUR}.ipynb", course.work / "my repair.ipynb"
    notebook = read(path)
    if not recorded:
        del notebook["metadata"]["iocourse"]
    write(renamed, notebook)
    path.unlink()
    edit(renamed, "ex-4E", "my answer")
    before = renamed.read_bytes()
    assert updated("04b")[0].startswith("nothing to do") and not path.exists()
    release(course, path.name)
    line, _ = updated("04b")
    assert line.startswith(f"my repair.ipynb, a copy of {FOUR}, has the new text with your cells: 4E")
    assert newest(course, renamed, FOUR) and not path.exists()
    assert cell_of(read(renamed), "ex-4E")["source"] == ["my answer"]
    assert next(course.work.glob("kept-*-my repair.ipynb")).read_bytes() == before
    said = opened()
    assert f"my repair.ipynb, your copy of {FOUR}, is kept; {path.name} is a new copy" in said
    assert path.exists() and "a new copy" not in opened()


def test_a_recorded_name_counts_more_than_a_number_that_two_lessons_share():
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "text"}]
    lessons = {name: {"cells": cells, "metadata": {}} for name in ("extra_one", "extra_two")}
    copy = as_copy({"cells": [*cells, cells[0] | {"id": "b"}], "metadata": {}}, "extra_two")
    assert lesson_of_copy(copy, lessons) == "extra_two"


def test_each_copy_of_a_doubled_lesson_is_updated_or_the_one_that_is_named(course, updated):
    path, double = course.work / f"{FOUR}.ipynb", course.work / f"{FOUR}-Copy1.ipynb"
    shutil.copy(path, double)
    release(course, path.name)
    updated(double.name)
    assert newest(course, double, FOUR) and not newest(course, path, FOUR)
    release(course, path.name)
    assert len(updated("04b")) == 3
    assert newest(course, double, FOUR) and newest(course, path, FOUR)


def test_what_an_update_kept_is_never_taken_for_a_copy(course, updated):
    path = course.work / f"{FOUR}.ipynb"
    for _ in range(2):
        edit(path, "setup", "import mine")
        release(course, path.name)
        assert len(updated()) == 2
    assert len(list(course.work.glob("kept-*"))) == 2


def test_a_copy_of_an_older_version_without_a_record(course, updated):
    """A copy equal to the lesson needs no update; any other counts as edited, and the old file is kept."""
    path = course.work / f"{FOUR}.ipynb"
    shutil.copy(course.lessons / path.name, path)
    assert updated("04b")[0].startswith("nothing to do")
    edit(path, "ex-4E", "my answer")
    assert updated("04b")[0].startswith("nothing to do")
    release(course, path.name)
    assert "your cells: 4E; your old file is " in updated("04b")[0]
    assert newest(course, path, FOUR) and cell_of(read(path), "ex-4E")["source"] == ["my answer"]


def test_a_copy_that_somebody_has_brought_to_the_newest_text_by_hand(course, updated):
    path = course.work / f"{FOUR}.ipynb"
    release(course, path.name)
    write(path, read(path) | {"cells": read(course.lessons / path.name)["cells"]})
    assert updated("04b")[0].startswith("nothing to do")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"<<<<<<< HEAD\n{", "not a valid notebook: Expecting value"),
        (b"{" * 100_000, "not a valid notebook"),
        (b"[" * 100_000, "not a valid notebook"),
        (b"\xff\xfe{}", "not a valid notebook"),
        (b"[]", "not a notebook of format 4"),
        (b'{"worksheets": []}', "not a notebook of format 4"),
        (b'{"cells": [{"metadata": [], "source": 3}]}', "not a notebook of format 4"),
    ],
)
def test_what_is_no_notebook_is_left_alone_and_told_in_a_line(course, updated, opened, text, why):
    path = course.work / f"{FOUR}.ipynb"
    path.write_bytes(text)
    release(course, path.name, f"{FIVE}.ipynb")
    lines = updated()
    assert [why in line for line in lines] == [True, False, False]
    assert lines[0].startswith(f"{path.name} was not updated: ")
    assert path.read_bytes() == text and newest(course, course.work / f"{FIVE}.ipynb", FIVE)
    assert f"cannot open {path.name}: {why}" in opened()


def test_where_nothing_has_a_new_text_nobody_is_asked_to_reload(course, updated, opened):
    path = course.work / f"{FOUR}.ipynb"
    path.write_text("{ broken")
    (line,) = updated()
    assert line.endswith("Move the file away, and iocourse lab will create a new copy")
    path.rename(path.with_suffix(".broken"))
    opened()
    assert newest(course, path, FOUR)


def test_a_changed_page_is_kept_beside_the_new_one(course, updated):
    path = course.work / "notation.md"
    path.write_text(path.read_text(encoding="utf-8").replace("# ", "# My ", 1), encoding="utf-8")
    before = path.read_bytes()
    assert updated()[0].startswith("nothing to do")
    release(course, "notation.md")
    (line, _) = updated("notation")
    (old,) = course.work.glob("kept-*")
    assert line == f"notation.md has the new text; your changed copy is {old.name}"
    assert old.read_bytes() == before and "A word more." in path.read_text(encoding="utf-8")
    assert updated()[0].startswith("nothing to do")


# ------------------------------------------------------------------ flash_attention.py
TWELVE = "12_flash_attention_backward_triton"
FILE = "flash_attention.py"


@pytest.fixture
def file(course):
    """The path of the student's copy of the file, which does not exist, in a checkout with lesson 12."""
    for name in (f"{TWELVE}.ipynb", FILE):
        shutil.copy(ROOT / "lessons" / name, course.lessons)
    assert main(["lab", "--update"]) == 0
    path = course.work / FILE
    assert (course.work / f"{TWELVE}.ipynb").exists() and not path.exists()
    return path


def run_a_cell(course):
    """Run a cell of lesson 12, as a student does."""
    path = course.work / f"{TWELVE}.ipynb"
    notebook = read(path)
    code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    code["execution_count"] = 1
    write(path, notebook)


def test_the_file_is_not_copied_before_lesson_12_is_opened(course, file, updated, opened):
    edit(course.work / f"{FOUR}.ipynb", "ex-4E", "my answer")
    progress.record("4E", "solved")
    assert FILE not in opened() and updated()[0].startswith("nothing to do")
    assert updated("flash_attention") == [NOT_YET] and not file.exists()
    (course.work / f"{TWELVE}.ipynb").unlink()
    opened()  # a new copy of lesson 12 is not opened
    assert not file.exists()


@pytest.mark.parametrize("how", ["run", "edited", "tried"])
def test_the_file_is_copied_when_lesson_12_was_opened(course, file, updated, opened, how):
    if how == "run":
        run_a_cell(course)
    elif how == "edited":
        edit(course.work / f"{TWELVE}.ipynb", "ex-12A", "my answer")
    else:
        progress.record("12A", "seen", hint=1)
    assert updated() == [f"copied: {FILE}"]
    text = file.read_text(encoding="utf-8")
    assert text.startswith((course.lessons / FILE).read_text(encoding="utf-8"))
    file.unlink()
    assert f"copied to {course.work}: {FILE}" in opened() and file.read_text(encoding="utf-8") == text
    file.unlink()
    assert updated(FILE) == [f"copied: {FILE}"] and file.read_text(encoding="utf-8") == text
    assert updated()[0].startswith("nothing to do")


def test_a_copy_of_lesson_12_without_a_record_was_opened_if_it_differs_from_the_lesson(course, file, updated):
    path = course.work / f"{TWELVE}.ipynb"
    shutil.copy(course.lessons / path.name, path)
    assert updated()[0].startswith("nothing to do") and not file.exists()
    edit(path, "ex-12A", "my answer")
    assert updated() == [f"copied: {FILE}"] and file.exists()


def test_without_a_readable_progress_file_the_copy_of_lesson_12_decides(course, file, opened, monkeypatch):
    def fail():
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(progress, "load", fail)
    assert FILE not in opened()
    run_a_cell(course)
    assert FILE in opened()


def test_an_unchanged_file_gets_the_new_text_and_a_changed_one_is_kept(course, file, updated, opened):
    run_a_cell(course)
    opened()
    original = course.lessons / FILE
    original.write_text(original.read_text(encoding="utf-8") + "# new\n", encoding="utf-8")
    assert "newer text for flash_attention: run iocourse lab --update" in opened()
    assert updated("flash_attention") == [
        f"{FILE} has the new text; your copy had no changes", update.RELOAD
    ]  # fmt: skip
    assert file.read_text(encoding="utf-8").count("# new\n") == 1
    mine = file.read_text(encoding="utf-8").replace("LN_2", "LN2")
    file.write_text(mine, encoding="utf-8")
    assert updated()[0].startswith("nothing to do")
    original.write_text(original.read_text(encoding="utf-8") + "# newer\n", encoding="utf-8")
    line, _ = updated()
    (old,) = course.work.glob("kept-*.py")
    assert line == f"{FILE} has the new text; your changed copy is {old.name}"
    assert old.read_text(encoding="utf-8") == mine and "# newer\n" in file.read_text(encoding="utf-8")
    assert updated()[0].startswith("nothing to do")


def test_a_copy_that_exists_is_updated_even_if_lesson_12_was_not_opened(course, file, updated):
    """The cell of lesson 12 may have copied it from another folder's notebook."""
    shutil.copy(course.lessons / FILE, file)
    original = course.lessons / FILE
    original.write_text(original.read_text(encoding="utf-8") + "# new\n", encoding="utf-8")
    assert updated("flash_attention.py")[0].startswith(f"{FILE} has the new text; your changed copy is kept-")


def test_an_interrupted_copy_of_the_file_is_made_again(course, file, updated, opened):
    file.write_text("")
    assert updated()[0].startswith("nothing to do") and updated("flash_attention") == [NOT_YET]
    run_a_cell(course)
    assert f"copied to {course.work}: {FILE}" in opened() and file.stat().st_size > 0


def test_the_list_of_what_there_is_has_the_name_of_the_file(course, file, updated):
    (line,) = updated("flash", code=2)
    assert line.endswith("Available lessons: 00, 04b, 05, 12, notation, flash_attention")


# ------------------------------------------------------------------ a disk that is full or read-only
@pytest.fixture
def full(monkeypatch):
    """Function that makes writing fail after `count` more files."""

    def after(count, error=errno.ENOSPC):
        left, replace = [count], os.replace

        def refuse(source, target):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(error, os.strerror(error), str(target))
            replace(source, target)

        monkeypatch.setattr(os, "replace", refuse)

    return after


@pytest.mark.parametrize("room", [0, 1])
def test_on_a_full_disk_an_edited_lesson_stays_as_it_was(course, updated, full, room):
    path = course.work / f"{FOUR}.ipynb"
    edit(path, "setup", "import mine")
    release(course, path.name)
    before = {path.name: path.read_bytes() for path in course.work.iterdir()}
    full(room)
    (line,) = updated(code=2)
    assert f"cannot write {path}: No space left on device. Your files are unchanged" in line
    assert {path.name: path.read_bytes() for path in course.work.iterdir()} == before


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_where_nothing_can_be_written_a_first_copy_says_so(course, updated, full, error):
    shutil.rmtree(course.work)
    full(2, error)
    (line,) = updated(code=2)
    assert f"cannot write {course.work / FIVE}.ipynb: {os.strerror(error)}" in line
    assert len(files(course)) == 2 and all(read(path)["cells"] for path in course.work.iterdir())


def test_a_file_where_the_work_folder_should_be(course, updated):
    shutil.rmtree(course.work)
    course.work.write_text("mine")
    (line,) = updated(code=2)
    assert "cannot write " in line and course.work.read_text() == "mine"


def test_kept_files_are_no_copies(course):
    shutil.copy(course.work / f"{FOUR}.ipynb", course.work / f"kept-20261123-101112-{FOUR}.ipynb")
    assert len(find_copies(course, update.lesson_notebooks(course))) == 3


def test_a_notebook_of_the_students_own_is_none_of_the_lessons(course, updated):
    own = course.work / "scratch.ipynb"
    cells = read(course.work / f"{FOUR}.ipynb")["cells"]
    mine = [dict(cell, id=f"mine{n}") for n, cell in enumerate(cells) if "name" not in cell["metadata"]]
    write(own, {"cells": [*mine[:5], *cells[2:4]], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    before = own.read_bytes()
    release(course, f"{FOUR}.ipynb")
    assert len(updated()) == 2 and own.read_bytes() == before
    assert "unknown lesson" in updated("scratch.ipynb", code=2)[0]


def test_a_page_without_a_record(course, updated):
    """A copy by an older version: nothing to do if it equals the page; otherwise the old file is kept."""
    page = course.work / "notation.md"
    shutil.copy(course.lessons / page.name, page)
    assert updated("notation")[0].startswith("nothing to do")
    release(course, page.name)
    before = page.read_bytes()
    assert "your changed copy is " in updated("notation")[0]
    assert next(course.work.glob("kept-*")).read_bytes() == before
