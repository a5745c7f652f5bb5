"""Tests that students keep their work when lessons get new file names and exercises move to other lessons.

A small course has a text before and a text after each change. A student answers every exercise and prediction
of the first and adds cells; then the course changes and the copies are updated.
"""

import errno
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse.cli import main
from iocourse.course import course_map
from iocourse.course.exercise import find
from iocourse.course.project_paths import find_course
from iocourse.course.student_copies import update
from iocourse.course.student_copies.copies import KEPT
from iocourse.course.student_copies.notebook import text_of

EXERCISES = ("10A", "10B", "11A", "12A", "12D")
TEN, ELEVEN, TWELVE = ("10A", "10B", "10.4"), ("11A", "11.2"), ("12A", "12D", "12.7")


# ------------------------------------------------------------------ a small course
def code(text, name, *tags):
    cell = {"cell_type": "code", "id": name, "metadata": {"tags": list(tags)}, "source": text}
    if tags[:1] == ("exercise",):
        cell["metadata"]["name"] = name
    return cell | {"outputs": [], "execution_count": None}


def asked(key, text="..."):
    """The cells of an exercise such as 10A, with its check, or of a prediction such as 10.4."""
    if "." in key:
        return [code(f'predict("{key}", words={text})', f"id-of-{key.replace('.', '-')}", "predict")]
    stub = f"def {find(key).function}(x):\n    {text}"
    return [code(stub, f"ex-{key}", "exercise"), code(f'check("{key}", {key})', f"check-{key}", "check")]


def lesson(file, keys, former=()):
    """A lesson with a text above each exercise. Ids are made from its first name, as in the build."""
    first = [*former, file][0]
    cells = [{"cell_type": "markdown", "metadata": {}, "source": f"# {file}"}, code(f"used = '{first}'", "")]
    for key in keys:
        cells += [{"cell_type": "markdown", "metadata": {}, "source": f"About {key} in {file}"}, *asked(key)]
    cells = [cell | {"id": cell.get("id") or f"{first}-{n}"} for n, cell in enumerate(cells)]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


