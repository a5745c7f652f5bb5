"""The first code cell of each notebook: it finds iocourse, or installs it where it is missing.

It stands in the notebook as text, since nothing can be imported before it has run, and it is folded: Colab
shows its title alone, JupyterLab three dots, and a site leaves it out. It is no part of a lesson's code. So
solved notebooks are run without it, and a new version of the course makes no saved output stale.
In a solved notebook it ends with the mark by which `course.run_context` knows one, wherever it is copied to.
"""

from __future__ import annotations

from typing import Any

from iocourse.course.run_context import SOLVED_MARK
from tools.build.project import Project

Json = dict[str, Any]
ID = "install"
METADATA: Json = {
    "cellView": "form",
    "jupyter": {"source_hidden": True},
    "tags": ["install", "remove-cell"],  # the second is MyST-NB's
}
# What depends on whether the repository's address and the name on the package index are claimed. Until then
# the index would give out whatever somebody else publishes under this name.
CLAIMED = {
    "others": "; the package index; the repository",
    "nothing": "nothing could be installed.",
    "network": "Connect to the network and run this cell again, or put",
    "site_only": "",
}
UNCLAIMED = {
    "others": "",
    "nothing": "it is not installed, it is not on the package index yet, and no wheel of it was found.",
    "network": "Put",
    "site_only": "        piplite.piplite._PIPLITE_DISABLE_PYPI = True  # the name there is not ours yet\n",
}
TEXT = """\
# @title Finds iocourse, and installs it where it is missing
# In this order: installed; a wheel beside this notebook or on a mounted Drive{others}.
import glob, importlib.util, os, subprocess, sys


def _iocourse_is_here():
    importlib.invalidate_caches()
    found = importlib.util.find_spec("iocourse")
    if found is None or found.origin is None:  # a mere folder of that name has no origin
        sys.modules.pop("iocourse", None)
        return False
    return True


def _folder_of_that_name():
    found = importlib.util.find_spec("iocourse")
    return [*found.submodule_search_locations][0] if found and found.origin is None else None


def _wheels(drive="/content/drive/MyDrive"):
    folders = (".", drive, f"{{drive}}/iocourse")
    found = [wheel for one in folders for wheel in glob.glob(f"{{one}}/iocourse-*.whl")]
    return sorted(found, key=os.path.getmtime, reverse=True)  # the newest first


def _reason(place, said):
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    if "No module named pip" in last:
        python = sys.executable
        return (
            f"this Python has no pip ({{last}}). Run `{{python}} -m ensurepip` and this cell again, "
            f"or `uv pip install --python {{python}} '{{place}}'`."
        )
    if any(sign in said for sign in ("connection broken", "resolve host")):
        return f"no network ({{last}})."
    return f"{{'no such version' if 'No matching' in last else f'cannot install {{place}}'}} ({{last}})."


def _say_it_is_missing(shell, *error, tb_offset=None):
    if _iocourse_is_here():
        shell.showtraceback(error)
    else:
        print("iocourse is missing: the first cell says what to do.")


_why = ""
_what_to_do = (
    "{network} its wheel (iocourse-{version}-py3-none-any.whl) "
    "beside this notebook or into MyDrive/iocourse and run this cell again. "
    "`python -m build` makes the wheel in a clone, where `iocourse lab` needs none."
)
if _folder_of_that_name():
    _why = f"the folder {{_folder_of_that_name()}} has its name and hides it, so nothing was installed."
    _what_to_do = "If it is a clone, run `pip install -e` on it; if not, rename it. Then restart the kernel."
elif not _iocourse_is_here() and sys.platform == "emscripten":  # JupyterLite has the wheel in its site
    try:
        import piplite
{site_only}        await piplite.install("{name}")
    except Exception as _error:
        _why = _reason("its wheel", str(_error))
elif not _iocourse_is_here():
    for _place in [*_wheels(){places}]:
        _pip = [sys.executable, "-m", "pip", "install", "-q", "--retries=1"]
        _done = subprocess.run([*_pip, "--disable-pip-version-check", _place], capture_output=True, text=True)
        if _iocourse_is_here():
            break
        _why = _why or _reason(_place, _done.stderr)
if not _iocourse_is_here():
    get_ipython().set_custom_exc((ImportError, NameError), _say_it_is_missing)
    print(f"iocourse is missing: {{_why or '{nothing}'}} {{_what_to_do}}")"""


MARKED = (
    f"\n{SOLVED_MARK} = True  # the answers are in here: a check that fails is an error, "
    "and nobody's progress changes"
)


def first_cell(project: Project, *, solved: bool = False) -> Json:
    """The cell, as nbformat 4 has it; it asks only for what `project` may be installed from."""
    text = TEXT.format(
        name=f"iocourse~={project.version}",
        places="".join(f', "{place}"' for place in project.requirements),
        version=project.version,
        **(CLAIMED if project.claimed else UNCLAIMED),
    )
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
