"""Tests of the cell that finds iocourse, in a real IPython with real wheels and without network."""

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from iocourse.course.grade.submission_process import execute, notebook_names
from iocourse.course.run_context import SOLVED_MARK
from iocourse.doctor.install_command import PIP_IN_A_CELL
from tools.build.project import Project
from tools.build.setup_cell import first_cell, with_first_cell, without_first_cell

ROOT = Path(__file__).parents[2]
NOTEBOOKS = [path for folder in ("lessons", "solutions") for path in sorted((ROOT / folder).glob("*.ipynb"))]
UNCLAIMED = Project("owner/course", "v0.2.0")
CLAIMED = Project("owner/course", "v0.2.0", claimed=True)
LINES, COLUMNS = 8, 100
MISSING = "no iocourse here: choose another kernel, or put its wheel next to this notebook"
NO_PIP = f"no pip here: run `{PIP_IN_A_CELL}` and restart the kernel"
FAILED = f"no iocourse here: see above; without pip, run `{PIP_IN_A_CELL}` and restart"
RESTART = "Note: you may need to restart the kernel to use updated packages.\n"  # printed by %pip
SHOW = "import iocourse, iocourse_part; print(iocourse.name)"  # the second is of the extra
SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
for cell in json.load(sys.stdin):
    print("=== cell")
    shell.run_cell(cell)
"""


def text_of(project, *, solved=False):
    return "".join(first_cell(project, solved=solved)["source"])


def write_wheel(folder, version="0.2.0", package="iocourse", *, needs="", works=True):
    """Write a wheel whose package prints where it is from; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{package}-{version}-py3-none-any.whl", f"{package}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{needs}"
    if not works:
        path.write_text("this is not a zip file")
        return path
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{package}/__init__.py", f"name = '{version} of {folder.name}'\n")
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


EXTRA = "Provides-Extra: course\nRequires-Dist: iocourse_part; extra == 'course'\n"


class Machine:
    """A machine without network and without iocourse: a folder with a notebook, and IPython.

    pip installs into a folder on the path. `index` simulates the package index.
    """

    def __init__(self, tmp_path, python, path, *, into=True):
        self.here, self.index, self.target = tmp_path / "here", tmp_path / "index", tmp_path / "target"
        for folder in (self.here, self.index, self.target):
            folder.mkdir()
        self.command = [str(python), "-S", "-c", SESSION] if into else [str(python), "-c", SESSION]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))}
        env |= {"PYTHONPATH": os.pathsep.join([str(path), str(self.target)]), "IPYTHONDIR": str(tmp_path)}
        env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), "PIP_CONFIG_FILE": os.devnull}
        env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COLOR": "1"}
        self.env = env | ({"PIP_TARGET": str(self.target)} if into else {})

    def run(self, *cells):
        """Run the cells in a new IPython; return what each printed."""
        done = subprocess.run(self.command, input=json.dumps(cells), env=self.env, cwd=self.here,
                              capture_output=True, text=True, timeout=280, check=True)  # fmt: skip
        return done.stdout.split("=== cell\n")[1:]


@pytest.fixture
def machine(tmp_path):
    """A machine with pip, whose index has the package of the extra and no iocourse."""
    ipython = pytest.importorskip("IPython", reason="IPython is not installed")
    site = Path(ipython.__file__).parents[1]
    if (site / "iocourse").exists():
        pytest.skip("iocourse is installed as a copy, and cannot be hidden")
    one = Machine(tmp_path, sys.executable, site)  # -S: packages installed for development are not found
    write_wheel(one.index, package="iocourse_part")
    return one


def last_line(said):
    return said.strip().splitlines()[-1]


@pytest.mark.parametrize("project", [UNCLAIMED, CLAIMED])
def test_where_it_is_installed_nothing_happens_and_no_name_is_left(machine, project):
    write_wheel(machine.here, "0.2.9", needs=EXTRA)
    (machine.target / "iocourse").mkdir()
    (machine.target / "iocourse" / "__init__.py").write_text("name = 'installed'\n")
    names = "print(sorted(n for n in globals() if not n.startswith('_') and n not in before))"
    _, said, left, used = machine.run(
        "before = {*globals(), 'before'}", text_of(project), names, "import iocourse; print(iocourse.name)"
    )
    assert (said, left, used) == ("", "[]\n", "installed\n")


def test_without_a_wheel_the_unclaimed_cell_stops_with_one_line_and_asks_no_index(machine):
    write_wheel(machine.index, "9.9", needs=EXTRA)  # another package of this name
    said, after = machine.run(text_of(UNCLAIMED), "import iocourse")
    assert last_line(said) == f"AssertionError: {MISSING}"
    assert "ImportError" not in said and "pip install" not in said.replace(text_of(UNCLAIMED), "")
    assert last_line(after) == "ModuleNotFoundError: No module named 'iocourse'"
    assert not [*machine.target.iterdir()]