class Desk:
    """A course and the work folder of a student in `folder`."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        (folder / "lessons").mkdir()
        (folder / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
        monkeypatch.setenv("IOCOURSE_HOME", str(folder / "home"))
        monkeypatch.chdir(folder)
        self.work = folder / "work"

    def release(self, lessons, former=()):
        """Replace the lessons (keys by file) and the map of the course, with former names by file."""
        former = dict(former)
        shutil.rmtree(self.folder / "lessons")
        (self.folder / "lessons").mkdir()
        rows = ['[[part]]\ntitle = "All"']
        for file, keys in lessons.items():
            names = former.get(file, [])
            write(self.folder / "lessons" / f"{file}.ipynb", lesson(file, keys, names))
            ids = [key for key in keys if "." not in key]
            told = f'file = "{file}"\ntitle = "{file}"\nyou_will = "x"'
            rows += [f"[[part.lesson]]\n{told}\nformer = {names}\nexercises = {ids}"]
        known = course_map.read_map("\n".join(rows))
        self.monkeypatch.setattr(course_map, "course_map", lambda: known)

    def answer_everything(self):
        """Answer each exercise and prediction, and add a cell after it. Return the texts by key."""
        written = {}
        for path in self.work.glob("*.ipynb"):
            notebook, cells = read(path), []
            for cell in notebook["cells"]:
                cells.append(cell)
                if {"exercise", "predict"} & set(cell["metadata"].get("tags", ())):
                    key = re.search(r"\d+(\.\d+|[A-Z])", cell["id"].replace("-", "."))[0]
                    cell["source"] = text_of(cell).replace("...", f"mine_{len(written)}")
                    written[key] = cell["source"]
                    written[f"note on {key}"] = f"my note on {key}"
                    cells.append({"cell_type": "markdown", "id": f"n{len(written)}", "metadata": {}})
                    cells[-1]["source"] = written[f"note on {key}"]
            write(path, notebook | {"cells": cells})
        return written

    def files(self):
        """All notebooks of the student by name, except old files that an update has kept."""
        return {p.name: read(p) for p in sorted(self.work.glob("*.ipynb")) if not KEPT.match(p.name)}

    def texts(self):
        return [text_of(cell) for notebook in self.files().values() for cell in notebook["cells"]]

    def answer_in(self, name, key):
        """The source of the cell of an exercise or prediction in a file of the work folder."""
        (theirs,) = asked(key)[:1]
        (cell,) = [cell for cell in read(self.work / name)["cells"] if cell["id"] == theirs["id"]]
        assert cell["metadata"] == theirs["metadata"]
        return text_of(cell)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def write(path, notebook):
    path.write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return Desk(tmp_path, monkeypatch)


@pytest.fixture
def run(started, capsys):
    """Function that runs `iocourse lab …` and returns the printed lines."""

    def lab(*arguments):
        capsys.readouterr()
        assert main(["lab", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return lab


# ------------------------------------------------------------------ changes of names, one by one
def rename_by_hand(work, old):
    (work / f"{old}.ipynb").rename(work / "my kernels.ipynb")


def without_record(work, old):
    notebook = read(work / f"{old}.ipynb")
    del notebook["metadata"]["iocourse"]
    write(work / f"{old}.ipynb", notebook)


def doubled(work, old):
    shutil.copy(work / f"{old}.ipynb", work / f"{old}-Copy1.ipynb")


BEFORE = {"10_first": TEN, "11_next": ELEVEN, "12_back": TWELVE}
# name of the change: lessons after it, former names, the file of each answer, what the student did before
CHANGES = {
    "the number is kept": (
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        {"10_triton": ["10_first"]},
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        None,
    ),
    "a new number, and a new lesson has the old one": (
        {"10_start": (), "11_next": ELEVEN, "12_back": TWELVE, "20_triton": TEN},
        {"20_triton": ["10_first"]},
        {"20_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        None,
    ),
    "renamed twice": (
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        {"10_triton": ["10_first", "10_second"]},
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        None,
    ),
    "split: a new lesson has the second half": (
        {"10_first": TEN, "11_next": ELEVEN, "12_back": ("12A",), "20_more": ("12D", "12.7")},
        {},
        {"10_first": TEN, "11_next": ELEVEN, "12_back": ("12A",), "20_more": ("12D", "12.7")},
        None,
    ),
    "split: one half has a new number, the other is in a lesson that was there": (
        {"10_first": TEN, "11_next": (*ELEVEN, "12A"), "20_more": ("12D", "12.7")},
        {"20_more": ["12_back"]},
        {"10_first": TEN, "11_next": (*ELEVEN, "12A"), "20_more": ("12D", "12.7")},
        None,
    ),
    "an exercise has moved to a lesson that was there": (
        {"10_first": TEN, "11_next": (*ELEVEN, "12D"), "12_backward": ("12A", "12.7")},
        {"12_backward": ["12_back"]},
        {"10_first": TEN, "11_next": (*ELEVEN, "12D"), "12_backward": ("12A", "12.7")},
        None,
    ),
    "two lessons merged": (
        {"10_first": TEN, "11_both": (*ELEVEN, *TWELVE)},
        {"11_both": ["11_next", "12_back"]},
        {"10_first": TEN, "11_both": (*ELEVEN, *TWELVE)},
        None,
    ),
    "swapped numbers": (
        {"10_first": TEN, "11_backward": TWELVE, "12_forward": ELEVEN},
        {"11_backward": ["12_back"], "12_forward": ["11_next"]},
        {"10_first": TEN, "11_backward": TWELVE, "12_forward": ELEVEN},
        None,
    ),
    "the student has renamed the file": (
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        {"10_triton": ["10_first"]},
        {"my kernels": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        rename_by_hand,
    ),
    "another program has removed the record": (
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        {"10_triton": ["10_first"]},
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        without_record,
    ),
    "the student has two copies": (
        {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE},
        {"10_triton": ["10_first"]},
        {"10_triton": TEN, "10_first-Copy1": TEN, "11_next": ELEVEN},
        doubled,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("opened", [True, False], ids=["opened before the update", "updated at once"])
def test_every_answer_is_in_the_copy_of_its_lesson_after_a_change(desk, run, change, opened):
    after, former, places, action = CHANGES[change]
    desk.release(BEFORE)
    run("--update")
    written = desk.answer_everything()
    if action:
        action(desk.work, "10_first")
    desk.release(after, former)
    if opened:
        run()
        assert set(written.values()) <= set(desk.texts())
        assert not list(desk.work.glob("kept-*"))
    lines = run("--update")
    assert set(written.values()) <= set(desk.texts())
    for file, keys in places.items():
        assert {key: desk.answer_in(f"{file}.ipynb", key) for key in keys} == {
            key: written[key] for key in keys
        }
    assert all(".ipynb" in line for line in lines if line not in (update.REOPEN, update.RELOAD))
    before = desk.files()
    run("--update")
    assert desk.files() == before


# ------------------------------------------------------------------ what is printed, and what is refused
TRITON = {"10_triton": TEN, "11_next": ELEVEN, "12_back": TWELVE}


@pytest.fixture
def renamed(desk, run):
    """A student's folder with every answer, for a course in which 10_first is now 10_triton."""
    desk.release(BEFORE)
    run("--update")
    desk.written = desk.answer_everything()
    desk.release(TRITON, {"10_triton": ["10_first"]})
    return desk


