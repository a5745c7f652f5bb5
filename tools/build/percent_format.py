"""Parse the source of a lesson in percent format into cells, and derive its two sides.

One `.py` file contains the solved side and the student's side. A cell starts with ``# %%`` (code) or
``# %% [markdown]``, optionally followed by ``tags=["exercise"] name="ex-4A"``. A cell with the marker
``# %% [raw] name="about-4A"`` has TOML for `exercise_texts`, and is in neither notebook. In code cells

* the lines between ``### BEGIN SOLUTION hint`` and ``### END SOLUTION`` are the solution; the student's side
  has ``# YOUR CODE HERE - hint`` and ``raise NotImplementedError`` instead;
* a line that ends in ``  #> replacement`` is the code before the marker on the solved side, and the
  replacement on the student's side.

The student's notebook has no outputs, except for cells tagged ``shown``, copied from the solved notebook.

The format is jupytext's, and a test compares both parsers on every lesson. This parser reports each fault
with its line, also inside a cell; jupytext reads many faults as something else. The solution markers are
nbgrader's. Sources contain no magics, so that a linter can read them as plain Python; the builder adds the
only magic that the notebooks need. Declarations of numbers (`rules.declared_numbers`) and of displays
(`rules.displays`) are on neither side.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tools.build import BuildFailed

TAGS = (
    "setup", "given", "exercise", "check", "predict", "quiz", "hint", "shown", "listing",
    "solution-only", "student-only", "raises-exception",
    "nbval-ignore-output", "nbval-check-output", "nbval-skip", "nbval-raises-exception",
)  # fmt: skip
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\])*"'
_OPTION = re.compile(rf"\s+(\w+)=({_TEXT}|\[(?:{_TEXT}(?:, *{_TEXT})*)?\])")
_MARKER = re.compile(rf"# %%(?:\s+\[(?P<kind>markdown|raw)\])?(?P<options>(?:{_OPTION.pattern})*)\s*")
_SOLUTION = re.compile(r"(?P<indent>\s*)### (?P<edge>BEGIN|END) SOLUTION\b(?P<hint>.*)")
# ruff format turns "#>" into "# >". Both are the marker; otherwise formatting would publish the solutions.
_REPLACED = re.compile(r"(?P<indent>\s*)(?P<code>\S.*?)\s{2,}# ?>(?: (?P<student>.*))?")
_DECLARATION = re.compile(r"\s*<!--\s*(?:[-−.\d\"]|\((?:\d|above\b|\$)|\w+(?:,\s*\w+)*\s*(?:=|from\b))")


class SourceError(BuildFailed):
    """A source that cannot be read as a lesson; the message starts with file and line."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")


@dataclass(frozen=True)
class Cell:
    """One cell as written in the source.

    Attributes:
        kind: ``markdown``, ``code`` or ``raw``.
        lines: the text; markdown and raw text without comment signs, code with its solution markers.
        tags: as written in the source, each one of `TAGS`.
        name: stable name such as ``ex-4.2``, or empty.
        line: the line before its first line, counted from 1 (the marker, unless blank lines follow it).
    """

    kind: str
    lines: tuple[str, ...]
    tags: tuple[str, ...] = ()
    name: str = ""
    line: int = 0


def parse(text: str, path: Path) -> list[Cell]:
    """Return the cells of a percent-format source without its raw cells.

    Raises:
        SourceError: text before the first cell, an unknown tag or option, markdown outside comments,
            a solution that is not closed, or an exercise whose student's side has the answer.
    """
    return [cell for cell in all_cells(text, path) if cell.kind != "raw"]


def all_cells(text: str, path: Path) -> list[Cell]:
    """Return all cells of a percent-format source, with its raw cells. Raises SourceError as `parse` does."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("# %%")]
    has_header = lines[:1] == ["# ---"] and "# ---" in lines[1:]  # jupytext's
    for n in range(lines.index("# ---", 1) + 1 if has_header else 0, starts[0] if starts else len(lines)):
        if lines[n].strip():
            raise SourceError(path, n + 1, "text before the first cell; start with '# %% [markdown]'")
    for n, line in enumerate(lines, 1):
        if re.match(r"\s+# %%", line):
            raise SourceError(path, n, "a cell marker must be at the start of its line")
    cells = [_cell(lines[a], lines[a + 1 : b], a + 1, path) for a, b in pairwise([*starts, len(lines)])]
    for cell in cells:
        _refuse_faults(cell, path)
    return cells


def _cell(marker: str, body: Sequence[str], line: int, path: Path) -> Cell:
    """Return the cell of the marker at `line` and the lines below it. Raises SourceError if it is invalid."""
    found = _MARKER.fullmatch(marker)
    options = {key: json.loads(value) for key, value in _OPTION.findall(found["options"])} if found else {}
    if unknown := sorted(options.keys() - {"tags", "name"}):
        raise SourceError(path, line, f"unknown option {unknown[0]!r}; expected tags or name")
    tags, name = options.get("tags", []), options.get("name", "")
    if not found or isinstance(tags, str) or isinstance(name, list):
        raise SourceError(
            path,
            line,
            f'a cell marker must have the form # %% [markdown] tags=["…"] name="…", or [raw], got {marker!r}',
        )
    for tag in tags:
        if tag not in TAGS:
            raise SourceError(path, line, f"unknown tag {tag!r}; expected one of {', '.join(TAGS)}")
    kind = found["kind"] or "code"
    if kind != "code":
        for n, text in enumerate(body, line + 1):
            if not text.startswith("# ") and text.strip() not in ("", "#"):
                raise SourceError(path, n, f"a {kind} line must start with '# ', got {text!r}")
        body = [text[2:] for text in body]
    blank = next((n for n, text in enumerate(body) if text.strip()), 0)
    return Cell(kind, _trim(body), tuple(tags), name, line + blank)


def _trim(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines without trailing spaces and without blank lines at both ends."""
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return tuple(kept)


