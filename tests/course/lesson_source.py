"""A lesson's source as the lesson's tests read it: cells, the text of a section, and what cells define."""

import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iocourse.course.authoring.source import Cell, parse, side

ROOT = Path(__file__).parents[2]


class LessonSource:
    """The source of one lesson.

    Attributes:
        code: the source as it stands in its file.
        cells: its cells.
        text: the lines of its markdown.
    """

    def __init__(self, number: str) -> None:
        (path,) = (ROOT / "solutions").glob(f"{number}_*.py")
        self.code = path.read_text(encoding="utf-8")
        self.cells = parse(self.code, path)
        self.text = "\n".join("\n".join(cell.lines) for cell in self.cells if cell.kind == "markdown")

    def section(self, number: str) -> str:
        r"""The text from one numbered heading to the next, plain commas for ``{,}`` and for ``\,``."""
        text = self.text.split(f"## {number} ")[1].split("\n## ")[0]
        return text.replace("{,}", ",").replace("\\,", ",")

    def says(self, number: str, *formulas: str) -> None:
        """Fails where a section does not show these formulas."""
        missing = [formula for formula in formulas if formula not in self.section(number)]
        assert not missing, missing

    def solved(self) -> Iterator[tuple[Cell, str]]:
        """Every cell of code, with its text in the solved notebook."""
        yield from ((cell, "\n".join(side(cell, solved=True))) for cell in self.cells if cell.kind == "code")

    def above(self, line: str) -> str:
        """The code of the cells before the first that has `line`."""
        code = ["\n".join(cell.lines) for cell in self.cells if cell.kind == "code"]
        return "\n".join(code[: next(n for n, text in enumerate(code) if line in text)])

    def define(self, names: tuple[str, ...], space: dict[str, Any]) -> list[Any]:
        """What the cells that define these names leave behind in `space`, run in order without the others."""
        for n, (_, source) in enumerate(self.solved()):
            if any(f"def {name}(" in source for name in names):
                execute(source, f"<lesson cell {n} of {id(space)}>", space)
        return [space[name] for name in names]


def execute(source: str, file: str, space: dict[str, Any]) -> None:
    """Run source so that Triton finds the lines of a kernel in it."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)