def test_an_opened_course_has_the_old_copy_under_the_new_name_and_no_empty_one(renamed, run):
    before = (renamed.work / "10_first.ipynb").read_bytes()
    lines = run()
    assert lines[:2] == ["10_first.ipynb is now 10_triton.ipynb, the new name of its lesson", update.REOPEN]
    assert (renamed.work / "10_triton.ipynb").read_bytes() == before
    assert list(renamed.files()) == ["10_triton.ipynb", "11_next.ipynb", "12_back.ipynb"]
    assert not any("copied" in line or "new copy" in line for line in lines)


def test_a_copy_without_changes_gets_the_new_name_and_text(desk, run):
    desk.release(BEFORE)
    run("--update")
    desk.release(TRITON, {"10_triton": ["10_first"]})
    assert run("--update") == [
        "10_first.ipynb is now 10_triton.ipynb, the new name of its lesson",
        update.REOPEN,
        "10_triton.ipynb has the new text; your copy had no changes",
        update.RELOAD,
    ]
    assert sorted(path.name for path in desk.work.iterdir()) == [f"{name}.ipynb" for name in TRITON]


@pytest.mark.parametrize("name", ["10_first", "10_first.ipynb", "work/10_FIRST.ipynb", "10_triton", "10"])
def test_a_former_name_is_an_argument_for_the_lesson(renamed, run, name):
    renamed.release(TRITON | {"11_next": ("11A",)}, {"10_triton": ["10_first"]})
    lines = run("--update", name)
    assert lines[2].startswith("10_triton.ipynb has the new text with your cells: 10A, 10B, prediction 10.4")
    assert len(lines) == 4 and renamed.answer_in("10_triton.ipynb", "10A") == renamed.written["10A"]


def test_a_file_with_the_new_name_is_never_replaced(renamed, run):
    """Both are kept, a line names the answers of each, and an update copies those that the new one lacks."""
    new, old = renamed.work / "10_triton.ipynb", renamed.work / "10_first.ipynb"
    notebook = read(renamed.folder / "lessons" / new.name)
    (cell,) = [cell for cell in notebook["cells"] if cell["id"] == "ex-10B"]
    cell["source"] = "my second answer"
    write(new, notebook)
    before = renamed.files()
    both = (
        "10_first.ipynb has a former name of 10_triton.ipynb; both files are kept. Your answers: "
        "10A, 10B, prediction 10.4 in 10_first.ipynb, 10B in 10_triton.ipynb"
    )
    assert both in run() and renamed.files() == before
    lines = run("--update")
    assert lines[0] == both
    assert "from 10_first.ipynb: 10A, prediction 10.4; your old file is kept-" in lines[1]
    assert renamed.answer_in(new.name, "10A") == renamed.written["10A"]
    assert renamed.answer_in(new.name, "10B") == "my second answer"
    assert {key: renamed.answer_in(old.name, key) for key in TEN} == {
        key: renamed.written[key] for key in TEN
    }
    assert set(renamed.written.values()) <= set(renamed.texts())