def _refuse_faults(cell: Cell, path: Path) -> None:
    """Raise SourceError if the solution markers are wrong or one of the sides is not valid Python."""
    begun = 0  # line of the BEGIN marker of an open solution
    for n, line in enumerate(cell.lines, cell.line + 1):
        if mark := _SOLUTION.match(line):
            if (mark["edge"] == "BEGIN") == bool(begun):
                raise SourceError(path, n, "### BEGIN SOLUTION and ### END SOLUTION must alternate")
            begun = 0 if begun else n
            if begun and not mark["indent"]:
                message = "a solution outside a function would stop the student's Run all; move it into a "
                raise SourceError(path, n, message + "function, or end its lines with '  #> replacement'")
    if begun:
        raise SourceError(path, begun, "### BEGIN SOLUTION without ### END SOLUTION")
    if "exercise" in cell.tags and not cell.name:
        raise SourceError(path, cell.line, 'an exercise cell needs a name, such as name="ex-4.2"')
    if "exercise" in cell.tags and side(cell, solved=True) == side(cell, solved=False):
        raise SourceError(
            path, cell.line, f"exercise {cell.name} has no solution: mark its answer, or students get it"
        )
    for solved in (True, False) if cell.kind == "code" else ():
        numbered = list(_code(cell, solved))
        text = "\n".join(line for _, line in numbered)
        try:
            compile(text, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            at, _ = numbered[min(error.lineno or 1, len(numbered)) - 1]
            name = "solved" if solved else "student's"
            raise SourceError(
                path, cell.line + at, f"the {name} side is not valid Python: {error.msg}"
            ) from None


def side(cell: Cell, *, solved: bool) -> tuple[str, ...]:
    """Return the lines of a cell in the solved notebook or in the student's notebook."""
    if cell.kind == "markdown":
        return _trim([line for line in cell.lines if not is_declaration(line)])
    return tuple(line for _, line in _code(cell, solved))


def is_declaration(line: str) -> bool:
    """Return True for a line of markdown that is a declaration or looks like one; both notebooks omit it."""
    return bool(_DECLARATION.match(line))


def _code(cell: Cell, solved: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines of one side of a code cell, each with the number of its source line in the cell."""
    inside = False  # of a solution
    for n, line in enumerate(cell.lines, 1):
        if mark := _SOLUTION.match(line):
            inside = mark["edge"] == "BEGIN"
            if inside and not solved:
                hint = mark["hint"].strip()
                yield n, f"{mark['indent']}# YOUR CODE HERE" + (f" - {hint}" if hint else "")
                yield n, f"{mark['indent']}raise NotImplementedError"
        elif solved or not inside:
            replaced = _REPLACED.fullmatch(line)
            if not replaced:
                yield n, line
            elif text := replaced["code" if solved else "student"]:
                yield n, replaced["indent"] + text


def shown(cell: Cell, *, solved: bool) -> bool:
    """Return True if the cell is part of this side."""
    return ("student-only" if solved else "solution-only") not in cell.tags


def cell_ids(cells: Sequence[Cell], stem: str, path: Path) -> list[str]:
    """Return one id per cell that does not depend on the text of the cell.

    The id of a named cell is its name; characters that nbformat does not accept in ids (the dot) become
    ``-``. Other cells are numbered from the last named cell on, so that a new cell changes few other ids.
    """
    ids: list[str] = []
    anchor, count = stem, 0
    for cell in cells:
        anchor, count = (cell.name, 0) if cell.name else (anchor, count + 1)
        fresh = hashlib.sha256(f"{stem}/{anchor}/{count}".encode()).hexdigest()[:8]
        ids.append(re.sub(r"[^A-Za-z0-9_-]", "-", cell.name)[:64] or fresh)
        if ids[-1] in ids[:-1]:
            raise SourceError(path, cell.line, f"two cells have the id {ids[-1]!r}; names must differ")
    return ids
