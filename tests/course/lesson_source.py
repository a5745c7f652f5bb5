"""A lesson as its tests read it: cells, the text of a section, reference solutions, what cells define."""

import contextlib
import io
import json
import linecache
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from iocourse.course.exercise import find
from tools.build.percent_format import Cell, parse, side

ROOT = Path(__file__).parents[2]


class Lesson:
    """The source of one lesson, by its number or by the name of its file.

    Attributes:
        source: as it stands in its file.
        cells: its cells.
        text: the lines of its markdown.
    """

    def __init__(self, name: str) -> None:
        (path,) = (ROOT / "solutions").glob(f"{name}*.py")
        self.name = path.stem
        self.source = path.read_text(encoding="utf-8")
        self.cells = parse(self.source, path)
        self.text = "\n".join("\n".join(cell.lines) for cell in self.cells if cell.kind == "markdown")

    def section(self, number: str) -> str:
        r"""The text from one numbered heading to the next, plain commas for ``{,}`` and for ``\,``."""
        text = self.text.split(f"## {number} ")[1].split("\n## ")[0]
        return text.replace("{,}", ",").replace("\\,", ",")

    def says(self, number: str, *formulas: str) -> None:
        """The section shows the formulas or words."""
        missing = [formula for formula in formulas if formula not in self.section(number)]
        assert not missing, missing

    def solved_cells(self) -> Iterator[tuple[Cell, str]]:
        """Every cell of code, with its text in the solved notebook."""
        yield from ((cell, "\n".join(side(cell, solved=True))) for cell in self.cells if cell.kind == "code")

    def code(self, line: str) -> str:
        """The first code cell with a line that contains `line`, as the solved notebook has it."""
        return next(text for cell, text in self.solved_cells() if any(line in one for one in cell.lines))

    def above(self, line: str) -> str:
        """The code of the cells before the first that has `line`."""
        code = ["\n".join(cell.lines) for cell in self.cells if cell.kind == "code"]
        return "\n".join(code[: next(n for n, text in enumerate(code) if line in text)])

    def solved(self, exercise_id: str, **imported: Any) -> Callable[..., Any]:
        """The reference of an exercise that needs NumPy alone, or also what is `imported`."""
        names: dict[str, Any] = {"np": np, **imported}
        exec(next(text for cell, text in self.solved_cells() if cell.name == f"ex-{exercise_id}"), names)
        return names[find(exercise_id).function]

    def define(self, names: tuple[str, ...], space: dict[str, Any]) -> list[Any]:
        """What the cells that define these names leave behind in `space`, run in order without the others."""
        for n, (_, source) in enumerate(self.solved_cells()):
            if any(f"def {name}(" in source for name in names):
                execute(source, f"<lesson cell {n} of {id(space)}>", space)
        return [space[name] for name in names]

    def run(self) -> dict[str, Any]:
        """The names of the lesson after all its cells have run; under "printed" what each section printed."""
        names, printed, here = {"__name__": "__main__"}, {}, "0"
        for cell in self.cells:
            if cell.kind == "markdown":
                heads = re.findall(r"^## (\d+\.\d+)", "\n".join(cell.lines), re.MULTILINE)
                here = heads[-1] if heads else here
            else:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec("\n".join(side(cell, solved=True)), names)
                printed[here] = printed.get(here, "") + out.getvalue()
        return names | {"printed": printed}

    def student_sources(self) -> list[str]:
        """The sources of the students' notebook, cell by cell."""
        notebook = json.loads((ROOT / "lessons" / f"{self.name}.ipynb").read_text(encoding="utf-8"))
        return ["".join(cell["source"]) for cell in notebook["cells"]]


def execute(source: str, file: str, space: dict[str, Any]) -> None:
    """Run source so that Triton finds the lines of a kernel in it."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)
