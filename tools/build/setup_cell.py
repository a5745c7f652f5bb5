"""Build the first code cell of each notebook, which finds iocourse or installs it.

The cell contains its complete code, because nothing can be imported before it has run. It is folded: Colab
shows only its title, JupyterLab three dots, and a site omits it. It is not part of the lesson's code, so
solved notebooks are run without it, and a new version of the course does not make saved outputs stale. In a
solved notebook its last line is the mark by which `course.run_context` recognises a copy of it.
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
# Texts that depend on whether the repository's address and the name on the package index are claimed. Until
# then another package could be published under this name, so nothing is installed from the index.
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
    "site_only": "        piplite.piplite._PIPLITE_DISABLE_PYPI = True  # the name is not claimed on PyPI\n",
}
TEXT = """\
# @title Find iocourse, or install it
# In this order: installed packages; a wheel next to this notebook or on a mounted Drive{others}.
import glob, importlib.util, os, subprocess, sys


def _iocourse_is_here():
    importlib.invalidate_caches()
    found = importlib.util.find_spec("iocourse")
    if found is None or found.origin is None:  # a folder of this name that is not a package has no origin
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
    last = (said.strip().splitlines() or ["no message"])[-1]
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
        print("iocourse is missing: run the first cell, which prints what to do.")


_why = ""
_what_to_do = (
    "{network} its wheel (iocourse-{version}-py3-none-any.whl) "
    "next to this notebook or into MyDrive/iocourse and run this cell again. "
    "`python -m build` makes the wheel in a clone; `iocourse lab` in a clone does not need it."
)
if _folder_of_that_name():
    _why = f"the folder {{_folder_of_that_name()}} has the same name and hides it, so nothing was installed."
    _what_to_do = "For a clone, run `pip install -e` on it; otherwise rename it. Then restart the kernel."
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
    f"\n{SOLVED_MARK} = True  # a solved notebook: a failing check raises an error, "
    "and no progress is recorded"
)


def first_cell(project: Project, *, solved: bool = False) -> Json:
    """Return the cell as nbformat 4 JSON; it installs only from the sources that `project` allows."""
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
    """Return `notebook` with the cell inserted before its first code cell."""
    cells = notebook["cells"]
    at = next((n for n, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    return notebook | {"cells": [*cells[:at], first_cell(project, solved=solved), *cells[at:]]}


def without_first_cell(notebook: Json) -> Json:
    """Return a notebook, read from disk, without the cell."""
    return notebook | {"cells": [cell for cell in notebook["cells"] if cell.get("id") != ID]}
