"""A lesson as its tests read it: cells, text, reference solutions and the students' notebook."""

import json
from pathlib import Path

import numpy as np

from iocourse.course.authoring.source import parse, side
from iocourse.course.exercise import find

ROOT = Path(__file__).parents[2]


class Lesson:
    """One lesson by the name of its file, such as 06_backward."""

    def __init__(self, name):
        self.name = name
        path = ROOT / "solutions" / f"{name}.py"
        self.cells = parse(path.read_text(encoding="utf-8"), path)
        self.text = "\n".join("\n".join(cell.lines) for cell in self.cells if cell.kind == "markdown")

    def section(self, number):
        """The text from one numbered heading to the next, thousands with plain commas."""
        return self.text.split(f"## {number} ")[1].split("\n## ")[0].replace("{,}", ",").replace("\\,", ",")

    def says(self, number, *formulas):
        """The section shows the formulas or words."""
        missing = [formula for formula in formulas if formula not in self.section(number)]
        assert not missing, missing

    def code(self, line):
        """The one code cell with a line that contains `line`, as the solved notebook has it."""
        cells = [cell for cell in self.cells if any(line in one for one in cell.lines)]
        return "\n".join(side(next(cell for cell in cells if cell.kind == "code"), solved=True))

    def solved(self, exercise_id):
        """The reference of an exercise."""
        names = {"np": np}
        cell = next(cell for cell in self.cells if cell.name == f"ex-{exercise_id}")
        exec("\n".join(side(cell, solved=True)), names)
        return names[find(exercise_id).function]

    def student_sources(self):
        """The sources of the students' notebook, cell by cell."""
        notebook = json.loads((ROOT / "lessons" / f"{self.name}.ipynb").read_text(encoding="utf-8"))
        return ["".join(cell["source"]) for cell in notebook["cells"]]
