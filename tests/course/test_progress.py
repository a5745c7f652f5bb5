"""Tests of the progress file: it is replaced atomically, merged, reset and never lost."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iocourse.cli import main
from iocourse.course import progress, run_context
from iocourse.errors import UsageError


def entry_text(key, **more):
    """Return the content of a progress file with one exercise."""
    entry = {"status": "seen", "attempts": 0, "hints": 0} | more
    return json.dumps({"format": 1, "exercises": {key: entry}})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_without_a_file_nothing_is_known_and_nothing_is_written(home):
    assert progress.load() == {} and not home.exists()


def test_a_record_is_read_back(home):
    progress.record("4B", "tried")
    assert progress.load() == {"4B": {"status": "tried", "attempts": 1, "hints": 0}}
    assert [path.name for path in home.iterdir()] == ["progress.json"]


def test_a_status_never_gets_worse_and_attempts_end_with_the_solution():
    for status in ("seen", "tried", "tried", "solved", "tried", "seen"):
        entry = progress.record("4B", status)
    assert entry == {"status": "solved", "attempts": 3, "hints": 0}


def test_hints_keep_the_highest_level_and_the_first_prediction_stays():
    progress.record("4B", "seen", hint=2, prediction=8)
    entry = progress.record("4B", "seen", hint=1, prediction=4)
    assert entry == {"status": "seen", "attempts": 0, "hints": 2, "prediction": 8}


def test_an_unknown_status_is_refused(home):
    with pytest.raises(ValueError, match="status must be seen or tried or solved, got 'done'"):
        progress.record("4B", "done")
    assert not home.exists()


DONE = '{"format": 1, "exercises": {"4B": {"status": "done"}}}'


@pytest.mark.parametrize(
    "broken", ["", "{", "[]", '{"format": 2, "exercises": {}}', "\x00", DONE, "[" * 10**5]
)
def test_a_broken_file_is_set_aside_not_lost(home, broken):
    home.mkdir()
    progress.location().write_text(broken)
    with pytest.warns(UserWarning, match="kept at .*unreadable"):
        progress.record("1A", "solved")
    assert list(progress.load()) == ["1A"]
    assert [path.read_text() for path in home.glob("progress.unreadable-*.json")] == [broken]


def test_a_broken_file_on_a_read_only_disk_is_one_line(home, monkeypatch, capsys):
    home.mkdir()
    progress.location().write_text("{")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
    monkeypatch.setattr(Path, "replace", os.replace)
    assert main(["progress"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and not said.out
    assert "is not valid JSON" in said.err and "and the file cannot be renamed: read-only" in said.err
    with pytest.warns(UserWarning, match="could not be written: .* is not valid JSON"):
        progress.record("1A", "solved")
    assert progress.location().read_text() == "{"


def test_a_write_that_fails_leaves_the_old_file(home, monkeypatch):
    progress.record("1A", "solved")
    before = progress.location().read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.warns(UserWarning, match="could not be written: disk full"):
        assert progress.record("1B", "solved")["status"] == "solved"
    assert progress.location().read_bytes() == before
    assert [path.name for path in home.iterdir()] == ["progress.json"]


def _record_many(numbers):
    for n in numbers:
        progress.record(f"1{n}", "solved")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_two_notebooks_at_once_lose_nothing():
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_record_many, args=(range(k, 40, 2),)) for k in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(progress.load()) == 40


def test_a_lock_left_behind_does_not_block_for_ever(home, monkeypatch):
    monkeypatch.setattr(progress.time, "sleep", lambda _: None)
    home.mkdir()
    (home / "progress.lock").touch()
    progress.record("1A", "seen")
    progress.record("1B", "seen")
    assert len(progress.load()) == 2 and not (home / "progress.lock").exists()


SOLVES = """
from iocourse.course import predict, progress
progress.record("4B", "solved")
predict("4.1", words=3)
assert progress.load()["4B"]["status"] == "solved", "within the run it is known"
"""


@pytest.mark.parametrize("folder", ["solutions", "work"])
@pytest.mark.parametrize("line", ["### BEGIN SOLUTION one line", "# %% nothing of the kind"])
def test_a_source_with_answers_records_nothing_of_the_students_wherever_it_lies(tmp_path, home, folder, line):
    (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
    script = tmp_path / folder / "04_flash_forward.py"
    script.write_text(f"{line}\n{SOLVES}", encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    env = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    subprocess.run([sys.executable, script], check=True, cwd=script.parent, env=env)
    assert home.exists() == (line[:3] != "###")
    assert not list((tmp_path / "tmp").iterdir())


def test_what_a_marked_notebook_solves_is_known_to_it_alone(tmp_path, monkeypatch, home):
    progress.record("1A", "tried")
    before = (home / "progress.json").read_bytes()
    monkeypatch.setattr(sys.modules["__main__"], run_context.SOLVED_MARK, True, raising=False)
    monkeypatch.setattr(progress, "_nobodys", {})
    assert progress.load() == {}
    progress.record("4B", "solved")
    progress.record_words("C1", 70)
    assert progress.best_words("C1") == 70 and set(progress.load()) == {"4B", "challenge C1"}
    assert progress.export_to(tmp_path / "it.json") == 2
    assert progress.reset() is None and progress.load() == {}
    assert progress.import_from(tmp_path / "it.json") == 2 == len(progress.load())
    assert (home / "progress.json").read_bytes() == before and len(list(home.iterdir())) == 1
    monkeypatch.delattr(sys.modules["__main__"], run_context.SOLVED_MARK)
    assert set(progress.load()) == {"1A"}


def test_export_and_import_merge_with_the_better_status(tmp_path):
    progress.record("1A", "solved", prediction=3)
    progress.record("1B", "tried", prediction=7)
    assert progress.export_to(tmp_path / "mine.json") == 2
    progress.reset()
    progress.record("1A", "tried", hint=3)
    progress.record("1B", "seen", prediction=5)
    progress.record("1C", "seen")
    assert progress.import_from(tmp_path / "mine.json") == 3
    merged = progress.load()
    assert merged["1A"] == {"status": "solved", "attempts": 1, "hints": 3, "prediction": 3}
    assert merged["1B"]["prediction"] == 5  # the prediction of this machine is kept
    assert {key: entry["status"] for key, entry in merged.items()} == {
        "1A": "solved",
        "1B": "tried",
        "1C": "seen",
    }
    progress.import_from(tmp_path / "mine.json")  # importing again changes nothing
    assert progress.load() == merged


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not valid JSON"),
        ('{"cells": []}', "is not a progress file"),
        ('{"format": 0, "exercises": {}}', "has format 0, but this version of iocourse reads format 1$"),
        ('{"format": 2, "exercises": {}}', "has format 2, but .* reads format 1; update iocourse$"),
        (
            '{"format": 1, "exercises": {"4B": 3}}',
            "status of exercise '4B' must be seen or tried or solved, got 3",
        ),
        (
            '{"format": 1, "exercises": {"4B": {"status": "seen", "attempts": -1}}}',
            "attempts of exercise '4B' must be an integer of at least 0, got -1",
        ),
        (
            '{"format": 1, "exercises": {"4B": {"status": "seen", "attempts": 1, "hints": "2"}}}',
            "hints of exercise '4B' must be an integer of at least 0, got '2'",
        ),
        (
            entry_text("4B", prediction="F3"),
            "prediction of exercise '4B' must be numbers by name, got 'F3'",
        ),
        (entry_text("4B", prediction={"rows": "8"}), "must be numbers by name, got {'rows': '8'}"),
        (entry_text("4.\n2"), r"exercise name '4.\\n2' is not printable"),
        (entry_text("\ud800"), r"exercise name '\\ud800' is not printable"),
    ],
)
def test_an_import_is_validated_first(tmp_path, text, message):
    progress.record("1A", "solved")
    before = progress.location().read_bytes()
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        progress.import_from(tmp_path / "other.json")
    assert progress.location().read_bytes() == before


def test_reset_keeps_a_backup_each_time():
    assert progress.reset() is None
    kept = []
    for letter in "AB":
        progress.record(f"1{letter}", "solved")
        kept.append(progress.reset())
        assert progress.load() == {}
    assert [list(json.loads(path.read_text())["exercises"]) for path in kept] == [["1A"], ["1B"]]


def test_the_table_sorts_by_number_and_lists_what_was_not_begun():
    progress.record("10A", "solved")
    progress.record("2B", "tried")
    progress.record("p2.1", "seen", prediction={"rows": 4})
    lines = progress.table(progress.load(), ("2A", "2B")).splitlines()
    assert [line.split()[:2] for line in lines[1:-1]] == [["2A", "-"], ["2B", "tried"], ["10A", "solved"]]
    assert lines[-1] == "exercises solved: 1 of 3; predictions made: 1"
    last = progress.table(progress.load()).splitlines()[-1]
    assert last == "exercises solved: 1 of 2 started; predictions made: 1"


@pytest.mark.parametrize("key", ["²", "4.²", "9" * 5000, "", "ž", "..", "4.2.1", "-1"])
def test_any_name_of_an_exercise_has_its_place_in_the_table(tmp_path, key):
    (tmp_path / "other.json").write_text(entry_text(key))
    progress.record("4B", "solved")
    progress.import_from(tmp_path / "other.json")
    lines = progress.table(progress.load()).splitlines()
    assert len(lines) == 4 and lines[-1].startswith("exercises solved: 1 of 2")


def test_the_table_is_as_wide_as_its_longest_name():
    progress.record("4B", "solved")
    assert progress.table(progress.load()).splitlines()[:2] == [
        "exercise   status   attempts  hints",
        "4B         solved          1      0",
    ]


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [("linux", "XDG_DATA_HOME", "there/iocourse"), ("win32", "LOCALAPPDATA", "there/iocourse")],
)
def test_the_file_lies_in_the_users_data_folder(monkeypatch, platform, variable, expected):
    monkeypatch.delenv("IOCOURSE_HOME")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, "there")
    assert progress.location() == Path(expected, "progress.json")


# ---- Colab with a mounted Drive --------------------------------------------------------------------------


@pytest.fixture
def colab(tmp_path, monkeypatch):
    """Function that mounts a Drive on a machine which has its own progress; returns the file on the Drive."""
    drive = tmp_path / "drive" / "MyDrive"
    monkeypatch.delenv("IOCOURSE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "local"))
    monkeypatch.setattr(progress, "DRIVE", drive)
    return lambda: drive.mkdir(parents=True) or drive / "iocourse" / "progress.json"


def test_on_drive_is_kept_what_was_solved_before_it_was_mounted_and_it_is_said_once(colab, capsys, tmp_path):
    progress.record("4A", "solved")
    progress.record("4B", "tried", prediction=3)
    path = colab()
    assert progress.load()["4A"]["status"] == "solved"
    assert capsys.readouterr().out == f"Your progress is now stored on your Drive: {path}\n"
    progress.record("4B", "solved")
    assert progress.parse(path.read_text(), "it")["4B"] == {
        "status": "solved", "attempts": 2, "hints": 0, "prediction": 3}  # fmt: skip
    (kept,) = (tmp_path / "local" / "iocourse").iterdir()
    assert progress.parse(kept.read_text(), "it")["4B"]["status"] == "tried"
    assert progress.reset() is not None and progress.load() == {}  # moved progress is not imported again
    assert capsys.readouterr().out == ""


def test_the_next_machine_goes_on_with_what_is_on_drive(colab, capsys, tmp_path):
    path = colab()
    path.parent.mkdir()
    path.write_text(entry_text("4A", status="solved", hints=2))
    assert progress.load()["4A"]["hints"] == 2 and capsys.readouterr().out == ""
    mine = tmp_path / "local" / "iocourse" / "progress.json"  # as written before Drive is mounted
    mine.parent.mkdir(parents=True)
    mine.write_text(entry_text("4B", status="tried", attempts=1))
    progress.record("4B", "solved")
    known = progress.load()
    assert (known["4A"]["hints"], known["4B"]["attempts"]) == (2, 2)
    assert capsys.readouterr().out.count("\n") == 1


def test_nothing_is_written_on_drive_before_there_is_something_to_keep(colab, capsys):
    path = colab()
    assert progress.load() == {} and not path.parent.exists() and capsys.readouterr().out == ""
    progress.record("4A", "seen")
    assert path.exists() and "now stored on your Drive" in capsys.readouterr().out


def test_the_variable_goes_before_drive(colab, monkeypatch, tmp_path, capsys):
    path = colab()
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "mine"))
    progress.record("4A", "solved")
    assert (tmp_path / "mine" / "progress.json").exists()
    assert not path.exists() and capsys.readouterr().out == ""


def test_a_drive_that_takes_nothing_costs_a_warning_and_the_machine_keeps_its_own(
    colab, monkeypatch, tmp_path
):
    progress.record("4A", "solved")
    colab()

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(progress, "atomic_write", full)
    with pytest.warns(UserWarning, match="could not be written to Drive: .*No space left"):
        assert progress.load() == {}
    here = pytest.warns(UserWarning, match="could not be written: .*No space left")
    with here, pytest.warns(UserWarning, match="could not be written to Drive: .*No space left"):
        progress.record("4B", "solved")
    mine = tmp_path / "local" / "iocourse" / "progress.json"
    assert set(progress.parse(mine.read_text(), "it")) == {"4A"}
