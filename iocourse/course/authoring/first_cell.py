"""The first code cell of each notebook: it finds iocourse, or installs it where it is missing.

It stands in the notebook as text, since nothing can be imported before it has run, and it is folded: Colab
shows its title alone, JupyterLab three dots, and a site leaves it out. It is no part of a lesson's code. So
solved notebooks are run without it, and a new version of the course makes no saved output stale.
In a solved notebook it ends with the mark by which `course.solved` knows one, wherever it is copied to.
"""

from __future__ import annotations

from typing import Any

from iocourse.course.checkout import Project
from iocourse.course.solved import MARK

Json = dict[str, Any]
ID = "install"
METADATA: Json = {
    "cellView": "form",
    "jupyter": {"source_hidden": True},
    "tags": ["install", "remove-cell"],  # the second is MyST-NB's
}
TEXT = """\
# @title Finds iocourse, and installs it where it is missing
# In this order: installed; a wheel beside this notebook or on a mounted Drive; the package index{last}.
import glob, importlib.util, os, subprocess, sys


def _iocourse_is_here():
    importlib.invalidate_caches()
    found = importlib.util.find_spec("iocourse")
    if found is None or found.origin is None:  # a mere folder of that name has no origin
        sys.modules.pop("iocourse", None)
        return False
    return True


def _wheels(drive="/content/drive/MyDrive"):
    folders = (".", drive, f"{{drive}}/iocourse")
    found = [wheel for one in folders for wheel in glob.glob(f"{{one}}/iocourse-*.whl")]
    return sorted(found, key=os.path.getmtime, reverse=True)  # the newest first


def _say_it_is_missing(shell, *error, tb_offset=None):
    if _iocourse_is_here():
        shell.showtraceback(error)
    else:
        print("iocourse is missing: the first cell says what to do.")


if not _iocourse_is_here() and sys.platform == "emscripten":  # JupyterLite has the wheel in its site
    try:
        await __import__("piplite").install("{name}")
    except Exception:
        pass
elif not _iocourse_is_here():
    for _place in (*_wheels(), {places}):
        _pip = [sys.executable, "-m", "pip", "install", "-q", "--retries=1", _place]
        subprocess.run(_pip, capture_output=True)
        if _iocourse_is_here():
            break
if not _iocourse_is_here():
    get_ipython().set_custom_exc((ImportError, NameError), _say_it_is_missing)
    print(
        "iocourse is missing: connect to the network and run this cell again, or first put its wheel "
        "(iocourse-{version}-py3-none-any.whl) beside this notebook or into MyDrive/iocourse."
    )"""


MARKED = f"""
{MARK} = True  # the answers are in here: a check that fails is an error, and nobody's progress changes"""


def first_cell(project: Project, *, solved: bool = False) -> Json:
    """The cell, as nbformat 4 has it; it asks only for what `project` may be installed from."""
    places = ", ".join(f'"{place}"' for place in project.requirements)
    last = "; the repository" if project.claimed else ""
    text = TEXT.format(name=project.requirements[0], places=places, last=last, version=project.version)
    text += MARKED if solved else ""
    made: Json = {"cell_type": "code", "execution_count": None, "id": ID, "metadata": METADATA, "outputs": []}
    return made | {"source": text.splitlines(keepends=True)}


def with_first_cell(notebook: Json, project: Project, *, solved: bool = False) -> Json:
    """`notebook` with the cell before its first code cell."""
    cells = notebook["cells"]
    at = next((n for n, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    return notebook | {"cells": [*cells[:at], first_cell(project, solved=solved), *cells[at:]]}


def without_first_cell(notebook: Json) -> Json:
    """A notebook as it stands on disk, without the cell."""
    return notebook | {"cells": [cell for cell in notebook["cells"] if cell.get("id") != ID]}
