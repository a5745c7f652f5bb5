"""Build the first code cell of each notebook, which finds iocourse or installs it.

It has at most eight lines of at most 100 columns, because it is the first code that a reader sees; GitHub and
VS Code do not fold it. It is not part of the lesson's code, so solved notebooks are run without it, and a new
version of the course does not make saved outputs stale. In a solved notebook its last line is the mark by
which `course.run_context` recognises a copy of it.
"""

from __future__ import annotations

from typing import Any

from iocourse.course.run_context import SOLVED_MARK
from iocourse.doctor.install_command import PIP_IN_A_CELL, Environment, command
from tools.build.project import Project

Json = dict[str, Any]
ID = "install"
METADATA: Json = {
    "cellView": "form",
    "jupyter": {"source_hidden": True},
    "tags": ["install", "remove-cell"],  # the second is MyST-NB's
}
# While the name is not claimed, another package could be published under it. So iocourse itself is installed
# from a file only, and pip gets no name that it could look up. Errors are not of class ImportError, because
# Colab adds to these the advice to install the missing name with pip.
UNCLAIMED = """\
# @title Find iocourse, or install its wheel from here or Drive (docs/guide/install.md)
import glob as _glob, importlib.util as _util
_whls = [w for f in ("", "drive/*/", "drive/*/iocourse/") for w in _glob.glob(f + "iocourse-*.whl")]
if not getattr(_util.find_spec("iocourse"), "origin", None):  # a folder of this name has no origin
    assert _whls, "no iocourse here: choose another kernel, or put its wheel next to this notebook"
    assert _util.find_spec("pip"), "no pip here: run `{get_pip}` and restart the kernel"
    {install}
"""
# JupyterLite replaces the line %pip by a call of piplite before the cell runs, so the line has no variable.
CLAIMED = """\
# @title Find iocourse, or install it
import importlib.util as _util
if not getattr(_util.find_spec("iocourse"), "origin", None):  # a folder of this name has no origin
    {install}
    assert getattr(_util.find_spec("iocourse"), "origin", None), (
        "no iocourse here: see above; without pip, run `{get_pip}` and restart")
"""
MARKED = f"{SOLVED_MARK} = True  # a failing check raises an error, and no progress is recorded"


def first_cell(project: Project, *, solved: bool = False) -> Json:
    """Return the cell as nbformat 4 JSON; it installs from the package index only if the name is claimed."""
    what = project.requirement if project.claimed else "WHEEL[course]"
    text = (CLAIMED if project.claimed else UNCLAIMED).format(
        install=command(what, at=Environment(cell=True))
        .replace("install", "install -q", 1)
        .replace("WHEEL", "{max(_whls)}"),  # IPython inserts the value
        get_pip=PIP_IN_A_CELL,
    )
    text += MARKED if solved else ""
    made: Json = {"cell_type": "code", "execution_count": None, "id": ID, "metadata": METADATA, "outputs": []}
    return made | {"source": text.rstrip("\n").splitlines(keepends=True)}


def with_first_cell(notebook: Json, project: Project, *, solved: bool = False) -> Json:
    """Return `notebook` with the cell inserted before its first code cell."""
    cells = notebook["cells"]
    at = next((n for n, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    return notebook | {"cells": [*cells[:at], first_cell(project, solved=solved), *cells[at:]]}


def without_first_cell(notebook: Json) -> Json:
    """Return a notebook, read from disk, without the cell."""
    return notebook | {"cells": [cell for cell in notebook["cells"] if cell.get("id") != ID]}
