"""Source of one lesson for its tests: cells, text of a section, reference solutions and defined names."""

import contextlib
import io
import json
import linecache
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from iocourse.course.course_map import lesson_named
from iocourse.course.exercise import find
from tools.build.percent_format import Cell, parse, side

ROOT = Path(__file__).parents[2]


class Lesson:
    """Source of one lesson, found by its number, the beginning of its name, or a former name.

    Attributes:
        source: content of the file.
        cells: cells of the lesson.
        text: lines of its Markdown.
    """

    def __init__(self, name: str) -> None:
        file = lesson.file if (lesson := lesson_named(name)) else name  # a renamed lesson is found
        (path,) = (ROOT / "solutions").glob(f"{file}*.py")
        self.name = path.stem
        self.source = path.read_text(encoding="utf-8")
        self.cells = parse(self.source, path)
        self.text = "\n".join("\n".join(cell.lines) for cell in self.cells if cell.kind == "markdown")

    def section(self, number: str) -> str:
        r"""Return the text of a numbered section, with plain commas for ``{,}`` and for ``\,``."""
        text = self.text.split(f"## {number} ")[1].split("\n## ")[0]
        return text.replace("{,}", ",").replace("\\,", ",")

    def says(self, number: str, *formulas: str) -> None:
        """Assert that the section contains these formulas or words."""
        missing = [formula for formula in formulas if formula not in self.section(number)]
        assert not missing, missing

    def table(self, number: str, *columns: int) -> list[list[str]]:
        """Return these columns of the rows of all tables of a section, without dollar signs."""
        section = self.text.split(f"## {number} ")[1].split("\n## ")[0]
        lines = (line for line in section.splitlines() if line.startswith("| "))
        rows = [re.split(r" ?\| ?", line)[1:-1] for line in lines]
        return [[row[column].strip("$ ") for column in columns] for row in rows if "---" not in row]

    def solved_cells(self) -> Iterator[tuple[Cell, str]]:
        """All code cells, with their source in the solved notebook."""
        yield from ((cell, "\n".join(side(cell, solved=True))) for cell in self.cells if cell.kind == "code")

    def code(self, line: str) -> str:
        """Return the first code cell with a line that contains `line`, as in the solved notebook."""
        return next(text for cell, text in self.solved_cells() if any(line in one for one in cell.lines))

    def above(self, line: str) -> str:
        """Return the code of the cells before the first one that contains `line`."""
        code = ["\n".join(cell.lines) for cell in self.cells if cell.kind == "code"]
        return "\n".join(code[: next(n for n, text in enumerate(code) if line in text)])

    def solved(self, exercise_id: str, **imported: Any) -> Callable[..., Any]:
        """Return the reference solution of an exercise that needs only NumPy and the names in `imported`."""
        names: dict[str, Any] = {"np": np, **imported}
        exec(next(text for cell, text in self.solved_cells() if cell.name == f"ex-{exercise_id}"), names)
        return names[find(exercise_id).function]

    def define(self, names: tuple[str, ...], space: dict[str, Any]) -> list[Any]:
        """Run the cells that define these names, in order, and return the namespace `space`."""
        for n, (_, source) in enumerate(self.solved_cells()):
            if any(f"def {name}(" in source for name in names):
                execute(source, f"<lesson cell {n} of {id(space)}>", space)
        return [space[name] for name in names]

    def run(self) -> dict[str, Any]:
        """Run all cells and return the namespace; its entry "printed" is the output of each section."""
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
        """Return the source of each cell of the students' notebook."""
        notebook = json.loads((ROOT / "lessons" / f"{self.name}.ipynb").read_text(encoding="utf-8"))
        return ["".join(cell["source"]) for cell in notebook["cells"]]


def execute(source: str, file: str, space: dict[str, Any]) -> None:
    """Run source so that Triton finds the lines of a kernel in it."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)