def test_an_answer_stays_at_the_end_where_its_new_lesson_has_another(desk, run):
    desk.release(BEFORE)
    run("--update")
    written = desk.answer_everything()
    path = desk.work / "11_next.ipynb"
    notebook = read(path)
    notebook["cells"].append(asked("12D", "'another'")[0])
    write(path, notebook)
    desk.release(BEFORE | {"11_next": (*ELEVEN, "12D"), "12_back": ("12A", "12.7")})
    lines = run("--update")
    assert "cells without a place in the lesson are at the end: 12D; your old file is kept-" in lines[1]
    assert desk.answer_in("11_next.ipynb", "12D") == text_of(asked("12D", "'another'")[0])
    assert text_of(read(desk.work / "12_back.ipynb")["cells"][-1]) == written["12D"]


def test_both_copies_are_updated_when_an_answer_moves_between_them(desk, run):
    after = BEFORE | {"11_next": (*ELEVEN, "12D"), "12_back": ("12A", "12.7"), "10_first": ("10A",)}
    for name in ("11", "12"):
        desk.release(BEFORE)
        run("--update")
        written = desk.answer_everything()
        desk.release(after)
        lines = run("--update", name)
        assert lines[0].startswith(
            "11_next.ipynb has the new text with your cells: 11A, prediction 11.2, 12D"
        )
        assert "from 12_back.ipynb: 12D" in lines[0] and "now in 11_next.ipynb: 12D" in lines[1]
        assert len(lines) == 3 and desk.answer_in("11_next.ipynb", "12D") == written["12D"]
        shutil.rmtree(desk.work)


def test_an_answer_to_another_question_of_the_same_number_does_not_move(desk, run):
    """The prediction 12.7 of another lesson predicts `words`; the copy of 12 predicted `heads`."""
    desk.release(BEFORE)
    run("--update")
    path = desk.work / "12_back.ipynb"
    notebook = read(path)
    cell = next(one for one in notebook["cells"] if "12.7" in text_of(one) and "predict" in text_of(one))
    cell["source"] = 'predict("12.7", heads=8)'
    write(path, notebook)
    desk.release(BEFORE | {"11_next": (*ELEVEN, "12.7"), "12_back": ("12A",)})
    run("--update")
    assert text_of(read(desk.work / "12_back.ipynb")["cells"][-1]) == 'predict("12.7", heads=8)'
    assert desk.answer_in("11_next.ipynb", "12.7") == text_of(asked("12.7")[0])


def test_the_copy_with_the_latest_former_name_gets_the_new_one(renamed, run):
    shutil.copy(renamed.work / "10_first.ipynb", renamed.work / "10_second.ipynb")
    renamed.release(TRITON, {"10_triton": ["10_first", "10_second"]})
    lines = run()
    assert lines[0] == "10_second.ipynb is now 10_triton.ipynb, the new name of its lesson"
    assert lines[1].startswith("10_first.ipynb has a former name of 10_triton.ipynb; both files are kept.")


def test_a_lesson_is_copied_where_an_answer_moves_to_it(desk, run):
    desk.release(BEFORE)
    run("--update")
    written = desk.answer_everything()
    desk.release(BEFORE | {"12_back": ("12A",), "20_more": ("12D", "12.7"), "21_not_asked": ()})
    assert run("--update", "12")[0] == "copied: 20_more.ipynb"
    assert [desk.answer_in("20_more.ipynb", key) for key in ("12D", "12.7")] == [
        written["12D"],
        written["12.7"],
    ]