@pytest.mark.parametrize(
    ("wheels", "chosen"),
    [
        ({"": "0.2.0"}, "0.2.0 of here"),
        ({"drive/MyDrive": "0.2.0"}, "0.2.0 of MyDrive"),
        ({"drive/MyDrive/iocourse": "0.2.0"}, "0.2.0 of iocourse"),
        ({"": "0.2.0", "drive/MyDrive": "0.2.2", "drive/MyDrive/iocourse": "0.2.1"}, "0.2.0 of here"),
        ({"drive/MyDrive": "0.2.2", "drive/MyDrive/iocourse": "0.2.1"}, "0.2.1 of iocourse"),
    ],
)
def test_a_wheel_is_installed_with_the_extra_the_nearest_first(machine, wheels, chosen):
    write_wheel(machine.index, "9.9", needs=EXTRA)  # another package of this name, with a higher version
    for folder, version in wheels.items():
        write_wheel(machine.here / folder, version, needs=EXTRA)
    said, used, again = machine.run(text_of(UNCLAIMED), SHOW, text_of(UNCLAIMED))
    assert (said, used, again) == (RESTART, f"{chosen}\n", "")


def test_of_two_wheels_in_a_folder_the_higher_name_is_taken(machine):
    for version in ("0.2.1", "0.2.0", "0.1.9"):
        write_wheel(machine.here, version, needs=EXTRA)
    assert machine.run(text_of(UNCLAIMED), SHOW)[1] == "0.2.1 of here\n"


def test_a_folder_of_that_name_does_not_count_and_does_not_hide_the_wheel(machine):
    (machine.here / "iocourse" / "docs").mkdir(parents=True)
    wheel = write_wheel(machine.index, needs=EXTRA)
    put = f"import os; os.rename({str(wheel)!r}, {wheel.name!r})"
    missing, _, said, used = machine.run(text_of(UNCLAIMED), put, text_of(UNCLAIMED), SHOW)
    assert last_line(missing) == f"AssertionError: {MISSING}"
    assert "a folder of this name has no origin" in missing  # IPython shows the lines around the error
    assert (said, used) == (RESTART, "0.2.0 of index\n")


@pytest.mark.parametrize(("project", "end"), [(UNCLAIMED, RESTART), (CLAIMED, FAILED + "\n")])
def test_without_network_the_reason_is_pips(machine, project, end):
    """The wheel is here, but not the package that its extra needs."""
    (machine.index / "iocourse_part-0.2.0-py3-none-any.whl").unlink()
    write_wheel(machine.here if project is UNCLAIMED else machine.index, needs=EXTRA)
    said, after = machine.run(text_of(project), "import iocourse")
    assert "ERROR: No matching distribution found for iocourse_part" in said and said.endswith(end)
    assert last_line(after) == "ModuleNotFoundError: No module named 'iocourse'"


def test_of_a_broken_wheel_pip_gives_the_reason(machine):
    wheel = write_wheel(machine.here, works=False)
    said, _ = machine.run(text_of(UNCLAIMED), "import iocourse")
    assert "ERROR:" in said and wheel.name in said and said.endswith(RESTART)


def test_where_the_name_is_claimed_it_is_installed_from_the_index_with_the_extra(machine):
    for version in ("0.2.1", "0.3.0"):  # the second does not belong to notebooks of 0.2.0
        write_wheel(machine.index, version, needs=EXTRA)
    (machine.here / "iocourse").mkdir()
    said, used, again = machine.run(text_of(CLAIMED), SHOW, text_of(CLAIMED))
    assert (said, used, again) == (RESTART, "0.2.1 of index\n", "")


@pytest.mark.parametrize("hidden", [False, True])
def test_where_the_name_is_claimed_and_not_on_the_index_the_cell_stops_with_one_line(machine, hidden):
    if hidden:
        (machine.here / "iocourse").mkdir()
    (said,) = machine.run(text_of(CLAIMED))
    assert "ERROR: No matching distribution found for iocourse" in said
    assert last_line(said) == f"AssertionError: {FAILED}"


