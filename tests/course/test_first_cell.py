"""The cell that finds iocourse: where it looks, in which order, and what it says where there is nothing."""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from iocourse.course.authoring.first_cell import first_cell, with_first_cell, without_first_cell
from iocourse.course.checkout import Project
from iocourse.course.solved import MARK
from iocourse.grade.cells import execute

ROOT = Path(__file__).parents[2]
NOTEBOOKS = [path for folder in ("lessons", "solutions") for path in sorted((ROOT / folder).glob("*.ipynb"))]
NOBODYS = Project("owner/course", "v0.2.0")
CLAIMED = Project("owner/course", "v0.2.0", claimed=True)
BY_NAME, BY_ADDRESS = "iocourse~=0.2.0", "iocourse @ git+https://github.com/owner/course@v0.2.0"
SENTENCE = "iocourse is missing: connect to the network and run this cell again, or first put its wheel "
LATER = "iocourse is missing: the first cell says what to do.\n"


def text_of(project):
    return "".join(first_cell(project)["source"])


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without iocourse, in a folder of its own; a place among `holds` can be installed from."""
    here = SimpleNamespace(holds=(), asked=[], origin=None, handlers=[], folder=tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drive" / "iocourse").mkdir(parents=True)

    def install(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        here.asked.append(command[-1])
        here.origin = "site-packages" if Path(command[-1]).name in here.holds else here.origin

    def found(name):
        assert name == "iocourse"
        return SimpleNamespace(origin=here.origin)  # as of a folder of that name, where it is None

    monkeypatch.setattr(subprocess, "run", install)
    monkeypatch.setattr(importlib.util, "find_spec", found)

    def run(project=NOBODYS):
        shell = SimpleNamespace(set_custom_exc=lambda *handler: here.handlers.append(handler))
        source = text_of(project).replace("/content/drive/MyDrive", (tmp_path / "drive").as_posix())
        # A thread of its own: the browser tests leave an event loop running in this one.
        with ThreadPoolExecutor(1) as apart:
            apart.submit(execute, source, "<first cell>", {"get_ipython": lambda: shell}).result()

    here.run = run
    return here


def put(folder, name, age=0):
    (folder / name).write_text("a wheel")
    os.utime(folder / name, (1e9 - age, 1e9 - age))


def test_where_it_is_installed_nothing_is_asked_for_and_nothing_said(machine, capsys):
    machine.origin = "site-packages"
    machine.run(CLAIMED)
    assert (machine.asked, machine.handlers, capsys.readouterr().out) == ([], [], "")


def test_wheels_come_before_the_index_the_newest_first(machine, capsys):
    put(machine.folder, "iocourse-0.2.0-py3-none-any.whl", age=30)
    put(machine.folder / "drive", "iocourse-0.2.1-py3-none-any.whl", age=10)
    put(machine.folder / "drive" / "iocourse", "iocourse-0.2.2-py3-none-any.whl", age=20)
    put(machine.folder, "other-0.2.0-py3-none-any.whl")
    machine.holds = (BY_NAME,)
    machine.run()
    assert [Path(one).name[:14] for one in machine.asked] == [
        "iocourse-0.2.1", "iocourse-0.2.2", "iocourse-0.2.0", BY_NAME[:14]]  # fmt: skip
    assert capsys.readouterr().out == ""


def test_a_wheel_that_can_be_installed_ends_the_search(machine):
    put(machine.folder, "iocourse-0.2.0-py3-none-any.whl")
    machine.holds = ("iocourse-0.2.0-py3-none-any.whl",)
    machine.run(CLAIMED)
    assert [Path(one).name for one in machine.asked] == ["iocourse-0.2.0-py3-none-any.whl"]


@pytest.mark.parametrize(("project", "places"), [(NOBODYS, [BY_NAME]), (CLAIMED, [BY_NAME, BY_ADDRESS])])
def test_the_repository_is_asked_last_and_only_where_its_address_is_claimed(machine, capsys, project, places):
    machine.run(project)
    assert machine.asked == places
    assert capsys.readouterr().out.startswith(SENTENCE) and len(machine.handlers) == 1
    assert ("the repository" in text_of(project)) == project.claimed == ("git+" in text_of(project))


@pytest.mark.parametrize("works", [True, False])
def test_jupyterlite_asks_piplite_alone_and_says_the_sentence_where_it_fails(
    machine, monkeypatch, capsys, works
):
    piplite = ModuleType("piplite")

    async def install(name):
        machine.asked.append(f"piplite {name}")
        if not works:
            raise ValueError("no such wheel")
        machine.origin = "site-packages"

    piplite.install = install
    monkeypatch.setitem(sys.modules, "piplite", piplite)
    monkeypatch.setattr(sys, "platform", "emscripten")
    machine.run(CLAIMED)
    assert machine.asked == [f"piplite {BY_NAME}"]
    said = capsys.readouterr().out
    assert said == "" if works else said.startswith(SENTENCE) and said.count("\n") == 1


SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
for cell in json.load(sys.stdin):
    print("=== cell")
    shell.run_cell(cell)
"""