def test_an_answer_to_another_exercise_that_has_the_same_function_does_not_move(desk, run):
    """The student has deleted the cell of 12D, and the answer to 12A defines its function too."""
    desk.release(BEFORE)
    run("--update")
    path = desk.work / "12_back.ipynb"
    notebook = read(path)
    notebook["cells"] = [cell for cell in notebook["cells"] if cell["id"] != "ex-12D"]
    (cell,) = [cell for cell in notebook["cells"] if cell["id"] == "ex-12A"]
    cell["source"] = text_of(asked("12A", "'mine'")[0]) + "\n\n" + text_of(asked("12D", "'mine'")[0])
    write(path, notebook)
    desk.release(BEFORE | {"11_next": (*ELEVEN, "12D"), "12_back": ("12A", "12.7")})
    run("--update")
    assert desk.answer_in("12_back.ipynb", "12A") == cell["source"]
    assert desk.answer_in("11_next.ipynb", "12D") == text_of(asked("12D")[0])


def test_a_copy_that_is_not_a_notebook_gets_the_new_name_too(renamed, run):
    (renamed.work / "10_first.ipynb").write_text("<<<<<<< HEAD")
    lines = run()
    assert lines[0].startswith("10_first.ipynb is now 10_triton.ipynb")
    assert lines[-1].startswith("cannot open 10_triton.ipynb: not a valid notebook")
    assert (renamed.work / "10_triton.ipynb").read_text() == "<<<<<<< HEAD"


def test_where_no_file_can_be_renamed_every_file_stays(renamed, capsys, monkeypatch):
    before = renamed.files()

    def refuse(source, target):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(target))

    monkeypatch.setattr(os, "replace", refuse)
    assert main(["lab", "--update"]) == 2
    assert "10_triton.ipynb: Read-only file system. Your files are unchanged" in capsys.readouterr().err
    assert renamed.files() == before


# ------------------------------------------------------------------ any change of the map
KEYS = (*TEN, *ELEVEN, *TWELVE)
OLD, NEW = ("10_a", "11_b", "12_c"), ("10_c", "12_a", "13_d")  # 11_b may keep its name


@st.composite
def maps(draw, files):
    """Strategy for the lessons of a course: the exercises and predictions of each file."""
    homes = [draw(st.sampled_from([*files, ""])) for _ in KEYS]
    return {file: tuple(k for k, home in zip(KEYS, homes, strict=True) if home == file) for file in files}


@settings(max_examples=30)
@given(data=st.data(), before=maps(OLD), after=maps([OLD[1], *NEW]))
def test_no_text_of_a_student_is_lost(data, before, after):
    """Lessons get new names, merge, split or vanish; copies are renamed, doubled or have no record."""
    homes = {old: data.draw(st.sampled_from([OLD[1], *NEW, "nothing"]), f"name of {old}") for old in OLD}
    if homes[OLD[1]] != OLD[1]:
        del after[OLD[1]]
    former = {new: [old for old in OLD if homes[old] == new != old] for new in after}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder), patch)
        desk.release(before)
        course = find_course()
        list(update.update(course))
        written = list(desk.answer_everything().values())
        for old in OLD:
            for action in data.draw(st.lists(st.sampled_from([doubled, without_record]), unique=True)):
                action(desk.work, old)
            if data.draw(st.booleans()):
                shutil.copy(
                    desk.work / f"{old}.ipynb", desk.work / f"{data.draw(st.sampled_from(NEW))}.ipynb"
                )
        if data.draw(st.booleans()):
            rename_by_hand(desk.work, data.draw(st.sampled_from(OLD)))
        for number, path in enumerate(sorted(desk.work.glob("*.ipynb"))):
            text = path.read_text().replace("mine_", f"mine_{number}_")
            path.write_text(text)
        written = [text for text in desk.texts() if "mine" in text or "my note" in text]
        desk.release(after, former)
        for name in data.draw(st.lists(st.sampled_from(sorted(after)), max_size=2)):
            list(update.update(course, name))
            assert set(written) <= set(desk.texts())
        list(update.update(course))
        assert set(written) <= set(desk.texts())
        files = desk.files()
        list(update.update(course))
        assert desk.files() == files
