"""The cell of lesson 12 that copies flash_attention.py: where to, what it keeps, and what it prints."""

import errno
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from iocourse.course import flash_attention_file
from iocourse.course.flash_attention_file import IN_PLACE, KEPT, MISSING, copy_flash_attention
from iocourse.course.student_copies.text_copy import as_text_copy, is_unchanged

NAME = "flash_attention.py"
SOURCE = Path(__file__).parents[2] / "lessons" / NAME


@pytest.fixture
def copied(tmp_path, monkeypatch, capsys):
    """Function that runs the cell in a new folder below tmp_path; returns the printed line and the folder."""
    monkeypatch.setattr(sys, "path", [one for one in sys.path if Path(one) != SOURCE.parent])

    def run(name="notebooks"):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        copy_flash_attention()
        return capsys.readouterr().out.removesuffix("\n"), folder

    return run


def checkout(folder):
    """Make a folder a checkout of the course."""
    (folder / "lessons").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "iocourse"\n', encoding="utf-8")


def test_in_a_plain_folder_the_file_is_copied_next_to_the_notebook(copied):
    line, folder = copied()
    text = (folder / NAME).read_text(encoding="utf-8")
    assert line == IN_PLACE and "\n" not in line and text.startswith(SOURCE.read_text(encoding="utf-8"))
    assert is_unchanged(text, ".py") and text.splitlines()[-1].startswith("# iocourse ")
    compile(text, NAME, "exec")
    before = (folder / NAME).stat()
    assert copied()[0] == IN_PLACE and (folder / NAME).stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize("name", ["", "lessons", "solutions", "lessons/more"])
def test_in_a_checkout_nothing_is_copied_and_the_file_is_imported_from_lessons(copied, tmp_path, name):
    checkout(tmp_path / "course")
    line, folder = copied(f"course/{name}")
    assert line == IN_PLACE and not (folder / NAME).exists()
    assert Path(importlib.util.find_spec("flash_attention").origin) == SOURCE
    assert copied(f"course/{name}")[0] == IN_PLACE and sys.path.count(str(SOURCE.parent)) == 1


@pytest.mark.parametrize("name", ["work", "work/again"])
def test_in_the_students_folder_of_a_checkout_it_is_copied(copied, tmp_path, name):
    checkout(tmp_path / "course")
    line, folder = copied(f"course/{name}")
    assert line == IN_PLACE and (folder / NAME).exists() and str(SOURCE.parent) not in sys.path


def test_a_changed_file_is_kept(copied):
    _, folder = copied()
    for text in (
        (folder / NAME).read_text(encoding="utf-8").replace("LN_2", "LN2"),
        SOURCE.read_text(encoding="utf-8") + "# mine\n",
        as_text_copy("an old text\n", ".py").replace("old", "edited"),
        "mine",
    ):
        (folder / NAME).write_text(text, encoding="utf-8")
        assert copied()[0] == KEPT and (folder / NAME).read_text(encoding="utf-8") == text
    (folder / NAME).write_bytes(b"\xff\xfe")
    assert copied()[0] == KEPT and (folder / NAME).read_bytes() == b"\xff\xfe"


def test_the_file_itself_without_a_record_is_left_as_it_is(copied, tmp_path):
    (tmp_path / "notebooks").mkdir()
    shutil.copy(SOURCE, tmp_path / "notebooks")
    line, folder = copied()
    assert line == IN_PLACE and (folder / NAME).read_bytes() == SOURCE.read_bytes()


@pytest.mark.parametrize("text", ["", as_text_copy("an old text\n", ".py")], ids=["interrupted", "old"])
def test_an_interrupted_and_an_old_unchanged_copy_are_replaced(copied, tmp_path, text):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / NAME).write_text(text, encoding="utf-8")
    line, folder = copied()
    assert line == IN_PLACE and "def attention(" in (folder / NAME).read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_and_a_missing_file_are_one_line_each(copied, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(target))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        line, folder = copied()
    assert line.startswith(f"cannot write {NAME} here: {os.strerror(errno.EROFS)}. It is imported from ")
    assert list(folder.iterdir()) == []
    assert Path(importlib.util.find_spec("flash_attention").origin) == SOURCE
    monkeypatch.setattr(flash_attention_file, "packaged_file", lambda: None)
    assert copied()[0] == MISSING and list(folder.iterdir()) == []