@pytest.fixture
def machine_of_uv(tmp_path):
    """A machine in an environment made by uv, which has no pip; IPython is linked into its path."""
    ipython = pytest.importorskip("IPython", reason="IPython is not installed")
    pytest.importorskip("ensurepip", reason="this Python cannot install pip")
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if uv is None:
        pytest.skip("uv is not installed")
    made = tmp_path / "environment"
    command = [uv, "venv", "-q", "--offline", "--no-project", "--python", sys.executable, str(made)]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=100)
    linked = tmp_path / "linked"
    linked.mkdir()
    for entry in Path(ipython.__file__).parents[1].iterdir():
        if not entry.name.startswith(("pip", "iocourse", "__editable__")):
            try:
                (linked / entry.name).symlink_to(entry)
            except OSError:
                pytest.skip("this user may not make symbolic links")
    python = made / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    one = Machine(tmp_path, python, linked, into=False)
    write_wheel(one.index, package="iocourse_part")
    return one


def test_without_pip_the_line_that_the_cell_names_helps(machine_of_uv):
    write_wheel(machine_of_uv.here, needs=EXTRA)
    write_wheel(machine_of_uv.index, "0.2.5", needs=EXTRA)
    before, claimed, _ = machine_of_uv.run(text_of(UNCLAIMED), text_of(CLAIMED), PIP_IN_A_CELL)
    said, used, again = machine_of_uv.run(text_of(UNCLAIMED), SHOW, text_of(UNCLAIMED))
    assert last_line(before) == f"AssertionError: {NO_PIP}"
    assert "No module named pip" in claimed and last_line(claimed) == f"AssertionError: {FAILED}"
    assert (said, used, again) == (RESTART, "0.2.0 of here\n", "")


def test_on_another_jupyterlite_the_unclaimed_cell_stops_and_the_claimed_one_asks_by_name(machine):
    """In JupyterLite the line %pip is replaced as text, so it must be complete in the claimed cell."""
    browser = "import sys; sys.platform = 'emscripten'"
    stub = "import builtins; builtins.piplite = lambda what: print('got', what)"

    def replaced(project):
        lines = text_of(project).splitlines()
        (at,) = (n for n, line in enumerate(lines) if line.strip().startswith("%pip install -q "))
        lines[at] = f"    piplite({lines[at].strip().removeprefix('%pip install -q ')})"
        return "\n".join(lines)

    _, _, unclaimed, claimed = machine.run(browser, stub, replaced(UNCLAIMED), replaced(CLAIMED))
    assert last_line(unclaimed) == f"AssertionError: {MISSING}" and "got " not in unclaimed
    assert claimed.startswith("got iocourse[course]~=0.2.0\n")
    assert last_line(claimed) == f"AssertionError: {FAILED}"


def test_the_grader_runs_it_without_ipython():
    for project in (UNCLAIMED, CLAIMED):
        names = notebook_names()
        execute(text_of(project, solved=True), "<first cell>", names)
        assert names[SOLVED_MARK] is True


def law(source):
    """Return what is wrong with the text of a first cell."""
    lines = source.splitlines()
    found = [f"{len(lines)} lines"] if len(lines) > LINES else []
    found += [f"line {n} has {len(line)} columns" for n, line in enumerate(lines, 1) if len(line) > COLUMNS]
    python = "\n".join(line.replace("%pip", "pass  #") for line in lines) + "\n"
    ast.parse(python)
    # Two modules on one import line (E401) save a line; the cell is not formatted.
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select=E,F,W,B"]
    command += [f"--line-length={COLUMNS}", "--ignore=E401", "--output-format=concise", "-"]
    done = subprocess.run(command, input=python, capture_output=True, text=True, check=False)
    return found + done.stdout.splitlines()


@pytest.mark.parametrize("solved", [False, True])
@pytest.mark.parametrize("project", [UNCLAIMED, CLAIMED])
def test_it_is_short_and_clean(project, solved):
    pytest.importorskip("ruff", reason="ruff is not installed")
    source = text_of(project, solved=solved)
    assert law(source) == []
    assert ("iocourse[course]~=0.2.0" in source) == project.claimed  # no name that pip could look up
    assert source.count("%pip") == 1 and "git+" not in source


def test_the_cell_comes_and_goes_and_touches_nothing_else():
    notebook = {
        "cells": [{"cell_type": "markdown", "id": "a"}, {"cell_type": "code", "id": "b"}],
        "nbformat": 4,
    }
    for solved in (False, True):
        put_in = with_first_cell(notebook, UNCLAIMED, solved=solved)
        assert [cell["id"] for cell in put_in["cells"]] == ["a", "install", "b"]
        assert without_first_cell(put_in) == notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_notebook_has_it_folded_and_before_all_other_code(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    assert first["id"] == "install" and first["outputs"] == []
    assert first["metadata"]["jupyter"] == {"source_hidden": True}
    assert (first["metadata"]["cellView"], first["source"][0][:9]) == ("form", "# @title ")
    # The address and the name are not claimed.
    assert "".join(first["source"]) == text_of(UNCLAIMED, solved=path.parent.name == "solutions")
    assert len(first["source"]) <= LINES
