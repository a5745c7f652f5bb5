"""Tests of importing a file outside any package as a module."""

import sys

import pytest

from iocourse.discovery import loaded


def test_a_file_is_a_module_of_the_name_it_is_given_and_no_other_module_finds_it(tmp_path):
    file = tmp_path / "some-file.py"
    file.write_text("value = __name__")
    assert loaded(file, "a_name").value == "a_name" and "a_name" not in sys.modules


def test_what_cannot_be_loaded_says_why(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("not Python")
    with pytest.raises(ImportError, match="not a Python file"):
        loaded(file, "notes")
    file = tmp_path / "broken.py"
    file.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        loaded(file, "broken")