def a_wheel(folder):
    """A wheel named iocourse with nothing in it, as pip takes it."""
    info = "iocourse-0.2.0.dist-info"
    with zipfile.ZipFile(folder / "iocourse-0.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("iocourse/__init__.py", "name = 'from the wheel'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: iocourse\nVersion: 0.2.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_with_ipython_and_pip_offline_one_sentence_then_the_wheel_is_found(tmp_path):
    """Nothing here stands for anything: IPython runs the cells, pip is asked, and there is no index."""
    pytest.importorskip("IPython", reason="IPython is not installed")
    site, target, folder = Path(sysconfig.get_path("purelib")), tmp_path / "target", tmp_path / "here"
    if (site / "iocourse").exists():
        pytest.skip("iocourse is installed as a copy, and cannot be hidden")
    (folder / "iocourse").mkdir(parents=True)  # a mere folder of that name
    a_wheel(tmp_path)
    first = text_of(NOBODYS)
    move = f"import os; os.rename({str(tmp_path)!r} + '/{(w := 'iocourse-0.2.0-py3-none-any.whl')}', '{w}')"
    cells = [first, "import iocourse.course", "check('0A')", "1 / 0"]
    cells += [move, first, "import iocourse; print(iocourse.name)", "nothing_of_that_name"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(target)]), "PIP_NO_INDEX": "1"}
    env |= {"PIP_TARGET": str(target), "PIP_CONFIG_FILE": os.devnull, "IPYTHONDIR": str(tmp_path)}
    # -S: what was installed for development is not found
    done = subprocess.run([sys.executable, "-S", "-c", SESSION], input=json.dumps(cells), env=env, cwd=folder,
                          capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    _, missing, imported, checked, own, _, found, used, named = done.stdout.split("=== cell\n")
    assert missing.startswith(SENTENCE) and missing.count("\n") == 1
    assert imported == checked == LATER
    assert "ZeroDivisionError" in own  # the student's own errors are shown
    assert (found, used) == ("", "from the wheel\n")
    assert "nothing_of_that_name" in named and LATER not in named


def test_the_cell_comes_and_goes_and_touches_nothing_else():
    notebook = {
        "cells": [{"cell_type": "markdown", "id": "a"}, {"cell_type": "code", "id": "b"}],
        "nbformat": 4,
    }
    for solved in (False, True):
        put_in = with_first_cell(notebook, NOBODYS, solved=solved)
        assert [cell["id"] for cell in put_in["cells"]] == ["a", "install", "b"]
        assert without_first_cell(put_in) == notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_notebook_has_it_folded_and_before_all_other_code(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    assert first["id"] == "install" and first["outputs"] == []
    assert first["metadata"]["jupyter"] == {"source_hidden": True}
    assert (first["metadata"]["cellView"], first["source"][0][:9]) == ("form", "# @title ")
    assert "git+" not in "".join(first["source"])  # nobody has claimed the address
    marked = first["source"][-1].startswith(f"{MARK} = True")
    assert marked == (path.parent.name == "solutions") == any(MARK in line for line in first["source"])
