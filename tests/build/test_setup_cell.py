"""Tests of the cell that finds iocourse: places, their order, and the message if it is in none of them."""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from iocourse.course.grade.submission_process import execute
from iocourse.course.run_context import SOLVED_MARK
from tools.build.project import Project
from tools.build.setup_cell import first_cell, with_first_cell, without_first_cell

ROOT = Path(__file__).parents[2]
NOTEBOOKS = [path for folder in ("lessons", "solutions") for path in sorted((ROOT / folder).glob("*.ipynb"))]
NOBODYS = Project("owner/course", "v0.2.0")
CLAIMED = Project("owner/course", "v0.2.0", claimed=True)
BY_NAME, BY_ADDRESS = "iocourse~=0.2.0", "iocourse @ git+https://github.com/owner/course@v0.2.0"
SENTENCE = "iocourse is missing: "
NOT_CLAIMED = (
    "iocourse is missing: it is not installed, it is not on the package index yet, "
    "and no wheel of it was found. "
    "Put its wheel (iocourse-0.2.0-py3-none-any.whl) next to this notebook or into MyDrive/iocourse "
)
WHEEL = "./iocourse-0.2.0-py3-none-any.whl"
LATER = "iocourse is missing: run the first cell, which prints what to do.\n"


def text_of(project):
    return "".join(first_cell(project)["source"])


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Simulate a machine without iocourse, in a temporary folder.

    A source among `holds` can be installed; for others pip prints `said`. `hidden_by` is a folder named
    iocourse, which has no origin.
    """
    here = SimpleNamespace(holds=(), asked=[], origin=None, handlers=[], folder=tmp_path)
    here.hidden_by, here.said = None, ""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drive" / "iocourse").mkdir(parents=True)

    def install(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        here.asked.append(command[-1])
        here.origin = "site-packages" if Path(command[-1]).name in here.holds else here.origin
        return SimpleNamespace(stderr=here.said)

    def found(name):
        assert name == "iocourse"
        if here.origin is None and here.hidden_by is None:
            return None
        places = [str(here.hidden_by)] if here.origin is None else ["site-packages"]
        return SimpleNamespace(origin=here.origin, submodule_search_locations=places)

    monkeypatch.setattr(subprocess, "run", install)
    monkeypatch.setattr(importlib.util, "find_spec", found)

    def run(project=NOBODYS):
        shell = SimpleNamespace(set_custom_exc=lambda *handler: here.handlers.append(handler))
        source = text_of(project).replace("/content/drive/MyDrive", (tmp_path / "drive").as_posix())
        # A separate thread, because the browser tests leave an event loop running in this one.
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
    machine.run(CLAIMED)
    assert [Path(one).name[:14] for one in machine.asked] == [
        "iocourse-0.2.1", "iocourse-0.2.2", "iocourse-0.2.0", BY_NAME[:14]]  # fmt: skip
    assert capsys.readouterr().out == ""


def test_a_wheel_that_can_be_installed_ends_the_search(machine):
    put(machine.folder, "iocourse-0.2.0-py3-none-any.whl")
    machine.holds = ("iocourse-0.2.0-py3-none-any.whl",)
    machine.run(CLAIMED)
    assert [Path(one).name for one in machine.asked] == ["iocourse-0.2.0-py3-none-any.whl"]


@pytest.mark.parametrize(("project", "places"), [(NOBODYS, []), (CLAIMED, [BY_NAME, BY_ADDRESS])])
def test_index_and_repository_are_asked_last_and_only_where_they_are_claimed(
    machine, capsys, project, places
):
    machine.run(project)
    assert machine.asked == places
    said = capsys.readouterr().out
    assert said.startswith(SENTENCE) and said.count("\n") == 1 and len(machine.handlers) == 1
    assert said.startswith(NOT_CLAIMED) != project.claimed
    assert "`python -m build`" in said and "`iocourse lab`" in said
    assert ("onnect to the network" in said) == project.claimed
    assert ("the repository" in text_of(project)) == project.claimed == ("git+" in text_of(project))
    assert ("the package index; " in text_of(project)) == project.claimed


NO_PIP = "/usr/bin/python: No module named pip"
BROKEN = "WARNING: Retrying after connection broken by 'NewConnectionError'"
ABSENT = "ERROR: No matching distribution found for iocourse~=0.2.0"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            NO_PIP,
            f"this Python has no pip ({NO_PIP}). Run `{sys.executable} -m ensurepip` and this cell again, ",
        ),
        (f"{BROKEN}\n{ABSENT}\n", f"no network ({ABSENT}). "),
        ("fatal: Could not resolve host: github.com\nerror: git failed", "no network (error: git failed). "),
        (f"ERROR: from versions: 0.1.0\n{ABSENT}\n", f"no such version ({ABSENT}). "),
        (
            "ERROR: it is not a zip file",
            f"cannot install {WHEEL} (ERROR: it is not a zip file). ",
        ),
        ("", f"cannot install {WHEEL} (no message). "),
    ],
)
def test_the_reason_is_the_one_that_pip_gives_and_its_last_line_is_kept(machine, capsys, said, why):
    put(machine.folder, "iocourse-0.2.0-py3-none-any.whl")
    machine.said = said
    machine.run()
    printed = capsys.readouterr().out
    assert printed.startswith(SENTENCE + why) and printed.count("\n") == 1
    if said == NO_PIP:
        assert f"or `uv pip install --python {sys.executable} '{WHEEL}'`. " in printed


def test_of_several_reasons_the_first_is_given(machine, capsys):
    machine.said = NO_PIP
    machine.run(CLAIMED)
    assert machine.asked == [BY_NAME, BY_ADDRESS]
    assert f"or `uv pip install --python {sys.executable} '{BY_NAME}'`. Connect to" in capsys.readouterr().out


@pytest.mark.parametrize("project", [NOBODYS, CLAIMED])
def test_a_folder_of_that_name_is_named_and_nothing_is_installed(machine, capsys, project):
    put(machine.folder, "iocourse-0.2.0-py3-none-any.whl")
    machine.holds = ("iocourse-0.2.0-py3-none-any.whl", BY_NAME)
    machine.hidden_by = machine.folder / "iocourse"
    machine.run(project)
    said = capsys.readouterr().out
    assert machine.asked == [] and len(machine.handlers) == 1 and said.count("\n") == 1
    assert said.startswith(f"{SENTENCE}the folder {machine.hidden_by} has the same name and hides it")
    assert "nothing was installed" in said and "`pip install -e`" in said and "restart the kernel" in said


@pytest.mark.parametrize("project", [NOBODYS, CLAIMED])
@pytest.mark.parametrize("works", [True, False])
def test_jupyterlite_asks_piplite_alone_and_says_the_sentence_where_it_fails(
    machine, monkeypatch, capsys, works, project
):
    """While the name is not claimed, piplite may only install the wheel of the site."""
    piplite = ModuleType("piplite")

    async def install(name):
        machine.asked.append(f"piplite {name}")
        if not works:
            raise ValueError("no such wheel")
        machine.origin = "site-packages"

    piplite.install, piplite.piplite = install, SimpleNamespace(_PIPLITE_DISABLE_PYPI=False)
    monkeypatch.setitem(sys.modules, "piplite", piplite)
    monkeypatch.setattr(sys, "platform", "emscripten")
    machine.run(project)
    assert machine.asked == [f"piplite {BY_NAME}"]
    assert project.claimed != piplite.piplite._PIPLITE_DISABLE_PYPI
    said, why = capsys.readouterr().out, "cannot install its wheel (no such wheel). "
    assert said == "" if works else said.startswith(SENTENCE + why) and said.count("\n") == 1


SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
for cell in json.load(sys.stdin):
    print("=== cell")
    shell.run_cell(cell)
"""


