"""Tests that students keep their work when lessons get new file names and exercises move to other lessons.

A small course has a text before and a text after each change. A student answers every exercise and prediction
of the first and adds cells; then the course changes and the copies are updated.
"""

import json
import re
import shutil

import pytest

from iocourse.cli import main
from iocourse.course import course_map
from iocourse.course.exercise import find
from iocourse.course.student_copies.copies import KEPT
from iocourse.course.student_copies.notebook import text_of

EXERCISES = ("10A", "10B", "11A", "12A", "12D")
FUNCTIONS = {key: find(key).function for key in EXERCISES}  # now, because `started` replaces Popen
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
    stub = f"def {FUNCTIONS[key]}(x):\n    {text}"
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
            rows += [f'[[part.lesson]]\nfile = "{file}"\nformer = {names}\nexercises = {ids}\nyou_will = "x"']
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
    assert all(line.startswith(("copied: ", "Notebooks that are open")) or ".ipynb" in line for line in lines)
    before = desk.files()
    run("--update")
    assert desk.files() == before
