"""Edits of a solved notebook, one per file in notebook_edits/: the change, the points, the teacher's line."""

import copy
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from iocourse.course.student_copies.notebook import text_of
from tools.build.notebook_execution import lesson_environment

ROOT = Path(__file__).parents[2]
STEM = "02_two_level_memory"
MOST = 15  # points: 4 for 2A, 5 for 2B, 4 for 2C, 2 for 2D
FOLDER = Path(__file__).with_name("notebook_edits")


def discovered():
    """Return the edits by name: modules with `POINTS`, `LINE` and `change`."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"edit_{path.stem}", path)
        found[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[path.stem])
    return found


def made(edit):
    """Return the solved notebook after the change of this edit."""
    notebook = solved()
    edit.change(notebook)
    return notebook


def solved(stem=STEM):
    """Return the student's notebook with the answers of the solutions."""
    student, answers = lesson("lessons", stem), lesson("solutions", stem)["cells"]
    for cell in student["cells"]:
        if "exercise" in cell["metadata"].get("tags", ()):
            cell["source"] = text_of(next(one for one in answers if one["id"] == cell["id"]))
    return student


def lesson(folder, stem=STEM):
    return json.loads((ROOT / folder / f"{stem}.ipynb").read_text(encoding="utf-8"))


def graded_by_nbgrader(course, submitted, stem=STEM):
    """Run nbgrader's own steps on these notebooks (by student) in a new course folder; return its stderr."""
    source = course / "source" / stem
    source.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "nbgrader_config.py", course)
    for name in (f"{stem}.ipynb", "notation.md"):
        shutil.copy(ROOT / "lessons" / name, source)
    for student, notebook in submitted.items():
        handed_in = course / "submitted" / student / stem / f"{stem}.ipynb"
        handed_in.parent.mkdir(parents=True)
        handed_in.write_text(json.dumps(notebook), encoding="utf-8")
    with lesson_environment(ROOT, strict=False) as env:
        env |= {"JUPYTER_CONFIG_DIR": str(course / "none"), "JUPYTER_DATA_DIR": str(course / "none")}
        # nbgrader calls `alembic`, so the folder of scripts must be on PATH, as in an activated environment.
        env["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), env["PATH"]])
        steps = [sys.executable, str(Path(__file__).with_name("nbgrader_steps.py")), stem]
        done = subprocess.run(steps, cwd=course, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not (Path(env["IOCOURSE_HOME"]) / "progress.json").exists(), "the instructor solved nothing"
    return done.stderr


def cell(notebook, name):
    """Return the first cell of this name, such as ex-2A."""
    return next(one for one in notebook["cells"] if one["metadata"].get("name") == name)


def stub(name):
    return text_of(cell(lesson("lessons"), name))


def place(notebook, name):
    """Return the position of the first cell of this name."""
    return notebook["cells"].index(cell(notebook, name))


def doubled(notebook, name, new_id="copied"):
    """Insert a copy of the cell below it, and return the copy."""
    again = copy.deepcopy(cell(notebook, name)) | {"id": new_id}
    notebook["cells"].insert(place(notebook, name) + 1, again)
    return again


def code(text, cell_id="own"):
    """Return a new code cell, as the student would add it."""
    shape = {"cell_type": "code", "id": cell_id, "metadata": {}, "outputs": [], "execution_count": None}
    return shape | {"source": text}


def without_ids(notebook, minor):
    """Remove the cell ids and set the format to 4.`minor`, as nbformat 4.0 to 4.4 saves a notebook."""
    notebook["nbformat_minor"] = minor
    for one in notebook["cells"]:
        del one["id"]


def renumbered(notebook, pattern="new-{}"):
    for n, one in enumerate(notebook["cells"]):
        one["id"] = pattern.format(n)


def without_metadata(notebook):
    notebook["metadata"] = {}
    for one in notebook["cells"]:
        one["metadata"] = {}


def turned(one, kind):
    """Change the type of a cell to `kind` ("markdown" or "raw"), as JupyterLab's keys m and r do."""
    one["cell_type"] = kind
    one.pop("outputs", None)
    one.pop("execution_count", None)