def a_wheel(folder):
    """Write a minimal wheel named iocourse that pip can install."""
    info = "iocourse-0.2.0.dist-info"
    with zipfile.ZipFile(folder / "iocourse-0.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("iocourse/__init__.py", "name = 'from the wheel'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: iocourse\nVersion: 0.2.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_with_ipython_and_pip_offline_one_sentence_then_the_wheel_is_found(tmp_path):
    """Run the cells in IPython with pip and no index: with a folder named iocourse, without, with a wheel."""
    ipython = pytest.importorskip("IPython", reason="IPython is not installed")
    site, target, folder = Path(ipython.__file__).parents[1], tmp_path / "target", tmp_path / "here"
    if (site / "iocourse").exists():
        pytest.skip("iocourse is installed as a copy, and cannot be hidden")
    (folder / "iocourse").mkdir(parents=True)
    a_wheel(tmp_path)
    first = text_of(NOBODYS)
    move = f"import os; os.rename({str(tmp_path)!r} + '/{(w := 'iocourse-0.2.0-py3-none-any.whl')}', '{w}')"
    cells = [first, "import os; os.rmdir('iocourse')"]
    cells += [first, "import iocourse.course", "check('0A')", "1 / 0"]
    cells += [move, first, "import iocourse; print(iocourse.name)", "nothing_of_that_name"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(target)]), "PIP_NO_INDEX": "1"}
    env |= {"PIP_TARGET": str(target), "PIP_CONFIG_FILE": os.devnull, "IPYTHONDIR": str(tmp_path)}
    # -S: packages that were installed for development are not found
    done = subprocess.run([sys.executable, "-S", "-c", SESSION], input=json.dumps(cells), env=env, cwd=folder,
                          capture_output=True, text=True, timeout=280, check=True)  # fmt: skip
    _, hidden, _, missing, imported, checked, own, _, found, used, named = done.stdout.split("=== cell\n")
    assert hidden.startswith(f"{SENTENCE}the folder {folder / 'iocourse'} has the same name and hides it")
    assert missing.startswith(NOT_CLAIMED) and hidden.count("\n") == missing.count("\n") == 1
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
    source = "".join(first["source"])
    assert "git+" not in source and "[*_wheels()]:" in source  # address and name are not claimed
    marked = first["source"][-1].startswith(f"{SOLVED_MARK} = True")
    assert marked == (path.parent.name == "solutions") == any(SOLVED_MARK in line for line in first["source"])
