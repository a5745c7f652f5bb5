"""Edits of a solved notebook, a file each in notebook_edits/: the change, the points, the teacher's line."""

import copy
import importlib.util
import json
from pathlib import Path

from iocourse.course.student_copies.notebook import text_of

ROOT = Path(__file__).parents[2]
STEM = "02_two_memories"
MOST = 15  # 4 for 2A, 5 for 2B, 4 for 2C, 2 for 2D
FOLDER = Path(__file__).with_name("notebook_edits")


def discovered():
    """Each edit by name: a module with `POINTS`, `LINE` and `change`."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"edit_{path.stem}", path)
        found[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[path.stem])
    return found


def made(edit):
    """The solved notebook after the change."""
    notebook = solved()
    edit.change(notebook)
    return notebook


def solved():
    """The student's notebook with the answers of the solutions."""
    student, answers = lesson("lessons"), lesson("solutions")["cells"]
    for cell in student["cells"]:
        if "exercise" in cell["metadata"].get("tags", ()):
            cell["source"] = text_of(next(one for one in answers if one["id"] == cell["id"]))
    return student


def lesson(folder):
    return json.loads((ROOT / folder / f"{STEM}.ipynb").read_text(encoding="utf-8"))


def cell(notebook, name):
    """The first cell of this name, such as ex-2A."""
    return next(one for one in notebook["cells"] if one["metadata"].get("name") == name)


def stub(name):
    return text_of(cell(lesson("lessons"), name))


def place(notebook, name):
    """The position of the first cell of this name."""
    return notebook["cells"].index(cell(notebook, name))


def doubled(notebook, name, new_id="copied"):
    """A copy of the cell, below it."""
    again = copy.deepcopy(cell(notebook, name)) | {"id": new_id}
    notebook["cells"].insert(place(notebook, name) + 1, again)
    return again


def code(text, cell_id="own"):
    """A cell of the student's own."""
    shape = {"cell_type": "code", "id": cell_id, "metadata": {}, "outputs": [], "execution_count": None}
    return shape | {"source": text}


def without_ids(notebook, minor):
    """As nbformat 4.0 to 4.4 saves it."""
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
    """The cell as text, as a key press makes it."""
    one["cell_type"] = kind
    one.pop("outputs", None)
    one.pop("execution_count", None)
